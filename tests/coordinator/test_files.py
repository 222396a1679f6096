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

from coordinator.documents import sha256, unseal
from coordinator.errors import StorageError
from coordinator.files import Files, Operations
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    completed,
    launched,
    run,
    state_of,
    tree,
)
from tests.coordinator.campaign import Campaign
from tests.coordinator.plays import played


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


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


class NoSync(Operations):
    """The parent's sync fails `failures` times; every directory that was synced in full is noted."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "the cut came here")
        super().sync_directory(path)
        self.synced.append(path)


def test_a_directory_found_by_a_second_try_is_made_durable_by_it(tmp_path: Path) -> None:
    operations = NoSync(failures=1)
    files = Files(operations)
    path = str(tmp_path / "control")
    with pytest.raises(StorageError):
        files.make_directory(path)
    assert os.path.isdir(path)
    assert operations.synced == []
    assert files.make_directory(path) is False
    assert operations.synced == [str(tmp_path)]
