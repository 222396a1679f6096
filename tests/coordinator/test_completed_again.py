"""Completions given again, and the stops that come with one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coordinator import Stop
from coordinator.errors import (
    ContentConflictError,
    InvalidInputError,
    ReceiptError,
    StoppedError,
)
from tests.coordinator.calls import (
    QuickCampaign,
    completed,
    finish,
    launched,
    phases,
    refused,
    run,
    snapshot,
    state_of,
    untouched,
)
from tests.coordinator.campaign import Campaign, completion


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def edit_row(campaign: Campaign, **changes: Any) -> None:
    document = campaign.read()
    document["scenarios"][0]["attempts"][0].update(changes)
    campaign.write(document)


# -- repeats


def test_same_completion_again_changes_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    for _ in range(2):
        with untouched(campaign.path, campaign.control / "state.json"):
            run(finish(c, permit))
    run(c.close())
    c = campaign.open()  # also after a restart
    with untouched(campaign.path, campaign.control / "state.json"):
        run(finish(c, permit))
    run(c.close())


def test_same_completion_again_still_records_its_stop(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    with untouched(campaign.path):
        run(c.complete(permit, completion("a"), stop=Stop(reason="secret_leak", detail="found late")))  # type: ignore[arg-type]
    stop = snapshot(c).stop
    assert stop is not None
    assert (stop.reason, stop.detail) == ("secret_leak", "found late")
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(c.close())


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "failed"},
        {"finishedAt": "2027-01-01T00:00:00.000Z"},
        {"usage": {"costUsd": 0.0, "tokens": 0, "coverage": "complete"}},
        {"classification": "x"},
        {"evidencePaths": ["x"]},
        {"definitionDigest": "another"},
    ],
)
def test_another_content_is_a_content_conflict(campaign: Campaign, changes: dict[str, Any]) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("content conflict", ContentConflictError),
    ):
        run(finish(c, permit, **changes))
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize(
    "edit", [{"outcome": "failed"}, {"usage": None}, {"newKey": 1}, {"ordinal": 1.0}, {"profile": "x"}]
)
def test_repeat_differs_from_receipt_when_the_row_was_edited(campaign: Campaign, edit: dict[str, Any]) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    good = campaign.read()
    edit_row(campaign, **edit)
    stop = {"reason": "canceled", "detail": "x"}
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("differs from receipt", ReceiptError),
    ):
        run(c.complete(permit, completion("a"), stop=stop))  # type: ignore[arg-type]
    campaign.write(good)
    run(finish(c, permit))
    run(c.close())


def test_completed_row_that_is_gone_differs_from_receipt(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    document = campaign.read()
    document["scenarios"][0]["attempts"] = []
    campaign.write(document)
    with refused("differs from receipt", ReceiptError):
        run(finish(c, permit))
    run(c.close())


def test_two_equal_completions_at_once_are_one(campaign: Campaign) -> None:
    c = campaign.open()

    async def both() -> None:
        permit = await launched(c, "a")
        await asyncio.gather(*(finish(c, permit) for _ in range(4)))

    run(both())
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


def test_two_different_completions_at_once_keep_the_first(campaign: Campaign) -> None:
    c = campaign.open()

    async def both() -> list[Any]:
        permit = await launched(c, "a")
        ends = (finish(c, permit), finish(c, permit, outcome="failed"))
        return list(await asyncio.gather(*ends, return_exceptions=True))

    first, second = run(both())
    assert first is None
    assert isinstance(second, ContentConflictError)
    assert campaign.row("a")["outcome"] == "passed"
    run(c.close())


# -- stops that come with a completion


def test_stop_given_with_a_completion_is_recorded_with_it(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.complete(permit, completion("a"), stop={"reason": "budget_exceeded", "detail": "cap"}))  # type: ignore[arg-type]
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, phases(state)) == ("budget_exceeded", {"a": "completed"})
    assert state.stop.at is not None
    run(c.close())


@pytest.mark.parametrize("stop", [{"reason": "because", "detail": "x"}, {"reason": "canceled"}, "canceled", 7, []])
def test_unknown_stop_refuses_the_whole_completion(campaign: Campaign, stop: Any) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("stop", InvalidInputError):
        run(c.complete(permit, completion("a"), stop=stop))  # type: ignore[arg-type]
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize(
    "text", ["coordinator_failure", "secret leak", "stop", "budget_exceeded", {"stop": "canceled"}]
)
def test_text_in_observed_failure_never_sets_a_stop(campaign: Campaign, text: Any) -> None:
    c = campaign.open()
    run(completed(c, "a", outcome="failed", observedFailure=text, classification=text))
    assert snapshot(c).stop is None
    run(c.reserve("b"))
    run(c.close())


def test_failed_cleanup_stops_the_batch(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a", cleanup="failed"))
    stop = snapshot(c).stop
    assert stop is not None
    assert stop.reason == "cleanup_failure"
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(c.close())


def test_failed_cleanup_is_durable_before_its_own_commit_begins(campaign: Campaign) -> None:
    stages: list[tuple[str, Any]] = []

    def fault(stage: str) -> None:
        stages.append((stage, state_of(campaign)["stop"]))
        if len(stages) == 4:  # three of the reservation, then the completion's intent
            raise ZeroDivisionError

    c = campaign.open(fault=fault)
    permit = run(launched(c, "a"))
    with pytest.raises(ZeroDivisionError):
        run(finish(c, permit, cleanup="failed"))
    assert stages[3][0] == "intent"
    assert stages[3][1]["reason"] == "cleanup_failure"
    assert campaign.row("a")["outcome"] == "running"
    campaign.lock.unlink()
    c = campaign.open()
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(finish(c, permit, cleanup="failed"))
    run(c.close())


def test_given_stop_stands_beside_the_cleanup_failure(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    stop = {"reason": "secret_leak", "detail": "x"}
    run(c.complete(permit, completion("a", cleanup="failed"), stop=stop))  # type: ignore[arg-type]
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, [one.reason for one in state.later_stops]) == ("cleanup_failure", ["secret_leak"])
    run(c.close())


def test_refused_completion_with_failed_cleanup_sets_no_stop(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.control / "state.json"), refused("not final"):
        run(finish(c, permit, cleanup="failed", outcome="running"))
    with untouched(campaign.control / "state.json"), refused("'..'"):
        run(finish(c, permit, cleanup="failed", evidencePaths=["../x"]))
    run(c.close())
