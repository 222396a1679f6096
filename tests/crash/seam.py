"""Faults at one numbered file operation, as a killed process and a failing disk show them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from coordinator.files import Operations

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone; no handler of it runs anything more on the disk."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens at operation `number` (from 1)."""

    number: int
    kind: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was asked for: its method and the file's name."""

    method: str
    name: str


EVERYWHERE = ("crash before", "crash after")
ERRORS = ("EIO once", "EIO for good")
FULL = ("ENOSPC once", "ENOSPC for good")
LANDED = ("landed, EIO once", "landed, EIO for good")
WRITES = ("torn, crash", "torn, EIO once", "torn, ENOSPC for good", "short write")
ALLOCATE = ("create", "write", "append", "make_directory", "link")
NUMBERS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EEXIST": errno.EEXIST, "ENOENT": errno.ENOENT}


def kinds_for(step: Step) -> tuple[str, ...]:
    """Every kind of fault that this operation can show."""
    if step.method == "free_bytes":
        return ("crash before", *ERRORS)
    kinds: tuple[str, ...] = (*EVERYWHERE, *ERRORS, *LANDED)
    if step.method in ALLOCATE:
        kinds = (*kinds, *FULL)
    if step.method in ("write", "append"):
        return (*kinds, *WRITES)
    # A file server that asks again after a lost answer: it happened, and then it could not happen again.
    if step.method in ("create", "link", "make_directory"):
        return (*kinds, "landed, EEXIST once")
    if step.method in ("unlink", "rename"):
        return (*kinds, "landed, ENOENT once")
    return kinds


class FaultyOperations(Operations):
    """The real operations without waiting for the platter, counted once armed, and one of them at fault."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.armed = fault is not None
        self.steps: list[Step] = []
        self.dead = False
        self.broken: int | None = None
        self.reached: Step | None = None

    def arm(self, fault: Fault | None) -> None:
        """Count from here on, and fail as `fault` says."""
        self.fault, self.armed, self.steps = fault, True, []

    def create(self, path: str) -> int:
        return self._do("create", path, lambda: super(FaultyOperations, self).create(path))

    def write(self, descriptor: int, data: bytes) -> int:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        half = max(1, len(data) // 2)
        return self._do(
            "write",
            name,
            lambda: super(FaultyOperations, self).write(descriptor, data),
            lambda: super(FaultyOperations, self).write(descriptor, data[:half]),
        )

    def set_mode(self, descriptor: int, mode: int) -> None:
        self._do("set_mode", "", lambda: super(FaultyOperations, self).set_mode(descriptor, mode))

    def sync(self, descriptor: int) -> None:
        self._do("sync", "", lambda: None)

    def rename(self, source: str, target: str) -> None:
        self._do("rename", target, lambda: super(FaultyOperations, self).rename(source, target))

    def link(self, source: str, target: str) -> None:
        self._do("link", target, lambda: super(FaultyOperations, self).link(source, target))

    def unlink(self, path: str) -> None:
        self._do("unlink", path, lambda: super(FaultyOperations, self).unlink(path))

    def make_directory(self, path: str) -> None:
        self._do("make_directory", path, lambda: super(FaultyOperations, self).make_directory(path))

    def remove_directory(self, path: str) -> None:
        self._do("remove_directory", path, lambda: super(FaultyOperations, self).remove_directory(path))

    def sync_directory(self, path: str) -> None:
        self._do("sync_directory", path, lambda: None)

    def append(self, path: str, data: bytes) -> None:
        self._do(
            "append",
            path,
            lambda: super(FaultyOperations, self).append(path, data),
            lambda: super(FaultyOperations, self).append(path, data[: len(data) // 2]),
        )

    def free_bytes(self, path: str) -> int:
        return self._do("free_bytes", path, lambda: super(FaultyOperations, self).free_bytes(path))

    def _do(self, method: str, path: str, act: Callable[[], T], half: Callable[[], T] | None = None) -> T:
        if not self.armed:
            return act()
        if self.dead:
            raise Crash
        step = Step(method=method, name=os.path.basename(path))
        self.steps.append(step)
        if self.broken is not None:
            raise OSError(self.broken, os.strerror(self.broken), path)
        if self.fault is None or len(self.steps) != self.fault.number:
            return act()
        self.reached = step
        kind = self.fault.kind
        if kind == "crash before":
            raise self._crash()
        if kind == "short write":
            return (half or act)()
        if kind.startswith("torn"):
            (half or act)()
        elif kind == "crash after":
            with contextlib.suppress(OSError):  # an operation that fails by itself is done, too
                act()
        elif kind.startswith("landed"):
            try:
                act()
            except OSError:  # it did not land: it failed by itself
                self.reached = None
                raise
        if kind.endswith("crash") or kind == "crash after":
            raise self._crash()
        number = next(value for name, value in NUMBERS.items() if name in kind)
        if kind.endswith("for good"):
            self.broken = number
        raise OSError(number, os.strerror(number), path)

    def _crash(self) -> Crash:
        self.dead = True
        return Crash()
