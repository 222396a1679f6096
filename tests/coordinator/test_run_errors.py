"""Errors in `run`: retained, recorded, the batch stopped, the other lane drained."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator import (
    CompletionResult,
    Permit,
)
from coordinator.errors import RefusedError
from tests.coordinator.calls import (
    QuickCampaign,
    phases,
    raises,
    run,
    snapshot,
    state_of,
)
from tests.coordinator.campaign import Campaign, completion
from tests.coordinator.plays import Play, wait_for


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path, "abcde")


# -- errors


@pytest.mark.parametrize("phase", ["reserve", "launch", "completion"])
def test_error_is_retained_recorded_and_stops_the_batch(
    campaign: Campaign, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if phase == "reserve":
        document = campaign.read()
        document["scenarios"][0]["blocker"] = "no"
        campaign.write(document)
    play = Play(raises(ZeroDivisionError("by zero")) if phase == "launch" else None)
    if phase == "completion":

        async def fails(permit: Permit, _: Any) -> Any:
            raise ZeroDivisionError("by zero")

        monkeypatch.setattr(play, "read_completion", fails)
    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, play))
    (permit, error, seen_phase) = play.failures[0]
    assert seen_phase == phase
    assert (permit is None) is (phase == "reserve")
    assert isinstance(error, RefusedError if phase == "reserve" else ZeroDivisionError)
    (failure,) = state.failures
    assert failure.scenario_id == "a"
    assert failure.phase == phase
    assert failure.reservation_id == (permit.reservation_id if permit else None)
    assert failure.evidence_path == f"failures/{phase}.json"
    assert failure.summary.endswith("kept")
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    assert f"failures/{phase}.json" in state.stop.detail
    assert phases(state) == {"reserve": {}, "launch": {"a": "launching"}, "completion": {"a": "launched"}}[phase]
    assert state_of(campaign)["failures"][0]["evidencePath"] == f"failures/{phase}.json"
    run(c.close())


def test_refused_completion_is_a_failure_of_the_phase_completion(campaign: Campaign) -> None:
    class Wrong(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            return CompletionResult(completion=completion(permit.scenario_id, graderDigest="another"))

    c, play = campaign.open(max_lanes=1), Wrong()
    state = run(wait_for(c, play))
    assert [one.phase for one in state.failures] == ["completion"]
    assert play.launches == ["a"]
    run(c.close())


@pytest.mark.parametrize("odd", [None, 7, "done", {}, {"completion": None}, Permit])
def test_read_completion_that_returns_anything_else_is_a_failure(campaign: Campaign, odd: Any) -> None:
    class Odd(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            return odd

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Odd()))
    assert [one.phase for one in state.failures] == ["completion"]
    run(c.close())


def test_error_drains_the_other_lane_and_nothing_more_is_reserved(campaign: Campaign) -> None:
    failed = asyncio.Event()

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            failed.set()
            raise ZeroDivisionError
        await failed.wait()
        return "slow"

    c, play = campaign.open(), Play(launch)
    state = run(wait_for(c, play))
    assert play.launches == ["a", "b"]
    assert phases(state) == {"a": "launching", "b": "completed"}
    run(c.close())


def test_no_lane_reserves_while_an_error_is_being_retained(campaign: Campaign) -> None:
    """The stop is durable only after `retain_failure`: until then the other lane must hold back by itself."""
    other_done, retaining = asyncio.Event(), asyncio.Event()

    class Slow(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            retaining.set()
            await other_done.wait()
            for _ in range(20):
                await c.snapshot()  # many turns of the queue for the other lane to do wrong
            assert c.state.stop is None
            return await super().retain_failure(permit, error, phase)

        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            other_done.set()
            return await super().read_completion(permit, launched_as)

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            raise ZeroDivisionError
        await retaining.wait()
        return "slow"

    c, play = campaign.open(), Slow(launch)
    state = run(wait_for(c, play))
    assert play.launches == ["a", "b"]
    assert phases(state) == {"a": "launching", "b": "completed"}
    run(c.close())


def test_reservation_that_was_queued_before_the_error_was_seen_is_not_judged(campaign: Campaign) -> None:
    """Lane 2 asks for `c` behind a change of somebody else; meanwhile lane 1 fails; then the turn comes.

    With both lanes taken by then, a reservation that was judged would show as a second failure.
    """
    held, gate = asyncio.Event(), asyncio.Event()
    others: list[asyncio.Task[Permit]] = []

    async def fault(stage: str) -> None:
        pending = json.loads((campaign.control / "pending.json").read_text())
        if (stage, pending["operation"]) == ("intent", "complete"):
            others.append(asyncio.create_task(c.reserve("e")))
            await asyncio.sleep(0)  # it is in the queue now, before lane 2 can ask again
        if (stage, pending["scenarioId"]) == ("intent", "e"):
            held.set()
            await gate.wait()

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            await held.wait()
            for _ in range(10):
                await asyncio.sleep(0)  # lane 2 asks
            raise ZeroDivisionError
        return permit.scenario_id

    class LetsGo(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            gate.set()
            return await super().retain_failure(permit, error, phase)

    c, play = campaign.open(fault=fault), LetsGo(launch)
    state = run(wait_for(c, play))
    assert [one.phase for one in state.failures] == ["launch"]
    assert phases(state) == {"a": "launching", "b": "completed", "e": "reserved"}
    assert others[0].result().scenario_id == "e"
    run(c.close())


def test_both_lanes_may_fail(campaign: Campaign) -> None:
    c, play = campaign.open(), Play(raises(ZeroDivisionError()))
    state = run(wait_for(c, play))
    assert sorted(str(one.scenario_id) for one in state.failures) == ["a", "b"]
    assert state.stop is not None
    assert [one.reason for one in state.later_stops] == ["coordinator_failure"]
    run(c.close())


def test_failing_retain_failure_is_recorded_with_both_messages(campaign: Campaign) -> None:
    class Broken(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            raise OSError("disk is full")

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Broken(raises(ZeroDivisionError("by zero")))))
    (failure,) = state.failures
    assert failure.evidence_path is None
    assert "by zero" in failure.summary
    assert "disk is full" in failure.summary
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    run(c.close())


@pytest.mark.parametrize("odd", [None, "path", {}, {"summary": 7}, {"evidencePath": "\udc80", "summary": "x"}])
def test_retain_failure_that_returns_anything_else_loses_no_failure(campaign: Campaign, odd: Any) -> None:
    class Odd(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            return odd

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Odd(raises(ZeroDivisionError("by zero")))))
    assert state.failures[0].evidence_path is None
    assert "by zero" in state.failures[0].summary
    assert "retain_failure" in state.failures[0].summary
    run(c.close())


@pytest.mark.parametrize("text", ["bad name \udcff\udcfe", "lines\nand\nlines", "x" * 100_000, "\x00\x1b[31m"])
def test_error_text_of_any_kind_is_recorded(campaign: Campaign, text: str) -> None:
    class Broken(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            raise OSError(text)

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Broken(raises(ZeroDivisionError(text)))))
    assert len(state.failures) == 1
    assert len(state.failures[0].summary) < 10_000
    run(c.close())
    run(campaign.open().close())  # and what was written can be read


def test_base_exceptions_of_a_launcher_are_not_taken_for_failures(campaign: Campaign) -> None:
    class Leave(BaseException):
        pass

    async def leaves(_: Permit) -> None:
        raise Leave

    c, play = campaign.open(max_lanes=1), Play(leaves)
    with pytest.raises(Leave):
        run(wait_for(c, play))
    assert snapshot(c).failures == []
    run(c.close())


@pytest.mark.parametrize("phase", ["launch", "completion"])
def test_cancellation_that_a_callback_met_is_an_error_as_any(
    campaign: Campaign, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits_for_a_cancelled_task(*_: Any) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    play = Play(waits_for_a_cancelled_task if phase == "launch" else None)
    if phase == "completion":
        monkeypatch.setattr(play, "read_completion", waits_for_a_cancelled_task)
    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, play))
    assert [one.phase for one in state.failures] == [phase]
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    assert play.launches == ["a"]
    run(c.close())
