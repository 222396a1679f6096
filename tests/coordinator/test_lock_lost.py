"""The lock is read again before each change; closing gives it back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, CoordinatorError, CoordinatorOptions
from coordinator.errors import LockedError, LockLostError, StorageError
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    answers,
    edited,
    finish,
    launched,
    nothing_written,
    refused,
    run,
    snapshot,
    state_of,
)
from tests.coordinator.campaign import Campaign
from tests.coordinator.test_lock import dead_owner, owner


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- the lock is read again before each change


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("aside"))


def replaced(path: Path) -> None:
    path.unlink()
    dead_owner(path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


def another_token(path: Path) -> None:
    token = json.loads(path.read_text())["token"]
    path.write_text(path.read_text().replace(token, "0" * len(token)))


def another_pid(path: Path) -> None:
    path.write_text(path.read_text().replace(f'"pid": {os.getpid()}', '"pid": 1'))


def one_more_key(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": 1}, indent=2) + "\n")


EDITS = [
    deleted, moved, replaced, emptied, become_directory, become_fifo, become_link, another_token, another_pid,
    one_more_key,
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_lost_lock_stops_every_change_and_launch(campaign: Campaign, edit: Callable[[Path], None]) -> None:
    c = campaign.open()
    permit, waiting = run(launched(c, "a")), run(c.reserve("b"))
    edit(campaign.lock)
    calls: dict[str, Callable[[], Any]] = {
        "reserve": lambda: c.reserve("c"),
        "reserve again": lambda: c.reserve("b"),
        "launch": lambda: c.launch_once(waiting, answers),
        "complete": lambda: finish(c, permit),
        "stop": lambda: c.stop("canceled", "x"),
        "close": c.close,
    }
    with nothing_written(campaign):
        for name, call in calls.items():
            with pytest.raises(LockLostError, match="lock lost"):
                run(call())
            assert name


def test_same_lock_put_back_makes_the_owner_usable_again(campaign: Campaign) -> None:
    c = campaign.open()
    data = campaign.lock.read_bytes()
    campaign.lock.unlink()
    with refused("lock lost", LockLostError):
        run(c.reserve("a"))
    campaign.lock.write_bytes(data)
    run(c.reserve("a"))
    run(c.close())


def test_every_changed_byte_of_the_lock_is_noticed(campaign: Campaign) -> None:
    c = campaign.open()
    data = campaign.lock.read_bytes()

    async def try_all() -> int:
        tried = 0
        for position in range(len(data)):
            for byte in {data[position] ^ 1, data[position] ^ 32, ord("\n")}:
                if byte == data[position]:
                    continue
                with edited(campaign.lock, position, byte), pytest.raises(LockLostError):
                    await c.stop("canceled", "x")
                tried += 1
        return tried

    tried = run(try_all())
    print(f"{tried} changed bytes of {len(data)}")
    assert tried > 2 * len(data)
    assert campaign.lock.read_bytes() == data
    assert snapshot(c).stop is None
    run(c.close())


def test_close_removes_only_a_lock_with_its_own_token(campaign: Campaign) -> None:
    """The lock is replaced between the last write and the removal."""

    class Swapped(Unsynced):
        armed = False

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if self.armed and target.endswith("state.json"):
                replaced(campaign.lock)

    operations = Swapped()
    c = campaign.open(operations)
    operations.armed = True
    run(c.close())
    assert owner(campaign)["token"] == "t" * 32


def test_last_write_of_close_sets_owner_to_null(campaign: Campaign) -> None:
    last: list[str] = []

    class Order(Unsynced):
        def rename(self, source: str, target: str) -> None:
            last.append(os.path.basename(target))
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            last.append("unlink " + os.path.basename(path))
            super().unlink(path)

    c = campaign.open(Order())
    run(c.reserve("a"))
    run(c.close())
    assert last[-2:] == ["state.json", "unlink manifest.json.coordinator-lock"]
    assert state_of(campaign)["owner"] is None


def test_removal_that_fails_is_told_and_leaves_the_lock(campaign: Campaign) -> None:
    class Stuck(Unsynced):
        def unlink(self, path: str) -> None:
            if path == str(campaign.lock):
                raise PermissionError(1, "Operation not permitted")
            super().unlink(path)

    c = campaign.open(Stuck())
    with pytest.raises(StorageError):
        run(c.close())
    assert campaign.lock.exists()
    with refused("coordinator-lock exists", LockedError):
        campaign.open()


def test_two_coordinators_of_two_manifests_do_not_meet(campaign: Campaign, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    first, second = campaign.open(), QuickCampaign(folder).open()
    run(first.reserve("a"))
    run(second.reserve("a"))
    run(first.close())
    run(second.close())


def test_no_descriptor_is_inherited_and_only_the_directory_is_held(campaign: Campaign) -> None:
    """A worker that inherited one could hold a lock, or write, long after its coordinator."""
    inheritable: list[bool] = []

    class Asked(Unsynced):
        def create(self, path: str) -> int:
            descriptor = super().create(path)
            inheritable.append(os.get_inheritable(descriptor))
            return descriptor

    c = campaign.open(Asked())
    run(launched(c, "a"))
    numbers = [int(one) for one in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{one}")]
    held = [os.readlink(f"/proc/self/fd/{one}") for one in numbers if not os.get_inheritable(one)]
    passed_on = [os.readlink(f"/proc/self/fd/{one}") for one in numbers if os.get_inheritable(one)]
    assert [one for one in passed_on if one.startswith(str(campaign.folder))] == []
    assert [one for one in held if one.startswith(str(campaign.folder))] == [str(campaign.control)]
    assert set(inheritable) == {False}
    run(c.close())


def test_options_are_the_public_way_in(campaign: Campaign) -> None:
    options = CoordinatorOptions(
        manifest_path=str(campaign.path),
        control_directory=str(campaign.control),
        batch_id="batch-1",
        selections=campaign.selections,
        evidence_root=str(campaign.evidence),
    )
    c = Coordinator.open(options)
    assert isinstance(c, Coordinator)
    with pytest.raises(CoordinatorError):
        Coordinator.open(options)
    run(c.close())
