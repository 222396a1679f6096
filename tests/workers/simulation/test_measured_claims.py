"""What a batch claims about itself, measured over many games (`bin/test --ci`)."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.workers.simulation.batches import configuration, in_process, outcomes, play
from workers.simulation.statistics import games_to_find

STICK = [{"name": "stick on 20", "policy": {"kind": "python", "entry": "blackjack:stick_on_20"}}]
ROOT = Path(__file__).parents[3]

CARDS = {**dict.fromkeys(range(1, 10), 1 / 13), 10: 4 / 13}


def points(hard: int, ace: bool) -> int:
    return hard + 10 if ace and hard + 10 <= 21 else hard


@cache
def dealer_ends(hard: int, ace: bool) -> dict[int, float]:
    """The dealer's final score (0: bust) from a hand with `hard` points, aces as one."""
    if points(hard, ace) >= 17:
        return {points(hard, ace) if hard <= 21 else 0: 1.0}
    ends: dict[int, float] = {}
    for card, chance in CARDS.items():
        for score, share in dealer_ends(hard + card, ace or card == 1).items():
            ends[score] = ends.get(score, 0.0) + chance * share
    return ends


@cache
def player_value(hard: int, ace: bool, shown: int) -> float:
    """The expected return of sticking on 20 from here, the dealer showing `shown`; naturals aside."""
    if hard > 21:
        return -1.0
    if points(hard, ace) < 20:
        return sum(chance * player_value(hard + card, ace or card == 1, shown) for card, chance in CARDS.items())
    return stand_value(points(hard, ace), shown)


def stand_value(score: int, shown: int) -> float:
    value = 0.0
    for hole, chance in CARDS.items():
        for end, share in dealer_ends(shown + hole, 1 in (shown, hole)).items():
            value += chance * share * ((score > end) - (score < end))
    return value


def blackjack_return() -> float:
    """Blackjack-v1 as registered (sab=True: a natural wins 1 unless the dealer has one too), sticking on 20."""
    total = 0.0
    for (first, p), (second, q), (shown, r) in itertools.product(CARDS.items(), repeat=3):
        chance = p * q * r
        natural = {first, second} == {1, 10}
        if natural:
            dealer_natural = CARDS[10] if shown == 1 else CARDS[1] if shown == 10 else 0.0
            total += chance * (1.0 - dealer_natural)
        else:
            total += chance * player_value(first + second, 1 in (first, second), shown)
    return total


def test_the_dynamic_programme_gives_the_known_return() -> None:
    assert blackjack_return() == pytest.approx(-0.350111, abs=5e-7)


def z_of_mean(values: dict[str, Any]) -> float:
    return float((values["mean"] - blackjack_return()) / (values["sd"] / math.sqrt(values["n"])))


@pytest.mark.ci
def test_blackjack_returns_what_it_must_and_a_lenient_dealer_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    config = configuration(runs=1_000_000, workers=2, seed=4, strategies=STICK)
    game = {"gymnasium": "Blackjack-v1", "cwd": str(Path(__file__).parent / "games")}
    right = play(tmp_path / "right", game, config, wall_seconds=3600)
    assert right.exit_code == 0
    assert abs(z_of_mean(right.summary["strategies"][0]["metrics"]["return"])) < 4
    lenient = play(tmp_path / "lenient", in_process("blackjack:LenientBlackjack"), config, wall_seconds=3600)
    assert abs(z_of_mean(lenient.summary["strategies"][0]["metrics"]["return"])) > 4


@pytest.mark.ci
def test_six_equal_strategies_are_seldom_called_dominant(tmp_path: Path) -> None:
    strategies = [{"name": f"s{place}", "policy": "random"} for place in range(6)]
    flagged = 0
    for seed in range(400):
        # The outcome depends on the policy's own choice, so that equal strategies do not play equal games.
        config = configuration(
            seed=seed,
            runs=360,
            strategies=strategies,
            params={"bias": 300, "throw_bonus": 400},
            objective={"win": ["heads"]},
        )
        flagged += bool(summary_without_pool(config)["flags"]["dominant_strategies"])
    assert flagged <= 0.075 * 400


@pytest.mark.ci
def test_a_three_point_advantage_is_found_at_the_games_the_plan_predicts() -> None:
    games = games_to_find(0.03)
    found = 0
    for seed in range(200):
        config = configuration(
            seed=seed, runs=games, params={"bias": 530}, strategies=[{"name": "s", "policy": "first"}]
        )
        heads = summary_without_pool(config)["strategies"][0]["outcomes"][0]
        found += heads["outcome"] == "heads" and heads["low"] > 0.5
    # 90 % of 200 are predicted; 167 is four standard errors below.
    assert found >= 163


def summary_without_pool(config: dict[str, Any]) -> dict[str, Any]:
    """Play Coin by the runner's own table, play and fold, in this process: hundreds of batches in seconds."""
    from tests.workers.simulation.games.known import Coin
    from workers.simulation.chunk import encode_result
    from workers.simulation.configuration import load
    from workers.simulation.fold import fold_lines
    from workers.simulation.games import play_in_process, read_turn
    from workers.simulation.play import Play, Table
    from workers.simulation.summary import SeedEffect, summarise
    from workers.simulation.watch import Watch

    class Direct:
        def __init__(self) -> None:
            self.game = Coin()

        def reset(self, seed: int, params: Any, strategy: str) -> Any:
            return read_turn(self.game.reset(seed, params, strategy))

        def step(self, action: str | None) -> Any:
            return read_turn(self.game.step(action))

        def ended_by_its_own_limit(self) -> bool:
            return False

    read = load(config)
    table, game, watch = Table(read, 64), Direct(), Watch(None, None)
    lines = []
    for index in range(read.runs):
        played = Play(table, index)
        play_in_process(game, played, watch)
        assert played.result is not None
        lines.append(encode_result(played.result))
    effect = SeedEffect(checked=0, differing=0)
    fold = fold_lines(read, lines)
    return summarise(fold, configuration_sha256="", bridge_sha256="", seed_control="", seed_effect=effect)


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="memory of the whole tree is read from /proc")
def test_a_million_games_need_no_more_memory_than_ten_thousand(tmp_path: Path) -> None:
    peaks = {runs: peak_memory(tmp_path / str(runs), runs) for runs in (10_000, 1_000_000)}
    assert peaks[1_000_000] <= 1.3 * peaks[10_000], peaks
    report = tmp_path / "1000000" / "attempt-1" / "report.html"
    assert report.stat().st_size < 2_000_000
    summary = json.loads((report.parent / "summary.json").read_text())
    assert summary["completed_runs"] == 1_000_000


def peak_memory(directory: Path, runs: int) -> int:
    """The largest sum of proportional memory (bytes) of a batch's process tree, looked at whenever it reports."""
    strategies = [{"name": f"s{place}", "policy": "random"} for place in range(4)]
    config = configuration(runs=runs, workers=2, strategies=strategies, objective={"win": ["heads"]})
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.workers.simulation.play_one",
            str(directory),
            json.dumps(in_process("Coin")),
            json.dumps(config),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    peak = 0
    with child.stdout:
        for _ in child.stdout:
            peak = max(peak, tree_memory(child.pid))
    assert child.wait(600) == 0
    return peak


def tree_memory(root: int) -> int:
    inside, total = {root}, 0
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in inside} - inside
        inside |= more
        grew = bool(more)
    for pid in inside:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total


def test_the_direct_way_plays_the_same_games_as_the_pool(tmp_path: Path) -> None:
    config = configuration(runs=200, params={"bias": 530})
    pooled = play(tmp_path, in_process("Coin"), config)
    direct = summary_without_pool(config)
    assert direct["strategies"] == pooled.summary["strategies"]
    assert sum(outcomes(pooled).values()) == 200
