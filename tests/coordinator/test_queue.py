"""Changes run one at a time, in the order of the first await; begun ones are finished, others dropped."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, CoordinatorError, Permit, State
from coordinator.errors import ClosedError, InFlightError, PoisonedError
from tests.coordinator.calls import (
    QuickCampaign,
    answers,
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
from tests.coordinator.campaign import Campaign, completion, failing_at


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


class Gate:
    """An async `fault` that holds a commit at one stage until it is let go."""

    def __init__(self, stage: str = "intent") -> None:
        self.stage = stage
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self.log: list[str] = []

    async def __call__(self, stage: str) -> None:
        self.log.append(stage)
        if stage == self.stage:
            self.reached.set()
            await self.let_go.wait()


METHODS = ("reserve", "launch_once", "complete", "run", "stop", "snapshot", "close")


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_coroutine_functions(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(Coordinator, name))


def test_open_is_synchronous() -> None:
    assert not inspect.iscoroutinefunction(Coordinator.open)


def test_calls_that_were_never_awaited_do_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    with untouched(campaign.path, campaign.control / "state.json"):
        for call in (c.reserve("a"), c.stop("canceled", "x"), c.close()):
            call.close()
    run(c.reserve("a"))
    run(c.close())


def test_changes_run_in_the_order_in_which_they_were_first_awaited(campaign: Campaign) -> None:
    gate = Gate()
    c = campaign.open(fault=gate)
    order: list[str] = []

    async def told(name: str, call: Any) -> None:
        try:
            await call
        finally:
            order.append(name)

    async def queue() -> None:
        first = asyncio.create_task(told("reserve a", c.reserve("a")))
        await gate.reached.wait()
        # Made in one order, awaited in another: the second counts.
        late = c.stop("operator_request", "last")
        tasks = [first]
        for name, call in (("snapshot", c.snapshot()), ("reserve b", c.reserve("b")), ("stop", late)):
            tasks.append(asyncio.create_task(told(name, call)))
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(told("reserve c", c.reserve("c"))))
        await asyncio.sleep(0)
        assert order == []
        gate.let_go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[-1], CoordinatorError)
        assert "stopped" in str(results[-1])

    run(queue())
    assert order == ["reserve a", "snapshot", "reserve b", "stop", "reserve c"]
    run(c.close())


def test_hundred_calls_at_once_are_one_after_another(campaign: Campaign) -> None:
    inside = most = 0

    async def fault(_: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    c = campaign.open(fault=fault)

    async def many() -> list[Any]:
        calls: list[Any] = [c.reserve("abc"[number % 3]) for number in range(50)]
        calls += [c.snapshot() for _ in range(50)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    found = run(many())
    assert most == 1
    assert len({one.reservation_id for one in found if isinstance(one, Permit)}) == 2
    assert all(isinstance(one, Permit | State) or "Two lanes" in str(one) for one in found)
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
@pytest.mark.parametrize("cancels", [1, 3])
def test_change_that_began_is_finished_and_then_cancelled(campaign: Campaign, stage: str, cancels: int) -> None:
    gate = Gate(stage)
    c = campaign.open(fault=gate)

    async def cancelled() -> None:
        task = asyncio.create_task(c.reserve("a"))
        await gate.reached.wait()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        gate.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert gate.log == ["intent", "manifest", "state"]
    assert phases(snapshot(c)) == {"a": "reserved"}
    assert campaign.row("a")["outcome"] == "running"
    run(c.reserve("b"))
    run(c.close())


@pytest.mark.parametrize("which", ["reserve", "stop", "complete", "launch_once", "close", "snapshot"])
def test_change_that_did_not_begin_is_dropped_when_cancelled(campaign: Campaign, which: str) -> None:
    gate = Gate()
    gate.let_go.set()
    c = campaign.open(fault=gate)
    permit, waiting = run(launched(c, "a")), run(c.reserve("b"))
    gate.let_go, gate.reached = asyncio.Event(), asyncio.Event()
    calls: dict[str, Callable[[], Any]] = {
        "reserve": lambda: c.reserve("c"),
        "stop": lambda: c.stop("canceled", "dropped"),
        "complete": lambda: c.complete(permit, completion("a", outcome="failed")),  # type: ignore[arg-type]
        "launch_once": lambda: c.launch_once(waiting, answers),
        "close": c.close,
        "snapshot": c.snapshot,
    }

    async def dropped() -> None:
        first = asyncio.create_task(finish(c, permit))
        await gate.reached.wait()
        queued = asyncio.create_task(calls[which]())
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued  # at once: it waits for nobody's turn
        assert not first.done()
        gate.let_go.set()
        await first

    run(dropped())
    state = snapshot(c)
    assert phases(state) == {"a": "completed", "b": "reserved"}
    assert (state.stop, campaign.row("a")["outcome"]) == (None, "passed")
    run(c.close())


def test_cancelling_one_of_many_leaves_the_order_of_the_rest(campaign: Campaign) -> None:
    gate = Gate()
    c = campaign.open(fault=gate)

    async def queue() -> list[Any]:
        first = asyncio.create_task(c.reserve("a"))
        await gate.reached.wait()
        rest = [asyncio.create_task(c.reserve("b")), asyncio.create_task(c.stop("canceled", "x"))]
        rest += [asyncio.create_task(c.reserve("c"))]
        await asyncio.sleep(0)
        rest[1].cancel()
        gate.let_go.set()
        return list(await asyncio.gather(first, *rest, return_exceptions=True))

    a, b, stopped, third = run(queue())
    assert isinstance(a, Permit)
    assert isinstance(b, Permit)
    assert isinstance(stopped, asyncio.CancelledError)
    assert "Two lanes" in str(third)
    run(c.close())


def test_cancelled_refusal_is_a_cancellation(campaign: Campaign) -> None:
    c = campaign.open()

    async def cancelled() -> None:
        task = asyncio.create_task(c.reserve("not selected"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    run(c.reserve("a"))
    run(c.close())


def test_one_coordinator_serves_several_event_loops(campaign: Campaign) -> None:
    c = campaign.open()

    async def contend(*names: str) -> list[Any]:
        """More than one waiter, so that the queue is really bound to the loop."""
        return list(await asyncio.gather(*(c.reserve(name) for name in names), return_exceptions=True))

    first = run(contend("a", "b", "c"))
    assert "Two lanes" in str(first[2])
    for permit in first[:2]:
        run(c.launch_once(permit, answers))
        run(finish(c, permit))
    assert isinstance(run(contend("c", "c"))[0], Permit)
    assert phases(run(c.snapshot())) == {"a": "completed", "b": "completed", "c": "reserved"}
    run(c.close())


def test_loop_that_ended_in_the_middle_of_a_queue_does_not_block_the_next_one(campaign: Campaign) -> None:
    c = campaign.open()

    async def leaves_calls_behind() -> None:
        for name in "abc":
            asyncio.ensure_future(c.reserve(name))  # noqa: RUF006  cancelled with the loop
        await asyncio.sleep(0)

    run(leaves_calls_behind())
    assert run(c.reserve("c")).scenario_id == "c"
    run(c.close())


def test_snapshot_is_a_copy(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    state = snapshot(c)
    entry = state.entries[permit.reservation_id]
    entry.reserved_attempt["outcome"] = "edited"
    entry.permit.args.append("--edited")
    state.entries.clear()
    state.later_stops.append(None)  # type: ignore[arg-type]
    assert run(c.snapshot()).entries[permit.reservation_id].reserved_attempt["outcome"] == "running"
    run(finish(c, permit))
    run(c.close())


def test_permit_handed_out_is_a_copy(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    permit.args.append("--edited")
    with refused("not admissible"):
        run(c.launch_once(permit, answers))
    assert run(c.reserve("a")).args[-1] == "0"
    run(c.close())


# -- poison and closing


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
@pytest.mark.parametrize("error", [ZeroDivisionError("x"), OSError(5, "io"), CoordinatorError("x")])
def test_what_fault_raises_reaches_the_caller_and_poisons(campaign: Campaign, stage: str, error: Exception) -> None:
    c = campaign.open(fault=failing_at(stage, error))
    with pytest.raises(type(error)) as caught:
        run(c.reserve("a"))
    assert caught.value is error
    pending = (campaign.control / "pending.json").read_bytes()
    with untouched(campaign.path, campaign.control / "state.json", campaign.lock):
        for call in (
            c.reserve("b"),
            c.stop("canceled", "x"),
            c.snapshot(),
            c.close(),
            c.run(launch_only=answers, read_completion=None, retain_failure=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(PoisonedError):
                run(call)
    assert (campaign.control / "pending.json").read_bytes() == pending
    running = sum(len(one["attempts"]) for one in campaign.read()["scenarios"])
    assert running == (0 if stage == "intent" else 1)
    assert len(state_of(campaign)["entries"]) == (1 if stage == "state" else 0)


def test_async_fault_is_awaited_at_each_stage_of_each_commit(campaign: Campaign) -> None:
    gate = Gate("never")
    c = campaign.open(fault=gate)
    permit = run(c.reserve("a"))
    assert gate.log == ["intent", "manifest", "state"]
    run(c.launch_once(permit, answers))
    run(c.stop("operator_request", "x"))
    assert len(gate.log) == 3  # changes of the state alone have no seam
    run(finish(c, permit))
    assert gate.log == ["intent", "manifest", "state"] * 2
    run(c.close())
    assert len(gate.log) == 6


def test_fault_is_called_right_after_its_file_became_durable(campaign: Campaign) -> None:
    seen: list[tuple[bool, int, int]] = []

    def fault(_: str) -> None:
        pending = (campaign.control / "pending.json").exists()
        rows = len(campaign.read()["scenarios"][0]["attempts"])
        seen.append((pending, rows, len(state_of(campaign)["entries"])))

    c = campaign.open(fault=fault)
    run(c.reserve("a"))
    assert seen == [(True, 0, 0), (True, 1, 0), (True, 1, 1)]
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


def test_every_call_after_close_raises(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    run(c.close())
    with untouched(campaign.path, campaign.control / "state.json"):
        for call in (
            c.reserve("b"),
            c.launch_once(permit, answers),
            finish(c, permit),
            c.stop("canceled", "x"),
            c.snapshot(),
            c.run(launch_only=answers, read_completion=None, retain_failure=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(ClosedError):
                run(call)


def test_second_close_does_nothing(campaign: Campaign) -> None:
    c = campaign.open()

    async def together() -> None:
        await asyncio.gather(c.close(), c.close(), c.close())

    run(together())
    other = campaign.open()
    with untouched(campaign.lock, campaign.control / "state.json"):
        run(c.close())
    run(other.close())


def test_close_is_allowed_with_reserved_and_uncertain_entries(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(launched(c, "b"))
    run(c.close())
    assert not campaign.lock.exists()
    assert state_of(campaign)["owner"] is None
    assert sorted(one["phase"] for one in state_of(campaign)["entries"].values()) == ["launched", "reserved"]


def test_close_raises_in_flight_while_a_launcher_has_not_returned(campaign: Campaign) -> None:
    c = campaign.open()

    async def closes(_: Permit) -> None:
        with refused("in flight", InFlightError):
            await c.close()

    run(c.launch_once(run(c.reserve("a")), closes))
    run(c.close())


def test_close_raises_in_flight_while_a_worker_lives(campaign: Campaign) -> None:
    class Worker:
        alive = True

    c, worker = campaign.open(), Worker()
    c.track(worker)
    with untouched(campaign.control / "state.json"), refused("in flight", InFlightError):
        run(c.close())
    run(c.reserve("a"))  # still usable
    worker.alive = False
    run(c.close())
    assert not campaign.lock.exists()


@pytest.mark.parametrize("times", ["backwards", "frozen", "a day ahead", "empty", "no time at all"])
def test_clocks_are_never_compared(campaign: Campaign, times: str) -> None:
    count = 0

    def now() -> str:
        nonlocal count
        count += 1
        return {
            "backwards": f"2026-01-01T00:00:{59 - count % 60:02d}.000Z",
            "frozen": "2026-01-01T00:00:00.000Z",
            "a day ahead": f"2099-01-{1 + count % 28:02d}T00:00:00.000Z",
            "empty": "",
            "no time at all": "half past nine",
        }[times]

    c = campaign.open(now=now)
    run(completed(c, "a"))
    run(c.close())
    c = campaign.open(now=now)
    assert snapshot(c).stop is None
    run(completed(c, "b"))
    run(c.close())


def test_times_are_utc_with_milliseconds_without_a_given_clock(campaign: Campaign) -> None:
    c = campaign.open(now=None)
    run(c.reserve("a"))
    text = campaign.row("a")["startedAt"]
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert (text[4], text[10], text[19], text[-1]) == ("-", "T", ".", "Z")
    run(c.close())
