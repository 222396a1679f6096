"""What this machine and this project have and lack, each with the command that mends it. Reads, and starts nothing
but version requests."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import Literal

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.games import read_game
from coordinator.project import Project
from coordinator.settings import Overrides, settle

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 1 << 30
MEMORY_OF_A_LANE = 1 << 30
VERSION_SECONDS = 10


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `missing` keeps something from working, `absent` only what is named in `found`."""

    name: str
    status: Literal["ok", "absent", "missing"]
    found: str
    mend: str = ""


def check_machine(project: Project) -> list[Component]:
    """Python, the system's process calls, free space, lanes, Node.js."""
    return [_python(), _processes(), _disk(project), _lanes(), _node()]


def check_project(project: Project) -> list[Component]:
    """The configuration and the build it names; nothing where there is no `playlane.toml`."""
    try:
        configuration = project.read_configuration()
        if configuration is None:
            return [
                Component(
                    name="playlane.toml",
                    status="absent",
                    found=f"not in {project.root}; flags of run can name a game all the same",
                    mend="coordinate init",
                )
            ]
        settings = settle(project.root, configuration, Overrides())
        builds = [read_game(project.root, one).build for one in settings.targets]
    except CoordinatorError as error:
        return [Component(name="playlane.toml", status="missing", found=str(error), mend="edit playlane.toml")]
    runs = len(settings.targets) * len(settings.personas) * len(settings.controllers) * settings.repetitions
    return [
        Component(name="playlane.toml", status="ok", found=f"{runs} runs, {settings.lanes} at a time"),
        *(
            Component(name="build", status="ok", found=f"{one.ref}: {one.files} files, {one.bytes:,} bytes")
            for one in builds
        ),
    ]


def _python() -> Component:
    version = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Component(
            name="python", status="missing", found=f"{version}, 3.11 is needed", mend="install Python 3.11 or newer"
        )
    return Component(name="python", status="ok", found=f"{version} ({sys.executable})")


def _processes() -> Component:
    if sys.platform == "linux":
        if hasattr(os, "pidfd_open"):
            return Component(name="processes", status="ok", found="subreaper and pidfd: strays of a game are found")
        return Component(
            name="processes",
            status="missing",
            found="this Python or kernel has no pidfd",
            mend="use Linux 5.3 or newer",
        )
    return Component(
        name="processes",
        status="absent",
        found=f"{platform.system()} has no subreaper and no pidfd: a game's helper that leaves its process group is"
        " looked for by its parent only and may stay behind",
        mend="run campaigns on Linux, or in a container",
    )


def _disk(project: Project) -> Component:
    place = project.store if project.store.is_dir() else project.root
    free = shutil.disk_usage(place).free
    found = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < MIN_FREE_BYTES:
        return Component(name="disk", status="missing", found=found, mend=f"make room: old campaigns are in {place}")
    return Component(name="disk", status="ok", found=found)


def _lanes() -> Component:
    lanes = recommended_lanes(_processors(), _memory_bytes())
    return Component(
        name="lanes",
        status="ok",
        found=f"{lanes} recommended ({_processors()} processors)",
        mend=f"--concurrency {lanes}",
    )


def recommended_lanes(processors: int, memory_bytes: int | None) -> int:
    """Two where two games have a processor and a gigabyte each, else one."""
    if processors < 2 or (memory_bytes is not None and memory_bytes < 2 * MEMORY_OF_A_LANE):
        return 1
    return 2


def _processors() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _node() -> Component:
    found = _version_of("node")
    if found is None:
        return Component(
            name="node",
            status="absent",
            found="not on PATH; only games written in JavaScript need it",
            mend="apt-get install nodejs" if sys.platform == "linux" else "brew install node",
        )
    return Component(name="node", status="ok", found=found)


def _version_of(program: str) -> str | None:
    path = shutil.which(program)
    if path is None:
        return None
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip().splitlines()[0] if asked.returncode == 0 and asked.stdout.strip() else None
