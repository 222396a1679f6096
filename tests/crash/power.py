"""A batch's life, cut off at every operation, on every disk that the cut may leave: what must still be true."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinator import CoordinatorError
from coordinator.documents import DocumentError
from tests.crash.exploration import judge_verification
from tests.crash.model import Disk, Event, ModelledDisk, RecordingOperations, restore
from tests.crash.seam import FaultyOperations
from tests.crash.world import World, expect_refusals

PHASES = (None, "reserved", "launching", "launched", "completed")


class Life:
    """Plays a life on recorded operations; promises are noted between them."""

    def __init__(self, folder: Path, lose: str = "") -> None:
        self.recording = RecordingOperations(lose)
        self.world = World(folder, self.recording)
        self.disk = ModelledDisk(folder)

    def promise(self, *, launched: bool = False) -> None:
        stops = ",".join(stop.reason for stop in self.world.stops())
        phase = self.world.phase() or ""
        if launched:
            phase = "launching"
        self.recording.note(Event("promise", phase, stops, inode=len(self.world.launches)))

    async def launch(self) -> None:
        world = self.world
        assert world.permit is not None

        async def launcher(permit: object) -> None:
            self.world.launches.append(("a", 1))
            self.promise(launched=True)

        await self.coordinator.launch_once(world.permit, launcher, job=world.job)

    async def play(self) -> None:
        world = self.world
        self.coordinator = world.open()
        self.promise()
        await world.reserve(self.coordinator)
        self.promise()
        await self.launch()
        self.promise()
        await world.reserve(self.coordinator, "b")
        self.promise()
        await world.complete(self.coordinator, completion={"cleanup": "failed"})
        self.promise()
        await self.coordinator.stop("operator_request", "enough")
        self.promise()
        await self.coordinator.close()
        self.promise()
        self.coordinator = world.open()
        self.promise()
        await self.coordinator.close()


def play_life(folder: Path, lose: str = "", mutate: Callable[[], None] | None = None) -> Life:
    life = Life(folder, lose)
    asyncio.run(life.play())
    return life


def cut_states(life: Life) -> Iterator[tuple[Event, Disk]]:
    """Every disk after a cut at every operation, with the last promise before it; each once."""
    promised = Event("promise")
    seen: set[bytes] = set()
    for event in [Event("begin"), *life.recording.events]:
        if event.method == "promise":
            promised = event
        elif event.method != "begin":
            life.disk.play(event)
        for disk in life.disk.states():
            key = hashlib.sha256(repr((promised, disk)).encode()).digest()
            if key not in seen:
                seen.add(key)
                yield promised, disk


async def judge(world: World, promised: Event, disk: Disk) -> None:
    """Recover on that disk as a person would; raise if a promise is broken or a launch could come twice."""
    restore(world.campaign.folder, disk)
    world.operations = FaultyOperations()
    world.launches = [("a", 1)] * promised.inode
    world.check_files()
    await world.recover(FaultyOperations())
    world.check_settled()
    found = world.phase()
    assert PHASES.index(found) >= PHASES.index(promised.path or None), f"promised {promised.path}, found {found}"
    reasons = {stop.reason for stop in world.stops()}
    assert set(filter(None, promised.target.split(","))) <= reasons, f"promised {promised.target}, found {reasons}"
    coordinator = world.campaign.open(FaultyOperations())
    await expect_refusals(world, coordinator)
    await coordinator.close()
    judge_verification(world, "control")


def first_violation(life: Life, limit: int | None = None) -> tuple[int, str | None]:
    """How many states were judged, and the first that breaks a promise."""
    judged = 0
    with asyncio.Runner() as runner:
        for promised, disk in cut_states(life):
            judged += 1
            try:
                runner.run(judge(life.world, promised, disk))
            except (AssertionError, CoordinatorError, DocumentError) as error:
                return judged, f"{type(error).__name__}: {error}"
            if judged == limit:
                break
    return judged, None
