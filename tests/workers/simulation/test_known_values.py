"""Games whose right answers are known exactly come out right: every row of the table, within four standard errors."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.workers.simulation.batches import configuration, in_process, outcomes, play
from tests.workers.simulation.games.known import LINES
from tests.workers.simulation.games.pig_optimal import write_policy

Z_LIMIT = 4.0
HOLD = {"kind": "python", "entry": "known:hold_at_20"}
OPTIMAL = {"kind": "python", "entry": "pig_policy:choose"}
RANDOM = [{"name": "s", "policy": "random"}]
ROLL = [{"name": "s", "policy": "first"}]


@cache
def tic_tac_toe(board: str, mover: str) -> dict[str, Fraction]:
    """Shares of first, second, draw from here on, both playing at random, by enumeration."""
    free = [place for place in range(9) if board[place] == "."]
    shares = {"first": Fraction(0), "second": Fraction(0), "draw": Fraction(0)}
    for place in free:
        after = board[:place] + mover + board[place + 1 :]
        if any(all(after[at] == mover for at in line) for line in LINES):
            shares["first" if mover == "x" else "second"] += Fraction(1, len(free))
        elif "." not in after:
            shares["draw"] += Fraction(1, len(free))
        else:
            for outcome, share in tic_tac_toe(after, "o" if mover == "x" else "x").items():
                shares[outcome] += share / len(free)
    return shares


def risk() -> dict[str, Fraction]:
    shares = {f"loses {lost}": Fraction(0) for lost in range(3)}
    for dice in itertools.product(range(1, 7), repeat=5):
        attack, defence = sorted(dice[:3], reverse=True), sorted(dice[3:], reverse=True)
        shares[f"loses {sum(a <= d for a, d in zip(attack, defence, strict=False))}"] += Fraction(1, 6**5)
    return shares


def ruin() -> float:
    odds = (20 / 38) / (18 / 38)
    return (1 - odds**10) / (1 - odds**20)


def test_the_table_itself_is_right_where_it_is_cheap_to_enumerate() -> None:
    assert tic_tac_toe("." * 9, "x") == {
        "first": Fraction(737, 1260),
        "second": Fraction(121, 420),
        "draw": Fraction(8, 63),
    }
    assert [round(float(share), 6) for share in risk().values()] == [0.371656, 0.335777, 0.292567]
    assert round(ruin(), 7) == 0.2585334


Row = tuple[str, list[dict[str, Any]], dict[str, float]]


def table() -> Iterator[Row]:
    yield "TicTacToe", RANDOM, {name: float(share) for name, share in tic_tac_toe("." * 9, "x").items()}
    yield "Pig", [{"name": "s", "policy": HOLD}], {"first": 0.534698}
    yield "Pig", [{"name": "s", "seats": {"first": OPTIMAL, "second": HOLD}}], {"first": 0.571498}
    yield "Pig", [{"name": "s", "seats": {"first": HOLD, "second": OPTIMAL}}], {"second": 0.508342}
    yield "Craps", ROLL, {"win": 244 / 495}
    yield "Risk", ROLL, {name: float(share) for name, share in risk().items()}
    yield "FirstSix", ROLL, {"first": 6 / 11}
    yield "Ruin", ROLL, {"rich": ruin()}


def check(directory: Path, row: Row, runs: int, workers: int) -> None:
    game, strategies, expected = row
    if "pig_policy" in json.dumps(strategies):
        directory.mkdir(exist_ok=True)
        write_policy(directory / "pig_policy.py")
    config = configuration(runs=runs, workers=workers, strategies=strategies, seed=20261, max_steps=100_000)
    result = play(directory, in_process(game), config, wall_seconds=3600, configuration_directory=str(directory))
    assert result.exit_code == 0
    counted = outcomes(result)
    for outcome, share in expected.items():
        z = (counted.get(outcome, 0) - runs * share) / math.sqrt(runs * share * (1 - share))
        assert abs(z) < Z_LIMIT, (game, outcome, counted, z)


QUICK = [row for row in table() if "pig_policy" not in json.dumps(row[1])]


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row[0]}-{'-'.join(row[2])}")
def test_a_few_games_come_out_right(tmp_path: Path, row: Row) -> None:
    check(tmp_path, row, 400, 1)


@pytest.mark.soak
@pytest.mark.parametrize("row", list(table()), ids=lambda row: f"{row[0]}-{'-'.join(row[2])}")
def test_a_hundred_thousand_games_come_out_right(tmp_path: Path, row: Row) -> None:
    check(tmp_path, row, 100_000, 2)


def test_the_runner_can_be_wrong(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check(tmp_path, ("Craps", ROLL, {"win": 0.60}), 800, 1)


def test_the_objective_of_the_json_example_is_what_is_reported(tmp_path: Path) -> None:
    config = configuration(runs=40, strategies=RANDOM, objective={"win": ["first"]})
    result = play(tmp_path, in_process("TicTacToe"), config)
    win = result.summary["strategies"][0]["win"]
    assert win["count"] == outcomes(result)["first"]
    assert json.loads(result.summary_path.read_text())["objective"]["win"] == ["first"]
