"""Stops: seven reasons, the first stands, they outlive restarts; an operator's stop request."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator import CompletionResult, CoordinatorError, Permit, RetainedFailure, State
from coordinator.errors import InvalidInputError, StoppedError
from coordinator.records import STOP_REASONS
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    answers,
    completed,
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


def test_seven_reasons_are_known() -> None:
    assert set(STOP_REASONS) == {
        "coordinator_failure",
        "cleanup_failure",
        "secret_leak",
        "shared_infrastructure",
        "budget_exceeded",
        "operator_request",
        "canceled",
    }


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_each_reason_stops_the_batch_durably(campaign: Campaign, reason: str) -> None:
    c = campaign.open()
    with untouched(campaign.path):
        run(c.stop(reason, "why it was"))
    on_disk = state_of(campaign)["stop"]
    assert (on_disk["reason"], on_disk["detail"]) == (reason, "why it was")
    assert on_disk["at"].startswith("2026-01-01T00:00:")
    with refused(f"stopped: the batch has the stop {reason}", StoppedError):
        run(c.reserve("a"))
    run(c.close())


@pytest.mark.parametrize(
    "reason, detail",
    [("", "x"), ("Canceled", "x"), ("because", "x"), (None, "x"), (7, "x"), ("canceled", None), ("canceled", "\ud800")],
)
def test_another_reason_is_refused(campaign: Campaign, reason: Any, detail: Any) -> None:
    c = campaign.open()
    with untouched(campaign.control / "state.json"), refused("stop", InvalidInputError):
        run(c.stop(reason, detail))
    run(c.reserve("a"))
    run(c.close())


def test_first_stop_stands_and_later_ones_are_kept_beside_it(campaign: Campaign) -> None:
    c = campaign.open()
    for reason, detail in (("operator_request", "1"), ("secret_leak", "2"), ("canceled", "3")):
        run(c.stop(reason, detail))
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, [one.reason for one in state.later_stops]) == (
        "operator_request",
        ["secret_leak", "canceled"],
    )
    run(c.close())
    state = snapshot(c := campaign.open())
    assert state.stop is not None
    assert (state.stop.detail, [one.detail for one in state.later_stops]) == ("1", ["2", "3"])
    with refused("stopped"):
        run(c.reserve("a"))
    run(c.close())


def test_queued_stop_is_durable_before_the_next_queued_reservation_is_judged(campaign: Campaign) -> None:
    c = campaign.open()

    async def queue() -> list[Any]:
        return list(
            await asyncio.gather(
                c.reserve("a"), c.stop("operator_request", "now"), c.reserve("b"), return_exceptions=True
            )
        )

    first, stopped, second = run(queue())
    assert isinstance(first, Permit)
    assert stopped is None
    assert isinstance(second, StoppedError)
    run(c.close())


def test_stop_can_be_made_when_everything_is_done(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.stop("operator_request", "late"))
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


# -- the operator's file


async def finishes(permit: Permit, _: Any) -> CompletionResult:
    return CompletionResult(completion=completion(permit.scenario_id))


async def retains(_: Permit | None, error: BaseException, phase: str) -> RetainedFailure:
    raise AssertionError(f"{phase}: {error}")


def run_all(campaign: Campaign, **options: Any) -> State:
    c = campaign.open(**options)
    state = run(c.run(launch_only=answers, read_completion=finishes, retain_failure=retains))
    run(c.close())
    return state


def write_request(campaign: Campaign, content: Any) -> None:
    campaign.control.mkdir(mode=0o700, exist_ok=True)
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (campaign.control / "stop-request.json").write_bytes(data)


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_stop_request_becomes_a_durable_stop_and_is_renamed(campaign: Campaign, reason: str) -> None:
    run(campaign.open().close())
    write_request(campaign, {"reason": reason, "detail": "please"})
    state = run_all(campaign)
    assert state.stop is not None
    assert (state.stop.reason, state.stop.detail, state.entries) == (reason, "please", {})
    assert not (campaign.control / "stop-request.json").exists()
    taken = json.loads((campaign.control / "stop-request-taken-1.json").read_text())
    assert taken == {"reason": reason, "detail": "please"}


MALFORMED: list[Any] = [
    b"",
    b"{",
    b"stop!",
    b"[]",
    b"\xff",
    {},
    {"reason": "canceled"},
    {"reason": "because I say so", "detail": "x"},
    {"reason": None, "detail": "x"},
    b'{"reason": "canceled", "reason": "canceled", "detail": "x"}',
    b"[" * 60_000,
    b" " * (65 << 10),
]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_stop_request_that_cannot_be_read_still_means_stop(campaign: Campaign, content: Any) -> None:
    run(campaign.open().close())
    write_request(campaign, content)
    state = run_all(campaign)
    assert state.stop is not None
    assert state.stop.reason == "operator_request"
    assert state.entries == {}
    assert not os.path.lexists(campaign.control / "stop-request.json")


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink", "dangling"])
def test_stop_request_of_any_kind_still_means_stop(campaign: Campaign, kind: str) -> None:
    run(campaign.open().close())
    path = campaign.control / "stop-request.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        (campaign.folder / "wish").write_text('{"reason": "canceled", "detail": "x"}')
        path.symlink_to(campaign.folder / ("wish" if kind == "symlink" else "nowhere"))
    state = run_all(campaign)
    assert state.stop is not None
    assert state.stop.reason == "operator_request"
    assert os.path.lexists(campaign.control / "stop-request-taken-1.json")
    assert not os.path.lexists(path)


def test_taken_requests_are_numbered_and_kept(campaign: Campaign) -> None:
    run(campaign.open().close())
    for number in (1, 2, 3):
        write_request(campaign, {"reason": "operator_request", "detail": f"wish {number}"})
        run_all(campaign)
    details = [
        json.loads((campaign.control / f"stop-request-taken-{number}.json").read_text())["detail"]
        for number in (1, 2, 3)
    ]
    assert details == ["wish 1", "wish 2", "wish 3"]
    state = state_of(campaign)
    assert [state["stop"]["detail"], *(one["detail"] for one in state["laterStops"])] == details


def test_request_is_renamed_only_when_its_stop_is_durable(campaign: Campaign) -> None:
    class NoRename(Unsynced):
        armed = False

        def rename(self, source: str, target: str) -> None:
            if self.armed and target.endswith("state.json"):
                raise OSError(28, "No space left on device")
            super().rename(source, target)

    operations = NoRename()
    c = campaign.open(operations)
    write_request(campaign, {"reason": "operator_request", "detail": "please"})
    operations.armed = True
    with pytest.raises(CoordinatorError):
        run(c.run(launch_only=answers, read_completion=finishes, retain_failure=retains))
    assert (campaign.control / "stop-request.json").exists()


def test_request_that_comes_while_lanes_are_busy_is_taken(campaign: Campaign) -> None:
    class Taken(Unsynced):
        def __init__(self) -> None:
            self.event = asyncio.Event()

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if target.endswith("stop-request-taken-1.json"):
                self.event.set()

    operations = Taken()
    c = campaign.open(operations)

    async def asks_and_waits(permit: Permit) -> None:
        if permit.scenario_id == "a":
            write_request(campaign, {"reason": "operator_request", "detail": "while busy"})
        await operations.event.wait()  # limited by `run`

    state = run(c.run(launch_only=asks_and_waits, read_completion=finishes, retain_failure=retains))
    assert state.stop is not None
    assert state.stop.detail == "while busy"
    assert phases(state) == {"a": "completed", "b": "completed"}  # drained; c was never reserved
    run(c.close())
