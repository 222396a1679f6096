"""Errors of the system at each write; events, which change nothing; strict, bounded reading."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.errors import DamagedError, PoisonedError, StorageError
from coordinator.files import read_bounded, read_document
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    completed,
    phases,
    raises,
    refused,
    run,
    snapshot,
    state_of,
    untouched,
)
from tests.coordinator.campaign import Campaign
from tests.coordinator.plays import phases_on_disk, played


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- errors of the system: each kind at each write of a commit

KINDS = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO, errno.EINTR, errno.EEXIST]


class Failing(Unsynced):
    """One operation fails on files whose name holds a word, once armed; `sync` is really called."""

    def __init__(self, operation: str, word: str, number: int) -> None:
        self.operation, self.word, self.number = operation, word, number
        self.armed = False
        self.failures = 0

    def fail(self, operation: str, path: str) -> None:
        if self.armed and operation == self.operation and self.word in os.path.basename(path):
            self.failures += 1
            raise OSError(self.number, os.strerror(self.number))

    def create(self, path: str) -> int:
        self.fail("create", path)
        return super().create(path)

    def write(self, descriptor: int, data: bytes) -> int:
        self.fail("write", os.readlink(f"/proc/self/fd/{descriptor}"))
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self.fail("sync", os.readlink(f"/proc/self/fd/{descriptor}"))

    def rename(self, source: str, target: str) -> None:
        self.fail("rename", target)
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self.fail("sync_directory", path)


@pytest.mark.parametrize("number", KINDS, ids=[errno.errorcode[one] for one in KINDS])
@pytest.mark.parametrize("word", ["pending", "manifest", "state"])
@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_error_in_a_commit_poisons_and_keeps_the_lock(
    campaign: Campaign, operation: str, word: str, number: int
) -> None:
    operations = Failing(operation, word, number)
    c = campaign.open(operations)
    operations.armed = True
    before = campaign.path.read_bytes()
    with pytest.raises(StorageError) as caught:
        run(c.reserve("a"))
    assert caught.value.errno == number
    assert operations.failures == 1  # an fsync that failed is not tried again, nor anything else
    for call in (c.reserve("a"), c.stop("canceled", "x"), c.close()):
        with pytest.raises(PoisonedError):
            run(call)
    assert operations.failures == 1
    assert campaign.lock.exists()
    json.loads(campaign.path.read_text())
    assert state_of(campaign)["entries"] == {}
    if word != "state":
        assert campaign.path.read_bytes() == before
    # A person's recovery settles it; here only the lock is taken away, as recovery would after its own.
    campaign.lock.unlink()
    c = campaign.open()
    rows = campaign.read()["scenarios"][0]["attempts"]
    assert len(rows) == len(snapshot(c).entries) == (1 if word == "state" else 0)
    run(c.close())


@pytest.mark.parametrize("folder", ["control", "the folder"])
def test_failed_directory_sync_in_a_commit_poisons(campaign: Campaign, folder: str) -> None:
    operations = Failing("sync_directory", "control" if folder == "control" else campaign.folder.name, errno.EIO)
    c = campaign.open(operations)
    operations.armed = True
    with pytest.raises(StorageError):
        run(c.reserve("a"))
    assert operations.failures == 1
    with pytest.raises(PoisonedError):
        run(c.snapshot())
    assert campaign.lock.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_error_in_a_change_of_the_state_alone_poisons(campaign: Campaign, number: int) -> None:
    operations = Failing("sync", "state", number)
    c = campaign.open(operations)
    operations.armed = True
    with pytest.raises(StorageError):
        run(c.stop("canceled", "x"))
    with pytest.raises(PoisonedError):
        run(c.reserve("a"))
    assert state_of(campaign)["stop"] is None
    assert campaign.lock.exists()


def test_error_while_the_claim_is_made_poisons_and_launches_nothing(campaign: Campaign) -> None:
    class NoClaim(Unsynced):
        armed = False

        def link(self, source: str, target: str) -> None:
            if self.armed:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().link(source, target)

    operations, calls = NoClaim(), 0

    async def launcher(_: Any) -> None:
        nonlocal calls
        calls += 1

    c = campaign.open(operations)
    permit = run(c.reserve("a"))
    operations.armed = True
    with pytest.raises(StorageError):
        run(c.launch_once(permit, launcher))
    with pytest.raises(PoisonedError):
        run(c.launch_once(permit, launcher))
    assert calls == 0
    assert phases_on_disk(campaign) == {"a": "launching"}
    assert os.listdir(campaign.claims) == []


def test_short_writes_are_continued_to_the_end(campaign: Campaign) -> None:
    class Short(Unsynced):
        calls = 0

        def write(self, descriptor: int, data: bytes) -> int:
            self.calls += 1
            return super().write(descriptor, data[: 1 + self.calls % 300])

    operations = Short()
    played(campaign, operations)
    assert operations.calls > 50
    assert phases_on_disk(campaign) == {"a": "completed", "b": "launched", "c": "reserved"}
    assert campaign.row("a")["outcome"] == "passed"


def test_write_that_writes_nothing_is_an_error_and_no_loop(campaign: Campaign) -> None:
    class Nothing(Unsynced):
        armed = False

        def write(self, descriptor: int, data: bytes) -> int:
            return 0 if self.armed else super().write(descriptor, data)

    operations = Nothing()
    c = campaign.open(operations)
    operations.armed = True
    with pytest.raises(StorageError):
        run(c.reserve("a"))
    assert campaign.lock.exists()


@pytest.mark.parametrize("number", KINDS, ids=[errno.errorcode[one] for one in KINDS])
@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_error_while_the_lock_is_made_leaves_no_lock(campaign: Campaign, operation: str, number: int) -> None:
    operations = Failing(operation, "coordinator-lock", number)
    operations.armed = True
    with pytest.raises(CoordinatorError):
        campaign.open(operations)
    assert sorted(os.listdir(campaign.folder)) == ["evidence", "manifest.json"]
    run(campaign.open().close())


class NoState(Unsynced):
    """The first state cannot be given its name."""

    def link(self, source: str, target: str) -> None:
        if target.endswith("/state.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().link(source, target)


def test_open_that_fails_at_its_first_state_leaves_no_lock_and_can_be_opened_again(campaign: Campaign) -> None:
    """Empty directories and the selections stay: they promise nothing, and the next opening takes them as its own."""
    with untouched(campaign.path), pytest.raises(StorageError):
        campaign.open(NoState())
    assert not os.path.lexists(campaign.lock)
    assert sorted(path.name for path in campaign.control.rglob("*") if path.is_file()) == ["selections.json"]
    c = campaign.open()
    run(c.reserve("a"))
    run(c.close())


# -- events are for people


class NoEvents(Unsynced):
    def append(self, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_error_while_writing_events_changes_nothing(campaign: Campaign) -> None:
    played(campaign, NoEvents())
    assert phases_on_disk(campaign) == {"a": "completed", "b": "launched", "c": "reserved"}
    assert not (campaign.control / "events.jsonl").exists()


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink"])
def test_events_file_of_another_kind_changes_nothing(campaign: Campaign, kind: str) -> None:
    run(campaign.open().close())
    path = campaign.control / "events.jsonl"
    path.unlink()
    victim = campaign.folder / "victim"
    victim.write_text("mine")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(victim)
    c = campaign.open()
    run(completed(c, "a"))
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())
    assert victim.read_text() == "mine"


def test_events_are_never_read_back(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.close())
    (campaign.control / "events.jsonl").write_bytes(b"\xff{nonsense\n" * 100)
    c = campaign.open()
    assert (snapshot(c).stop, phases(snapshot(c))) == (None, {"a": "completed"})
    run(c.close())
    (campaign.control / "events.jsonl").unlink()
    run(campaign.open().close())


def test_failure_is_recorded_though_events_cannot_be_written(campaign: Campaign) -> None:
    c = campaign.open(NoEvents(), max_lanes=1)

    async def never(*_: Any) -> Any:
        raise AssertionError

    state = run(c.run(launch_only=raises(ZeroDivisionError()), read_completion=never, retain_failure=never))
    assert [one.phase for one in state.failures] == ["launch"]
    run(c.close())


# -- bounded, strict reading


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink", "socket", "sparse", "device"])
def test_reading_refuses_what_is_no_small_regular_file(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "symlink":
            (tmp_path / "y").write_text("{}")
            path.symlink_to("y")
        elif kind == "socket":
            monkeypatch.chdir(tmp_path)  # the name of a socket is short
            server.bind("x")
        elif kind == "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        else:
            path = Path("/dev/zero")
        with pytest.raises(DamagedError):
            read_bounded(str(path), 1 << 20)


def test_reading_says_which_file_and_why(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'{"a": 1, "a": 2}')
    with refused(f"{path} has the key 'a' twice", DamagedError):
        read_document(str(path))
    with pytest.raises(FileNotFoundError):
        read_document(str(tmp_path / "none"))


def test_free_space_is_that_of_the_control_directory_and_of_the_manifest(campaign: Campaign) -> None:
    asked: set[str] = set()

    class Asked(Unsynced):
        def free_bytes(self, path: str) -> int:
            asked.add(path)
            return super().free_bytes(path)

    c = campaign.open(Asked())
    run(c.reserve("a"))
    assert asked == {str(campaign.control), str(campaign.folder)}
    run(c.close())
