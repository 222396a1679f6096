"""What one measurement gives, and how pairs are taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """`ours` and `theirs` are medians in seconds; `limit` is the most that `ratio` may be, None for a peer."""

    name: str
    ours: float
    theirs: float
    limit: float | None
    against: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def kept(self) -> bool:
        return self.limit is None or self.ratio <= self.limit


def seconds_of(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def paired(name: str, against: str, ours: list[float], theirs: list[float], limit: float) -> Ratio:
    """The ratio of two medians. Their samples were taken in turn, so that a busy machine slows both."""
    return Ratio(
        name=name, against=against, ours=statistics.median(ours), theirs=statistics.median(theirs), limit=limit
    )
