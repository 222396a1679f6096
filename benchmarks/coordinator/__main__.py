"""`python -m benchmarks.coordinator`: prints ratios; ends with 1 if a limit is missed."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.coordinator.commits import measure_commits, measure_large_commits
from benchmarks.coordinator.dispatch import BEYOND_LIMIT_SECONDS, measure_dask, measure_dispatch, measure_huey
from benchmarks.coordinator.starting import measure_starting


def main() -> int:
    missed = 0
    for ratio in (asyncio.run(measure_commits()), asyncio.run(measure_large_commits()), measure_starting()):
        missed += not ratio.kept
        verdict = "kept" if ratio.kept else "MISSED"
        print(f"{ratio.name}: {ratio.ratio:.2f} times {ratio.against} (limit {ratio.limit}, {verdict})")
    found = asyncio.run(measure_dispatch())
    kept = found.beyond <= BEYOND_LIMIT_SECONDS
    missed += not kept
    print(
        f"delivery to next exec: {found.beyond * 1000:.1f} ms beyond the commits"
        f" (limit {BEYOND_LIMIT_SECONDS * 1000:.0f} ms, {'kept' if kept else 'MISSED'});"
        f" {found.whole * 1000:.1f} ms with {found.commits * 1000:.1f} ms of commits"
    )
    for name, seconds in (("huey, SQLite with fsync", measure_huey()), ("Dask distributed", measure_dask())):
        if seconds is None:
            print(f"{name}: not installed (pip install '.[bench]')")
        else:
            print(
                f"{name}: {seconds * 1000:.1f} ms to the next task in a standing process; ours, a durable ledger and a"
                f" new process each, takes {found.whole / seconds:.1f} times that, {found.beyond / seconds:.1f} times"
                " beyond its commits"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
