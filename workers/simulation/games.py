"""Games inside the pool's own processes: Python objects and Gymnasium environments, without a pipe in between.

A Python game is what the factory returns: `reset(seed=int, params=dict, strategy=str)` and `step(action)`, each giving
a Turn of the bridge protocol as a dict. `reset` begins a new game whatever was played before.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import msgspec

from drivers.turns import ListedMove, Turn
from workers.simulation import policies
from workers.simulation.errors import GameStartError, SimulationError
from workers.simulation.play import ENDED, OWN_LIMIT, Play
from workers.simulation.policies import UnlistedMoveError, load_object
from workers.simulation.watch import Watch

_OWN_FOLDER = str(Path(__file__).parent)
_FEW_ACTIONS = 4
_NOT_LISTED = object()
_FOREIGN_SIDES = (__file__, policies.__file__)


class InProcessGame(Protocol):
    """A game that is called, not spoken to."""

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn:
        """Begin a game; give its first turn."""

    def step(self, action: str | None) -> Turn:
        """Play an action (None: the game chooses); give the next turn."""

    def ended_by_its_own_limit(self) -> bool:
        """Whether the last turn ended because the environment has a step limit of its own."""


class IllegalMoveError(Exception):
    """The game refused an action: it is not legal now."""


def play_in_process(game: InProcessGame, play: Play, watch: Watch) -> None:
    """Play one game to its result. Whatever the game or the policy raises is that game's failure and no other's."""
    clock = time.monotonic
    next_beat = watch.next_beat
    take, step = play.take, game.step
    try:
        action = take(game.reset(play.seed, play.params, play.strategy))
        while action is not ENDED:
            now = clock()
            if now >= next_beat:
                reason = watch.beat(now, play.steps)
                if reason is not None:
                    play.truncate(reason)
                    return
                next_beat = watch.next_beat
            action = take(step(action))
    except (IllegalMoveError, UnlistedMoveError) as error:
        play.fail(f"illegal: {error}")
    except Exception as error:  # noqa: BLE001 - foreign code runs here: its fault must end its game, not the batch
        fail_by_error(play, error)
    result = play.result
    if result is not None and result.status == "completed" and game.ended_by_its_own_limit():
        result.status, result.outcome, result.reason = "truncated", None, OWN_LIMIT


def fail_by_error(play: Play, error: Exception) -> None:
    """End the game by what its code raised; an error of our own is raised again, for it is no fault of a game's."""
    if isinstance(error, (MemoryError, SimulationError)) or is_own(error.__traceback__):
        raise error
    who = "policy" if _came_through(error.__traceback__, policies.__file__) else "game"
    play.fail(f"{who} error: {type(error).__name__}: {error}")


def is_own(traceback: TracebackType | None) -> bool:
    """Whether an exception was raised by a line of this package that has nothing to do with foreign objects."""
    filename = ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        traceback = traceback.tb_next
    own = filename.startswith(_OWN_FOLDER) and filename not in _FOREIGN_SIDES
    return own and not filename.endswith("play.py")


def _came_through(traceback: TracebackType | None, filename: str) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            return True
        traceback = traceback.tb_next
    return False


class PythonGame:
    """The object that `{"python": "module:factory"}` makes, called once in a process."""

    def __init__(self, entry: str) -> None:
        factory: Callable[..., Any] = load_object(entry, "python")
        self._game = factory()
        for name in ("reset", "step"):
            if not callable(getattr(self._game, name, None)):
                raise GameStartError(f"the Python game {entry} has no method {name}; see docs/simulation.md")
        self._step = self._game.step
        self._listed: object = _NOT_LISTED
        self._moves: tuple[ListedMove, ...] | None = None

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn:
        return read_turn(self._game.reset(seed=seed, params=dict(params), strategy=strategy))

    def step(self, action: str | None) -> Turn:
        answer = self._step(action)
        # A turn in mid-game with the same few actions as before is read by hand: half the cost of a step otherwise.
        if type(answer) is dict and answer.get("done") is False and answer.get("actions") == self._listed:
            if len(answer) == 3 and "state" in answer:
                return Turn(state=answer["state"], done=False, actions=self._moves)
            player = answer.get("player")
            if len(answer) == 4 and type(player) is str and "state" in answer:
                return Turn(state=answer["state"], done=False, actions=self._moves, player=player)
        turn = read_turn(answer)
        if turn.actions is not None and 0 < len(turn.actions) <= _FEW_ACTIONS:
            self._moves, self._listed = (
                turn.actions,
                [{"id": move.id, "label": move.label} if move.label else {"id": move.id} for move in turn.actions],
            )
        return turn

    def ended_by_its_own_limit(self) -> bool:
        return False


def read_turn(answer: object) -> Turn:
    """Check what a Python game gave. `TypeError` says which part of a Turn is missing or of the wrong type."""
    try:
        return _convert(answer, Turn)
    except msgspec.ValidationError as error:
        raise TypeError(f"not a turn: {error}") from None


_convert = msgspec.convert


class GymnasiumGame:
    """A registered Gymnasium environment with discrete actions, all listed all the time.

    Outcome: `win`, `loss` or `draw` by the sign of the return. Metrics: `return` and `length`. Parameters go to
    `gymnasium.make`; one environment is kept for each set of them.
    """

    def __init__(self, environment_id: str) -> None:
        self._id = environment_id
        self._environments: dict[str, tuple[Any, tuple[ListedMove, ...], int]] = {}
        self._step: Callable[[int], Any] = _not_reset
        self._actions: tuple[ListedMove, ...] = ()
        self._numbers: dict[str | None, int] = {}
        self._total = 0.0
        self._length = 0
        self._cut_off = False

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn:
        environment, self._actions, start = self._environment(params)
        self._numbers = {move.id: start + place for place, move in enumerate(self._actions)}
        self._step = environment.step
        self._total, self._length, self._cut_off = 0.0, 0, False
        observation, _ = environment.reset(seed=seed)
        return Turn(state=observation, done=False, actions=self._actions)

    def step(self, action: str | None) -> Turn:
        number = self._numbers.get(action)
        if number is None:
            raise IllegalMoveError(f"{action!r} is no action of {self._id}")
        observation, reward, terminated, truncated, _ = self._step(number)
        self._total += float(reward)
        self._length += 1
        if not terminated and not truncated:
            return Turn(state=observation, done=False, actions=self._actions)
        self._cut_off = bool(truncated) and not terminated
        total = self._total
        outcome = "win" if total > 0 else "loss" if total < 0 else "draw"
        metrics = {"return": total, "length": float(self._length)}
        return Turn(state=observation, done=True, outcome=outcome, metrics=metrics)

    def ended_by_its_own_limit(self) -> bool:
        return self._cut_off

    def _environment(self, params: Mapping[str, Any]) -> tuple[Any, tuple[ListedMove, ...], int]:
        key = msgspec.json.encode(params, order="deterministic").decode() if params else ""
        known = self._environments.get(key)
        if known is None:
            known = self._environments[key] = self._make(params)
        return known

    def _make(self, params: Mapping[str, Any]) -> tuple[Any, tuple[ListedMove, ...], int]:
        gymnasium: Any = importlib.import_module("gymnasium")
        try:
            environment = gymnasium.make(self._id, disable_env_checker=True, **params)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise GameStartError(f"gymnasium.make({self._id!r}) failed: {error}") from error
        space = environment.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            with contextlib.suppress(gymnasium.error.Error):
                environment.close()
            raise GameStartError(f"{self._id} has the action space {space}; only discrete ones can be simulated")
        start = int(space.start)
        actions = tuple(ListedMove(id=str(start + place)) for place in range(int(space.n)))
        return environment, actions, start


def _not_reset(action: int) -> Any:
    raise RuntimeError("step was called before reset")


def make_in_process_game(python: str | None, gymnasium: str | None) -> InProcessGame:
    """The game of a bridge file that names one. `GameStartError` or `ConfigurationError` when it cannot be made."""
    if python:
        return PythonGame(python)
    try:
        importlib.import_module("gymnasium")
    except ImportError as error:
        raise GameStartError("Gymnasium is not installed here; install playlane[gymnasium]") from error
    return GymnasiumGame(gymnasium or "")
