"""Every transition of a batch, what stood before it, and what may stand after a fault in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator import Coordinator, Failure
from tests.crash.seam import Crash
from tests.crash.world import World

Prepare = Callable[[World], Awaitable[Coordinator | None]]
Act = Callable[[World, Coordinator | None], Awaitable[None]]


@dataclass(frozen=True)
class Transition:
    """`phases`: of scenario `a` after any fault; the last one is what an acknowledgement promises."""

    name: str
    prepare: Prepare
    act: Act
    phases: tuple[str | None, ...]
    stops: tuple[str, ...] = field(default=())
    """Reasons that an acknowledgement promises."""
    opens: bool = False
    recovers: bool = False


async def nothing(world: World) -> None:
    return None


async def opened(world: World) -> Coordinator:
    return world.open()


async def reserved(world: World) -> Coordinator:
    coordinator = world.open()
    await world.reserve(coordinator)
    return coordinator


async def launched(world: World) -> Coordinator:
    coordinator = await reserved(world)
    await world.launch(coordinator)
    return coordinator


async def launched_beside_another(world: World) -> Coordinator:
    coordinator = await launched(world)
    await coordinator.launch_once(await coordinator.reserve("b"), world.launcher)
    return coordinator


async def launching(world: World) -> Coordinator:
    coordinator = await reserved(world)
    assert world.permit is not None

    async def failing(permit: Any) -> None:
        await world.launcher(permit)
        raise ChildProcessError("the worker did not start")

    try:
        await coordinator.launch_once(world.permit, failing)
    except ChildProcessError:
        return coordinator
    raise AssertionError("the launcher's error was lost")


async def completed(world: World) -> Coordinator:
    coordinator = await launched(world)
    await world.complete(coordinator)
    return coordinator


def closed(prepare: Prepare) -> Prepare:
    async def prepare_and_close(world: World) -> None:
        coordinator = await prepare(world)
        assert coordinator is not None
        await coordinator.close()

    return prepare_and_close


def died(operation: str, stage: str, *, unlocked: bool) -> Prepare:
    """The owner died in a commit; `unlocked`: somebody deleted its lock by hand."""

    async def prepare(world: World) -> None:
        def fault(reached: str) -> None:
            if armed and reached == stage:
                raise Crash

        armed: list[bool] = []
        coordinator = world.open(fault=fault)
        if operation == "complete":
            await world.reserve(coordinator)
            await world.launch(coordinator)
        armed.append(True)
        try:
            await (world.reserve(coordinator) if operation == "reserve" else world.complete(coordinator))
        except Crash:
            if unlocked:
                world.campaign.lock.unlink()
            return
        raise AssertionError("the crash was lost")

    return prepare


def dead(prepare: Prepare) -> Prepare:
    """The owner died between two changes."""

    async def prepare_only(world: World) -> None:
        await prepare(world)

    return prepare_only


async def open_again(world: World, _: Coordinator | None) -> None:
    world.open()


def owned(act: Callable[[World, Coordinator], Awaitable[Any]]) -> Act:
    async def with_coordinator(world: World, coordinator: Coordinator | None) -> None:
        assert coordinator is not None
        await act(world, coordinator)

    return with_coordinator


def recovering(**changes: Any) -> Act:
    async def act(world: World, _: Coordinator | None) -> None:
        found = await world.recover(world.operations, **changes)
        assert found is not None and found.problems == []

    return act


async def end_open_rows(world: World, _: Coordinator | None) -> None:
    state = world.state()
    assert state is not None
    # Asked again after a fault, some are ended already.
    ids = [one for one, entry in state.entries.items() if entry.phase != "completed"]
    found = await world.recover(world.operations, end=ids)
    # One whose end was committed by a recovery that died is completed once that change is settled.
    assert found is not None and all(one.endswith("it is completed already") for one in found.problems)


def review_of(world: World) -> dict[str, Any]:
    digests = {"definitionDigest": "definition-a", "graderDigest": "grader-1"}
    following = {**digests, "graderDigest": "grader-2"}
    data = json.dumps({"id": "a", "ordinal": 1, "previous": digests, "next": following}).encode()
    Path(world.campaign.evidence, "review.json").write_bytes(data)
    return {
        "evidencePath": "review.json",
        "receiptSha256": hashlib.sha256(data).hexdigest(),
        "previous": digests,
        "next": following,
    }


async def complete_with_review(world: World, coordinator: Coordinator) -> None:
    await world.complete(coordinator, completion={"evidencePaths": ["review.json"]}, review=review_of(world))


async def request_stop(world: World) -> Coordinator:
    coordinator = await reserved(world)
    wish = world.campaign.control / "stop-request.json"
    wish.write_text('{"reason": "operator_request", "detail": "enough"}')
    return coordinator


FAILURE = Failure(scenario_id="a", reservation_id=None, phase="launch", summary="broken", evidence_path=None)
STOP = {"reason": "budget_exceeded", "detail": "spent"}

TRANSITIONS = (
    Transition("open, new", nothing, open_again, (None,), opens=True),
    Transition("open, closed", closed(opened), open_again, (None,), opens=True),
    Transition("open, closed with a reservation", closed(reserved), open_again, ("reserved",), opens=True),
    Transition(
        "open, closed uncertain", closed(launched), open_again, ("launched",), ("coordinator_failure",), opens=True
    ),
    Transition("open, closed completed", closed(completed), open_again, ("completed",), opens=True),
    Transition("reserve", opened, owned(lambda w, c: w.reserve(c)), (None, "reserved")),
    Transition("reserve beside a launched one", launched, owned(lambda w, c: w.reserve(c, "b")), ("launched",)),
    Transition("reserve again", reserved, owned(lambda w, c: w.reserve(c)), ("reserved",)),
    Transition("launch", reserved, owned(lambda w, c: w.launch(c)), ("reserved", "launching", "launched")),
    Transition("complete", launched, owned(lambda w, c: w.complete(c)), ("launched", "completed")),
    Transition(
        "complete beside a launched one",
        launched_beside_another,
        owned(lambda w, c: w.complete(c)),
        ("launched", "completed"),
    ),
    Transition(
        "complete after a failed launcher", launching, owned(lambda w, c: w.complete(c)), ("launching", "completed")
    ),
    Transition(
        "complete, cleanup failed",
        launched,
        owned(lambda w, c: w.complete(c, completion={"cleanup": "failed"})),
        ("launched", "completed"),
        ("cleanup_failure",),
    ),
    Transition(
        "complete, with a stop",
        launched,
        owned(lambda w, c: w.complete(c, stop=STOP)),
        ("launched", "completed"),
        ("budget_exceeded",),
    ),
    Transition("complete, with a review", launched, owned(complete_with_review), ("launched", "completed")),
    Transition(
        "complete again, with a stop",
        completed,
        owned(lambda w, c: w.complete(c, stop=STOP)),
        ("completed",),
        ("budget_exceeded",),
    ),
    Transition("stop", reserved, owned(lambda w, c: c.stop("secret_leak", "found")), ("reserved",), ("secret_leak",)),
    Transition(
        "record a failure",
        launched,
        owned(lambda w, c: c.record_failure(FAILURE, "launch failed")),
        ("launched",),
        ("coordinator_failure",),
    ),
    Transition(
        "take a stop request",
        request_stop,
        owned(lambda w, c: c.take_stop_request()),
        ("reserved",),
        ("operator_request",),
    ),
    Transition("close", completed, owned(lambda w, c: c.close()), ("completed",)),
    Transition("close with a reservation", reserved, owned(lambda w, c: c.close()), ("reserved",)),
    *(
        Transition(
            f"open, lock deleted after a death in {operation} at {stage}",
            died(operation, stage, unlocked=True),
            open_again,
            (phase,),
            ("coordinator_failure",),
            opens=True,
        )
        for operation, stage, phase in (
            ("reserve", "intent", None),
            ("reserve", "manifest", "reserved"),
            ("reserve", "state", "reserved"),
            ("complete", "intent", "launched"),
            ("complete", "manifest", "completed"),
            ("complete", "state", "completed"),
        )
    ),
    *(
        Transition(
            f"recover after a death in {operation} at {stage}",
            died(operation, stage, unlocked=False),
            recovering(),
            (phase,),
            ("coordinator_failure",),
            recovers=True,
        )
        for operation, stage, phase in (
            ("reserve", "intent", None),
            ("reserve", "manifest", "reserved"),
            ("reserve", "state", "reserved"),
            ("complete", "intent", "launched"),
            ("complete", "manifest", "completed"),
            ("complete", "state", "completed"),
        )
    ),
    Transition(
        "recover, reserved", dead(reserved), recovering(), ("reserved",), ("coordinator_failure",), recovers=True
    ),
    Transition(
        "recover, launched", dead(launched), recovering(), ("launched",), ("coordinator_failure",), recovers=True
    ),
    Transition(
        "recover, closed", closed(launched), recovering(), ("launched",), ("coordinator_failure",), recovers=True
    ),
    Transition(
        "end, uncertain",
        dead(launched_beside_another),
        end_open_rows,
        ("launched", "completed"),
        ("coordinator_failure",),
        recovers=True,
    ),
    Transition(
        "end, never launched",
        dead(reserved),
        end_open_rows,
        ("reserved", "completed"),
        ("coordinator_failure",),
        recovers=True,
    ),
)
