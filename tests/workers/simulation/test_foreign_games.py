"""Games that nobody here wrote play on the runner; a hidden nondeterminism is caught by replay (`bin/test --ci`)."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workers.simulation.batches import GAMES, configuration, in_process, outcomes, play
from workers.simulation.order import ReplayOrder
from workers.simulation.replay import replay_trace
from workers.simulation.trace import read_trace


def gymnasium_game(name: str) -> dict[str, Any]:
    registry: Any = importlib.import_module("gymnasium").registry
    newest = max((key for key in registry if key.startswith(f"{name}-v")), key=lambda key: int(key.rpartition("v")[2]))
    return {"gymnasium": newest, "cwd": str(GAMES)}


@pytest.mark.ci
@pytest.mark.parametrize("name", ["Blackjack", "FrozenLake", "Taxi", "CliffWalking"])
def test_gymnasium_toy_text_plays_and_replays(tmp_path: Path, name: str) -> None:
    pytest.importorskip("gymnasium")
    game = gymnasium_game(name)
    one = play(tmp_path / "one", game, configuration(runs=60, max_steps=200))
    two = play(tmp_path / "two", game, configuration(runs=60, max_steps=200, workers=2))
    assert one.results.read_bytes() == two.results.read_bytes()
    assert one.summary["failed_runs"] == 0
    for trace in one.traces:
        assert replay_trace(ReplayOrder(trace=str(trace), bridge=game)).matched


@pytest.mark.ci
def test_an_environments_own_step_limit_is_a_truncation(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    result = play(tmp_path, gymnasium_game("Taxi"), configuration(runs=5, max_steps=10_000))
    reasons = {row["reason"] for row in result.summary["strategies"][0]["reasons"]}
    assert reasons == {"truncated: the environment's own limit"}


@pytest.mark.ci
def test_gymnasium_parameters_and_their_variants_reach_the_environment(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    variants = [{"name": "dry", "params": {"is_slippery": False}}, {"name": "wet", "params": {"is_slippery": True}}]
    # Always to the left: on dry ground nothing moves, on wet ground the first column leads down into a hole.
    config = configuration(runs=40, variants=variants, strategies=[{"name": "s", "policy": "first"}], max_steps=50)
    result = play(tmp_path, gymnasium_game("FrozenLake"), config)
    dry, wet = result.summary["strategies"]
    assert dry["steps"]["n"] == wet["steps"]["n"] == 20
    assert dry["truncated"]["count"] == 20 and wet["truncated"]["count"] < 20


@pytest.mark.ci
def test_a_continuous_environment_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    from workers.simulation.errors import GameStartError

    with pytest.raises(GameStartError, match="Pendulum-v1 has the action space Box"):
        play(tmp_path, gymnasium_game("Pendulum"), configuration(runs=2))


@pytest.mark.ci
def test_a_card_game_of_rlcard_plays_by_seats_and_replays(tmp_path: Path) -> None:
    pytest.importorskip("rlcard")
    strategies = [{"name": "even", "policy": "random"}, {"name": "caller", "seats": {"0": "first", "*": "random"}}]
    game = in_process("rlcard_game:Leduc")
    config = configuration(runs=200, strategies=strategies, max_steps=100)
    one = play(tmp_path / "one", game, config)
    two = play(tmp_path / "two", game, {**config, "workers": 2})
    assert one.summary["completed_runs"] == 200
    assert one.results.read_bytes() == two.results.read_bytes()
    assert sum(outcomes(one).values()) == 100
    for trace in one.traces:
        assert replay_trace(ReplayOrder(trace=str(trace), bridge=game)).matched


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_a_program_in_javascript_plays_eight_games_in_flight_and_replays(tmp_path: Path) -> None:
    game = {"command": ["node", "nim.js"], "cwd": str(GAMES), "sessions": 8}
    config = configuration(runs=60, params={"heap": 12}, strategies=[{"name": "l", "policy": "last"}])
    many = play(tmp_path / "many", game, config)
    one = play(tmp_path / "one", {**game, "sessions": 1}, config)
    assert many.results.read_bytes() == one.results.read_bytes()
    # Both take three at a time: a heap of 12 or 13 or 14 ends after 4 or 5 moves.
    assert many.summary["completed_runs"] == 60
    assert (many.summary["strategies"][0]["steps"]["min"], many.summary["strategies"][0]["steps"]["max"]) == (4, 5)
    for trace in many.traces:
        assert replay_trace(ReplayOrder(trace=str(trace), bridge=game)).matched


@pytest.mark.ci
def test_a_game_that_differs_between_processes_is_caught_by_replay(tmp_path: Path) -> None:
    pytest.importorskip("catanatron")
    game = in_process("catan:Catan")
    result = play(tmp_path, game, configuration(runs=4, max_steps=100, strategies=[{"name": "t", "policy": "first"}]))
    diverged = []
    for trace in result.traces:
        for _ in range(3):
            again = replay_trace(ReplayOrder(trace=str(trace), bridge=game))
            if again.first_divergence is not None:
                diverged.append((trace, again.first_divergence))
                break
    assert diverged
    for trace, divergence in diverged:
        _, steps = read_trace(trace)
        assert divergence.field == "state"
        assert divergence.expected == steps[divergence.step].state != divergence.actual
