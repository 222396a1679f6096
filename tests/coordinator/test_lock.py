"""Ownership: one complete lock, never stolen, read again before each change."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import InvalidInputError, LockedError
from coordinator.files import Operations
from coordinator.identity import boot_id, process_start
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    nothing_written,
    refused,
    run,
    state_of,
)
from tests.coordinator.campaign import Campaign


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def owner(campaign: Campaign) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(campaign.lock.read_text())
    return found


def test_lock_tells_who_owns_the_manifest(campaign: Campaign) -> None:
    c = campaign.open()
    lock = owner(campaign)
    assert list(lock) == [
        "pid",
        "host",
        "bootId",
        "processStart",
        "token",
        "batchId",
        "controlDirectory",
        "createdAt",
    ]
    assert lock["pid"] == os.getpid()
    assert (lock["bootId"], lock["processStart"]) == (boot_id(), process_start(os.getpid()))
    assert (lock["batchId"], lock["controlDirectory"]) == ("batch-1", str(campaign.control))
    assert len(lock["token"]) >= 32
    assert stat.S_IMODE(campaign.lock.stat().st_mode) == 0o600
    assert campaign.lock.stat().st_nlink == 1
    assert campaign.lock.read_text() == json.dumps(lock, indent=2) + "\n"
    assert state_of(campaign)["owner"] == lock
    run(c.close())
    assert not campaign.lock.exists()


def test_tokens_are_fresh_each_time(campaign: Campaign) -> None:
    tokens = set()
    for _ in range(3):
        c = campaign.open()
        tokens.add(owner(campaign)["token"])
        run(c.close())
    assert len(tokens) == 3


def test_lock_is_never_seen_incomplete(campaign: Campaign) -> None:
    """At no operation of `open` is there a lock that does not name its owner."""
    seen: set[bool] = set()

    class Looking(Unsynced):
        def look(self) -> None:
            seen.add(campaign.lock.exists())
            if campaign.lock.exists():
                assert owner(campaign)["token"]

        def create(self, path: str) -> int:
            self.look()
            return super().create(path)

        def write(self, descriptor: int, data: bytes) -> int:
            self.look()
            return super().write(descriptor, data)

        def sync(self, descriptor: int) -> None:
            self.look()

        def link(self, source: str, target: str) -> None:
            self.look()
            super().link(source, target)
            self.look()

    run(campaign.open(Looking()).close())
    assert seen == {False, True}


def test_lock_is_synced_before_it_gets_its_name_and_its_directory_after(campaign: Campaign) -> None:
    order: list[str] = []

    class Order(Operations):
        def sync(self, descriptor: int) -> None:
            order.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))[:26])
            super().sync(descriptor)

        def link(self, source: str, target: str) -> None:
            order.append("link " + os.path.basename(target))
            super().link(source, target)

        def sync_directory(self, path: str) -> None:
            order.append("sync directory " + os.path.basename(path))
            super().sync_directory(path)

    run(campaign.open(Order()).close())
    folder = os.path.basename(campaign.folder)
    assert order[:3] == [
        "sync .manifest.json.coordinator",
        "link manifest.json.coordinator-lock",
        f"sync directory {folder}",
    ]


def test_second_owner_is_refused_with_the_facts_of_the_first(campaign: Campaign) -> None:
    c = campaign.open()
    for control in (campaign.control, campaign.folder / "another control"):
        with nothing_written(campaign), pytest.raises(LockedError) as caught:
            campaign.open(control_directory=control, batch_id="batch-2")
        assert str(os.getpid()) in str(caught.value)
        assert owner(campaign)["token"] in str(caught.value)
    run(c.reserve("a"))  # the first one does not notice
    run(c.close())


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(512))


def foreign_text(path: Path) -> None:
    path.write_text("pid 1\n")


def dead_owner(path: Path) -> None:
    facts = {"pid": 2**22 + 1, "host": "elsewhere", "bootId": "b", "processStart": "1", "token": "t" * 32}
    facts |= {"batchId": "batch-1", "controlDirectory": "/nowhere", "createdAt": "1900-01-01T00:00:00.000Z"}
    path.write_text(json.dumps(facts))


def own_pid(path: Path) -> None:
    """PID reuse: the number is ours, the owner is not."""
    dead_owner(path)
    path.write_text(path.read_text().replace(str(2**22 + 1), str(os.getpid())))


def directory(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


LOCKS: list[Callable[[Path], None]] = [
    empty, zeros, foreign_text, dead_owner, own_pid, directory, fifo, dangling, huge,
]  # fmt: skip


@pytest.mark.parametrize("plant", LOCKS)
def test_lock_of_any_content_is_never_stolen(campaign: Campaign, plant: Callable[[Path], None]) -> None:
    plant(campaign.lock)
    before = os.lstat(campaign.lock)
    for control in (campaign.control, campaign.folder / "another"):
        with refused("coordinator-lock exists", LockedError):
            campaign.open(control_directory=control)
    after = os.lstat(campaign.lock)
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)
    assert sorted(os.listdir(campaign.folder)) == ["evidence", "manifest.json", campaign.lock.name]


def test_lock_that_appears_at_the_last_moment_is_not_replaced(campaign: Campaign) -> None:
    class Race(Unsynced):
        def link(self, source: str, target: str) -> None:
            if target == str(campaign.lock) and not campaign.lock.exists():
                dead_owner(campaign.lock)
            super().link(source, target)

    with refused("coordinator-lock exists", LockedError):
        campaign.open(Race())
    assert owner(campaign)["token"] == "t" * 32
    assert sorted(os.listdir(campaign.folder)) == ["evidence", "manifest.json", campaign.lock.name]


CHILD = """
import sys
from tests.coordinator.campaign import Campaign
from pathlib import Path
campaign = Campaign(Path(sys.argv[1]))
c = campaign.open()
print(c.state.owner.token, flush=True)
sys.stdin.read()
"""


def test_lock_of_a_process_that_was_killed_stays(campaign: Campaign) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(campaign.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        token = child.stdout.readline().strip()
        assert token
        with refused("coordinator-lock exists", LockedError):
            campaign.open()
        child.kill()
    assert child.wait() < 0
    with nothing_written(campaign), refused(token, LockedError):
        campaign.open()


def test_real_file_is_locked_through_a_symbolic_link(campaign: Campaign) -> None:
    way = campaign.folder / "elsewhere"
    way.mkdir()
    (way / "link.json").symlink_to("../manifest.json")
    (campaign.folder / "way").symlink_to("elsewhere")
    c = campaign.open(manifest_path=campaign.folder / "way" / "link.json")
    assert campaign.lock.exists()
    assert os.listdir(way) == ["link.json"]
    with refused("coordinator-lock exists", LockedError):
        campaign.open()
    run(c.reserve("a"))
    assert (way / "link.json").is_symlink()
    assert campaign.row("a")["outcome"] == "running"
    assert state_of(campaign)["manifestPath"] == str(campaign.path)
    run(c.close())
    run(campaign.open().close())  # the same manifest by its real name


def test_manifest_with_several_hard_links_is_refused(campaign: Campaign) -> None:
    other = campaign.folder / "other.json"
    os.link(campaign.path, other)
    for path in (campaign.path, other):
        with nothing_written(campaign), refused("hard links", InvalidInputError):
            campaign.open(manifest_path=path)
    other.unlink()
    run(campaign.open().close())
