"""One case: a transition, a fault in it, the death of its process, a person's recovery (with a fault, too)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from coordinator import Coordinator, CoordinatorError
from coordinator.errors import LockedError, PoisonedError
from coordinator.verification import verify
from tests.crash.seam import Crash, Fault, FaultyOperations, Step
from tests.crash.transitions import Transition
from tests.crash.world import World, expect_refusals

# Errors that no caller may see: cleaning up after another error, and lines for people.
SILENT = ("append",)


async def plain_steps(transition: Transition, root: Path) -> list[Step]:
    """The operations of a transition without a fault."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        world = World(Path(folder), operations := FaultyOperations())
        coordinator = await transition.prepare(world)
        operations.arm(None)
        await transition.act(world, coordinator)
        return operations.steps


async def explore(
    transition: Transition, fault: Fault, root: Path, *, recovery_fault: Fault | None = None, deep: bool = False
) -> list[Step]:
    """Run one case and judge it; return the operations of its recovery.

    `deep` goes on: recovered twice more, verified, ended by a person, and the next batch run to its end.
    """
    folder = tempfile.mkdtemp(dir=root)
    world = World(Path(folder), operations := FaultyOperations())
    coordinator = await transition.prepare(world)
    before = world.ledger(), world.phase()
    operations.arm(fault)
    acknowledged, error = await attempt(transition, world, coordinator)
    judge_error(transition, world, operations, acknowledged, error)
    if not acknowledged and not operations.dead:
        acknowledged = await go_on(transition, world, coordinator, operations)
    world.check_files()
    world.operations = FaultyOperations()
    steps = await recover_with_fault(world, recovery_fault)
    world.check_settled()
    judge_outcome(transition, world, before, acknowledged)
    if deep:
        await repeat_recovery(world)
    await reopen(world)
    if deep:
        judge_verification(world, "control")
        await world.finish()
        judge_verification(world, "next")
    shutil.rmtree(folder)
    return steps


async def attempt(
    transition: Transition, world: World, coordinator: Coordinator | None
) -> tuple[bool, BaseException | None]:
    try:
        await transition.act(world, coordinator)
    except (Crash, CoordinatorError) as error:
        return False, error
    return True, None


def judge_error(
    transition: Transition,
    world: World,
    operations: FaultyOperations,
    acknowledged: bool,
    error: BaseException | None,
) -> None:
    """A failed write is never success; an opening that was refused leaves no lock; a change keeps it."""
    fault, step = operations.fault, operations.reached
    if fault is None or step is None:
        return
    if acknowledged:
        harmless = step.method in SILENT or fault.kind == "short write" or "landed, E" in fault.kind
        assert harmless, f"{fault.kind} at {step} was swallowed"
        assert not (fault.kind.startswith("landed, EIO") and step.method not in SILENT), f"{step}: error swallowed"
        return
    locked = world.campaign.lock.exists()
    if operations.dead or operations.broken is not None:
        return
    if transition.opens:
        kept = isinstance(error, PoisonedError) or world_is_poisoned(world)
        assert locked == kept or not locked, f"lock {'kept' if locked else 'removed'} after {error}"
    elif not transition.recovers and not transition.name.startswith("close"):
        assert locked, f"the lock is gone after {error}"


def world_is_poisoned(world: World) -> bool:
    """An opening that died in its own durable replace keeps the lock: the disk decides."""
    state = world.state()
    return state is not None


async def go_on(
    transition: Transition, world: World, coordinator: Coordinator | None, operations: FaultyOperations
) -> bool:
    """The same process after an error: poisoned, it does nothing more; refused, it can do it again."""
    if coordinator is not None and coordinator.poisoned:
        operations.arm(None)
        for call in (coordinator.reserve("b"), coordinator.stop("canceled", "x"), coordinator.close()):
            try:
                await call
            except CoordinatorError:
                continue
            raise AssertionError("a poisoned coordinator went on")
        assert operations.steps == [], "a poisoned coordinator wrote"
        assert world.campaign.lock.exists(), "a poisoned coordinator gave its lock away"
        return False
    if operations.broken is not None or transition.name.startswith("close"):
        return False
    operations.arm(None)
    try:
        await transition.act(world, coordinator)
    except LockedError:
        assert transition.opens
        return False
    except CoordinatorError:
        # A recovery that died with the new lock in place is recovered like any dead owner.
        if not transition.recovers:
            raise
        return False
    return True


async def recover_with_fault(world: World, fault: Fault | None) -> list[Step]:
    """What a person does until it succeeds; the fault happens in the first try."""
    operations = FaultyOperations(fault)
    operations.armed = True
    try:
        await world.recover(operations)
    except (Crash, CoordinatorError):
        if fault is None:
            raise
        world.check_files()
        await world.recover(FaultyOperations())
    return operations.steps


def judge_outcome(
    transition: Transition, world: World, before: tuple[dict[str, Any], str | None], acknowledged: bool
) -> None:
    """The ledger is as before or as after, the entry with it, and what was acknowledged stands."""
    phase = world.phase()
    assert phase in transition.phases, f"phase {phase}"
    if acknowledged:
        assert phase == transition.phases[-1], f"acknowledged, but the phase is {phase}"
        reasons = [stop.reason for stop in world.stops()]
        assert set(transition.stops) <= set(reasons), f"acknowledged, but the stops are {reasons}"
    if phase == before[1] and "another" not in transition.name and "beside" not in transition.name:
        assert world.ledger() == before[0], "the ledger moved, the entry did not"


async def repeat_recovery(world: World) -> None:
    """A second recovery changes no entry and no byte of the manifest, and a third one nothing at all."""
    first = world.content()
    await world.recover(FaultyOperations())
    second = world.content()
    assert first[0] == second[0]
    if first[1] is not None and second[1] is not None:
        assert {**first[1], "laterStops": []} == {**second[1], "laterStops": []}
    await world.recover(FaultyOperations())
    assert world.content() == second, "recovering again changed something"


async def reopen(world: World) -> None:
    """The batch opens again with the same selections, and nothing of it is launched a second time."""
    coordinator = world.campaign.open(FaultyOperations())
    await expect_refusals(world, coordinator)
    await coordinator.close()
    assert not world.campaign.lock.exists()


def judge_verification(world: World, control: str) -> None:
    problems = verify(world.campaign.path, world.campaign.folder / control).problems
    assert problems == [], "; ".join(f"{one.where}: {one.what}" for one in problems)
