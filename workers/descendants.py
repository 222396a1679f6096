"""Every process below one, and their end: found through /proc, named by start time, signalled through pidfds only.

A number alone never gets a signal: between looking and signalling it may belong to somebody else. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_ROUND_SECONDS = 0.2


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the process table. `start` is in clock ticks since boot and tells a reused number apart."""

    pid: int
    parent: int
    state: str
    start: str
    name: str

    @property
    def ended(self) -> bool:
        """Dead, and only its number is still kept for whoever waits for it."""
        return self.state in "ZX"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the descendants: names with numbers, for people."""

    killed: list[str]
    survivors: list[str]


def become_subreaper() -> None:
    """From now on orphans below this process become its own children. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """No core dump and no reading of this process's memory by others of the same user. Raises OSError."""
    _prctl(_PR_SET_DUMPABLE, 0)


def wake_when_parent_ends() -> None:
    """Ask for SIGCONT at the parent's death: it wakes a stopped process and harms no other. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def read_process(pid: int) -> ProcessFacts | None:
    """The process's line, or None if there is no such process."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    return ProcessFacts(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0].decode(),
        start=fields[19].decode(),
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
    )


def process_table() -> list[ProcessFacts]:
    """All processes that can be seen now."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [facts for number in numbers if (facts := read_process(number)) is not None]


def descendants(root: int) -> list[ProcessFacts]:
    """Every process below `root`, parents before children, the dead that nobody waited for included."""
    children: dict[int, list[ProcessFacts]] = {}
    for facts in process_table():
        children.setdefault(facts.parent, []).append(facts)
    found: list[ProcessFacts] = []
    level = children.get(root, [])
    while level:
        found.extend(level)
        level = [child for facts in level for child in children.get(facts.pid, [])]
    return found


def living_descendants(root: int) -> list[ProcessFacts]:
    """Those of `descendants` that have not ended."""
    return [facts for facts in descendants(root) if not facts.ended]


def open_process(facts: ProcessFacts) -> int | None:
    """A pidfd of exactly this process, or None if it has ended or its number was given away."""
    try:
        descriptor = os.pidfd_open(facts.pid)
    except OSError:
        return None
    # The descriptor pins whoever has the number now; the start time says whether that is still the one we saw.
    now = read_process(facts.pid)
    if now is None or now.start != facts.start:
        os.close(descriptor)
        return None
    return descriptor


def signal_descendants(root: int, *numbers: int) -> None:
    """Send the signals, in order, to every living descendant of `root`."""
    for facts in living_descendants(root):
        descriptor = open_process(facts)
        if descriptor is None:
            continue
        try:
            for number in numbers:
                _send(descriptor, number)
        finally:
            os.close(descriptor)


def end_descendants(root: int, *, limit_seconds: float, reap: Callable[[], None]) -> Ended:
    """Kill every descendant of `root` until none is left, at most `limit_seconds` long.

    Helpers that start themselves again cannot outrun it: the whole tree is stopped before it is killed. Orphans stay
    below `root` only if it is a subreaper. `reap` waits, without blocking, for the caller's ended children.
    """
    deadline = time.monotonic() + limit_seconds
    killed: dict[tuple[int, str], str] = {}
    while True:
        reap()
        living = living_descendants(root)
        if not living:
            return Ended(killed=list(killed.values()), survivors=[])
        if time.monotonic() >= deadline:
            return Ended(killed=list(killed.values()), survivors=[_label(facts) for facts in living])
        frozen = _freeze(root, deadline)
        for (pid, start), (descriptor, label) in frozen.items():
            _send(descriptor, signal.SIGKILL)
            killed[(pid, start)] = label
        _await_ends([descriptor for descriptor, _ in frozen.values()], _ROUND_SECONDS)
        for descriptor, _ in frozen.values():
            os.close(descriptor)


def _freeze(root: int, deadline: float) -> dict[tuple[int, str], tuple[int, str]]:
    frozen: dict[tuple[int, str], tuple[int, str]] = {}
    while True:
        fresh = [facts for facts in living_descendants(root) if (facts.pid, facts.start) not in frozen]
        found = False
        for facts in fresh:
            descriptor = open_process(facts)
            if descriptor is not None:
                _send(descriptor, signal.SIGSTOP)
                frozen[(facts.pid, facts.start)] = (descriptor, _label(facts))
                found = True
        if not found or time.monotonic() >= deadline:
            return frozen


def _await_ends(descriptors: list[int], limit_seconds: float) -> None:
    deadline = time.monotonic() + limit_seconds
    waiting = set(descriptors)
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting and (rest := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(rest * 1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)


def _send(descriptor: int, number: int) -> None:
    # Ended meanwhile, or (a set-user-id game) not ours to signal: the next look at the table tells.
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(descriptor, number)


def _label(facts: ProcessFacts) -> str:
    return f"{facts.name} ({facts.pid})"
