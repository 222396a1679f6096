"""Which process this is, beyond its number: numbers are used again, host names are shared by containers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Literal

import msgspec

Liveness = Literal["alive", "dead", "unknown"]


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`process_start`: clock ticks since boot (Linux), or the start time as the system prints it."""

    pid: int
    host: str
    boot_id: str
    process_start: str


def own_identity() -> ProcessIdentity:
    """The calling process."""
    return ProcessIdentity(
        pid=os.getpid(),
        host=socket.gethostname(),
        boot_id=boot_id(),
        process_start=process_start(os.getpid()) or "",
    )


def boot_id() -> str:
    """One string per boot of this machine."""
    if sys.platform == "linux":
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    return _ask("sysctl", "-n", "kern.bootsessionuuid")


def process_start(pid: int) -> str | None:
    """When the process with this number started; None if there is none, or it has ended and only waits to be reaped."""
    if sys.platform != "linux":
        return _ask("ps", "-o", "lstart=", "-p", str(pid)) or None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold spaces and brackets: fields are counted behind the last bracket.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def liveness(found: ProcessIdentity) -> Liveness:
    """`alive` or `dead` on this host (nothing outlives a boot); `unknown` for another host."""
    if found.host != socket.gethostname():
        return "unknown"
    if found.boot_id != boot_id():
        return "dead"
    return "alive" if process_start(found.pid) == found.process_start else "dead"


def _ask(*command: str) -> str:
    found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    return found.stdout.strip()
