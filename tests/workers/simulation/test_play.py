"""What is kept of a game: the same bytes for the same game, little memory for a long one."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.turns import ListedMove, Turn
from tests.workers.simulation.batches import configuration
from workers.simulation.configuration import load
from workers.simulation.play import (
    ENDED,
    KEPT_BYTES,
    SMALL_STATE_BYTES,
    Play,
    Table,
    clean_outcome,
    encode_state,
    fold_addresses,
)

MOVES = (ListedMove(id="a"), ListedMove(id="b"))


def table(**changes: Any) -> Table:
    return Table(load(configuration(**changes)), 64)


def played(states: list[Any], made: Table, **last: Any) -> Play:
    play = Play(made, 0)
    for state in states:
        if play.take(Turn(state=state, done=False, actions=MOVES)) is ENDED:
            return play
    play.take(Turn(state="last", done=True, **last))
    return play


def digest(play: Play) -> str:
    assert play.result is not None
    return play.result.trace


def test_a_digest_is_over_the_steps_alone() -> None:
    one = played([{"x": 1, "y": 2}, 2], table(), outcome="end")
    same = played([{"y": 2, "x": 1}, 2], table(runs=9_999), outcome="end")
    assert digest(one) == digest(same)
    for states, last in (([{"x": 1, "y": 3}, 2], "end"), ([{"x": 1, "y": 2}], "end"), ([{"x": 1, "y": 2}, 2], "fin")):
        assert digest(played(states, table(), outcome=last)) != digest(one)


def test_a_digest_does_not_depend_on_how_much_was_kept() -> None:
    short = [table(max_steps=5_000) for _ in range(2)]
    states = [[n, "x" * 50] for n in range(3_000)]
    assert digest(played(states, short[0])) == digest(played(states, short[1]))
    other = [*states[:2_999], [2_999, "y"]]
    assert digest(played(other, short[0])) != digest(played(states, short[1]))


def test_a_long_game_keeps_a_bounded_beginning() -> None:
    play = played([[n, "x" * 2_000] for n in range(5_000)], table(max_steps=10_000))
    assert play.cut
    assert sum(len(turn.state) for turn in play.turns) < KEPT_BYTES + 1_024 * 2_100
    assert play.turns[0].state.startswith(b'[0,"xxx')


def test_a_large_state_is_kept_as_its_digest() -> None:
    state = encode_state("x" * SMALL_STATE_BYTES)
    assert state.startswith(b'"sha256:') and len(state) == 73
    assert encode_state("x") == b'"x"'


def test_minus_zero_and_zero_are_one_state() -> None:
    assert encode_state({"a": [-0.0, -1.5]}) == encode_state({"a": [0.0, -1.5]})


def test_the_step_limit_counts_steps_not_turns() -> None:
    play = Play(table(max_steps=3), 0)
    turns = [play.take(Turn(state=n, done=False, actions=MOVES)) for n in range(4)]
    assert turns[3] is ENDED and all(turn is not ENDED for turn in turns[:3])
    assert play.result is not None
    assert (play.result.steps, play.result.status, play.result.reason) == (3, "truncated", "step limit")


def test_a_game_that_ends_at_the_limit_is_completed() -> None:
    play = Play(table(max_steps=1), 0)
    play.take(Turn(state=0, done=False, actions=MOVES))
    play.take(Turn(state=1, done=True, outcome="end"))
    assert play.result is not None and play.result.status == "completed"


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, "none"), ("", "none"), ("won", "won"), ("a\x1b[31mb", "a [31mb"), ("x" * 100, "x" * 64), ("\n", "none")],
)
def test_outcomes_are_short_and_printable(given: str | None, kept: str) -> None:
    assert clean_outcome(given) == kept


def test_reasons_lose_addresses_and_control_codes() -> None:
    assert fold_addresses("<Sprite at 0x7f2a10>\x1b") == "<Sprite at 0x#> "
    assert len(fold_addresses("x" * 10_000)) == 200
