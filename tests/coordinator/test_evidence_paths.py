"""Evidence paths of a completion, and the receipts that bind it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator import CoordinatorError
from coordinator.errors import (
    RefusedError,
)
from tests.coordinator.calls import (
    QuickCampaign,
    answers,
    completed,
    finish,
    launched,
    refused,
    run,
    snapshot,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt, completion, failing_at


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- evidence paths


def evidence(campaign: Campaign) -> dict[str, bool]:
    """Path -> whether it is accepted."""
    root = campaign.evidence
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("x")
    (root / "a" / "привет 🎲.txt").write_text("x")
    (root / "hard").write_text("x")
    os.link(root / "hard", root / "hard2")
    (root / "link").symlink_to("a/b/file")
    (root / "dangling").symlink_to("nowhere")
    (root / "linked-folder").symlink_to("a")
    os.mkfifo(root / "fifo")
    outside = campaign.folder / "outside"
    outside.write_text("secret")
    return {
        "a/b/file": True,
        "./a//b/file": True,
        "a/привет 🎲.txt": True,
        "no/such/file": True,
        "a/b/none": True,
        "..a/x": True,
        "a..b": True,
        "": False,
        ".": False,
        "/": False,
        "a": False,
        "a/b/": False,
        "a/b/file/x": False,
        "hard": False,
        "hard2": False,
        "link": False,
        "dangling": False,
        "linked-folder/b/file": False,
        "linked-folder/none": False,
        "fifo": False,
        "fifo/x": False,
        "..": False,
        "../outside": False,
        "a/../a/b/file": False,
        "none/../../outside": False,
        str(outside): False,
        str(root / "a" / "b" / "file"): False,
        "a/b/fi\0le": False,
        "\0": False,
        "a/" + "n" * 300: False,
        "x/" * 3000 + "y": True,
    }


def test_evidence_paths(campaign: Campaign) -> None:
    paths = evidence(campaign)
    accepted = [path for path, good in paths.items() if good]
    c = campaign.open()
    permit = run(launched(c, "a"))

    async def try_all() -> None:
        for path, good in paths.items():
            if not good:
                with refused("evidence path", RefusedError):
                    await finish(c, permit, evidencePaths=["a/b/file", path])

    with untouched(campaign.path, campaign.control / "state.json"):
        run(try_all())
    run(finish(c, permit, evidencePaths=accepted))
    assert campaign.row("a")["evidencePaths"] == accepted
    run(c.close())


def test_device_is_no_evidence(campaign: Campaign) -> None:
    c = campaign.open(evidence_root="/dev")
    permit = run(launched(c, "a"))
    with refused("not a regular file", RefusedError):
        run(finish(c, permit, evidencePaths=["null"]))
    run(c.close())


def test_evidence_root_may_be_reached_through_a_link(campaign: Campaign) -> None:
    (campaign.folder / "way").symlink_to("evidence")
    (campaign.evidence / "file").write_text("x")
    c = campaign.open(evidence_root=campaign.folder / "way")
    run(completed(c, "a", evidencePaths=["file"]))
    run(c.close())


def test_evidence_root_that_does_not_exist_yet_is_accepted(campaign: Campaign) -> None:
    c = campaign.open(evidence_root=campaign.folder / "later" / "evidence")
    run(completed(c, "a", evidencePaths=["file"]))
    run(c.close())


# -- receipts


def test_receipt_binds_row_and_completion(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    before = snapshot(c).entries[permit.reservation_id].receipt
    run(finish(c, permit))
    after = snapshot(c).entries[permit.reservation_id].receipt
    assert after.reserved_sha256 == before.reserved_sha256
    assert len({after.reserved_sha256, after.row_sha256, after.completion_sha256}) == 3
    assert after.completion == completion("a")
    assert (before.completion, before.row_sha256, after.review_sha256) == (None, None, None)
    run(c.close())


def test_row_and_state_of_a_completion_survive_the_process(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    before = snapshot(c)
    run(c.close())
    c = campaign.open()
    after = snapshot(c)
    assert after.entries == before.entries
    assert after.stop is None
    assert campaign.row("a")["outcome"] == "passed"
    assert campaign.read()["scenarios"][1]["attempts"] == []
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_what_fault_raises_in_a_completion_reaches_the_caller(campaign: Campaign, stage: str) -> None:
    error = ZeroDivisionError(stage)
    armed = failing_at(stage, error)
    on = False
    c = campaign.open(fault=lambda reached: armed(reached) if on else None)
    permit = run(launched(c, "a"))
    on = True
    with pytest.raises(ZeroDivisionError) as caught:
        run(finish(c, permit))
    assert caught.value is error
    with pytest.raises(CoordinatorError):
        run(c.snapshot())
    assert campaign.lock.exists()


def test_other_rows_of_the_scenario_are_left_alone(campaign: Campaign) -> None:
    rows = [attempt("a", 1, outcome="failed", cleanup="passed", note="first")]
    document = campaign.read()
    document["scenarios"][0]["attempts"] = rows
    campaign.write(document)
    campaign.selections[0] = {"scenarioId": "a", "attempt": attempt("a", 2)}
    c = campaign.open()
    permit = run(c.reserve("a"))
    run(c.launch_once(permit, answers))
    run(finish(c, permit))
    found = campaign.read()["scenarios"][0]["attempts"]
    assert (found[0], found[1]["outcome"]) == (rows[0], "passed")
    run(c.close())
