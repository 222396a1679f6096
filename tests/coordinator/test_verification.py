"""`verify` proves a clean campaign clean, and names each planted contradiction and its file."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.documents import seal, unseal
from coordinator.verification import Verification, verify
from tests.coordinator.campaign import Campaign, attempt, completion


async def played(campaign: Campaign, names: str = "ab") -> dict[str, str]:
    """Complete the named scenarios; return scenario -> reservation."""
    coordinator = campaign.open()
    found: dict[str, str] = {}

    async def launcher(_: object) -> None:
        return None

    for name in names:
        permit = await coordinator.reserve(name)
        await coordinator.launch_once(permit, launcher)
        await coordinator.complete(permit, completion(name))  # type: ignore[arg-type]
        found[name] = permit.reservation_id
    await coordinator.close()
    return found


def edit_sealed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A forger who knows how the seal is made."""
    document = unseal(path.read_bytes())
    change(document)
    path.write_bytes(seal(document))


def edit_manifest(campaign: Campaign, change: Callable[[list[dict[str, Any]]], None]) -> None:
    document = campaign.read()
    change(document["scenarios"])
    campaign.write(document)


def named(found: Verification) -> str:
    return "\n".join(f"{problem.where}: {problem.what}" for problem in found.problems)


def test_clean_campaign_has_no_problem_and_says_what_was_compared(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    asyncio.run(played(campaign))
    found = verify(campaign.path)
    assert found.problems == []
    assert found.checked == {"attempts": 2, "claims": 2, "reservations": 2, "receipts": 2}


def test_edited_row_of_a_completed_attempt_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    asyncio.run(played(campaign))
    edit_manifest(campaign, lambda scenarios: scenarios[0]["attempts"][0].update(outcome="failed"))
    assert "attempt 1 of 'a' differs from its receipt" in named(verify(campaign.path))


def test_edited_receipt_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    ids = asyncio.run(played(campaign))

    def forge(state: dict[str, Any]) -> None:
        state["entries"][ids["a"]]["receipt"]["completion"]["outcome"] = "failed"

    edit_sealed(campaign.control / "state.json", forge)
    assert "its completion does not have the receipt's SHA-256" in named(verify(campaign.path))


def test_edited_reserved_attempt_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    ids = asyncio.run(played(campaign))
    edit_sealed(
        campaign.control / "state.json",
        lambda state: state["entries"][ids["a"]]["reservedAttempt"].update(model="another"),
    )
    assert "does not have the receipt's SHA-256" in named(verify(campaign.path))


def test_second_launch_of_one_attempt_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    ids = asyncio.run(played(campaign))
    claim = unseal((campaign.claims / ids["a"]).read_bytes())
    other = {**claim, "reservationId": "f" * 24, "batchId": "batch-9"}
    (campaign.claims / ("f" * 24)).write_bytes(seal(other))
    assert "attempt 1 of 'a' was launched twice" in named(verify(campaign.path))


def test_missing_control_directory_state_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    asyncio.run(played(campaign))
    (campaign.control / "state.json").unlink()
    assert "is missing, but launches of its batch were begun" in named(verify(campaign.path))


def test_older_copy_of_the_control_directory_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)

    async def play() -> None:
        coordinator = campaign.open()
        permit = await coordinator.reserve("a")
        shutil.copy(campaign.control / "state.json", tmp_path / "older.json")

        async def launcher(_: object) -> None:
            return None

        await coordinator.launch_once(permit, launcher)
        await coordinator.close()

    asyncio.run(play())
    shutil.copy(tmp_path / "older.json", campaign.control / "state.json")
    assert "stands as not launched, but its claim exists" in named(verify(campaign.path))


def test_edited_byte_of_a_claim_or_state_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    ids = asyncio.run(played(campaign))
    for path in (campaign.claims / ids["a"], campaign.control / "state.json"):
        data = path.read_bytes()
        path.write_bytes(data.replace(b"batch-1", b"batch-2", 1))
        assert str(path) in named(verify(campaign.path))
        path.write_bytes(data)


def test_missing_claim_of_a_launched_entry_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)

    async def play() -> str:
        coordinator = campaign.open()
        permit = await coordinator.reserve("a")

        async def launcher(_: object) -> None:
            return None

        await coordinator.launch_once(permit, launcher)
        await coordinator.close()
        return permit.reservation_id

    reservation_id = asyncio.run(play())
    (campaign.claims / reservation_id).unlink()
    assert "it was launched, but has no claim" in named(verify(campaign.path, campaign.control))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda scenarios: scenarios.append(scenarios[0]), "scenario 'a' is listed 2 times"),
        (lambda scenarios: scenarios[0]["attempts"][0].update(ordinal=2), "has the ordinal 2"),
        (lambda scenarios: scenarios[2]["attempts"].extend([attempt("c"), attempt("c", 2)]), "2 attempts of 'c' are"),
    ],
)
def test_ledger_that_contradicts_itself_is_named(tmp_path: Path, change: Any, said: str) -> None:
    campaign = Campaign(tmp_path)
    asyncio.run(played(campaign))
    edit_manifest(campaign, change)
    assert said in named(verify(campaign.path))


def test_run_that_was_begun_without_a_claim_is_named(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    asyncio.run(played(campaign))
    stray = campaign.control / "runs" / "stray"
    stray.mkdir()
    (stray / "begun").write_text(json.dumps({}))
    assert "was begun without a reservation and claim" in named(verify(campaign.path))
