"""A modelled disk: what a power cut may leave of a sequence of operations, by what POSIX promises and no more.

Data that was not synced may be absent, partial, torn or zeroed. Names that changed since their directory was synced
may be as before or as after, each for itself. A synced file and a synced directory stay.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coordinator.files import Operations

DIRECTORY = -1


class Event(NamedTuple):
    """One recorded operation. `inode` names the file that a descriptor or name led to."""

    method: str
    path: str = ""
    target: str = ""
    inode: int = 0
    data: bytes = b""


class RecordingOperations(Operations):
    """The real operations, recorded for the model; `lose` leaves out syncs, as a mutant would."""

    def __init__(self, lose: str = "") -> None:
        self.events: list[Event] = []
        self.lose = lose
        self._inodes = itertools.count(1)
        self._open: dict[int, tuple[int, str]] = {}
        self._named: dict[str, int] = {}

    def note(self, event: Event) -> None:
        self.events.append(event)

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        inode = next(self._inodes)
        self._open[descriptor] = inode, path
        self._named[path] = inode
        self.note(Event("create", path, inode=inode))
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        written = super().write(descriptor, data)
        self.note(Event("write", inode=self._open[descriptor][0], data=data[:written]))
        return written

    def sync(self, descriptor: int) -> None:
        inode, path = self._open[descriptor]
        if self.lose != f"sync {target_of(path)}":
            self.note(Event("sync", inode=inode))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._named[target] = inode = self._named.pop(source, 0)
        self.note(Event("rename", source, target, inode))

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._named[target] = inode = self._named.get(source, 0)
        self.note(Event("link", source, target, inode))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.note(Event("unlink", path))

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self.note(Event("make_directory", path, inode=DIRECTORY))

    def sync_directory(self, path: str) -> None:
        previous = self.events[-1]
        changed = previous.target or previous.path
        if self.lose != f"sync directory after {previous.method} of {target_of(changed)}":
            self.note(Event("sync_directory", path))

    def append(self, path: str, data: bytes) -> None:
        """Lines for people: never read back, so not modelled."""
        super().append(path, data)


def target_of(path: str) -> str:
    """The name that a temporary name stands for; a claim's is `claim`, a job's `job`, a lock's `lock`."""
    name = os.path.basename(path)
    if name.startswith(".") and name.endswith(".tmp"):
        name = name[1:].rsplit(".", 2)[0]
    if name.endswith("coordinator-lock"):
        return "lock"
    if os.path.basename(os.path.dirname(path)).endswith("coordinator-claims"):
        return "claim"
    if os.path.basename(os.path.dirname(path)) == "jobs":
        return "job"
    return name


class Disk(NamedTuple):
    """Names (absolute) to their content; None is a directory."""

    names: tuple[tuple[str, bytes | None], ...]


class ModelledDisk:
    """The states that may be found after a power cut, kept while operations are played."""

    def __init__(self, folder: Path) -> None:
        """What lies in `folder` now is durable."""
        self.folder = str(folder)
        self.durable: dict[str, int] = {}
        self.changes: dict[str, list[Event]] = {}
        self.synced: dict[int, bytes] = {}
        self.written: dict[int, bytes] = {}
        self._old = itertools.count(-2, -1)
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                self.durable[str(path)] = DIRECTORY
            else:
                inode = next(self._old)
                self.durable[str(path)] = inode
                self.synced[inode] = self.written[inode] = path.read_bytes()

    def play(self, event: Event) -> None:
        match event.method:
            case "create" | "make_directory" | "unlink":
                self._change(event.path, event)
                self.written.setdefault(event.inode, b"")
            case "rename" | "link":
                self._change(event.target, event)
            case "write":
                self.written[event.inode] += event.data
            case "sync":
                self.synced[event.inode] = self.written[event.inode]
            case "sync_directory":
                for change in self.changes.pop(event.path, []):
                    apply(self.durable, change)

    def _change(self, path: str, event: Event) -> None:
        self.changes.setdefault(os.path.dirname(path), []).append(event)

    def states(self) -> Iterator[Disk]:
        """Every legal state of the disk after a cut now; equal ones may come twice."""
        directories = [subsets(changes) for changes in self.changes.values()]
        for chosen in itertools.product(*directories):
            names = dict(self.durable)
            for changes in chosen:
                for change in changes:
                    apply(names, change)
            yield from self._with_contents(names)

    def _with_contents(self, names: dict[str, int]) -> Iterator[Disk]:
        reachable = {path: inode for path, inode in names.items() if self._reachable(path, names)}
        unsynced = sorted(
            inode
            for inode in set(reachable.values())
            if inode != DIRECTORY and self.synced.get(inode) != self.written.get(inode)
        )
        for contents in itertools.product(*(torn(self.written[inode]) for inode in unsynced)):
            found = dict(zip(unsynced, contents, strict=True))
            yield Disk(
                tuple(
                    (path, None if inode == DIRECTORY else found.get(inode, self.synced.get(inode, b"")))
                    for path, inode in sorted(reachable.items())
                )
            )

    def _reachable(self, path: str, names: dict[str, int]) -> bool:
        parent = os.path.dirname(path)
        return parent == self.folder or (parent in names and self._reachable(parent, names))


def apply(names: dict[str, int], change: Event) -> None:
    match change.method:
        case "create" | "make_directory":
            names[change.path] = change.inode
        case "unlink":
            names.pop(change.path, None)
        case "link":
            names[change.target] = change.inode or names.get(change.path, 0)
        case "rename":
            moved = names.pop(change.path, change.inode)
            names[change.target] = change.inode or moved


def subsets(changes: list[Event]) -> list[tuple[Event, ...]]:
    return [chosen for size in range(len(changes) + 1) for chosen in itertools.combinations(changes, size)]


def torn(data: bytes) -> tuple[bytes, ...]:
    """Absent, partial, torn, zeroed, whole."""
    half = len(data) // 2
    return b"", data[:half], data[:half] + bytes(len(data) - half), bytes(len(data)), data


def restore(folder: Path, disk: Disk) -> None:
    """Make `folder` hold exactly this. A directory that stands is kept."""
    wanted = dict(disk.names)
    for path in sorted(folder.rglob("*"), reverse=True):
        if str(path) not in wanted:
            path.rmdir() if path.is_dir() else path.unlink()
    for name, content in disk.names:
        path = Path(name)
        if content is None:
            path.mkdir(mode=0o700, exist_ok=True)
        else:
            path.unlink(missing_ok=True)  # a second name of it must not change with it
            path.write_bytes(content)
