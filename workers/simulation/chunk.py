"""What a pool process is sent and what it sends back: a run of games played to their results.

Everything here crosses process (later machine) boundaries as data; the functions are named by module, so any
`concurrent.futures.Executor` can carry them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence

import msgspec

from drivers.bridge_file import BridgeConfiguration
from workers.simulation.bridge_play import BridgeFacts, BridgeTable
from workers.simulation.configuration import Configuration
from workers.simulation.games import InProcessGame, make_in_process_game, play_in_process
from workers.simulation.play import GameResult, Play, Table
from workers.simulation.pool import current_channel
from workers.simulation.seeds import game_seed
from workers.simulation.trace import LONGEST, SHORTEST, Candidate, Shown, encode_header, encode_trace
from workers.simulation.watch import Watch


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a batch needs. `batch_id` names it in a process that plays several.

    `bridge.cwd` is absolute. `search_paths` come first where Python games and policies are looked for. `environment` is
    the whole environment of pool processes and bridges. `deadline` is a time of the machine's monotonic clock.
    """

    batch_id: str
    configuration: Configuration
    bridge: BridgeConfiguration
    search_paths: tuple[str, ...]
    environment: dict[str, str]
    deadline: float | None
    configuration_sha256: str
    bridge_sha256: str
    traces: bool = True


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Games to be played, by run index, and what the traces kept so far show already."""

    indexes: tuple[int, ...]
    shown: Shown


class ChunkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a chunk in run order: as lines of `results.jsonl`, and counted. `ended` says why it was cut short.

    `offered` are the results that belong to `candidates`.
    """

    lines: bytes
    finished: int
    completed: int
    failed: int
    truncated: int
    steps: int
    candidates: list[Candidate]
    offered: list[GameResult]
    facts: BridgeFacts
    ended: str | None = None


def play_chunk(setup: Setup, chunk: Chunk) -> ChunkResult:
    """Play the games of a chunk. Raises `GameStartError` when the game does not start, `ConfigurationError` when
    a Python game or policy cannot be loaded."""
    player = player_for(setup)
    watch = Watch(setup.deadline, current_channel())
    packer = _Packer(setup, chunk)
    player.play(chunk.indexes, watch, packer.add)
    return packer.pack(player.facts(), watch.reason)


def fail_alone(setup: Setup, index: int, reason: str) -> ChunkResult:
    """The result of a game that cannot be asked any more: it ended its process every time, and its steps with it.

    No policy is loaded for this: the owner of the pool calls it, and runs no foreign code.
    """
    configuration = setup.configuration
    k, position = configuration.locate(index)
    strategy, variant = configuration.cells[position]
    result = GameResult(
        index=index,
        strategy=strategy.name,
        variant=variant.name,
        seats={seat: policy.kind for seat, policy in strategy.seats.items()},
        seed=str(game_seed(configuration.seed, k, setup.bridge.seed_bits)),
        outcome=None,
        status="failed",
        reason=reason,
        steps=0,
        metrics={},
        trace=hashlib.sha256(b"").hexdigest()[:32],
    )
    data = encode_header(
        result,
        params={**configuration.params, **variant.params},
        configuration_sha256=setup.configuration_sha256,
        bridge_sha256=setup.bridge_sha256,
    )
    return ChunkResult(
        lines=encode_result(result),
        finished=1,
        completed=0,
        failed=1,
        truncated=0,
        steps=0,
        candidates=[Candidate(index=index, data=data)] if setup.traces else [],
        offered=[result] if setup.traces else [],
        facts=BridgeFacts(),
    )


class Player:
    """One process's part of a batch: the game, made once, and the table it is played at."""

    def __init__(self, setup: Setup) -> None:
        for path in reversed(setup.search_paths):
            if path not in sys.path:
                sys.path.insert(0, path)
        self.table = Table(setup.configuration, setup.bridge.seed_bits)
        self.bridge: BridgeTable | None = None
        self.game: InProcessGame | None = None
        if setup.bridge.command:
            self.bridge = BridgeTable(self.table, setup.bridge, setup.environment)
        else:
            self.game = make_in_process_game(setup.bridge.python, setup.bridge.gymnasium)

    def play(self, indexes: Sequence[int], watch: Watch, on_end: Callable[[Play], None]) -> None:
        """Play these games; `on_end` gets each one that has a result, in the order of their ends."""
        if self.bridge is not None:
            self.bridge.play(indexes, watch, on_end)
            return
        assert self.game is not None, "a player has a bridge or a game"
        for index in indexes:
            if watch.reason is not None:
                break
            play = Play(self.table, index)
            play_in_process(self.game, play, watch)
            watch.games += 1
            watch.steps += play.steps
            on_end(play)

    def facts(self) -> BridgeFacts:
        """What was seen of the bridge since the last call."""
        return BridgeFacts() if self.bridge is None else self.bridge.take_facts()

    def close(self) -> None:
        if self.bridge is not None:
            self.bridge.stop()


_players: dict[str, Player] = {}


def player_for(setup: Setup) -> Player:
    """This process's player of the batch, made on first use; another batch's is closed."""
    player = _players.get(setup.batch_id)
    if player is None:
        close_players()
        player = _players[setup.batch_id] = Player(setup)
        channel = current_channel()
        if channel is not None:
            channel.on_close(close_players)
    return player


def close_players() -> None:
    """End the bridges that this process started."""
    while _players:
        _players.popitem()[1].close()


class _Packer:
    """Gathers ended games: a line of each, and the whole play only of those that may become a trace."""

    def __init__(self, setup: Setup, chunk: Chunk) -> None:
        self._setup = setup
        self._shown = chunk.shown
        self._lines: dict[int, bytes] = {}
        self._counts = {"completed": 0, "failed": 0, "truncated": 0}
        self._steps = 0
        self._best: dict[str, Play] = {}

    def add(self, play: Play) -> None:
        result = play.result
        assert result is not None, "only ended games are packed"
        self._counts[result.status] += 1
        self._steps += result.steps
        self._lines[play.index] = encode_result(result)
        if self._setup.traces:
            for key in self._shown.wanted(result):
                best = self._best.get(key)
                if best is None or _rank(key, play) < _rank(key, best):
                    self._best[key] = play

    def pack(self, facts: BridgeFacts, ended: str | None) -> ChunkResult:
        plays = {play.index: play for play in self._best.values()}
        keys = {index: tuple(key for key, best in self._best.items() if best.index == index) for index in plays}
        candidates = []
        offered = []
        for index in sorted(plays):
            play = plays[index]
            assert play.result is not None, "only ended games are packed"
            data = encode_trace(
                play,
                keys=keys[index],
                configuration_sha256=self._setup.configuration_sha256,
                bridge_sha256=self._setup.bridge_sha256,
            )
            candidates.append(Candidate(index=index, data=data))
            offered.append(play.result)
        return ChunkResult(
            lines=b"".join(self._lines[index] for index in sorted(self._lines)),
            finished=len(self._lines),
            completed=self._counts["completed"],
            failed=self._counts["failed"],
            truncated=self._counts["truncated"],
            steps=self._steps,
            candidates=candidates,
            offered=offered,
            facts=facts,
            ended=ended,
        )


def _rank(key: str, play: Play) -> tuple[int, int]:
    """Smaller is better: the first in run order, or the shortest, or the longest."""
    return (play.steps if key == SHORTEST else -play.steps if key == LONGEST else 0, play.index)


_encoder = msgspec.json.Encoder(order=None)


def encode_result(result: GameResult) -> bytes:
    """A line of `results.jsonl`, newline included; metrics in the order of their names."""
    if len(result.metrics) > 1:
        result.metrics = dict(sorted(result.metrics.items()))
    return _encoder.encode(result) + b"\n"
