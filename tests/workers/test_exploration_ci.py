"""The measured claims about `offline`; the same numbers are printed by `python -m benchmarks.exploration`."""

from __future__ import annotations

import importlib.util
import statistics
from functools import cache
from pathlib import Path

import pytest

from benchmarks.exploration.recall import (
    ACTIONS,
    QUESTS,
    SEEDS,
    cavern,
    found_per_seed,
    median,
    recall,
    run_all,
    sign_test,
    textworld,
)


@cache
def recalled(brain: str, shift: int = 0) -> dict[tuple[str, int], int]:
    return recall(brain, shift)


@pytest.mark.ci
def test_offline_finds_at_least_five_of_six_planted_bugs_with_every_seed() -> None:
    assert min(found_per_seed(recalled("offline"))) >= 5


@pytest.mark.ci
def test_offline_finds_at_least_four_of_six_when_two_bugs_are_moved() -> None:
    assert min(found_per_seed(recalled("offline", 1))) >= 4


@pytest.mark.ci
def test_nothing_is_reported_with_all_bugs_switched_off() -> None:
    for played in run_all([(brain, cavern(None), seed) for brain in ("offline", "random") for seed in SEEDS]):
        assert (played.report.actions_taken, played.report.findings) == (ACTIONS, [])


@pytest.mark.ci
def test_offline_is_better_than_random_by_a_sign_test_and_twice_as_fast() -> None:
    offline, random = recalled("offline"), recalled("random")
    won, lost, p = sign_test(list(offline.values()), list(random.values()))
    assert won > lost and p < 0.01
    assert median(offline) <= median(random) / 2


@pytest.mark.ci
@pytest.mark.skipif(
    importlib.util.find_spec("textworld") is None, reason="textworld is missing: pip install -e '.[ci]' brings it"
)
def test_offline_scores_above_random_on_thirty_textworld_games_without_serious_findings(tmp_path: Path) -> None:
    settings = textworld(tmp_path)
    means = {}
    for brain in ("offline", "random"):
        runs = run_all([(brain, settings, seed) for seed in QUESTS])
        serious = [f.title for r in runs for f in r.report.findings if f.severity in ("critical", "major")]
        assert serious == []
        assert {r.report.end_reason for r in runs} == {"max_actions"}
        means[brain] = statistics.fmean(r.best_progress for r in runs)
    assert round(means["offline"] - means["random"], 9) >= 0.2


def test_the_sign_test_is_exact() -> None:
    assert sign_test([1] * 8, [2] * 8) == (8, 0, 2 / 256)
    assert sign_test([1, 1, 3, 5], [2, 2, 2, 5]) == (2, 1, 1.0)
