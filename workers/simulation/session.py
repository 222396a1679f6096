"""One game at a time, step by step under somebody else's control: what replay and the seed check need."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from drivers.errors import ProtocolError
from drivers.jsonrpc import Refusal
from drivers.turns import Turn, echo_matches, read_turn
from workers.simulation.bridge_client import BridgeClient, BridgeGoneError
from workers.simulation.bridge_play import describe_refusal
from workers.simulation.chunk import Setup
from workers.simulation.errors import GameStartError, SimulationError
from workers.simulation.games import IllegalMoveError, InProcessGame, is_own
from workers.simulation.pool import current_channel

_FOR_EVER_SECONDS = 1e6


class SessionFaultError(Exception):
    """The game failed here: `reason` in the words that results use, `tail` the end of its error output."""

    def __init__(self, reason: str, tail: str = "") -> None:
        self.reason, self.tail = reason, tail
        super().__init__(reason)


class Session(Protocol):
    """A game under control. Every call ends within the game's limits; `stop` always."""

    seed_confirmed: bool | None

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn: ...

    def step(self, action: str | None) -> Turn: ...

    def stop(self) -> tuple[str, ...]:
        """End the game; name what it left behind and had to be ended."""


def open_session(setup: Setup, game: InProcessGame | None) -> Session:
    """A session of the batch's game: `game` where there is one in this process, else a bridge of its own."""
    return _Bridge(setup) if game is None else _InProcess(game)


class _InProcess:
    def __init__(self, game: InProcessGame) -> None:
        self._game = game
        self.seed_confirmed: bool | None = True

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn:
        return self._call(lambda: self._game.reset(seed, params, strategy))

    def step(self, action: str | None) -> Turn:
        return self._call(lambda: self._game.step(action))

    def stop(self) -> tuple[str, ...]:
        return ()

    def _call(self, ask: Any) -> Turn:
        channel = current_channel()
        if channel is not None:
            channel.tick(0, 0)  # a sign of life before each call: one that hangs is then ended for being silent
        try:
            turn: Turn = ask()
        except IllegalMoveError as error:
            raise SessionFaultError(f"illegal: {error}") from error
        except SimulationError:
            raise
        except Exception as error:
            # Foreign code runs here, and its fault is what is looked for.
            if is_own(error.__traceback__):
                raise
            raise SessionFaultError(f"game error: {type(error).__name__}: {error}") from error
        return turn


class _Bridge:
    def __init__(self, setup: Setup) -> None:
        self._limit_seconds = setup.bridge.step_timeout_ms / 1000
        self._client = BridgeClient(setup.bridge, setup.environment)
        self._started = False
        self.seed_confirmed: bool | None = None

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> Turn:
        if not self._started:
            try:
                self._client.start()
            except GameStartError as error:
                raise SessionFaultError(f"start: {error.what}", error.tail) from error
            self._started = True
        sent: dict[str, Any] = {"session": "s1", "seed": str(seed), "strategy": strategy}
        if params:
            sent["params"] = dict(params)
        turn = self._ask("reset", sent)
        self.seed_confirmed = echo_matches(turn, seed)
        if self.seed_confirmed is False:
            raise SessionFaultError(f"seed: the game was given {seed} and says it plays {str(turn.seed)[:40]}")
        return turn

    def step(self, action: str | None) -> Turn:
        return self._ask("step", {"session": "s1", "action": action})

    def close_game(self) -> None:
        """Say `close`, as the last thing of a session."""
        self._call("close", {"session": "s1"})

    def stop(self) -> tuple[str, ...]:
        return self._client.stop().leftovers

    def _ask(self, method: str, params: object) -> Turn:
        result = self._call(method, params)
        try:
            return read_turn(method, result)
        except ProtocolError as error:
            raise SessionFaultError(f"not a turn: {error.what}", self._client.tail) from error

    def _call(self, method: str, params: object) -> object:
        channel = current_channel()
        if channel is not None:
            channel.tick(0, 0)
        try:
            self._client.send(method, params)
            answers = self._client.receive(self._limit_seconds, time.monotonic() + _FOR_EVER_SECONDS)
        except BridgeGoneError as gone:
            raise SessionFaultError(gone.reason, gone.tail) from gone
        except ValueError as error:
            raise SessionFaultError(f"protocol: {error}", self._client.tail) from error
        if isinstance(answers[0], Refusal):
            raise SessionFaultError(describe_refusal(answers[0]), self._client.tail)
        return answers[0].result
