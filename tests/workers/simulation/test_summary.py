"""The summary is right, bounded whatever is folded into it, and flags what it claims to flag."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.workers.simulation.batches import configuration
from workers.simulation.chunk import encode_result
from workers.simulation.configuration import Configuration, load
from workers.simulation.fold import MAX_DISTINCT_TRACES, BatchFold, fold_lines
from workers.simulation.plan import plan_half_widths
from workers.simulation.play import STALEMATE, STEP_LIMIT, GameResult, Status
from workers.simulation.statistics import wilson
from workers.simulation.summary import MAX_SUMMARY_BYTES, SeedEffect, encode_summary, summarise

UNMEASURED = SeedEffect(checked=0, differing=0)


def game(
    read: Configuration,
    index: int,
    outcome: str | None,
    *,
    status: Status = "completed",
    reason: str | None = None,
    steps: int = 3,
    metrics: dict[str, float] | None = None,
    trace: int = 0,
) -> GameResult:
    strategy, variant = read.cells[read.locate(index)[1]]
    return GameResult(
        index=index,
        strategy=strategy.name,
        variant=variant.name,
        seats={"*": "random"},
        seed="1",
        outcome=outcome,
        status=status,
        reason=reason,
        steps=steps,
        metrics=metrics or {},
        trace=f"{trace:032x}"[::-1],
    )


def summary_of(read: Configuration, games: list[GameResult], effect: SeedEffect = UNMEASURED) -> dict[str, Any]:
    fold = fold_lines(read, map(encode_result, games))
    return summarise(fold, configuration_sha256="c", bridge_sha256="b", seed_control="confirmed", seed_effect=effect)


def strategies(count: int) -> list[dict[str, Any]]:
    return [{"name": f"s{place}", "policy": "random"} for place in range(count)]


def test_shares_are_over_completed_and_truncated_games() -> None:
    read = load(configuration(runs=10))
    games = [game(read, k, "win") for k in range(4)] + [game(read, k, "loss") for k in range(4, 6)]
    games += [game(read, k, None, status="truncated", reason=STEP_LIMIT) for k in range(6, 8)]
    games += [game(read, 8, None, status="failed", reason="game error: KeyError: 'x17'")]
    summary = summary_of(read, games)
    cell = summary["strategies"][0]
    win = wilson(4, 8)
    assert cell["outcomes"][0] == {
        "outcome": "win",
        "count": 4,
        "share": 0.5,
        "low": float(f"{win.low:.6g}"),
        "high": float(f"{win.high:.6g}"),
    }
    assert (cell["truncated"]["count"], cell["truncated"]["share"]) == (2, 0.25)
    counts = {key: summary[key] for key in summary if key.endswith("_runs")}
    assert counts == {
        "requested_runs": 10,
        "finished_runs": 9,
        "completed_runs": 6,
        "failed_runs": 1,
        "truncated_runs": 2,
    }
    assert {row["reason"]: row["count"] for row in cell["reasons"]} == {
        "truncated: step limit": 2,
        "failed: game error: KeyError: '...'": 1,
    }


def test_metrics_are_described_as_a_plain_computation_does() -> None:
    read = load(configuration(runs=9000))
    dice = random.Random(3)
    values = [1e6 + dice.gauss(0, 1) for _ in range(9000)]
    games = [game(read, k, "end", metrics={"gold": value}) for k, value in enumerate(values)]
    described = summary_of(read, games)["strategies"][0]["metrics"]["gold"]
    fold = fold_lines(read, map(encode_result, games))
    mean = sum(values) / 9000
    sd = (sum((value - mean) ** 2 for value in values) / 8999) ** 0.5
    assert described["n"] == 9000
    assert abs(fold.cells[0].metrics["gold"].mean - mean) < 1e-6
    assert abs(fold.cells[0].metrics["gold"].sd - sd) < 1e-6
    assert described["min"] == float(f"{min(values):.6g}") and described["max"] == float(f"{max(values):.6g}")


def test_folding_is_in_blocks_and_does_not_depend_on_anything_but_the_lines() -> None:
    read = load(configuration(runs=10_000, strategies=strategies(2), objective={"win": ["a"]}))
    dice = random.Random(4)
    games = [game(read, k, dice.choice("ab"), steps=dice.randint(1, 99), trace=k % 50) for k in range(10_000)]
    first, second = summary_of(read, games), summary_of(read, games)
    assert encode_summary(first) == encode_summary(second)
    assert first["distinct_traces"] == 50


def test_distinct_traces_are_exact_up_to_a_limit_and_then_more_than() -> None:
    read = load(configuration(runs=MAX_DISTINCT_TRACES + 5))
    fold = BatchFold(read)
    for k in range(MAX_DISTINCT_TRACES):
        fold._add_trace(f"{k:016x}")
    assert (fold.distinct_traces, fold.more_traces) == (MAX_DISTINCT_TRACES, False)
    fold._add_trace(f"{MAX_DISTINCT_TRACES:016x}")
    assert (fold.distinct_traces, fold.more_traces) == (MAX_DISTINCT_TRACES, True)


def paired_games(read: Configuration, shares: list[float], rows: int, seed: int) -> list[GameResult]:
    dice = random.Random(seed)
    games = []
    for k in range(rows):
        luck = dice.random()
        for place, share in enumerate(shares):
            mixed = luck if dice.random() < 0.5 else dice.random()
            games.append(game(read, k * len(shares) + place, "won" if mixed < share else "lost"))
    return games


def test_a_strategy_better_than_every_other_is_flagged_only_with_an_objective() -> None:
    shares = [0.5, 0.5, 0.62]
    for objective, expected in (({"win": ["won"]}, [{"strategy": "s2", "variant": ""}]), (None, [])):
        read = load(configuration(runs=6000, strategies=strategies(3), objective=objective))
        summary = summary_of(read, paired_games(read, shares, 2000, 1))
        assert summary["flags"]["dominant_strategies"] == expected
        assert len([row for row in summary["pairs"] if row["measure"] in ("win", "won")]) == 3


def test_a_strategy_that_is_only_best_of_two_equal_ones_is_not_dominant() -> None:
    read = load(configuration(runs=6000, strategies=strategies(3), objective={"win": ["won"]}))
    summary = summary_of(read, paired_games(read, [0.3, 0.6, 0.6], 2000, 2))
    assert summary["flags"]["dominant_strategies"] == []
    assert [row["p_adjusted"] < 0.05 for row in summary["pairs"]] == [True, True, False]


def test_a_metric_to_be_minimised_turns_the_comparison_round() -> None:
    read = load(
        configuration(runs=400, strategies=strategies(2), objective={"metric": "turns", "direction": "minimize"})
    )
    dice = random.Random(9)
    games = [
        game(read, k * 2 + place, "end", metrics={"turns": 10 + 2 * place + dice.random()})
        for k in range(200)
        for place in range(2)
    ]
    summary = summary_of(read, games)
    assert summary["flags"]["dominant_strategies"] == [{"strategy": "s0", "variant": ""}]
    assert summary["pairs"][0]["measure"] == "turns" and summary["pairs"][0]["difference"] < 0


def test_variants_are_compared_under_one_strategy_and_strategies_on_one_variant() -> None:
    read = load(configuration(runs=40, strategies=strategies(2), variants=[{"name": "u"}, {"name": "v"}]))
    summary = summary_of(read, [game(read, k, "end", steps=k % 7) for k in range(40)])
    pairs = {(tuple(row["a"]), tuple(row["b"])) for row in summary["pairs"]}
    assert len(pairs) == 4
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairs)


def test_flags_for_stalemates_seeds_and_too_few_games() -> None:
    read = load(configuration(runs=10))
    games = [game(read, 0, None, status="failed", reason=STALEMATE), game(read, 1, "end")]
    flags = summary_of(read, games, SeedEffect(checked=8, differing=0))["flags"]
    assert flags["stalemates"]["no_legal_action"] == 1
    assert flags["seed_has_no_effect"] is True
    assert flags["too_few_games"] == ["random: 1 games"]
    many = [game(read, k, "end") for k in range(200)]
    assert summary_of(read, many, SeedEffect(checked=1, differing=1))["flags"]["too_few_games"] == []


def test_outcomes_beyond_64_and_metrics_beyond_32_are_folded() -> None:
    read = load(configuration(runs=500))
    games = [game(read, k, f"outcome {k % 100}", metrics={f"m{k % 50}": 1.0}) for k in range(500)]
    fold = fold_lines(read, map(encode_result, games))
    assert len(fold.outcomes) == 64 and fold.cells[0].outcomes["other"] == 36 * 5
    assert len(fold.cells[0].metrics) == 32


def test_the_largest_batch_has_a_summary_within_its_bound() -> None:
    read = load(
        configuration(
            runs=10_000,
            strategies=[{"name": f"{place:02d}" + "狐" * 60, "policy": "random"} for place in range(16)],
            variants=[{"name": f"{place:02d}" + "\U0001f98a" * 60} for place in range(2)],
        )
    )

    def games() -> Iterator[bytes]:
        dice = random.Random(1)
        metrics = [f"{place}" + "\U0001f409" * 100 for place in range(40)]
        for k in range(6400):
            outcome = "\U0001f40d" * 62 + f"{dice.randrange(70):02d}"
            values = {name: dice.gauss(0, 1e9) for name in metrics}
            if k % 5:
                yield encode_result(game(read, k, outcome, metrics=values, trace=k))
            else:
                reason = "ж" * 150 + "abcdefghijklmnopqrstuvwxyz"[k // 5 % 26] * (1 + k // 130 % 3)
                yield encode_result(game(read, k, None, status="failed", reason=reason))

    fold = fold_lines(read, games())
    effect = SeedEffect(checked=8, differing=0)
    summary = summarise(fold, configuration_sha256="c", bridge_sha256="b", seed_control="x", seed_effect=effect)
    assert len(encode_summary(summary)) <= MAX_SUMMARY_BYTES
    assert summary["cut"]
    assert summary["finished_runs"] == 6400 and len(summary["strategies"]) == 32


def test_no_path_and_no_bare_token_reaches_the_summary() -> None:
    read = load(configuration(runs=2))
    reason = "game error: OSError: cannot open /home/someone/game/data/level7.dat"
    games = [game(read, 0, None, status="failed", reason=reason), game(read, 1, "end", metrics={"zero": -0.0})]
    text = encode_summary(summary_of(read, games)).decode()
    assert "/home" not in text and "someone" not in text and "PATH" in text
    json.loads(text, parse_constant=lambda token: 1 / 0)
    assert "-0" not in text


def test_a_plan_says_what_the_runs_will_show() -> None:
    plan = plan_half_widths(load(configuration(runs=6000, strategies=strategies(3))))
    assert (plan.cells, plan.games_per_cell) == (3, 2000)
    interval = wilson(1000, 2000)
    assert plan.share_half_width is not None
    assert abs(plan.share_half_width - (interval.high - interval.low) / 2) < 1e-9
    assert plan.games_per_cell_to_find["0.03"] == 2919
    assert plan_half_widths(load(configuration(runs=2, strategies=strategies(3)))).share_half_width is None
