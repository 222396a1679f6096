"""What lies on disk: names, modes, forms, and that every change is made by the one durable way."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.documents import sha256, unseal
from coordinator.errors import DamagedError, PoisonedError, StorageError
from coordinator.files import Files, Operations, read_bounded, read_document
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    completed,
    finish,
    launched,
    phases,
    raises,
    refused,
    run,
    snapshot,
    state_of,
    tree,
)
from tests.coordinator.campaign import Campaign


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def played(campaign: Campaign, operations: Operations | None = None) -> None:
    """A batch with an entry of every phase, a stop and a stop beside it, closed."""
    c = campaign.open(operations)
    permit = run(c.reserve("a"))
    run(c.launch_once(permit, raises_nothing, job=lambda _: b"{}\n"))
    run(finish(c, permit))
    run(launched(c, "b"))
    run(c.reserve("c"))
    run(c.stop("operator_request", "1"))
    run(c.stop("canceled", "2"))
    run(c.close())


async def raises_nothing(_: Any) -> None:
    return None


def test_every_file_is_private_and_every_name_is_known(campaign: Campaign) -> None:
    old = os.umask(0)
    try:
        played(campaign)
    finally:
        os.umask(old)
    found = {name: oct(stat.S_IMODE(mode)) for name, (mode, _) in modes(campaign).items()}
    ids = sorted(os.listdir(campaign.claims))
    assert len(ids) == 2
    (job,) = [one for one in found if one.startswith("control/jobs/")]
    assert found == {
        "manifest.json": oct(campaign.path.stat().st_mode & 0o777),
        "evidence": oct(campaign.evidence.stat().st_mode & 0o777),
        "manifest.json.coordinator-claims": "0o700",
        **{f"manifest.json.coordinator-claims/{one}": "0o600" for one in ids},
        "control": "0o700",
        **{f"control/{one}": "0o700" for one in ("jobs", "inbox", "rejected", "runs", "locks")},
        **{f"control/{one}": "0o600" for one in ("state.json", "selections.json")},
        job: "0o600",
    }
    assert stat.S_IMODE((campaign.control / "events.jsonl").stat().st_mode) == 0o600


def modes(campaign: Campaign) -> dict[str, Any]:
    return tree(campaign.folder)


def test_files_and_directories_are_private_from_the_first_moment(campaign: Campaign) -> None:
    """Looked at after every operation, not only at the end."""
    loose: list[str] = []

    class Looking(Unsynced):
        def look(self) -> None:
            for name, (mode, _) in modes(campaign).items():
                ours = not name.startswith(("evidence", "manifest.json")) or "coordinator" in name or "tmp" in name
                if ours and mode & 0o077 and not stat.S_ISLNK(mode):
                    loose.append(name)

        def create(self, path: str) -> int:
            descriptor = super().create(path)
            self.look()
            return descriptor

        def make_directory(self, path: str) -> None:
            super().make_directory(path)
            self.look()

        def append(self, path: str, data: bytes) -> None:
            super().append(path, data)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            self.look()

    old = os.umask(0)
    try:
        campaign.path.chmod(0o600)
        played(campaign, Looking())
    finally:
        os.umask(old)
    assert loose == []


def test_missing_parents_of_the_control_directory_are_made_private(campaign: Campaign) -> None:
    control = campaign.folder / "deep" / "deeper" / "control"
    c = campaign.open(control_directory=control)
    for path in (control, control.parent, control.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    run(c.close())


def test_control_files_are_two_spaces_indented_with_one_newline(campaign: Campaign) -> None:
    copies: dict[str, bytes] = {}

    def keep_pending(stage: str) -> None:
        copies[f"pending at {stage}"] = (campaign.control / "pending.json").read_bytes()

    c = campaign.open(fault=keep_pending)
    copies["lock"] = campaign.lock.read_bytes()
    run(completed(c, "a"))
    run(c.stop("canceled", "привет \u0001 \U0001f3b2"))
    run(c.close())
    copies |= {path.name: path.read_bytes() for path in campaign.control.glob("*.json")}
    copies |= {path.name: path.read_bytes() for path in campaign.claims.iterdir()}
    assert len(copies) == 7
    for name, data in copies.items():
        text = data.decode()
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n", name


def test_keys_follow_their_order(campaign: Campaign) -> None:
    pendings: list[bytes] = []
    c = campaign.open(fault=lambda _: pendings.append((campaign.control / "pending.json").read_bytes()))
    permit = run(launched(c, "a"))
    run(c.close())
    state = state_of(campaign)
    assert list(state) == [
        "version", "batchId", "manifestPath", "owner", "selectionsSha256", "entries", "stop", "laterStops", "failures",
        "sha256",
    ]  # fmt: skip
    entry = state["entries"][permit.reservation_id]
    assert list(entry)[:4] == ["phase", "permit", "reservedAttempt", "receipt"]
    assert list(entry["permit"]) == ["reservationId", "batchId", "scenarioId", "executionId", "ordinal", "args"]
    pending = json.loads(pendings[0])
    assert pending["operation"] == "reserve"
    assert pending["state"]["entries"][permit.reservation_id]["phase"] == "reserved"


def test_pending_holds_the_hashes_of_before_and_after(campaign: Campaign) -> None:
    before = (sha256(campaign.path.read_bytes()), "")
    seen: list[tuple[dict[str, Any], str, str]] = []

    def fault(_: str) -> None:
        pending = unseal((campaign.control / "pending.json").read_bytes())
        seen.append(
            (pending, sha256(campaign.path.read_bytes()), sha256((campaign.control / "state.json").read_bytes()))
        )

    c = campaign.open(fault=fault)
    before = (before[0], sha256((campaign.control / "state.json").read_bytes()))
    run(c.reserve("a"))
    pending = seen[0][0]
    assert pending == seen[1][0] == seen[2][0]
    assert (pending["manifestBeforeSha256"], pending["stateBeforeSha256"]) == before == seen[0][1:]
    assert pending["manifestAfterSha256"] == seen[1][1] == sha256(campaign.path.read_bytes())
    assert seen[2][2] == sha256((campaign.control / "state.json").read_bytes()) != before[1]
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


def test_nothing_is_written_in_place(campaign: Campaign) -> None:
    """Every file that changes gets a new inode; every descriptor written to was created exclusively."""
    written: set[str] = set()

    class Created(Unsynced):
        def write(self, descriptor: int, data: bytes) -> int:
            name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
            assert name.startswith(".")
            assert name.endswith(".tmp")
            written.add(name)
            return super().write(descriptor, data)

    c = campaign.open(Created())
    inodes = {path: path.stat().st_ino for path in (campaign.path, campaign.control / "state.json")}
    held = [path.open("rb") for path in inodes]  # so that the numbers are not used again
    run(completed(c, "a"))
    for file, (path, inode) in zip(held, inodes.items(), strict=True):
        assert path.stat().st_ino != inode
        file.close()
    run(c.close())
    assert len(written) >= 10  # random names: none twice
    assert not [name for name in tree(campaign.folder) if name.endswith(".tmp")]


def test_order_of_operations_of_a_replace(tmp_path: Path) -> None:
    order: list[str] = []

    class Order(Operations):
        def create(self, path: str) -> int:
            order.append("create")
            assert os.path.dirname(path) == str(tmp_path)
            return super().create(path)

        def write(self, descriptor: int, data: bytes) -> int:
            order.append("write")
            return super().write(descriptor, data[:3])

        def set_mode(self, descriptor: int, mode: int) -> None:
            order.append(f"mode {mode:o}")
            super().set_mode(descriptor, mode)

        def sync(self, descriptor: int) -> None:
            order.append("sync")
            super().sync(descriptor)

        def rename(self, source: str, target: str) -> None:
            order.append("rename")
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            order.append("sync directory")
            super().sync_directory(path)

    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    Files(Order()).replace(str(path), b"12345678", keep_mode=True)
    assert path.read_bytes() == b"12345678"
    assert order == ["create", "write", "write", "write", "mode 640", "sync", "rename", "sync directory"]


def test_temporary_names_are_random_and_exclusive(tmp_path: Path) -> None:
    names: list[str] = []

    class Names(Operations):
        def create(self, path: str) -> int:
            names.append(os.path.basename(path))
            return super().create(path)

    for _ in range(20):
        Files(Names()).replace(str(tmp_path / "x"), b"x")
    assert len(set(names)) == 20


@pytest.mark.parametrize("kind", ["symlink", "dangling", "directory", "fifo", "file"])
@pytest.mark.parametrize("operation", ["replace", "create"])
def test_planted_temporary_name_is_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, operation: str
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    target, planted, victim = tmp_path / "x", tmp_path / ".x.guessed.tmp", tmp_path / "victim"
    victim.write_text("mine")
    make: dict[str, Callable[[], object]] = {
        "symlink": lambda: planted.symlink_to(victim),
        "dangling": lambda: planted.symlink_to("made"),
        "directory": planted.mkdir,
        "fifo": lambda: os.mkfifo(planted),
        "file": lambda: planted.write_text("theirs"),
    }
    make[kind]()
    with pytest.raises(StorageError):
        getattr(Files(), operation)(str(target), b"data")
    assert not target.exists()
    assert victim.read_text() == "mine"
    assert not (tmp_path / "made").exists()
    assert os.path.lexists(planted)


def test_create_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("first")
    with pytest.raises(FileExistsError):
        Files().create(str(path), b"second")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["x"]


def test_link_that_was_made_but_reported_as_existing_is_ours(tmp_path: Path) -> None:
    class Repeated(Operations):
        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            raise FileExistsError(errno.EEXIST, "File exists")

    Files(Repeated()).create(str(tmp_path / "x"), b"data")
    assert (tmp_path / "x").read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["x"]


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


def phases_on_disk(campaign: Campaign) -> dict[str, str]:
    return {one["permit"]["scenarioId"]: one["phase"] for one in state_of(campaign)["entries"].values()}


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
def test_reading_refuses_what_is_no_small_regular_file(tmp_path: Path, kind: str) -> None:
    import socket

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
            os.chdir(tmp_path) if len(str(path)) > 100 else None
            server.bind(str(path) if len(str(path)) <= 100 else "x")
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
