"""How a run ends otherwise: one at a time, poison, a lost lock, cancellation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator import (
    Coordinator,
    CoordinatorError,
    Permit,
    State,
)
from coordinator.errors import ClosedError, InFlightError, LockLostError, PoisonedError
from tests.coordinator.calls import (
    QuickCampaign,
    abandon,
    finish,
    launched,
    phases,
    raises,
    refused,
    run,
    snapshot,
)
from tests.coordinator.campaign import Campaign, failing_at
from tests.coordinator.plays import Play, drive, wait_for


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path, "abcde")


# -- one run at a time, closing, poison


def test_second_run_and_close_are_in_flight(campaign: Campaign) -> None:
    async def launch(permit: Permit) -> str:
        with refused("in flight", InFlightError):
            await c.close()
        with refused("in flight", InFlightError):
            await wait_for(c, Play())
        return "x"

    c, play = campaign.open(), Play(launch)
    assert run(wait_for(c, play)).failures == []
    run(c.close())


def test_two_runs_started_together_are_one(campaign: Campaign) -> None:
    c, first, second = campaign.open(), Play(), Play()

    async def both() -> list[Any]:
        return list(await asyncio.gather(wait_for(c, first), wait_for(c, second), return_exceptions=True))

    one, other = run(both())
    assert isinstance(one, State)
    assert isinstance(other, InFlightError)
    assert (len(first.launches), second.log) == (5, [])
    run(c.close())


def test_poisoned_run_raises_at_once(campaign: Campaign) -> None:
    c, play = campaign.open(fault=failing_at("manifest", ZeroDivisionError())), Play()
    with pytest.raises(ZeroDivisionError):
        run(c.reserve("a"))
    with pytest.raises(PoisonedError):
        run(wait_for(c, play))
    assert play.log == []


def test_commit_that_does_not_end_raises_out_of_run_with_the_lock_kept(campaign: Campaign) -> None:
    commits = 0

    def fault(stage: str) -> None:
        nonlocal commits
        commits += stage == "state"
        if commits == 3:
            raise ZeroDivisionError("fault")

    c, play = campaign.open(fault=fault), Play()
    with pytest.raises(ZeroDivisionError, match="fault"):
        run(wait_for(c, play))
    assert play.failures == []  # the disk decides, not a callback
    assert campaign.lock.exists()
    with pytest.raises(PoisonedError):
        run(c.close())


def test_run_whose_lock_is_lost_launches_no_more(campaign: Campaign) -> None:
    async def launch(permit: Permit) -> str:
        if campaign.lock.exists():
            abandon(campaign)
        return "x"

    c, play = campaign.open(max_lanes=1), Play(launch)
    with pytest.raises(LockLostError):
        run(wait_for(c, play))
    assert play.launches == ["a"]
    assert campaign.row("a")["outcome"] == "running"


def test_closed_coordinator_does_not_run(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    run(c.close())
    with pytest.raises(ClosedError):
        run(wait_for(c, play))
    assert play.log == []


# -- cancelling


async def cancel_when_both_play(c: Coordinator, play: Play, both: asyncio.Event, cancels: int = 1) -> None:
    task = asyncio.ensure_future(drive(c, play))
    await both.wait()
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_cancelled_run_records_canceled_and_leaves_its_entries(campaign: Campaign, cancels: int) -> None:
    both = asyncio.Event()

    async def hangs(permit: Permit) -> None:
        if permit.scenario_id == "b":
            both.set()
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)
    run(cancel_when_both_play(c, play, both, cancels))
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, state.failures) == ("canceled", [])
    assert phases(state) == {"a": "launching", "b": "launching"}
    assert (campaign.row("a")["outcome"], campaign.row("b")["outcome"]) == ("running", "running")
    run(c.close())


def test_cancelled_run_waits_for_no_launcher(campaign: Campaign) -> None:
    """A launcher that swallows its cancellation neither holds the run up nor changes its entry afterwards."""
    both, release = asyncio.Event(), asyncio.Event()

    async def stubborn(permit: Permit) -> str:
        if permit.scenario_id == "b":
            both.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    c, play = campaign.open(), Play(stubborn)

    async def scenario_of_it() -> None:
        await cancel_when_both_play(c, play, both)
        with refused("in flight", InFlightError):
            await c.close()
        release.set()
        while c._launching or (c._run is not None and c._run.open_lanes):
            await c.snapshot()

    run(scenario_of_it())
    state = snapshot(c)
    assert set(phases(state).values()) <= {"launching", "launched"}
    assert [what for what, _ in play.log] == ["launch", "launch"]  # no completion was read
    assert (campaign.row("a")["outcome"], state.failures) == ("running", [])
    run(c.close())


def test_run_cancelled_before_its_first_step_of_work_records_canceled(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()

    async def cancelled() -> None:
        task = asyncio.ensure_future(drive(c, play))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    state = snapshot(c)
    assert state.stop is not None
    assert state.stop.reason == "canceled"
    assert play.launches == []
    run(c.close())


def test_canceled_stands_beside_an_earlier_stop(campaign: Campaign) -> None:
    both = asyncio.Event()

    async def hangs(permit: Permit) -> None:
        if permit.scenario_id == "b":
            await c.stop("operator_request", "first")
            both.set()
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)
    run(cancel_when_both_play(c, play, both))
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, [one.reason for one in state.later_stops]) == ("operator_request", ["canceled"])
    run(c.close())


def test_run_ends_with_timeouts_of_its_caller(campaign: Campaign) -> None:
    async def hangs(_: Permit) -> None:
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)

    async def limited() -> None:
        async with asyncio.timeout(0.05):
            await drive(c, play)

    with pytest.raises(TimeoutError):
        run(limited())
    assert (stop := snapshot(c).stop) is not None
    assert stop.reason == "canceled"
    run(c.close())


def test_events_tell_people_what_happened(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    run(wait_for(c, play))
    run(c.close())
    events = [json.loads(line)["event"] for line in (campaign.control / "events.jsonl").read_text().splitlines()]
    assert events[0] == "opened"
    assert events[-1] == "closed"
    assert [events.count(what) for what in ("reserved", "launching", "launched", "completed")] == [5, 5, 5, 5]


def test_retained_failure_struct_is_what_the_state_keeps(campaign: Campaign) -> None:
    c = campaign.open(max_lanes=1)
    run(wait_for(c, Play(raises(CoordinatorError("mine")))))
    run(c.close())
    state = snapshot(c := campaign.open())
    assert state.failures[0].evidence_path == "failures/launch.json"
    run(c.close())


def test_launched_by_hand_then_run_completes_the_rest(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    permit = run(launched(c, "c"))
    run(finish(c, permit, outcome="failed"))
    state = run(wait_for(c, play))
    assert sorted(play.launches) == ["a", "b", "d", "e"]
    assert phases(state)["c"] == "completed"
    run(c.close())
