"""How long `bin/worker --version` takes beside an interpreter that imports what every worker needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.coordinator.measure import Ratio, paired, seconds_of

STARTING_LIMIT = 1.6
WORKER = Path(__file__).parents[2] / "bin" / "worker"
BARE = "import msgspec, json, hashlib"


def measure_starting(rounds: int = 15) -> Ratio:
    environment = {"PLAYLANE_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    ours: list[float] = []
    theirs: list[float] = []

    def run(*command: str) -> None:
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)

    run(str(WORKER), "--version")
    for _ in range(rounds):
        ours.append(seconds_of(lambda: run(str(WORKER), "--version")))
        theirs.append(seconds_of(lambda: run(sys.executable, "-c", BARE)))
    return paired("bin/worker --version", f"python -c '{BARE}'", ours, theirs, STARTING_LIMIT)
