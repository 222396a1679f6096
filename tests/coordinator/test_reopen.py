"""Reopening a batch: the same one only, settled first, stopped if its owner had not closed."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import (
    InvalidInputError,
    StorageError,
    UnrecognizedManifestError,
)
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    abandon,
    answers,
    completed,
    finish,
    launched,
    phases,
    raises,
    refused,
    run,
    snapshot,
    state_of,
    tree,
)
from tests.coordinator.campaign import Campaign, attempt, failing_at
from tests.coordinator.opening import crash, keep_lock, refuse_open


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- reopening


def test_other_manifest_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    run(campaign.open().close())
    other = tmp_path / "other.json"
    shutil.copy(campaign.path, other)
    before = tree(campaign.folder)
    with refused("belongs to the manifest", InvalidInputError):
        campaign.open(manifest_path=other)
    assert tree(campaign.folder) == before


def test_other_batch_is_refused(campaign: Campaign) -> None:
    run(campaign.open().close())
    refuse_open(campaign, "belongs to batch 'batch-1'", InvalidInputError, batch_id="batch-2")


def test_next_batch_has_a_control_directory_of_its_own(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.close())
    campaign.selections = [{"scenarioId": "a", "attempt": attempt("a", 2)}]
    c = campaign.open(batch_id="batch-2", control_directory=campaign.folder / "second")
    assert run(c.reserve("a")).ordinal == 2
    run(c.close())


def other_selections(selections: list[Any]) -> dict[str, list[Any]]:
    edited = copy.deepcopy(selections)
    edited[1]["attempt"]["profile"] = "another"
    more = copy.deepcopy(selections)
    more[0]["attempt"]["unknown"] = None
    typed = copy.deepcopy(selections)
    typed[0]["attempt"]["usage"]["costUsd"] = 0.0
    return {
        "another order": selections[::-1],
        "one less": selections[:-1],
        "one more": [*selections, {"scenarioId": "z", "attempt": attempt("z")}],
        "none": [],
        "edited": edited,
        "one more key": more,
        "another type": typed,
    }


@pytest.mark.parametrize("name", other_selections([{"scenarioId": one, "attempt": attempt(one)} for one in "abc"]))
def test_other_selections_are_refused(campaign: Campaign, name: str) -> None:
    run(campaign.open().close())
    others = other_selections(campaign.selections)[name]
    refuse_open(campaign, "other selections", InvalidInputError, selections=others)


def test_times_of_the_selections_do_not_matter(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(c.close())
    for one in campaign.selections:
        one["attempt"]["startedAt"] = "2030-01-01T00:00:00.000Z"
    del campaign.selections[1]["attempt"]["finishedAt"]
    campaign.selections[2]["attempt"] = dict(reversed(campaign.selections[2]["attempt"].items()))
    c = campaign.open()
    run(c.reserve("b"))
    run(c.close())


def test_closed_batch_is_reopened_without_a_stop(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.reserve("b"))
    run(c.close())
    before = state_of(campaign)
    c = campaign.open()
    state = snapshot(c)
    assert (state.stop, phases(state)) == (None, {"a": "completed", "b": "reserved"})
    assert state_of(campaign)["entries"] == before["entries"]
    run(c.close())


@pytest.mark.parametrize("phase", ["launching", "launched"])
def test_entry_between_launch_and_completion_stops_the_reopened_batch(campaign: Campaign, phase: str) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    if phase == "launching":
        with pytest.raises(ZeroDivisionError):
            run(c.launch_once(permit, raises(ZeroDivisionError())))
    else:
        run(c.launch_once(permit, answers))
    run(c.close())
    c = campaign.open()
    stop = snapshot(c).stop
    assert stop is not None
    assert stop.reason == "coordinator_failure"
    assert permit.reservation_id in stop.detail
    assert phases(snapshot(c)) == {"a": phase}
    run(c.close())


def test_owner_that_had_not_closed_stops_the_reopened_batch_in_one_write(campaign: Campaign) -> None:
    campaign.open()
    abandon(campaign)
    writes: list[str] = []

    class Writes(Unsynced):
        def rename(self, source: str, target: str) -> None:
            writes.append(os.path.basename(target))
            super().rename(source, target)

    c = campaign.open(Writes())
    assert writes == ["state.json"]
    state = state_of(campaign)
    assert state["stop"]["reason"] == "coordinator_failure"
    assert state["owner"]["token"] == json.loads(campaign.lock.read_text())["token"]
    with refused("stopped"):
        run(c.reserve("a"))
    run(c.close())


def test_coordinator_failure_is_kept_beside_a_stop_that_stands(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.stop("operator_request", "mine"))
    abandon(campaign)
    c = campaign.open()
    state = snapshot(c)
    assert state.stop is not None
    assert state.stop.detail == "mine"
    assert [one.reason for one in state.later_stops] == ["coordinator_failure"]
    run(c.close())


# -- settling


def test_change_whose_intent_alone_is_durable_never_happened(campaign: Campaign) -> None:
    before = campaign.path.read_bytes()
    crash(campaign, "intent")
    assert campaign.path.read_bytes() == before
    c = campaign.open()
    assert (campaign.path.read_bytes(), phases(snapshot(c))) == (before, {})
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


@pytest.mark.parametrize("stage", ["manifest", "state"])
def test_change_whose_manifest_is_durable_is_finished(campaign: Campaign, stage: str) -> None:
    reservation_id = crash(campaign, stage)
    manifest = campaign.path.read_bytes()
    c = campaign.open()
    state = snapshot(c)
    assert list(state.entries) == [reservation_id]
    assert phases(state) == {"a": "reserved"}
    assert campaign.path.read_bytes() == manifest
    assert state.entries[reservation_id].reserved_attempt == campaign.row("a")
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_completion_is_settled_as_reservations_are(campaign: Campaign, stage: str) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.close())
    c = campaign.open(fault=failing_at(stage, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(finish(c, permit))
    abandon(campaign)
    c = campaign.open()
    assert phases(snapshot(c)) == {"a": "launched" if stage == "intent" else "completed"}
    assert campaign.row("a")["outcome"] == ("running" if stage == "intent" else "passed")
    run(finish(c, permit))  # the same completion again, done or not
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_unrecognized_manifest_keeps_the_new_lock(campaign: Campaign, stage: str) -> None:
    crash(campaign, stage)
    good = campaign.path.read_bytes()
    document = campaign.read()
    document["campaignId"] = "edited"
    campaign.write(document)
    keep_lock(campaign, "Unrecognized manifest", UnrecognizedManifestError)
    campaign.path.write_bytes(good)
    c = campaign.open()  # put back as it was, it is settled
    assert phases(snapshot(c)) == ({} if stage == "intent" else {"a": "reserved"})
    run(c.close())


def test_manifest_put_back_to_before_while_the_state_is_after_is_unrecognized(campaign: Campaign) -> None:
    before = campaign.path.read_bytes()
    crash(campaign, "state")
    campaign.path.write_bytes(before)
    keep_lock(campaign, "Unrecognized manifest", UnrecognizedManifestError)


def test_pending_change_is_settled_only_by_its_own_batch(campaign: Campaign) -> None:
    crash(campaign, "manifest")
    for options in ({"batch_id": "batch-2"}, {"selections": campaign.selections[:1]}):
        before = tree(campaign.folder)
        with pytest.raises(InvalidInputError):
            campaign.open(**options)
        assert tree(campaign.folder) == before


@pytest.mark.parametrize("operation", ["rename", "unlink"])
def test_settling_that_fails_keeps_the_lock(campaign: Campaign, operation: str) -> None:
    crash(campaign, "manifest")

    class Fails(Unsynced):
        def rename(self, source: str, target: str) -> None:
            if operation == "rename":
                raise OSError(28, "No space left on device")
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            if path.endswith("pending.json"):
                raise OSError(30, "Read-only file system")
            super().unlink(path)

    with pytest.raises(StorageError):
        campaign.open(Fails())
    assert campaign.lock.exists()
    abandon(campaign)
    c = campaign.open()
    assert phases(snapshot(c)) == {"a": "reserved"}
    run(c.close())
