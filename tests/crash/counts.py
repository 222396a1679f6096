"""How much the crash suites tried, for the line at the end of a run."""

from __future__ import annotations

COUNTS: dict[str, int] = {}
SEEDS: dict[str, int] = {}


def count(what: str, number: int = 1) -> None:
    COUNTS[what] = COUNTS.get(what, 0) + number
