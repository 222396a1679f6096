"""Promises of the protocol, each as a small play that raises when it is broken."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coordinator import CoordinatorError, Permit, lock
from coordinator.errors import (
    DamagedError,
    InvalidInputError,
    LockedError,
    LockLostError,
    NotAdmissibleError,
    OlderControlDirectoryError,
    OutsideCoordinatorError,
    PoisonedError,
    RefusedError,
    ReservedAttemptChangedError,
    StoppedError,
    StorageError,
    UnrecognizedManifestError,
)
from coordinator.files import Files, Operations
from coordinator.recovery import recover
from tests.coordinator.campaign import completion
from tests.crash.seam import Crash, Fault, FaultyOperations
from tests.crash.transitions import closed, died, launched, reserved
from tests.crash.world import World

Promise = Callable[[Path], Awaitable[None]]


def world_in(folder: Path) -> World:
    return World(folder, FaultyOperations())


async def an_edit_during_a_commit_is_not_overwritten(folder: Path) -> None:
    world = world_in(folder)

    def edit(stage: str) -> None:
        if stage == "intent":
            world.campaign.write({**world.campaign.read(), "note": "by a person"})

    coordinator = world.open(fault=edit)
    with pytest.raises(OutsideCoordinatorError):
        await coordinator.reserve("a")
    assert world.campaign.read()["note"] == "by a person"


async def without_the_lock_nothing_is_written(folder: Path) -> None:
    world = world_in(folder)
    coordinator = world.open()
    world.campaign.lock.unlink()
    before = world.campaign.path.read_bytes()
    with pytest.raises(LockLostError):
        await coordinator.reserve("a")
    assert world.campaign.path.read_bytes() == before


async def an_owned_manifest_is_not_opened(folder: Path) -> None:
    world = world_in(folder)
    world.open()
    with pytest.raises(LockedError):
        world.open(control_directory=folder / "other", batch_id="other")


async def a_launch_begun_meanwhile_is_not_begun_again(folder: Path) -> None:
    world = world_in(folder)
    coordinator = await reserved(world)
    assert world.permit is not None

    def begun_elsewhere(permit: Permit) -> bytes:
        (world.campaign.claims / permit.reservation_id).write_text("another process was first")
        return b"{}\n"

    with pytest.raises(NotAdmissibleError):
        await coordinator.launch_once(world.permit, world.launcher, job=begun_elsewhere)
    assert world.launches == []


async def a_change_that_happened_is_finished(folder: Path) -> None:
    world = world_in(folder)
    await died("complete", "manifest", unlocked=True)(world)
    world.open()
    assert world.phase() == "completed"


async def an_unknown_manifest_is_for_a_person(folder: Path) -> None:
    world = world_in(folder)
    await died("complete", "manifest", unlocked=True)(world)
    world.campaign.write({**world.campaign.read(), "note": "edited after the death"})
    with pytest.raises(UnrecognizedManifestError):
        world.open()
    assert world.campaign.lock.exists()


async def a_failed_commit_poisons(folder: Path) -> None:
    operations = FaultyOperations()
    world = World(folder, operations)
    coordinator = await reserved(world)
    operations.arm(Fault(number=3, kind="EIO once"))
    with pytest.raises(StorageError):
        await coordinator.stop("canceled", "x")
    with pytest.raises(PoisonedError):
        await coordinator.reserve("b")


async def a_failed_sync_is_not_tried_again(folder: Path) -> None:
    await a_failed_commit_poisons(folder)


async def a_lock_with_another_token_stays(folder: Path) -> None:
    world = world_in(folder)
    world.open()
    lock.release(Files(), str(world.campaign.lock), "somebody else's")
    assert world.campaign.lock.exists()


async def an_edited_state_is_noticed(folder: Path) -> None:
    world = world_in(folder)
    await closed(reserved)(world)
    path = world.campaign.control / "state.json"
    path.write_text(path.read_text().replace('"run-a"', '"run-b"', 1))
    with pytest.raises(DamagedError):
        world.open()


async def a_lost_state_is_no_fresh_start(folder: Path) -> None:
    world = world_in(folder)
    await closed(launched)(world)
    (world.campaign.control / "state.json").unlink()
    with pytest.raises(DamagedError):
        world.open()
    assert world.campaign.lock.exists()


async def an_older_control_directory_is_refused(folder: Path) -> None:
    world = world_in(folder)
    await closed(reserved)(world)
    shutil.copytree(world.campaign.control, folder / "backup")
    coordinator = world.open()
    await world.launch(coordinator)
    await coordinator.close()
    shutil.copyfile(folder / "backup" / "state.json", world.campaign.control / "state.json")
    with pytest.raises(OlderControlDirectoryError):
        world.open()


async def after_a_stop_nothing_is_launched(folder: Path) -> None:
    world = world_in(folder)
    coordinator = await reserved(world)
    await coordinator.stop("canceled", "x")
    with pytest.raises(StoppedError):
        await world.launch(coordinator)
    assert world.launches == []


async def an_edited_row_is_refused(folder: Path) -> None:
    world = world_in(folder)
    coordinator = await launched(world)
    document = world.campaign.read()
    document["scenarios"][0]["attempts"][0]["model"] = "another"
    world.campaign.write(document)
    with pytest.raises(ReservedAttemptChangedError):
        await world.complete(coordinator)


async def a_key_given_twice_is_refused(folder: Path) -> None:
    world = world_in(folder)
    text = world.campaign.path.read_text()
    world.campaign.path.write_text(text.replace('{"version": 1', '{"version": 1, "version": 1', 1))
    with pytest.raises(InvalidInputError):
        world.open()


async def a_failed_cleanup_stops_before_its_commit(folder: Path) -> None:
    world = world_in(folder)
    armed: list[bool] = []

    def fault(stage: str) -> None:
        if armed:
            raise Crash

    coordinator = world.open(fault=fault)
    await world.reserve(coordinator)
    await world.launch(coordinator)
    armed.append(True)
    with pytest.raises(Crash):
        await world.complete(coordinator, completion={"cleanup": "failed"})
    assert [stop.reason for stop in world.stops()] == ["cleanup_failure"]


async def a_closed_batch_opens_without_a_stop(folder: Path) -> None:
    world = world_in(folder)
    await closed(reserved)(world)
    world.open()
    assert world.stops() == []


async def a_planted_link_is_not_followed(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_text("kept")
    target = folder / "target"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda _: "known")
        os.symlink(victim, folder / ".target.known.tmp")
        with pytest.raises(StorageError):
            Files().replace(str(target), b"{}\n")
    assert victim.read_text() == "kept"


async def a_living_owner_is_not_recovered(folder: Path) -> None:
    world = world_in(folder)
    world.open()
    token = json.loads(world.campaign.lock.read_bytes())["token"]
    with pytest.raises(RefusedError):
        await recover(world.campaign.path, owner_is_dead=token)


async def another_completion_is_a_conflict(folder: Path) -> None:
    world = world_in(folder)
    coordinator = await launched(world)
    await world.complete(coordinator)
    assert world.permit is not None
    with pytest.raises(CoordinatorError):
        await coordinator.complete(world.permit, completion("a", outcome="failed"))  # type: ignore[arg-type]
    assert world.campaign.row("a")["outcome"] == "passed"


async def a_third_lane_is_refused(folder: Path) -> None:
    world = World(folder, Operations(), "abc")
    coordinator = world.open()
    await coordinator.reserve("a")
    await coordinator.reserve("b")
    with pytest.raises(RefusedError):
        await coordinator.reserve("c")
