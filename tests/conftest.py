"""A child process or a listening port that the tests leave behind fails the run."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

GRACE_SECONDS = 10.0
# Python's own helpers of pools: they end with the process that owns them.
_TOLERATED = ("multiprocessing.resource_tracker", "multiprocess.resource_tracker", "multiprocessing.forkserver")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Looks for descendants, for processes that work in or were given a folder of this run, and for listening ports."""
    before = listening_ports()
    yield
    if sys.platform != "linux":
        return
    base = str(tmp_path_factory.getbasetemp())
    left = wait_until_gone(base)
    ports = listening_ports() - before
    told = [*left, *(f"port {port}" for port in sorted(ports))]
    if told:
        pytest.fail("left behind by the tests: " + "; ".join(told), pytrace=False)


def wait_until_gone(base: str) -> list[str]:
    """Wait for the ends of what is left, with a limit; describe what is still there."""
    deadline = time.monotonic() + GRACE_SECONDS
    while found := left_processes(base):
        if time.monotonic() >= deadline:
            return list(found.values())
        for pid in found:
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                select.select([descriptor], [], [], max(0.0, min(0.5, deadline - time.monotonic())))
            finally:
                os.close(descriptor)
    return []


def left_processes(base: str) -> dict[int, str]:
    """Process number -> words, of descendants of this process and of processes that belong to the folder `base`."""
    parents: dict[int, int] = {}
    states: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _read(entry / "stat").rpartition(b")")[2].split()
            if len(fields) > 1:
                states[int(entry.name)], parents[int(entry.name)] = fields[0].decode(), int(fields[1])
    found: dict[int, str] = {}
    for pid in parents:
        if pid == os.getpid():
            continue
        command = _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip()
        if any(one in command for one in _TOLERATED):
            continue
        if _descends(pid, parents) or base in command or _folder(pid).startswith(base):
            state = " (never waited for)" if states[pid] == "Z" else ""
            found[pid] = f"process {pid}{state}: {command[:200] or 'ended'}"
    return found


def _descends(pid: int, parents: dict[int, int]) -> bool:
    seen = 0
    while (pid := parents.get(pid, 0)) > 1 and seen < 100:
        if pid == os.getpid():
            return True
        seen += 1
    return False


def _folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def listening_ports() -> set[int]:
    """TCP ports on which this process listens."""
    inodes = set()
    folder = Path("/proc/self/fd")
    for descriptor in folder.iterdir() if folder.is_dir() else ():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in _read(Path(f"/proc/self/net/{table}")).decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports
