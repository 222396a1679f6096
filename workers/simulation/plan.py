"""What a batch of a given size can show, before it is played. Pure."""

from __future__ import annotations

import math

import msgspec

from workers.simulation.configuration import Configuration
from workers.simulation.statistics import Z_95, Z_POWER_90, games_to_find, half_width

POINTS = (0.01, 0.02, 0.03, 0.05, 0.1)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`games_per_cell` games of each strategy x variant (the fewest any gets).

    `share_half_width` is half a share's 95 % interval where it is widest (a share of one half);
    `difference_half_width` the same for a difference of two strategies whose games do not resemble each other: pairing
    by seed can only narrow it. `smallest_difference` is what this many games find in nine batches of ten.
    `games_per_cell_to_find` is difference -> games of each strategy that it takes.
    """

    runs: int
    cells: int
    games_per_cell: int
    share_half_width: float | None
    difference_half_width: float | None
    smallest_difference: float | None
    games_per_cell_to_find: dict[str, int]


def plan_half_widths(configuration: Configuration) -> Plan:
    """The half-widths to expect from the runs asked; None where a strategy gets no game at all."""
    cells = len(configuration.strategies) * len(configuration.variants)
    games = configuration.runs // cells
    spread = math.sqrt(0.25 / games) if games else 0.0
    return Plan(
        runs=configuration.runs,
        cells=cells,
        games_per_cell=games,
        share_half_width=half_width(games) if games else None,
        difference_half_width=Z_95 * spread * math.sqrt(2) if games else None,
        smallest_difference=(Z_95 + Z_POWER_90) * spread if games else None,
        games_per_cell_to_find={f"{points:g}": games_to_find(points) for points in POINTS},
    )
