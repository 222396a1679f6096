"""The bounded summary of a batch: the one thing of a simulation that may ever be uploaded.

It holds no command, path, module name or environment, and is at most `MAX_SUMMARY_BYTES` long: what had to be left out
for that is named under `cut`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from workers.simulation.configuration import Configuration
from workers.simulation.fold import STEPS, BatchFold, CellFold, PairFold, ValueFold
from workers.simulation.statistics import (
    MAX_BIN_WIDTH,
    Interval,
    half_width,
    holm,
    paired_means,
    paired_shares,
    significant,
    wilson,
)

MAX_SUMMARY_BYTES = 64_000
SUMMARY_SCHEMA_VERSION = "1.0"
ALPHA = 0.05
FEW_GAMES = 30
WIDE_SHARE = 0.1
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NOTE = "a mechanics test by fixed strategies, not a test of the player's interface; games and traces stay local"

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][^\s/\\'\":,;]+){2,}")


class SeedEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Games whose recorded actions were played under another seed: how many, and in how many anything differed."""

    checked: int
    differing: int

    @property
    def has_no_effect(self) -> bool | None:
        """None where nothing could be measured."""
        return None if self.checked == 0 else self.differing == 0


def summarise(
    fold: BatchFold,
    *,
    configuration_sha256: str,
    bridge_sha256: str,
    seed_control: str,
    seed_effect: SeedEffect,
) -> dict[str, Any]:
    """The summary as plain data, keys in the order in which people read. Shares and means have six digits."""
    configuration = fold.configuration
    pairs = _pairs(fold)
    summary: dict[str, Any] = {
        "schema_version": SUMMARY_SCHEMA_VERSION,
        "requested_runs": configuration.runs,
        "finished_runs": fold.finished,
        "completed_runs": sum(cell.completed for cell in fold.cells),
        "failed_runs": sum(cell.failed for cell in fold.cells),
        "truncated_runs": sum(cell.truncated for cell in fold.cells),
        "total_steps": fold.total_steps,
        "distinct_traces": fold.distinct_traces,
        "distinct_traces_exact": not fold.more_traces,
        "seed": str(configuration.seed),
        "seed_control": seed_control,
        "configuration_sha256": configuration_sha256,
        "bridge_sha256": bridge_sha256,
        "note": NOTE,
        "objective": None if configuration.objective is None else msgspec.to_builtins(configuration.objective),
        "flags": _flags(fold, pairs, seed_effect),
        "strategies": [_cell(cell, fold) for cell in fold.cells],
        "pairs": pairs,
        "method": {
            "shares": "Wilson 95 % intervals over completed and truncated games",
            "pairs": "k-th games share a game seed; 95 % intervals; p values adjusted by Holm over all pairs",
            "quantiles": f"lower edges of fixed bins at most {MAX_BIN_WIDTH * 100:.1f} % wide",
        },
        "cut": [],
    }
    return _bound(summary)


def encode_summary(summary: dict[str, Any]) -> bytes:
    """The bytes of `summary.json`: two spaces of indent, one newline at the end."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def _cell(cell: CellFold, fold: BatchFold) -> dict[str, Any]:
    played = cell.played
    outcomes = [
        {"outcome": name, **_share(cell.outcomes.get(name, 0), played)}
        for name in [*fold.outcomes, "other"]
        if name in cell.outcomes or (name in fold.outcomes and played)
    ]
    outcomes.sort(key=lambda row: (-row["count"], row["outcome"]))
    objective = fold.configuration.objective
    described: dict[str, Any] = {
        "strategy": cell.strategy,
        "variant": cell.variant,
        "seats": cell.seats,
        "games": played + cell.failed,
        "completed": cell.completed,
        "failed": cell.failed,
        "outcomes": outcomes,
        "truncated": _share(cell.truncated, played),
    }
    if objective is not None and objective.win:
        described["win"] = _share(sum(cell.outcomes.get(name, 0) for name in objective.win), played)
    described |= {
        STEPS: _values(cell.steps),
        "metrics": {name: _values(cell.metrics[name]) for name in sorted(cell.metrics)},
        "reasons": [
            {"reason": _PATH.sub("PATH", reason), "count": count}
            for reason, count in sorted(cell.reasons.items(), key=lambda item: (-item[1], item[0]))
        ],
    }
    return described


def _share(count: int, n: int) -> dict[str, Any]:
    if n == 0:
        return {"count": count, "share": None, "low": None, "high": None}
    return {"count": count, **_interval("share", wilson(count, n))}


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return {
        name: significant(interval.value),
        "low": significant(interval.low),
        "high": significant(interval.high),
    }


def _values(fold: ValueFold) -> dict[str, Any]:
    if fold.n == 0:
        return {"n": 0}
    quantiles = fold.bins.quantiles(QUANTILES, fold.low, fold.high)
    return {
        "n": fold.n,
        "mean": significant(fold.mean),
        "sd": significant(fold.sd),
        "min": significant(fold.low),
        "quantiles": {
            f"{share * 100:g}": significant(value) for share, value in zip(QUANTILES, quantiles, strict=True)
        },
        "max": significant(fold.high),
    }


def _pairs(fold: BatchFold) -> list[dict[str, Any]]:
    """One row a pair and measure; p values adjusted over all of them together."""
    rows: list[dict[str, Any]] = []
    p_values: list[float] = []
    for pair in fold.pairs:
        for measure, n, interval, p in _measured(fold, pair):
            a, b = fold.cells[pair.a], fold.cells[pair.b]
            rows.append(
                {
                    "a": [a.strategy, a.variant],
                    "b": [b.strategy, b.variant],
                    "measure": measure,
                    "pairs": n,
                    **_interval("difference", interval),
                }
            )
            p_values.append(p)
    for row, p, adjusted in zip(rows, p_values, holm(p_values), strict=True):
        row["p"] = significant(p, 4)
        row["p_adjusted"] = significant(adjusted, 4)
    return rows


def _measured(fold: BatchFold, pair: PairFold) -> list[tuple[str, int, Interval, float]]:
    measured = []
    for outcome in fold.measures:
        if pair.n:
            interval, p = paired_shares(pair.better.get(outcome, 0), pair.worse.get(outcome, 0), pair.n)
            measured.append((outcome, pair.n, interval, p))
    objective = fold.configuration.objective
    if pair.n_values >= 2:
        interval, p = paired_means(pair.n_values, pair.difference.value(), pair.squares.value())
        measured.append((objective.metric if objective is not None else STEPS, pair.n_values, interval, p))
    return measured


def _flags(fold: BatchFold, pairs: list[dict[str, Any]], seed_effect: SeedEffect) -> dict[str, Any]:
    no_legal_action = sum(cell.no_legal_action for cell in fold.cells)
    step_limit = sum(cell.step_limit for cell in fold.cells)
    return {
        "dominant_strategies": _dominant(fold.configuration, pairs),
        "stalemates": {"no_legal_action": no_legal_action, "step_limit": step_limit},
        "seed_has_no_effect": seed_effect.has_no_effect,
        "seed_effect": {"checked": seed_effect.checked, "differing": seed_effect.differing},
        "too_few_games": _too_few(fold),
    }


def _dominant(configuration: Configuration, pairs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """For each variant the strategy that is better than every other one there, after adjustment."""
    objective = configuration.objective
    if objective is None or len(configuration.strategies) < 2:
        return []
    sign = -1 if objective.direction == "minimize" else 1
    beaten: dict[tuple[str, str], int] = {}
    for row in pairs:
        (a, a_variant), (b, b_variant) = row["a"], row["b"]
        if a_variant != b_variant or row["p_adjusted"] >= ALPHA or row["difference"] == 0:
            continue
        if objective.metric and row["pairs"] < FEW_GAMES:
            continue  # the normal approximation of a mean says nothing yet
        better = a if row["difference"] * sign > 0 else b
        beaten[(better, a_variant)] = beaten.get((better, a_variant), 0) + 1
    others = len(configuration.strategies) - 1
    return [
        {"strategy": strategy, "variant": variant} for (strategy, variant), count in beaten.items() if count == others
    ]


def _too_few(fold: BatchFold) -> list[str]:
    """The cells of which too few games were played to tell a share within ten points."""
    few = []
    for cell in fold.cells:
        wide = cell.played < FEW_GAMES or half_width(cell.played) > WIDE_SHARE
        if wide:
            name = f"{cell.strategy} / {cell.variant}" if cell.variant else cell.strategy
            few.append(f"{name}: {cell.played} games")
    return few


def _bound(summary: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is least missed until the summary is short enough; always the same for the same batch."""
    reductions: list[tuple[str, Callable[[], None]]] = [
        ("quantiles of metrics but the median", lambda: _each_metric(summary, _only_median)),
        ("pairs that do not differ after adjustment", lambda: _only_clear_pairs(summary)),
        ("outcomes but the eight most frequent of each strategy", lambda: _only_outcomes(summary, 8)),
        ("metrics but the first eight of each strategy", lambda: _only_metrics(summary, 8)),
        ("reasons but the four most frequent of each strategy", lambda: _only_reasons(summary, 4)),
        ("all pairs", lambda: summary["pairs"].clear()),
        ("all metrics", lambda: _only_metrics(summary, 0)),
        ("outcomes but the most frequent of each strategy", lambda: _only_outcomes(summary, 1)),
        ("reasons but the most frequent of each strategy", lambda: _only_reasons(summary, 1)),
        ("seats", lambda: _drop(summary, "seats")),
        ("the list of strategies with too few games", lambda: summary["flags"].update(too_few_games=["cut"])),
    ]
    for name, reduce in reductions:
        if len(encode_summary(summary)) <= MAX_SUMMARY_BYTES:
            break
        reduce()
        summary["cut"].append(name)
    return summary


def _each_metric(summary: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> None:
    for cell in summary["strategies"]:
        for values in cell["metrics"].values():
            change(values)


def _only_median(values: dict[str, Any]) -> None:
    if "quantiles" in values:
        values["quantiles"] = {"50": values["quantiles"]["50"]}


def _only_clear_pairs(summary: dict[str, Any]) -> None:
    summary["pairs"] = [row for row in summary["pairs"] if row["p_adjusted"] < ALPHA]


def _only_outcomes(summary: dict[str, Any], keep: int) -> None:
    for cell in summary["strategies"]:
        cell["outcomes"] = cell["outcomes"][:keep]


def _only_metrics(summary: dict[str, Any], keep: int) -> None:
    for cell in summary["strategies"]:
        cell["metrics"] = dict(list(cell["metrics"].items())[:keep])


def _only_reasons(summary: dict[str, Any], keep: int) -> None:
    for cell in summary["strategies"]:
        cell["reasons"] = cell["reasons"][:keep]


def _drop(summary: dict[str, Any], key: str) -> None:
    for cell in summary["strategies"]:
        cell.pop(key, None)
