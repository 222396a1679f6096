"""A person's recovery: every promise of the recovery part, on what really died processes left."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from coordinator import CompletionResult, CoordinatorError
from coordinator.documents import sha256
from coordinator.identity import own_identity
from coordinator.inspection import inspect_recovery
from coordinator.paths import ControlPaths
from coordinator.records import Entry
from coordinator.recovery import Recovered, recover, retry
from coordinator.verification import verify
from tests.coordinator.campaign import Campaign, completion
from tests.coordinator.dying import die_in, edit_owner


def recovering(campaign: Campaign, **options: Any) -> Recovered:
    found = inspect_recovery(campaign.path, options.get("control_directory"))
    options.setdefault("owner_is_dead", found.token)
    return asyncio.run(recover(campaign.path, now=campaign.now, **options))


def state_of(campaign: Campaign) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((campaign.control / "state.json").read_text())
    return found


def begun(campaign: Campaign, reservation_id: str, **changes: Any) -> None:
    identity = own_identity()
    folder = campaign.control / "runs" / reservation_id
    folder.mkdir(mode=0o700)
    facts = {
        "pid": identity.pid,
        "bootId": identity.boot_id,
        "processStart": identity.process_start,
        "host": identity.host,
        "at": "2026-01-01T00:00:00.000Z",
    }
    (folder / "begun").write_text(json.dumps({**facts, **changes}))


def test_dead_owner_is_shown_dead_and_a_living_one_alive(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "opened")
    assert inspect_recovery(campaign.path).owner_liveness == "dead"
    (tmp_path / "other").mkdir()
    other = Campaign(tmp_path / "other")
    coordinator = other.open()
    assert inspect_recovery(other.path).owner_liveness == "alive"
    asyncio.run(coordinator.close())
    assert inspect_recovery(other.path, other.control).owner_liveness == "none"


def test_owner_on_another_host_is_unknown_and_a_reused_pid_is_dead(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "opened")
    edit_owner(campaign, host="another-host")
    assert inspect_recovery(campaign.path).owner_liveness == "unknown"
    identity = own_identity()
    edit_owner(campaign, host=identity.host, pid=identity.pid, processStart="1")
    assert inspect_recovery(campaign.path).owner_liveness == "dead"
    edit_owner(campaign, host=identity.host, pid=identity.pid, processStart=identity.process_start, bootId="earlier")
    assert inspect_recovery(campaign.path).owner_liveness == "dead"


def test_inspection_writes_nothing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "complete:manifest")

    def everything() -> dict[str, tuple[bytes, float]]:
        return {str(p): (p.read_bytes(), p.stat().st_mtime) for p in tmp_path.rglob("*") if p.is_file()}

    before = everything()
    inspect_recovery(campaign.path)
    verify(campaign.path)
    assert everything() == before


def test_recovery_needs_the_token_that_was_shown(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "opened")
    before = campaign.lock.read_bytes()
    for token in (None, "0" * 32):
        with pytest.raises(CoordinatorError, match="--owner-is-dead"):
            recovering(campaign, owner_is_dead=token)
    assert campaign.lock.read_bytes() == before


def test_recovery_refuses_while_the_owner_lives(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    coordinator = campaign.open()
    with pytest.raises(CoordinatorError, match="owner lives"):
        recovering(campaign)
    asyncio.run(coordinator.close())


def test_dead_lock_is_kept_under_its_token_and_the_manifest_is_free_afterwards(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "opened")
    dead = json.loads(campaign.lock.read_text())
    recovering(campaign)
    assert not campaign.lock.exists()
    kept = campaign.control / "locks" / f"{dead['token']}.json"
    assert json.loads(kept.read_text()) == dead
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    recovery_file = Path(f"{campaign.path}.coordinator-recovery")
    assert stat.S_IMODE(recovery_file.stat().st_mode) == 0o600
    assert state_of(campaign)["owner"] is None
    assert state_of(campaign)["stop"]["reason"] == "coordinator_failure"


@pytest.mark.parametrize("moment", ["reserve:intent", "complete:intent"])
def test_change_that_never_reached_the_manifest_never_happened(tmp_path: Path, moment: str) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, moment)
    before = campaign.path.read_bytes()
    assert "never happened" in str(inspect_recovery(campaign.path).pending)
    dead = () if moment.startswith("reserve") else tuple(state_of(campaign)["entries"])
    recovering(campaign, worker_is_dead=dead)
    assert campaign.path.read_bytes() == before
    assert not (campaign.control / "pending.json").exists()
    assert verify(campaign.path, campaign.control).problems == []


@pytest.mark.parametrize("moment", ["reserve:manifest", "reserve:state", "complete:manifest", "complete:state"])
def test_change_that_reached_the_manifest_is_finished(tmp_path: Path, moment: str) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, moment)
    before = campaign.path.read_bytes()
    assert "happened; its state will be finished" in str(inspect_recovery(campaign.path).pending)
    recovering(campaign, worker_is_dead=tuple(state_of(campaign)["entries"]))
    assert campaign.path.read_bytes() == before
    entry = next(iter(state_of(campaign)["entries"].values()))
    assert entry["phase"] == ("reserved" if moment.startswith("reserve") else "completed")
    assert verify(campaign.path, campaign.control).problems == []


def test_recovering_twice_changes_nothing_more(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "reserved")
    recovering(campaign)
    manifest, state = campaign.path.read_bytes(), state_of(campaign)
    recovering(campaign, owner_is_dead=None, control_directory=campaign.control)
    again = state_of(campaign)
    assert campaign.path.read_bytes() == manifest
    for one in (state, again):
        one.pop("sha256")
    assert again == state


def test_claim_without_begun_may_be_alive_and_needs_a_persons_word(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launching")
    assert [one.liveness for one in inspect_recovery(campaign.path).workers] == ["may be alive"]
    with pytest.raises(CoordinatorError, match=f"may be alive: {reservation_id}"):
        recovering(campaign)
    found = recovering(campaign, worker_is_dead=[reservation_id])
    assert found.left == [reservation_id]


def test_recovery_refuses_while_a_worker_lives_whatever_is_said(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")
    begun(campaign, reservation_id)
    with pytest.raises(CoordinatorError, match="workers live"):
        recovering(campaign, worker_is_dead=[reservation_id])


def test_worker_whose_process_is_gone_needs_no_word(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")
    begun(campaign, reservation_id, processStart="1")
    assert recovering(campaign).left == [reservation_id]


def test_ended_entry_closes_its_row_as_uncertain_launch(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")
    found = recovering(campaign, worker_is_dead=[reservation_id], end=[reservation_id])
    assert (found.ended, found.left) == ([reservation_id], [])
    row = campaign.row("a")
    assert (row["outcome"], row["classification"]) == ("interrupted", "uncertain_launch")
    assert verify(campaign.path).problems == []


def test_ended_reservation_that_was_never_launched_says_so(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "reserved")
    recovering(campaign, end=[reservation_id])
    row = campaign.row("a")
    assert (row["outcome"], row["classification"]) == ("interrupted", "never_launched")


def test_end_works_on_a_batch_that_closed_cleanly(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)

    async def leave_uncertain() -> str:
        coordinator = campaign.open()
        permit = await coordinator.reserve("a")

        async def launcher(_: object) -> None:
            raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"):
            await coordinator.launch_once(permit, launcher)
        await coordinator.close()
        return permit.reservation_id

    reservation_id = asyncio.run(leave_uncertain())
    found = recovering(campaign, owner_is_dead=None, worker_is_dead=[reservation_id], end=[reservation_id])
    assert found.ended == [reservation_id]


def test_end_of_an_unknown_or_completed_reservation_is_a_reported_problem(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "completed")
    found = recovering(campaign, end=[reservation_id, "nothing"])
    assert found.ended == []
    assert [reservation_id in found.problems[0], "no such reservation" in found.problems[1]] == [True, True]


def test_outcome_passed_cannot_be_given_to_what_nobody_saw(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "reserved")
    with pytest.raises(CoordinatorError, match="cannot end an attempt"):
        recovering(campaign, outcome="passed")


def test_delivery_of_an_uncertain_entry_is_adopted(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")

    def find(_: ControlPaths, entry: Entry) -> CompletionResult:
        assert entry.permit.reservation_id == reservation_id
        return CompletionResult(completion=completion("a"))

    found = recovering(campaign, worker_is_dead=[reservation_id], find_delivery=find)
    assert found.adopted == [reservation_id]
    assert campaign.row("a")["outcome"] == "passed"


def test_delivery_that_the_ledger_refuses_is_reported_and_the_others_adopted(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")

    def find(_: ControlPaths, __: Entry) -> CompletionResult:
        return CompletionResult(completion=completion("a", graderDigest="another"))

    found = recovering(campaign, worker_is_dead=[reservation_id], find_delivery=find)
    assert found.adopted == []
    assert "graderDigest" in found.problems[0]
    assert found.left == [reservation_id]


def edited_in_mid_commit(campaign: Campaign, tmp_path: Path, change: dict[str, Any]) -> str:
    """A campaign whose owner died with an intent on disk, and whose manifest somebody edited then."""
    die_in(tmp_path, "reserve:intent")
    document = campaign.read()
    document.update(change)
    campaign.write(document)
    return sha256(campaign.path.read_bytes())


def test_unrecognized_manifest_keeps_the_lock_until_a_person_accepts_it(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    digest = edited_in_mid_commit(campaign, tmp_path, {"owner_note": "edited"})
    with pytest.raises(CoordinatorError, match="Unrecognized manifest"):
        recovering(campaign)
    assert campaign.lock.exists()
    edit_owner(campaign, processStart="1")  # the recovery that failed was this very process
    with pytest.raises(CoordinatorError, match="look again"):
        recovering(campaign, accept_manifest="0" * 64)
    edit_owner(campaign, processStart="1")
    recovering(campaign, accept_manifest=digest)
    assert campaign.read()["owner_note"] == "edited"
    assert campaign.read()["scenarios"][0]["attempts"] == []
    assert state_of(campaign)["entries"] == {}


def test_accepted_manifest_with_the_row_as_after_finishes_the_change(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "reserve:manifest")
    document = campaign.read()
    document["owner_note"] = "edited"
    campaign.write(document)
    recovering(campaign, accept_manifest=sha256(campaign.path.read_bytes()))
    assert len(state_of(campaign)["entries"]) == 1
    assert campaign.read()["owner_note"] == "edited"


def test_manifest_whose_own_row_is_neither_before_nor_after_is_not_accepted(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "reserve:manifest")
    document = campaign.read()
    document["scenarios"][0]["attempts"][0]["model"] = "another"
    campaign.write(document)
    with pytest.raises(CoordinatorError, match="Unrecognized manifest"):
        recovering(campaign, accept_manifest=sha256(campaign.path.read_bytes()))


def test_recovery_before_the_state_was_made_frees_the_manifest(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "opened")
    for path in campaign.control.rglob("*"):
        if path.is_file():
            path.unlink()
    recovering(campaign)
    assert not campaign.lock.exists()


def _recover_at_once(path: str, token: str, barrier: Any, results: Any) -> None:
    barrier.wait(timeout=20)
    try:
        asyncio.run(recover(path, owner_is_dead=token))
        results.put("recovered")
    except CoordinatorError as error:
        results.put(str(error))


def test_two_recoveries_at_once_recover_once(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "reserved")
    token = inspect_recovery(campaign.path).token
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    arguments = (os.fspath(campaign.path), token, barrier, results)
    children = [context.Process(target=_recover_at_once, args=arguments) for _ in range(2)]
    for child in children:
        child.start()
    found = sorted(results.get(timeout=30) for _ in children)
    for child in children:
        child.join(timeout=30)
    assert "recovered" in found
    assert sum(one == "recovered" for one in found) == 1, found
    assert not campaign.lock.exists()
    results.close()
    results.join_thread()


def test_retry_offers_what_did_not_end_with_the_next_ordinal(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    reservation_id = die_in(tmp_path, "launched")
    with pytest.raises(CoordinatorError, match="owned"):
        retry(campaign.path)
    recovering(campaign, worker_is_dead=[reservation_id])
    with pytest.raises(CoordinatorError, match="end them first"):
        retry(campaign.path, campaign.control)
    recovering(campaign, owner_is_dead=None, worker_is_dead=[reservation_id], end=[reservation_id])
    again = retry(campaign.path)
    assert [(one["scenarioId"], one["attempt"]["ordinal"]) for one in again] == [("a", 2), ("b", 1), ("c", 1)]  # type: ignore[index]
    coordinator = campaign.open(batch_id="batch-2", control_directory=tmp_path / "control-2", selections=again)
    permit = asyncio.run(coordinator.reserve("a"))
    assert permit.ordinal == 2
    asyncio.run(coordinator.close())


def test_retry_leaves_out_what_ended(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    die_in(tmp_path, "completed")
    recovering(campaign)
    assert [one["scenarioId"] for one in retry(campaign.path)] == ["b", "c"]
