"""What a test may have left running, and the bridges that tests play."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivers.base import Launch
from drivers.bridge_file import load_bridge

BRIDGES = Path(__file__).parent / "bridges"
EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def children_of_this_process() -> list[int]:
    """Process ids of this process's children, zombies included (Linux; elsewhere nothing can be said)."""
    found: list[int] = []
    for tasks in Path("/proc/self/task").glob("*/children"):
        found += [int(word) for word in tasks.read_text().split()]
    return [pid for pid in found if not _is_of_python(pid)]


def _is_of_python(pid: int) -> bool:
    """Python's own helpers of pools, which an earlier test of the same process may have started."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b".resource_tracker" in command or b".forkserver" in command


def is_alive(pid: int) -> bool:
    """Whether a process of that number runs; a zombie is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def counting_settings(*tricks: str, **more: Any) -> dict[str, Any]:
    """Settings of the counting bridge with these tricks; time limits that a busy machine keeps."""
    command = [sys.executable, "-S", str(BRIDGES / "counting.py"), *tricks]
    return {"command": command, "startup_timeout_ms": 20_000, "step_timeout_ms": 10_000, **more}


def cavern_settings(bridge_file: str, *flags: str) -> dict[str, Any]:
    """Settings of the example; its Python form runs in this interpreter rather than in the first one on PATH."""
    settings = {
        **load_bridge(EXAMPLES / "cavern" / bridge_file),
        "startup_timeout_ms": 20_000,
        "step_timeout_ms": 10_000,
    }
    program, *rest = settings["command"]
    settings["command"] = [*([sys.executable, "-S"] if program == "python3" else [program]), *rest, *flags]
    return settings


def launch(
    directory: Path,
    *tricks: str,
    seed: int | None = 7,
    environment: Mapping[str, str] = ENVIRONMENT,
    playtest: Mapping[str, Any] | None = None,
    **more: Any,
) -> Launch:
    """A launch of the counting bridge."""
    return Launch(
        settings=counting_settings(*tricks, **more),
        directory=directory,
        seed=seed,
        environment=environment,
        playtest=playtest or {},
    )
