"""Each oracle fires on its fault, and does not on what only looks like it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from drivers.base import LogLine, Move, Observation
from drivers.errors import DriverError, GameEndedError, GameUnresponsiveError, ProtocolError
from tests.workers.play.games import choose, observation
from workers.goals import GoalError, goal_test
from workers.look import Input
from workers.oracles.bench import Bench

RESTART = Input(restart=True)


class Table:
    """Plays steps by hand through all oracles and collects what they say."""

    def __init__(self, first: Observation, goal_when: str | None = None) -> None:
        self.bench = Bench(goal_test(goal_when))
        self.now = first
        self.steps = 0
        self.said = [event.oracle for event in self.bench.at_start(first)]

    def step(
        self, move: str | None, after: Observation | None, *, label: str = "", status: str = "done",
        error: DriverError | None = None,
    ) -> list[str]:  # fmt: skip
        self.steps += 1
        events = self.bench.at_step(
            step=self.steps, given=RESTART if move is None else choose(move), label=label or move or "(start again)",
            before=self.now, after=after, status=status, error=error,
        )  # fmt: skip
        if after is not None:
            self.now = after
        said = [event.oracle for event in events]
        self.said += said
        return said


# -- crash, unresponsive -------------------------------------------------------------------------------------------


def test_a_death_in_mid_play_is_a_crash_with_its_last_error_and_frame() -> None:
    tail = "Traceback (most recent call last):\n  File \"/g/rules.py\", line 7, in pull\n    x()\nKeyError: 'bell'"
    events = Bench(goal_test(None)).at_step(
        step=1, given=choose("pull"), label="pull", before=observation(), after=None,
        error=GameEndedError("the game's process ended", exit_code=1, tail=tail),
    )  # fmt: skip
    assert [(e.oracle, e.severity, e.place) for e in events] == [("crash", "critical", "rules.py pull")]
    assert "KeyError" in events[0].title


def test_a_broken_protocol_is_a_crash() -> None:
    assert Table(observation()).step("north", None, error=ProtocolError("no JSON")) == ["crash"]


def test_leaving_the_game_with_exit_code_zero_is_no_crash() -> None:
    table = Table(observation())
    assert table.step("north", None, error=GameEndedError("the game's process ended", exit_code=0)) == []


def test_silence_is_unresponsive_and_no_crash() -> None:
    assert Table(observation()).step("north", None, error=GameUnresponsiveError("step", 5.0)) == ["unresponsive"]


# -- console -------------------------------------------------------------------------------------------------------


def _log(*texts: str, level: Any = "error", source: str = "stderr") -> Observation:
    return observation("b", log=tuple(LogLine(level=level, text=text, source=source) for text in texts))


def test_a_traceback_in_the_error_output_is_an_error() -> None:
    lines = ("Traceback (most recent call last):", '  File "a.py", line 1, in go', "ValueError: upside down")
    assert Table(observation()).step("north", _log(*lines)) == ["console_error"]


def test_an_error_level_of_a_console_is_a_minor_error() -> None:
    assert Table(observation()).step("north", _log("cannot load door.png", source="console")) == ["console_error"]


@pytest.mark.parametrize("text", ["error margin: 0.2", "loading the next room", "no error found"])
def test_ordinary_lines_on_the_error_output_are_no_error(text: str) -> None:
    assert Table(observation()).step("north", _log(text)) == []


# -- lists of moves ------------------------------------------------------------------------------------------------


def test_an_empty_list_on_your_turn_is_found_also_at_the_start() -> None:
    assert Table(observation(moves=())).said == ["empty_moves"]
    assert Table(observation()).step("north", observation("b", moves=())) == ["empty_moves"]


@pytest.mark.parametrize(
    "seen",
    [
        observation("the end", moves=(), done=True),
        observation("wait", moves=(), your_turn=False),
        observation("type something", moves=None),
    ],
)
def test_an_empty_list_after_the_end_or_on_anothers_turn_is_fine(seen: Observation) -> None:
    assert Table(observation()).step("north", seen) == []


def test_a_listed_move_that_is_refused_is_found_and_an_unlisted_one_is_not() -> None:
    table = Table(observation(moves=("north", "south")))
    assert table.step("west", table.now, status="illegal") == []
    assert table.step("north", table.now, status="illegal") == ["illegal_move"]


# -- the state hook ------------------------------------------------------------------------------------------------


def test_a_violation_is_said_once_while_it_stands() -> None:
    table = Table(observation())
    broken = observation("b", violations=("gold is negative: -3",))
    assert table.step("north", broken) == ["violation"]
    assert table.step("north", broken) == []
    assert table.step("north", observation("c")) == []
    assert table.step("north", broken) == ["violation"]


# -- saves ---------------------------------------------------------------------------------------------------------


def test_progress_lower_after_a_load_than_at_the_save_is_lost() -> None:
    table = Table(observation("a", progress=3.0))
    table.step("s", observation("b", progress=3.0), label="save")
    table.step("north", observation("c", progress=4.0))
    assert table.step("l", observation("d", progress=0.0), label="load") == ["progress_lost"]


def test_a_load_that_gives_the_saved_progress_back_loses_nothing() -> None:
    table = Table(observation("a", progress=3.0))
    table.step("s", observation("b", progress=3.0), label="write in the notebook (save)")
    table.step("north", observation("c", progress=9.0))
    assert table.step("l", observation("d", progress=3.0), label="restore") == []


def test_starting_again_and_loading_without_a_save_lose_nothing() -> None:
    table = Table(observation("a", progress=3.0))
    assert table.step("l", observation("b", progress=0.0), label="load") == []
    table.step("s", observation("c", progress=5.0), label="save")
    assert table.step(None, observation("a", progress=0.0)) == []
    assert table.step("l", observation("a", progress=0.0), label="load") == []


# -- soft-lock -----------------------------------------------------------------------------------------------------

BOTH = ("north", "south")


def _stuck(turn: int = 0) -> Observation:
    return observation("A cleft.", moves=BOTH, state={"room": "cleft", "turn": turn})


def test_a_soft_lock_is_found_once_every_move_was_tried_without_effect() -> None:
    table = Table(_stuck())
    assert [table.step(move, _stuck()) for move in ("north", "south", "north")] == [[], [], []]
    assert table.step("south", _stuck()) == ["soft_lock"]
    assert table.step("south", _stuck()) == []


def test_a_soft_lock_is_found_though_a_turn_counter_ticks() -> None:
    table = Table(observation("Start.", moves=BOTH, state={"room": "start", "turn": 0}))
    said = []
    for turn in range(1, 20):
        said += table.step(BOTH[turn % 2], _stuck(turn))
    assert said == ["soft_lock"]


def test_a_move_that_was_not_tried_yet_is_no_soft_lock() -> None:
    table = Table(_stuck())
    assert [event for _ in range(12) for event in table.step("north", _stuck())] == []


def test_a_move_that_still_tells_something_new_is_no_soft_lock() -> None:
    table = Table(_stuck())
    said = []
    for index in range(12):
        talk = observation(f"She says {'abcdefghijkl'[index]}.", moves=BOTH, state={"room": "cleft", "turn": 0})
        said += table.step(BOTH[index % 2], talk)
    assert said == []


def test_a_switch_that_goes_on_and_off_is_no_soft_lock() -> None:
    lamps = [observation(f"The lamp is {word}.", moves=("press",)) for word in ("off", "on")]
    table = Table(lamps[0])
    assert [event for index in range(12) for event in table.step("press", lamps[(index + 1) % 2])] == []


def test_refusals_in_words_are_a_soft_lock_when_they_repeat() -> None:
    table = Table(_stuck())
    said = []
    for index in range(6):
        move = BOTH[index % 2]
        refusal = observation(f"You cannot go {move}.", moves=BOTH, state={"room": "cleft", "turn": 0})
        said.append(table.step(move, refusal))
    assert said == [[], [], [], ["soft_lock"], [], []]


def test_an_effect_in_between_begins_anew() -> None:
    table = Table(_stuck())
    for move in ("north", "south", "north"):
        table.step(move, _stuck())
    other = observation("A hall.", moves=BOTH, state={"room": "hall", "turn": 0})
    assert table.step("south", other) == []
    assert table.step("south", _stuck()) == []
    assert table.step("south", _stuck()) == []


def test_a_finished_game_and_anothers_turn_are_no_soft_lock() -> None:
    for more in ({"done": True}, {"your_turn": False}):
        seen = Observation(text="x", moves=(Move(id="a"),), state=1, **more)  # type: ignore[arg-type]
        table = Table(seen)
        assert [event for _ in range(8) for event in table.step("a", seen)] == []


# -- unreachable goal ----------------------------------------------------------------------------------------------


def _room(name: str, goal: bool | None = False) -> Observation:
    return observation(f"Room {name}.", moves=("go", "look"), state={"room": name}, goal=goal)


def _tour(goal: bool | None = False, last: bool | None = False, goal_when: str | None = None) -> list[str]:
    table = Table(_room("a", goal), goal_when)
    table.step("look", _room("a", goal))
    table.step("go", _room("b", goal))
    table.step("look", _room("b", goal))
    table.step("go", _room("a", last))
    return table.said


def test_a_goal_that_stays_false_when_everything_was_tried_is_unreachable() -> None:
    assert _tour() == ["unreachable_goal"]
    assert _tour(goal=None, last=None, goal_when='state.room == "c"') == ["unreachable_goal"]


def test_a_goal_that_was_reached_or_is_not_known_is_not_unreachable() -> None:
    assert _tour(last=True) == []
    assert _tour(goal=None, last=None) == []
    assert _tour(goal=None, last=None, goal_when='state.room == "b"') == []


def test_a_goal_is_not_unreachable_while_something_is_untried() -> None:
    table = Table(_room("a"))
    table.step("look", _room("a"))
    table.step("go", _room("b"))
    table.step("go", _room("a"))
    assert table.said == []


def test_a_part_left_for_good_is_judged_by_what_can_still_be_reached_from_it() -> None:
    table = Table(observation("The beach.", moves=("dive", "sit"), state="beach", goal=False))
    below, cave = (observation(text, moves=("go", "look"), state=text, goal=False) for text in ("Below.", "Cave."))
    for move, after in (("dive", below), ("look", below), ("go", cave), ("look", cave), ("go", below)):
        table.step(move, after)
    # "sit" on the beach is untried, but only a new start leads back there.
    assert table.said == ["unreachable_goal"]


def test_a_dead_end_that_a_new_start_led_away_from_is_not_judged_from_elsewhere() -> None:
    table = Table(_room("a"))
    table.step("look", _room("a"))
    table.step("go", _room("b"))
    table.step("look", _room("b"))
    table.step(None, _room("a"))
    assert table.said == []


def test_an_ending_is_no_dead_end_but_a_game_of_nothing_but_other_endings_is() -> None:
    table = Table(_room("a"))
    table.step("look", _room("a"))
    table.step("go", observation("Eaten.", (), done=True, outcome="eaten", goal=False, state={"room": "end"}))
    assert table.said == []
    assert table.step(None, _room("a")) == ["unreachable_goal"]


def test_a_goal_is_not_unreachable_where_a_move_led_to_different_situations() -> None:
    table = Table(_room("a"))
    for move, after in (("look", "a"), ("go", "b"), ("look", "b"), ("look", "a"), ("go", "b"), ("go", "a")):
        table.step(move, _room(after))
    assert table.said == []


def test_a_goal_is_not_unreachable_short_of_the_best_progress() -> None:
    def at(name: str, progress: float) -> Observation:
        return observation(f"Room {name}.", ("go", "look"), state={"room": name}, goal=False, progress=progress)

    for best, said in ((0.0, ["unreachable_goal"]), (2.0, [])):
        table = Table(at("far", best))
        table.step("go", at("a", 0.0))
        for move, after in (("look", "a"), ("go", "b"), ("look", "b"), ("go", "a")):
            table.step(move, at(after, 0.0))
        assert table.said == said


@pytest.mark.parametrize(
    "more",
    [{"your_turn": False}, {"cut": ("moves: 900, the first 500 shown",)}, {"moves": None}],
    ids=["another player's turn", "a list that was cut", "free text"],
)
def test_a_goal_is_not_unreachable_where_not_everything_can_be_tried(more: dict[str, Any]) -> None:
    other = msgspec.structs.replace(_room("b"), **more)
    table = Table(_room("a"))
    for move, after in (("look", _room("a")), ("go", other), ("look", other), ("go", _room("a"))):
        table.step(move, after)
    assert "unreachable_goal" not in table.said


# -- goal_when -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("state.level >= 3", True), ("state.level > 3", False), ('state.bag[0] == "key"', True), ("state.won", False),
        ("progress == 7", True), ("state.nothing.here >= 1", False), ('state.level > "x"', False),
        ('outcome == "won"', False), ("metrics.turns <= 9", True),
    ],
)  # fmt: skip
def test_goal_when_compares_one_path(text: str, value: bool) -> None:
    seen = observation(state={"level": 3, "bag": ["key"], "won": False}, progress=7.0, metrics={"turns": 9})
    assert goal_test(text)(seen) is value


@pytest.mark.parametrize("text", ["", "level >= 3", "state.level >= ", "state.level => 3", "import os", "state.a == b"])
def test_goal_when_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(GoalError, match="not one comparison"):
        goal_test(text)
