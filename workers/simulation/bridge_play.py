"""Games over a bridge: as many in flight on one process as both sides allow, each fault kept to its own game.

A game that was in flight when its bridge died or fell silent is played again alone on a fresh bridge; only what fails
there too is that game's failure. So it does not matter who shared a bridge with whom.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from drivers.bridge_file import BridgeConfiguration
from drivers.errors import ProtocolError
from drivers.jsonrpc import ILLEGAL_ACTION, SEED_NOT_SUPPORTED, Answer, Refusal
from drivers.turns import Turn, echo_matches, read_turn
from workers.simulation.bridge_client import BridgeClient, BridgeGoneError
from workers.simulation.errors import GameStartError
from workers.simulation.games import fail_by_error
from workers.simulation.play import ENDED, Play, Table
from workers.simulation.policies import UnlistedMoveError
from workers.simulation.watch import Watch

START_TRIES = 3


class BridgeFacts(msgspec.Struct, kw_only=True):
    """What was seen of the bridge beside its games. `leftovers` are processes that it left and that were ended."""

    starts: int = 0
    restarts: int = 0
    noise_lines: int = 0
    seeds_confirmed: int = 0
    seeds_not_confirmed: int = 0
    leftovers: list[str] = msgspec.field(default_factory=list)
    game: str = ""
    game_version: str = ""


class BridgeTable:
    """Plays games over a bridge that it starts when needed, keeps between calls, and replaces when it dies."""

    def __init__(self, table: Table, configuration: BridgeConfiguration, environment: Mapping[str, str]) -> None:
        self._table = table
        self._configuration = configuration
        self._environment = environment
        self._limit_seconds = configuration.step_timeout_ms / 1000
        self._client: BridgeClient | None = None
        self._free: list[str] = []
        self._fresh = False
        self.facts = BridgeFacts()

    def play(self, indexes: Sequence[int], watch: Watch, on_end: Callable[[Play], None]) -> None:
        """Play these games; `on_end` gets each one that has a result, in the order of their ends.

        Raises `GameStartError` when the bridge does not start in `START_TRIES` tries.
        """

        def end(play: Play) -> None:
            watch.games += 1
            watch.steps += max(play.steps, 0)
            on_end(play)

        again: list[int] = []
        self._play_together(deque(indexes), end, again, watch)
        for index in sorted(again):
            if watch.reason is not None:
                break
            self.stop()
            self._play_together(deque([index]), end, None, watch)

    def take_facts(self) -> BridgeFacts:
        """What was seen since the last call."""
        if self._client is not None:
            self.facts.noise_lines += self._client.take_noise()
        facts, self.facts = self.facts, BridgeFacts()
        return facts

    def stop(self, *, seconds: float = 2.0) -> None:
        """End the bridge and what it started; one that failed gets less time (`seconds`) to end by itself."""
        if self._client is not None:
            client, self._client = self._client, None
            self.facts.noise_lines += client.take_noise()
            self.facts.leftovers += client.stop(seconds=seconds).leftovers

    def begin(self, play: Play) -> int:
        """Ask for a game to begin in a free session; give the request's id."""
        client = self._ready()
        params: dict[str, Any] = {"session": self._free[-1], "seed": str(play.seed), "strategy": play.strategy}
        if play.params:
            params["params"] = play.params
        request = client.send("reset", params)
        self._free.pop()
        return request

    def _play_together(
        self, waiting: deque[int], end: Callable[[Play], None], again: list[int] | None, watch: Watch
    ) -> None:
        """`again` None: these games are alone on a fresh bridge, and one that loses its bridge has failed."""
        in_flight: dict[int, tuple[Play, str]] = {}
        while waiting or in_flight:
            client = self._ready()
            while waiting and self._free and watch.reason is None:
                play = Play(self._table, waiting.popleft())
                session = self._free[-1]
                try:
                    in_flight[self.begin(play)] = (play, session)
                except ValueError as error:
                    play.fail(f"protocol: {error}")
                    end(play)
            if not in_flight:
                break
            alone = again is None or (self._fresh and len(in_flight) == 1)
            try:
                answers = client.receive(self._limit_seconds, watch.next_beat)
            except BridgeGoneError as gone:
                if alone:
                    for play, _ in in_flight.values():
                        play.tail = gone.tail
                        play.fail(gone.reason)
                        end(play)
                elif again is not None:
                    again += [play.index for play, _ in in_flight.values()]
                in_flight.clear()
                self.facts.restarts += 1
                self.stop(seconds=0.5)
                continue
            if not answers and watch.is_due():
                steps = max((play.steps for play, _ in in_flight.values()), default=0)
                if watch.beat(time.monotonic(), steps) is not None:
                    self._truncate(in_flight, end, watch)
                    waiting.clear()
                continue
            for answer in answers:
                self._take(answer, in_flight, end)
            if watch.is_due() and watch.beat(time.monotonic(), 0) is not None:
                self._truncate(in_flight, end, watch)
                waiting.clear()

    def _take(
        self, answer: Answer | Refusal, in_flight: dict[int, tuple[Play, str]], end: Callable[[Play], None]
    ) -> None:
        play, session = in_flight.pop(answer.id)
        action = self.judge(play, answer)
        if action is not ENDED:
            assert self._client is not None, "an answer comes from a client"
            try:
                in_flight[self._client.send("step", {"session": session, "action": action})] = (play, session)
                return
            except ValueError as error:
                play.fail(f"protocol: {error}")
        end(play)
        self._free.append(session)
        self._fresh = False

    def judge(self, play: Play, answer: Answer | Refusal) -> Any:
        """The game's next action by what was answered, or `ENDED`."""
        if isinstance(answer, Refusal):
            return play.fail(describe_refusal(answer))
        method = "reset" if play.steps < 0 else "step"
        try:
            turn = read_turn(method, answer.result)
            if play.steps < 0 and not self._check_seed(play, turn):
                return ENDED
            return play.take(turn)
        except ProtocolError as error:
            return play.fail(f"not a turn: {error.what}")
        except UnlistedMoveError as error:
            return play.fail(f"illegal: {error}")
        except Exception as error:  # noqa: BLE001 - a policy of the user's ran: its fault must end its game only
            fail_by_error(play, error)
            return ENDED

    def _check_seed(self, play: Play, turn: Turn) -> bool:
        confirmed = echo_matches(turn, play.seed)
        if confirmed is None:
            self.facts.seeds_not_confirmed += 1
        elif confirmed:
            self.facts.seeds_confirmed += 1
        else:
            play.fail(f"seed: the game was given {play.seed} and says it plays {str(turn.seed)[:40]}")
            return False
        return True

    def _truncate(self, in_flight: dict[int, tuple[Play, str]], end: Callable[[Play], None], watch: Watch) -> None:
        for play, _ in in_flight.values():
            play.truncate(watch.reason or "")
            end(play)
        in_flight.clear()
        self.stop()  # answers to what was dropped must not meet the next game

    def _ready(self) -> BridgeClient:
        if self._client is None:
            self._client = self._start()
        return self._client

    def _start(self) -> BridgeClient:
        tries = START_TRIES
        while True:
            client = BridgeClient(self._configuration, self._environment)
            self.facts.starts += 1
            try:
                greeting = client.start()
                break
            except GameStartError:
                self.facts.leftovers += client.stop().leftovers
                tries -= 1
                if not tries:
                    raise
        sessions = max(1, min(self._configuration.sessions, greeting.sessions))
        self._free = [f"s{number}" for number in range(sessions, 0, -1)]
        self._fresh = True
        self.facts.game, self.facts.game_version = greeting.name[:200], str(greeting.version)[:200]
        return client


def describe_refusal(refusal: Refusal) -> str:
    """A refusal in the words that results use."""
    if refusal.code == ILLEGAL_ACTION:
        return f"illegal: the game refused the action: {refusal.message}"
    if refusal.code == SEED_NOT_SUPPORTED:
        return f"seed: the game does not take it: {refusal.message}"
    return f"game error: {refusal.code} {refusal.message}"
