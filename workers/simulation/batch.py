"""Plays a batch: gives out chunks, writes results in run order, watches the limits, and sums up.

The one reader and writer of an attempt's files is here; processes of the pool only play.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Protocol

import msgspec

from workers.simulation.attempt import ATTEMPT_VERSION, Attempt, AttemptHeader, earlier_attempts
from workers.simulation.bridge_play import BridgeFacts
from workers.simulation.chunk import Chunk, ChunkResult, Setup, fail_alone, play_chunk
from workers.simulation.configuration import Configuration
from workers.simulation.errors import PoolError, ProcessDiedError, SimulationError
from workers.simulation.fold import BatchFold, fold_lines
from workers.simulation.order import SimulateOrder, local_environment, make_setup
from workers.simulation.play import CANCELED, WALL_CLOCK, GameResult
from workers.simulation.pool import ProcessPool
from workers.simulation.probes import ProbeReport, check_seed_effect, probe, sample_indexes
from workers.simulation.summary import SeedEffect, encode_summary, summarise
from workers.simulation.table import write_csv
from workers.simulation.trace import write_private

SUMMARY_NAME = "summary.json"
TIMING_NAME = "timing.json"
CSV_NAME = "results.csv"
REPORT_NAME = "report.html"
CHUNK_GAMES = 128
CHUNKS_AHEAD = 4
WAIT_SECONDS = 0.1
PROGRESS_SECONDS = 0.25
BRIDGE_GRACE_SECONDS = 60.0


class StopRequest(Protocol):
    """Somebody's wish to end the batch: `requested` is false until then (a flag, or a reason's name)."""

    @property
    def requested(self) -> object: ...


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch is. Games taken over from an earlier attempt count as finished, not for the rate."""

    finished: int
    requested: int
    steps: int
    failed: int
    games_per_second: float
    seconds_left: float | None


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch ended. Paths are absolute. `ended`: None (all was played), `canceled`, `wall clock`, or `fault`.

    `exit_code`: 0 only when every game completed; 10 when canceled; else 1. `error` is one line where `ended` is
    `fault`.
    """

    attempt: Path
    results: Path
    summary_path: Path
    timing_path: Path
    report: Path
    traces: list[Path]
    csv: Path | None
    summary: dict[str, Any]
    ended: str | None
    error: str | None
    exit_code: int


def run_batch(
    order: SimulateOrder,
    *,
    directory: Path,
    stop: StopRequest,
    progress: Callable[[BatchProgress], None],
    now: Callable[[], str],
    environment: Mapping[str, str] | None = None,
) -> BatchResult:
    """Play an order in `directory`, in an attempt folder of its own; blocks until it is summed up.

    `environment` is all that games see (None: a short allow-list of this process's own). Raises `ConfigurationError`
    for an order that cannot be used and `GameStartError` for a game that does not play at all, before a game is played.
    """
    began = time.monotonic()
    allowed = local_environment(os.environ) if environment is None else dict(environment)
    configuration, setup = make_setup(order, environment=allowed, deadline=began + order.wall_seconds)
    workers = min(order.workers or configuration.workers, configuration.runs)
    attempt = Attempt(
        directory.absolute(),
        AttemptHeader(
            version=ATTEMPT_VERSION,
            configuration_sha256=setup.configuration_sha256,
            bridge_sha256=setup.bridge_sha256,
            runs=configuration.runs,
            started_at=now(),
        ),
    )
    try:
        attempt.take_over(earlier_attempts([directory.absolute(), *map(Path, order.earlier)]))
        with make_pool(setup, workers) as pool:
            batch = _Batch(setup, attempt, pool, workers, stop, progress)
            batch.play()
            seed_effect = batch.check_seed()
    finally:
        attempt.close()
    return _sum_up(order, batch, seed_effect)


def make_pool(setup: Setup, processes: int) -> ProcessPool:
    """The pool for this game: one that hangs inside a step is ended after the step's limit."""
    bridge = setup.bridge
    step, start = bridge.step_timeout_ms / 1000, bridge.startup_timeout_ms / 1000
    # A bridge has its own limits, kept by its client; the pool's is for a client that keeps none.
    silence = 4 * start + 2 * step + BRIDGE_GRACE_SECONDS if bridge.command else step
    return ProcessPool(
        processes, environment=setup.environment, silence_seconds=silence, start_seconds=max(60.0, start)
    )


class _Batch:
    """A batch in play. Chunks are numbered in run order; none is given out further ahead than four a worker."""

    def __init__(
        self,
        setup: Setup,
        attempt: Attempt,
        pool: ProcessPool,
        workers: int,
        stop: StopRequest,
        progress: Callable[[BatchProgress], None],
    ) -> None:
        self.setup, self.attempt, self.pool, self.workers = setup, attempt, pool, workers
        self._stop, self._report_progress = stop, progress
        self.configuration: Configuration = setup.configuration
        self.finished = attempt.reused
        self.steps = attempt.reused_steps
        self.failed = 0
        self.ended: str | None = None
        self.error: str | None = None
        self.facts = BridgeFacts()
        self.probe = ProbeReport(seed_control="unknown", leftovers=())
        self.play_seconds = 0.0
        self._began = 0.0
        self._next_progress = 0.0
        self._size = self._chunk_size()
        self._next_index = attempt.reused
        self._next_number = 0
        self._next_to_write = 0
        self._open: dict[Future[ChunkResult], tuple[int, tuple[int, ...]]] = {}
        self._pieces: dict[int, list[ChunkResult]] = {}
        self._missing: dict[int, int] = {}

    def play(self) -> None:
        """Probe the game, then play every game that is left; ends early by a limit, a wish or a fault."""
        self.probe = self._ask(self.pool.submit(probe, self.setup))
        self._began = time.monotonic()
        try:
            while True:
                try:
                    self._give_out()
                except PoolError as error:
                    self._end("fault", str(error))
                if not self._open:
                    break
                done, _ = wait(self._open, timeout=WAIT_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    self._take(future)
                self._write_ready()
                self._look_at_limits()
                self._show_progress()
        finally:
            self.play_seconds = time.monotonic() - self._began
        self._write_rest()
        self._show_progress(last=True)

    def check_seed(self) -> SeedEffect:
        """Measure whether the seed has any effect; not measured in a batch that was ended early."""
        if self.ended is not None:
            return SeedEffect(checked=0, differing=0)
        indexes = sample_indexes(self.configuration.runs, len(self.configuration.cells))
        # With a deadline of its own: the batch's may be a moment away, and the summary must not depend on that.
        setup = msgspec.structs.replace(self.setup, deadline=None)
        future = self.pool.submit(check_seed_effect, setup, indexes)
        try:
            effect: SeedEffect = self._ask(future)
        except SimulationError:
            return SeedEffect(checked=0, differing=0)
        return effect

    def _ask(self, future: Future[Any]) -> Any:
        """Wait for one answer, listening to a wish to stop."""
        while True:
            done, _ = wait([future], timeout=WAIT_SECONDS)
            if done:
                return future.result()
            if self._stop.requested:
                self.pool.stop_games()

    def _chunk_size(self) -> int:
        left = self.configuration.runs - self.attempt.reused
        share = -(-left // (self.workers * CHUNKS_AHEAD))
        return max(1, min(CHUNK_GAMES, share))

    def _give_out(self) -> None:
        while (
            self.ended is None
            and self._next_index < self.configuration.runs
            and self._next_number < self._next_to_write + CHUNKS_AHEAD * self.workers
        ):
            stop = min(self._next_index + self._size, self.configuration.runs)
            indexes = tuple(range(self._next_index, stop))
            number = self._next_number
            self._submit(number, indexes, alone=False)
            self._missing[number] = 1
            self._pieces[number] = []
            self._next_index = stop
            self._next_number += 1

    def _submit(self, number: int, indexes: tuple[int, ...], *, alone: bool) -> None:
        chunk = Chunk(indexes=indexes, shown=self.attempt.sample.shown.copy())
        if alone:
            future = self.pool.submit_with(0, play_chunk, self.setup, chunk)
        else:
            future = self.pool.submit(play_chunk, self.setup, chunk)
        self._open[future] = (number, indexes)

    def _take(self, future: Future[ChunkResult]) -> None:
        number, indexes = self._open.pop(future)
        self._missing[number] -= 1
        if future.cancelled():
            return
        try:
            piece = future.result()
        except ProcessDiedError as death:
            if len(indexes) > 1 and self.ended is None:
                # Somebody in this chunk ends the process: each game alone, so that it takes no other along.
                self._missing[number] += len(indexes)
                for index in indexes:
                    self._submit(number, (index,), alone=True)
                return
            if self.ended is not None:
                return  # ended by us while it was stopping: no game's fault
            piece = fail_alone(self.setup, indexes[0], death.reason)
        except SimulationError as error:
            self._end("fault", str(error))
            return
        self._pieces[number].append(piece)
        self.finished += piece.finished
        self.steps += piece.steps
        self.failed += piece.failed
        _add_facts(self.facts, piece.facts)

    def _write_ready(self) -> None:
        while self._next_to_write in self._missing and self._missing[self._next_to_write] == 0:
            self._write(self._next_to_write)
            self._next_to_write += 1

    def _write_rest(self) -> None:
        """After an early end: what was played, in run order, gaps and all."""
        for number in sorted(self._pieces):
            self._write(number)

    def _write(self, number: int) -> None:
        pieces = sorted(self._pieces.pop(number), key=_first_index)
        del self._missing[number]
        for piece in pieces:
            # Traces first: a result that is in the journal has its trace on disk.
            for candidate, result in zip(piece.candidates, piece.offered, strict=True):
                self.attempt.sample.offer(candidate, result)
            self.attempt.append(piece.lines)

    def _look_at_limits(self) -> None:
        if self.ended is not None:
            return
        if self._stop.requested:
            self._end(CANCELED, None)
        elif self.setup.deadline is not None and time.monotonic() >= self.setup.deadline:
            self._end(WALL_CLOCK, None)

    def _end(self, ended: str, error: str | None) -> None:
        if self.ended is None:
            self.ended, self.error = ended, error
            self.pool.stop_games()
            for future in list(self._open):
                future.cancel()

    def _show_progress(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._next_progress and not last:
            return
        self._next_progress = now + PROGRESS_SECONDS
        games, steps = (0, 0) if last else self.pool.in_play()
        finished = min(self.finished + games, self.configuration.runs)
        seconds = max(now - self._began, 1e-9)
        rate = (finished - self.attempt.reused) / seconds
        left = (self.configuration.runs - finished) / rate if rate > 0 else None
        self._report_progress(
            BatchProgress(
                finished=finished,
                requested=self.configuration.runs,
                steps=self.steps + steps,
                failed=self.failed,
                games_per_second=rate,
                seconds_left=left,
            )
        )


def _first_index(piece: ChunkResult) -> int:
    return msgspec.json.decode(piece.lines[: piece.lines.find(b"\n")], type=GameResult).index if piece.lines else -1


def _add_facts(total: BridgeFacts, more: BridgeFacts) -> None:
    for name in ("starts", "restarts", "noise_lines", "seeds_confirmed", "seeds_not_confirmed"):
        setattr(total, name, getattr(total, name) + getattr(more, name))
    total.leftovers = (total.leftovers + more.leftovers)[:20]
    total.game, total.game_version = more.game or total.game, more.game_version or total.game_version


def _sum_up(order: SimulateOrder, batch: _Batch, seed_effect: SeedEffect) -> BatchResult:
    from workers.simulation.report import write_report

    attempt, setup = batch.attempt, batch.setup
    fold = fold_lines(batch.configuration, attempt.lines())
    summary = summarise(
        fold,
        configuration_sha256=setup.configuration_sha256,
        bridge_sha256=setup.bridge_sha256,
        seed_control=batch.probe.seed_control,
        seed_effect=seed_effect,
    )
    timing = _timing(batch, fold)
    folder = attempt.directory
    write_private(folder / SUMMARY_NAME, encode_summary(summary))
    write_private(folder / TIMING_NAME, msgspec.json.format(msgspec.json.encode(timing), indent=2) + b"\n")
    csv_path = folder / CSV_NAME if order.csv else None
    if csv_path is not None:
        write_csv(csv_path, attempt.lines(), tuple(fold.metric_names))
    traces = attempt.sample.paths
    write_report(
        folder / REPORT_NAME,
        fold,
        summary,
        timing,
        ended=batch.ended,
        error=batch.error,
        traces=traces,
        plots=order.plots,
    )
    return BatchResult(
        attempt=folder,
        results=attempt.results,
        summary_path=folder / SUMMARY_NAME,
        timing_path=folder / TIMING_NAME,
        report=folder / REPORT_NAME,
        traces=traces,
        csv=csv_path,
        summary=summary,
        ended=batch.ended,
        error=batch.error,
        exit_code=_exit_code(batch.ended, summary),
    )


def _exit_code(ended: str | None, summary: Mapping[str, Any]) -> int:
    if ended == CANCELED:
        return 10
    return 0 if ended is None and summary["completed_runs"] == summary["requested_runs"] else 1


def _timing(batch: _Batch, fold: BatchFold) -> dict[str, Any]:
    seconds = max(batch.play_seconds, 1e-9)
    played = fold.finished - batch.attempt.reused
    return {
        "wall_seconds": round(batch.play_seconds, 3),
        "games_per_second": round(played / seconds, 1),
        "steps_per_second": round((fold.total_steps - batch.attempt.reused_steps) / seconds, 1),
        "games_taken_over": batch.attempt.reused,
        "workers": batch.workers,
        "sessions": batch.setup.bridge.sessions,
        "pool_processes_died": batch.pool.deaths,
        "bridge_starts": batch.facts.starts,
        "bridge_restarts": batch.facts.restarts,
        "noise_lines": batch.facts.noise_lines,
        "leftovers": [*batch.probe.leftovers, *batch.facts.leftovers],
        "game": batch.facts.game,
        "game_version": batch.facts.game_version,
    }
