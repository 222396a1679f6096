"""Folds `results.jsonl` in run order into bounded sums: the same for any number of workers, sessions and attempts.

Memory depends on the configuration's limits (cells, metrics, outcomes, bins), never on the number of games.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from workers.simulation.configuration import MAX_METRICS, MAX_NAME_CHARACTERS, MAX_OUTCOMES, Configuration
from workers.simulation.play import STALEMATE, STEP_LIMIT, GameResult
from workers.simulation.statistics import Bins, Total
from workers.simulation.trace import fold_reason

MAX_DISTINCT_TRACES = 100_000
MAX_REASONS = 32
MAX_FREE_OUTCOMES = 4
OTHER = "other"
STEPS = "steps"


class ValueFold:
    """One number of each game of a cell: its sums, extremes and bins."""

    __slots__ = ("_shift", "_squares", "_sum", "bins", "high", "low", "n")

    def __init__(self) -> None:
        self.n = 0
        self.low = self.high = self._shift = 0.0
        self._sum = Total()
        self._squares = Total()
        self.bins = Bins()

    def add(self, value: float) -> None:
        if self.n == 0:
            self.low = self.high = self._shift = value
        elif value < self.low:
            self.low = value
        elif value > self.high:
            self.high = value
        self.n += 1
        self._sum.add(value)
        off = value - self._shift  # sums of squares lose their digits far from 0
        self._squares.add(off * off)
        self.bins.add(value)

    @property
    def mean(self) -> float:
        return self._sum.value() / self.n if self.n else 0.0

    @property
    def sd(self) -> float:
        """The sample standard deviation; 0 for fewer than two values."""
        if self.n < 2:
            return 0.0
        off = self.mean - self._shift
        variance = (self._squares.value() - self.n * off * off) / (self.n - 1)
        return float(max(0.0, variance) ** 0.5)


class CellFold:
    """Everything that is counted of one strategy x variant."""

    def __init__(self, strategy: str, variant: str, seats: dict[str, str]) -> None:
        self.strategy, self.variant, self.seats = strategy, variant, seats
        self.completed = self.failed = self.truncated = 0
        self.no_legal_action = self.step_limit = 0
        self.outcomes: dict[str, int] = {}
        self.metrics: dict[str, ValueFold] = {}
        self.steps = ValueFold()
        self.reasons: dict[str, int] = {}

    @property
    def played(self) -> int:
        """Completed and truncated games: what shares are shares of."""
        return self.completed + self.truncated

    def note_reason(self, status: str, reason: str) -> None:
        key = f"{status}: {fold_reason(reason)}"
        if key not in self.reasons and len(self.reasons) >= MAX_REASONS:
            key = OTHER
        self.reasons[key] = self.reasons.get(key, 0) + 1


class PairFold:
    """The k-th games of two cells, side by side. `better` and `worse` count by outcome how often only one had it."""

    __slots__ = ("a", "b", "better", "difference", "n", "n_values", "squares", "worse")

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b
        self.n = self.n_values = 0
        self.better: dict[str, int] = {}
        self.worse: dict[str, int] = {}
        self.difference = Total()
        self.squares = Total()


class BatchFold:
    """The folded batch. `add` takes results in run order; `close` takes the last row of pairs."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.cells = [
            CellFold(strategy.name, variant.name, {seat: policy.kind for seat, policy in strategy.seats.items()})
            for strategy, variant in configuration.cells
        ]
        self.pairs = [PairFold(a, b) for a, b in _pairs_of(configuration)]
        self.outcomes: dict[str, str] = {}
        self.metric_names: dict[str, str] = {}
        self.finished = self.total_steps = 0
        self._traces: set[int] = set()
        self.more_traces = False
        self._row_k = -1
        self._row: list[GameResult | None] = [None] * len(self.cells)

    @property
    def distinct_traces(self) -> int:
        return len(self._traces)

    @property
    def measures(self) -> tuple[str, ...]:
        """The outcomes that pairs are compared by: `win` with such an objective, without any the first four seen."""
        objective = self.configuration.objective
        if objective is None:
            return tuple(name for name in self.outcomes if name != OTHER)[:MAX_FREE_OUTCOMES]
        return ("win",) if objective.win else ()

    def add(self, result: GameResult) -> None:
        k, position = self.configuration.locate(result.index)
        if k != self._row_k:
            self._close_row()
            self._row_k = k
        self._row[position] = result
        self.finished += 1
        self.total_steps += result.steps
        self._add_trace(result.trace)
        cell = self.cells[position]
        if result.status == "failed":
            cell.failed += 1
            cell.no_legal_action += result.reason == STALEMATE
            cell.note_reason("failed", result.reason or "")
            return
        if result.status == "truncated":
            cell.truncated += 1
            cell.step_limit += result.reason == STEP_LIMIT
            cell.note_reason("truncated", result.reason or "")
        else:
            cell.completed += 1
            outcome = self._outcome(result.outcome or "none")
            cell.outcomes[outcome] = cell.outcomes.get(outcome, 0) + 1
        cell.steps.add(float(result.steps))
        for name, value in result.metrics.items():
            known = self._metric(name)
            if known is not None:
                fold = cell.metrics.get(known)
                if fold is None:
                    fold = cell.metrics[known] = ValueFold()
                fold.add(value)

    def close(self) -> None:
        self._close_row()

    def _add_trace(self, digest: str) -> None:
        if self.more_traces:
            return
        self._traces.add(int(digest[:16], 16))
        if len(self._traces) > MAX_DISTINCT_TRACES:
            self.more_traces = True
            self._traces.pop()

    def _outcome(self, outcome: str) -> str:
        known = self.outcomes.get(outcome)
        if known is not None:
            return known
        if len(self.outcomes) < MAX_OUTCOMES:
            self.outcomes[outcome] = outcome
            return outcome
        return OTHER

    def _metric(self, name: str) -> str | None:
        known = self.metric_names.get(name)
        if known is None and len(self.metric_names) < MAX_METRICS:
            known = self.metric_names[name] = name[:MAX_NAME_CHARACTERS]
        return known

    def _close_row(self) -> None:
        row = self._row
        if self._row_k < 0:
            return
        objective = self.configuration.objective
        by_metric = objective is not None and bool(objective.metric)
        win = objective.win if objective is not None and objective.win else None
        names = [_outcome_of(result, win) for result in row]
        values = [self._value(result) for result in row]
        for pair in self.pairs:
            ours, theirs = values[pair.a], values[pair.b]
            if ours is not None and theirs is not None:
                pair.n_values += 1
                if ours != theirs:
                    pair.difference.add(ours - theirs)
                    pair.squares.add((ours - theirs) * (ours - theirs))
            if by_metric:
                continue
            mine, other = names[pair.a], names[pair.b]
            if mine is None or other is None:
                continue
            pair.n += 1
            if mine != other:
                pair.better[mine] = pair.better.get(mine, 0) + 1
                pair.worse[other] = pair.worse.get(other, 0) + 1
        for position in range(len(row)):
            row[position] = None

    def _value(self, result: GameResult | None) -> float | None:
        """The number that pairs are compared by: the objective's metric, or the steps where there is no objective."""
        if result is None or result.status != "completed":
            return None
        objective = self.configuration.objective
        if objective is None:
            return float(result.steps)
        return result.metrics.get(objective.metric) if objective.metric else None


def fold_lines(configuration: Configuration, lines: Iterable[bytes]) -> BatchFold:
    """Fold the lines of a `results.jsonl`, in run order."""
    fold = BatchFold(configuration)
    decode = msgspec.json.Decoder(GameResult).decode
    for line in lines:
        fold.add(decode(line))
    fold.close()
    return fold


def _outcome_of(result: GameResult | None, win: tuple[str, ...] | None) -> str | None:
    """What a game counts as in a pair: its outcome, or whether it was won; None where it failed or is missing."""
    if result is None or result.status == "failed":
        return None
    if win is not None:
        return "win" if result.status == "completed" and result.outcome in win else ""
    return result.outcome or "" if result.status == "completed" else ""


def _pairs_of(configuration: Configuration) -> list[tuple[int, int]]:
    """Cells that differ in one thing only: two strategies on one variant, or two variants under one strategy."""
    variants = len(configuration.variants)
    cells = len(configuration.strategies) * variants
    return [
        (a, b)
        for a in range(cells)
        for b in range(a + 1, cells)
        if a // variants == b // variants or a % variants == b % variants
    ]
