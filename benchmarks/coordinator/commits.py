"""A commit beside a bare loop of its own writes, syncs and renames; and one on a large manifest."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.coordinator.campaign import selections, write_manifest
from benchmarks.coordinator.measure import Ratio, paired, seconds_of
from coordinator import Completion, Coordinator, CoordinatorOptions, Permit
from coordinator.documents import sha256
from coordinator.files import Operations

T = TypeVar("T")

COMMIT_LIMIT = 1.25
LARGE_LIMIT = 2.0
LARGE_ATTEMPTS = 10_000


class Recorder(Operations):
    """The real operations, with the size of each: what the bare loop does again."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    def create(self, path: str) -> int:
        self.done.append(("create", 0))
        return super().create(path)

    def write(self, descriptor: int, data: bytes) -> int:
        self.done.append(("write", len(data)))
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self.done.append(("sync", 0))
        super().sync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self.done.append(("rename", 0))
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.done.append(("unlink", 0))
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self.done.append(("sync_directory", 0))
        super().sync_directory(path)

    def append(self, path: str, data: bytes) -> None:
        self.done.append(("append", len(data)))
        super().append(path, data)


def replay(folder: str, done: list[tuple[str, int]]) -> None:
    """The same system calls in the same order on files of the same sizes, and nothing else."""
    target, temporary, descriptor = os.path.join(folder, "target"), os.path.join(folder, "temporary"), -1
    for method, size in done:
        if method == "create":
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        elif method == "write":
            os.write(descriptor, _FILLING[:size])
        elif method == "sync":
            os.fsync(descriptor)
            os.close(descriptor)
        elif method == "rename":
            os.rename(temporary, target)
        elif method == "unlink":
            os.unlink(target)
        elif method == "sync_directory":
            directory = os.open(folder, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        elif method == "append":
            events = os.open(os.path.join(folder, "events"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(events, _FILLING[:size])
            os.close(events)


_FILLING = secrets.token_bytes(1 << 20)


def completion_of(permit: Permit) -> Completion:
    return Completion(
        outcome="passed",
        finished_at="2026-01-01T00:10:00.000Z",
        definition_digest=f"definition-{permit.scenario_id}",
        grader_digest="grader-1",
    )


@contextmanager
def batch(names: list[str], earlier_attempts: int = 0) -> Iterator[tuple[Coordinator, Recorder, Path]]:
    """An open coordinator on a new manifest on a real disk, and a folder beside it for the bare loop."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        bare = folder / "bare"
        bare.mkdir()
        write_manifest(folder / "manifest.json", names, earlier_attempts)
        recorder = Recorder()
        options = CoordinatorOptions(
            manifest_path=folder / "manifest.json",
            control_directory=folder / "control",
            batch_id="benchmark",
            selections=selections(names, earlier_attempts),
            evidence_root=folder,
        )
        yield Coordinator.open(options, operations=recorder), recorder, bare


async def launched(permit: Permit) -> None:
    return None


async def timed(change: Awaitable[T]) -> tuple[float, T]:
    begin = time.perf_counter()
    found = await change
    return time.perf_counter() - begin, found


async def measure_commits(campaigns: int = 4, size: int = 12) -> Ratio:
    """Reservations and completions of small campaigns, each followed by its own operations played bare."""
    names = [f"s{number}" for number in range(size)]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(campaigns):
        with batch(names) as (coordinator, recorder, bare):
            for name in names:
                recorder.done = []
                seconds, permit = await timed(coordinator.reserve(name))
                ours.append(seconds)
                theirs.append(seconds_of(lambda: replay(str(bare), recorder.done)))
                await coordinator.launch_once(permit, launched)
                recorder.done = []
                seconds, _ = await timed(coordinator.complete(permit, completion_of(permit)))
                ours.append(seconds)
                theirs.append(seconds_of(lambda: replay(str(bare), recorder.done)))
            await coordinator.close()
    return paired("commit", "its writes, syncs and renames, bare", ours, theirs, COMMIT_LIMIT)


def replace_bare(path: Path) -> None:
    """Read, decode, encode, hash and durably replace, with the fastest codec at hand."""
    data = path.read_bytes()
    again = msgspec.json.format(msgspec.json.encode(msgspec.json.decode(data)), indent=2) + b"\n"
    sha256(again)
    write_durably(path, again)


def write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


async def measure_large_commits(rounds: int = 6) -> Ratio:
    """A reservation on a manifest of 10,000 attempts beside a bare replacement of a file of the same bytes."""
    names = [f"s{number}" for number in range(1000)]
    ours: list[float] = []
    theirs: list[float] = []
    with batch(names, LARGE_ATTEMPTS // len(names)) as (coordinator, _, bare):
        copy = bare / "manifest.json"
        for name in names[:rounds]:
            seconds, permit = await timed(coordinator.reserve(name))
            ours.append(seconds)
            write_durably(copy, (bare.parent / "manifest.json").read_bytes())
            theirs.append(seconds_of(lambda: replace_bare(copy)))
            await coordinator.launch_once(permit, launched)
            seconds, _ = await timed(coordinator.complete(permit, completion_of(permit)))
            ours.append(seconds)
            theirs.append(seconds_of(lambda: replace_bare(copy)))
        await coordinator.close()
    return paired(
        f"commit, {LARGE_ATTEMPTS} attempts", "read, decode, encode, hash, replace, bare", ours, theirs, LARGE_LIMIT
    )
