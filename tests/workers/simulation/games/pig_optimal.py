"""The optimal policy for Pig, by value iteration over all 100 x 100 x 100 states reachable.

Source: Neller and Presser (2004), Optimal play of the dice game Pig, The UMAP Journal 25.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

GOAL = 100
PRECISION = 1e-7


@cache
def hold_points() -> dict[tuple[int, int, int], bool]:
    """(own score, other's score, points of this turn) -> whether to hold.

    Solved for pairs of scores in the order of their sum, because a game's sum never falls: the states of (i, j) depend
    on each other and on those of (j, i), and else on higher sums only.
    """
    win: dict[tuple[int, int], float] = {}
    hold: dict[tuple[int, int, int], bool] = {}
    for total in range(2 * GOAL - 2, -1, -1):
        for ours in range(max(0, total - GOAL + 1), min(GOAL - 1, total) + 1):
            theirs = total - ours
            if ours > theirs:
                continue
            _solve_pair(ours, theirs, win, hold)
    return hold


def _solve_pair(i: int, j: int, win: dict[tuple[int, int], float], hold: dict[tuple[int, int, int], bool]) -> None:
    a = b = 0.5  # the values of (i, j) and (j, i) at the start of a turn
    while True:
        new_a = _turn_value(i, j, b, win, None)
        new_b = _turn_value(j, i, new_a, win, None)
        moved = abs(new_a - a) + abs(new_b - b)
        a, b = new_a, new_b
        if moved < PRECISION:
            break
    win[(i, j)], win[(j, i)] = a, b
    _turn_value(i, j, b, win, hold)
    _turn_value(j, i, a, win, hold)


def _turn_value(
    ours: int,
    theirs: int,
    other: float,
    win: dict[tuple[int, int], float],
    hold: dict[tuple[int, int, int], bool] | None,
) -> float:
    """The chance to win from the start of our turn; `other` is the opponent's chance at (theirs, ours)."""
    lost = 1 - other
    values = [1.0] * (GOAL - ours + 6)
    for points in range(GOAL - ours - 1, -1, -1):
        rolling = (
            lost
            + values[points + 2]
            + values[points + 3]
            + values[points + 4]
            + values[points + 5]
            + values[points + 6]
        ) / 6
        holding = lost if points == 0 else 1 - win[(theirs, ours + points)]
        values[points] = max(rolling, holding)
        if hold is not None:
            hold[(ours, theirs, points)] = holding > rolling
    return values[0]


def write_policy(path: Path) -> None:
    """Write a module with the solved policy, `choose`: solving it anew in every process would take longer than play."""
    hold = hold_points()
    flags = bytes(hold.get((ours, theirs, points), True) for ours, theirs, points in _places())
    packed = base64.b85encode(zlib.compress(flags)).decode()
    path.write_text(
        "import base64, zlib\n"
        f"HOLD = zlib.decompress(base64.b85decode({packed!r}))\n"
        "def choose(turn, generator):\n"
        "    state = turn.state\n"
        "    ours, theirs = state['scores'][state['mover']], state['scores'][1 - state['mover']]\n"
        "    points = state['points']\n"
        f"    if ours + points >= {GOAL} or HOLD[(ours * {GOAL} + theirs) * {GOAL} + points]:\n"
        "        return 'hold'\n"
        "    return 'roll'\n"
    )


def _places() -> Iterator[tuple[int, int, int]]:
    yield from itertools.product(range(GOAL), repeat=3)
