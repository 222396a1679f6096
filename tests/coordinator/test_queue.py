"""Changes run one at a time, in the order of the first await; begun ones are finished, others dropped."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, CoordinatorError, Permit, State
from tests.coordinator.calls import (
    QuickCampaign,
    answers,
    finish,
    launched,
    phases,
    refused,
    run,
    snapshot,
    untouched,
)
from tests.coordinator.campaign import Campaign, completion
from tests.coordinator.plays import Gate


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


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
    assert run(c.snapshot()).stop is None
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
