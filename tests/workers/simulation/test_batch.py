"""A batch's results and summary are the same bytes however, and however disturbed, it was played."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.workers.simulation.batches import GAMES, Stop, bridge, configuration, in_process, outcomes, play, reasons
from workers.simulation.batch import BatchProgress, BatchResult
from workers.simulation.errors import ConfigurationError

TWO = [{"name": "random", "policy": "random"}, {"name": "first", "policy": "first"}]
PIG = [
    {"name": "even", "seats": {"first": {"kind": "python", "entry": "known:hold_at_20"}, "second": "random"}},
    {"name": "odd", "seats": {"second": {"kind": "python", "entry": "known:hold_at_20"}, "*": "random"}},
]


def same_bytes(*results: BatchResult) -> None:
    assert len({result.results.read_bytes() for result in results}) == 1
    assert len({result.summary_path.read_bytes() for result in results}) == 1


def rows(result: BatchResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.results.read_text().splitlines()]


def children_with(word: bytes, parents: set[int]) -> list[int]:
    """Processes below `parents` (a test's own) whose command line has this word."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent in parents and word in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_one(word: bytes, parents: set[int]) -> bool:
    for pid in children_with(word, parents):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in children_with(word, parents):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def test_one_two_and_eight_workers_give_the_same_bytes(tmp_path: Path) -> None:
    results = [
        play(tmp_path / str(workers), in_process("TicTacToe"), configuration(runs=301, workers=workers, strategies=TWO))
        for workers in (1, 2, 8)
    ]
    same_bytes(*results)
    assert [row["index"] for row in rows(results[0])] == list(range(301))


def test_one_and_eight_sessions_give_the_same_bytes_as_no_bridge(tmp_path: Path) -> None:
    config = configuration(runs=24, strategies=PIG, seed=11)
    serves_eight = bridge("pig", sessions=8)
    one = play(tmp_path / "one", {**serves_eight, "sessions": 1}, config)
    eight = play(tmp_path / "eight", serves_eight, {**config, "workers": 2})
    same_bytes(one, eight)
    assert json.loads(one.timing_path.read_text())["bridge_starts"] == 1
    direct = play(tmp_path / "direct", in_process("Pig"), config)
    assert direct.results.read_bytes() == one.results.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="the victim is found in /proc")
def test_a_pool_process_killed_in_mid_batch_changes_no_byte(tmp_path: Path) -> None:
    config = configuration(runs=400, workers=2, params={"steps": 60})
    killed = 0

    def kill_sometimes(seen: BatchProgress) -> None:
        nonlocal killed
        if seen.finished >= 100 and killed < 2:
            killed += kill_one(b"spawn_main", {os.getpid()})

    calm = play(tmp_path / "calm", in_process("Long"), config)
    disturbed = play(tmp_path / "disturbed", in_process("Long"), config, progress=kill_sometimes)
    assert killed >= 1
    assert json.loads(disturbed.timing_path.read_text())["pool_processes_died"] >= 1
    same_bytes(calm, disturbed)
    assert disturbed.exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the victim is found in /proc")
def test_a_bridge_killed_in_mid_batch_changes_no_byte(tmp_path: Path) -> None:
    config = configuration(runs=2400, params={"steps": 20})
    killed = 0

    def kill_once(seen: BatchProgress) -> None:
        nonlocal killed
        if 5 <= seen.finished < 2200 and not killed:
            killed += kill_one(b"serve.py", set(children_with(b"spawn_main", {os.getpid()})))

    calm = play(tmp_path / "calm", bridge("long", sessions=4), config)
    disturbed = play(tmp_path / "disturbed", bridge("long", sessions=4), config, progress=kill_once)
    assert killed == 1
    assert json.loads(disturbed.timing_path.read_text())["bridge_restarts"] == 1
    same_bytes(calm, disturbed)


def test_a_batch_whose_owner_was_killed_goes_on_from_its_journal(tmp_path: Path) -> None:
    game, config = in_process("Long"), configuration(runs=1200, workers=2, params={"steps": 150})
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.workers.simulation.play_one",
            str(tmp_path / "killed"),
            json.dumps(game),
            json.dumps(config),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            if int(line) >= 600:
                break
    child.kill()
    assert child.wait(30) == -signal.SIGKILL
    resumed = play(tmp_path / "killed", game, config)
    calm = play(tmp_path / "calm", game, config)
    same_bytes(calm, resumed)
    assert resumed.attempt.name == "attempt-2"
    assert (tmp_path / "killed" / "attempt-1" / "results.jsonl").exists()
    taken_over = json.loads(resumed.timing_path.read_text())["games_taken_over"]
    assert taken_over >= 100
    assert [path.name for path in resumed.traces] == [path.name for path in calm.traces]
    assert all(path.exists() for path in resumed.traces)


@pytest.mark.parametrize("damage", ["torn", "zeroed", "gap", "other"])
def test_a_damaged_journal_is_used_up_to_the_damage(tmp_path: Path, damage: str) -> None:
    game, config = in_process("Coin"), configuration(runs=40)
    first = play(tmp_path, game, config)
    lines = first.results.read_bytes().splitlines(keepends=True)
    if damage == "torn":
        first.results.write_bytes(b"".join(lines[:10]) + lines[10][:-5])
    elif damage == "zeroed":
        first.results.write_bytes(b"".join(lines[:10]) + b"\0" * 4096)
    elif damage == "gap":
        first.results.write_bytes(b"".join(lines[:10] + lines[11:]))
    else:
        config = {**config, "seed": 8}
    second = play(tmp_path, game, config)
    taken_over = json.loads(second.timing_path.read_text())["games_taken_over"]
    assert taken_over == (0 if damage == "other" else 10)
    assert (second.results.read_bytes() == b"".join(lines)) == (damage != "other")


def test_games_of_an_earlier_directory_are_taken_over(tmp_path: Path) -> None:
    game, config = in_process("Coin"), configuration(runs=40)
    first = play(tmp_path / "a", game, config)
    second = play(tmp_path / "b", game, config, earlier=[str(tmp_path / "a")])
    assert json.loads(second.timing_path.read_text())["games_taken_over"] == 40
    same_bytes(first, second)


def test_a_wish_to_stop_ends_the_batch_with_what_was_played(tmp_path: Path) -> None:
    stop = Stop()

    def ask(seen: BatchProgress) -> None:
        if seen.finished >= 20:
            stop.requested = "canceled"

    config = configuration(runs=100_000, workers=2, params={"steps": 100})
    result = play(tmp_path, in_process("Long"), config, stop=stop, progress=ask)
    assert (result.exit_code, result.ended) == (10, "canceled")
    assert 20 <= result.summary["finished_runs"] < 100_000
    assert list(result.summary)[1:3] == ["requested_runs", "finished_runs"]
    assert set(reasons(result)) <= {"truncated: canceled"}
    assert "Ended early (canceled)" in result.report.read_text()


def test_at_the_wall_clock_games_in_flight_are_truncated(tmp_path: Path) -> None:
    config = configuration(runs=50, workers=2, max_steps=10_000_000)
    # Long enough for two processes to have begun on a busy machine; the games themselves would never end.
    result = play(tmp_path, in_process("faulty:Endless"), config, wall_seconds=8.0)
    assert (result.exit_code, result.ended) == (1, "wall clock")
    assert 1 <= result.summary["finished_runs"] == result.summary["truncated_runs"] <= 2
    assert reasons(result) == ["truncated: wall clock"]
    assert list(result.summary)[1:3] == ["requested_runs", "finished_runs"]
    resumed = play(tmp_path, in_process("faulty:Endless"), config, wall_seconds=1.0)
    assert json.loads(resumed.timing_path.read_text())["games_taken_over"] == 0


def test_a_game_over_its_step_limit_is_truncated_and_flagged(tmp_path: Path) -> None:
    result = play(tmp_path, in_process("faulty:Endless"), configuration(runs=3, max_steps=50))
    assert [row["steps"] for row in rows(result)] == [50, 50, 50]
    assert {row["status"] for row in rows(result)} == {"truncated"}
    assert result.summary["flags"]["stalemates"] == {"no_legal_action": 0, "step_limit": 3}
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raises", "failed: game error: KeyError: '...'"),
        ("no_turn", "failed: game error: TypeError: not a turn: "),
        ("not_json", "failed: game error: TypeError: a state must be JSON; it holds a object"),
        ("nan", "failed: not a turn: a metric is no finite number"),
        ("stalemate", "failed: stalemate: the game lists no legal action and is not done"),
        ("leaves", "failed: crash: the game ended its process (exit code #)"),
        ("segfault", "failed: crash: the game ended its process (signal #)"),
        ("exits", "failed: crash: the game ended its process (exit code #)"),
    ],
)
def test_a_fault_in_process_fails_its_own_game_and_no_other(tmp_path: Path, fault: str, reason: str) -> None:
    from tests.workers.simulation.games.faulty import is_faulty

    result = play(tmp_path, in_process("faulty:Faulty"), configuration(seed=3, runs=6, params={"fault": fault}))
    statuses = {row["index"]: row["status"] for row in rows(result)}
    assert statuses == {row["index"]: "failed" if is_faulty(int(row["seed"])) else "completed" for row in rows(result)}
    assert set(statuses.values()) == {"failed", "completed"}
    assert [found[: len(reason)] for found in reasons(result)] == [reason]
    assert result.exit_code == 1


def test_a_game_that_hangs_inside_a_step_is_ended_and_failed(tmp_path: Path) -> None:
    game = {**in_process("faulty:Faulty"), "step_timeout_ms": 1_000}
    result = play(tmp_path, game, configuration(seed=3, runs=3, params={"fault": "hangs"}))
    failed = [row for row in rows(result) if row["status"] == "failed"]
    assert failed and {row["reason"] for row in failed} == {
        "silent: no step ended within 1 s, and the process was ended"
    }
    assert result.summary["finished_runs"] == 3


def test_a_game_that_ignores_its_seed_is_said_to(tmp_path: Path) -> None:
    result = play(tmp_path, in_process("Deaf"), configuration(runs=40, strategies=[{"name": "f", "policy": "first"}]))
    assert result.summary["distinct_traces"] == 1
    assert result.summary["flags"]["seed_has_no_effect"] is True
    assert "40 games, 1 distinct trace." in result.report.read_text()


def test_an_ignored_seed_is_flagged_also_when_the_policy_is_random(tmp_path: Path) -> None:
    deaf = play(tmp_path / "deaf", bridge("deaf"), configuration(runs=40))
    assert deaf.summary["distinct_traces"] > 1
    assert deaf.summary["flags"]["seed_has_no_effect"] is True
    hearing = play(tmp_path / "hearing", bridge("coin"), configuration(runs=40))
    assert hearing.summary["flags"]["seed_has_no_effect"] is False


def test_variants_and_params_reach_the_game(tmp_path: Path) -> None:
    config = configuration(
        runs=40,
        params={"bias": 0},
        variants=[{"name": "never"}, {"name": "always", "params": {"bias": 1000}}],
    )
    result = play(tmp_path, bridge("coin"), config)
    assert (outcomes(result, 0)["tails"], outcomes(result, 1)["heads"]) == (20, 20)


def test_a_seat_without_a_policy_fails_the_game_and_is_named(tmp_path: Path) -> None:
    config = configuration(runs=2, strategies=[{"name": "s", "seats": {"x": "random"}}])
    result = play(tmp_path, in_process("TicTacToe"), config)
    assert reasons(result) == ["failed: no policy: the strategy names nobody for the seat '...'"]


def test_files_are_private_and_the_table_is_complete(tmp_path: Path) -> None:
    result = play(tmp_path / "new", in_process("Coin"), configuration(runs=30), csv=True)
    for path in [result.attempt, *result.attempt.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert result.csv is not None
    with result.csv.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["trace"] for row in table] == [row["trace"] for row in rows(result)]
    assert {row["metric toss"] for row in table} == {"0.0", "1.0"}


def test_progress_ends_at_all_games(tmp_path: Path) -> None:
    seen: list[BatchProgress] = []
    play(tmp_path, in_process("Coin"), configuration(runs=30), progress=seen.append)
    assert (seen[-1].finished, seen[-1].requested, seen[-1].steps) == (30, 30, 30)
    assert all(first.finished <= second.finished for first, second in itertools.pairwise(seen))


def test_an_order_that_cannot_be_used_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    for game, config, key in (
        ({"cwd": str(GAMES)}, configuration(), "bridge"),
        (in_process("Coin"), configuration(runs=0), "runs"),
    ):
        with pytest.raises(ConfigurationError, match=key):
            play(tmp_path / "none", game, config)
    assert not (tmp_path / "none").exists()


def test_a_python_policy_that_is_not_there_is_refused_with_its_key(tmp_path: Path) -> None:
    config = configuration(strategies=[{"name": "p", "policy": {"kind": "python", "entry": "known:no_such_policy"}}])
    with pytest.raises(ConfigurationError, match=r"policy.entry.*no_such_policy"):
        play(tmp_path, in_process("Coin"), config)


def test_results_decode_into_the_documented_fields(tmp_path: Path) -> None:
    result = play(tmp_path, in_process("Coin"), configuration(runs=1))
    line = msgspec.json.decode(result.results.read_bytes())
    assert list(line) == [
        "index",
        "strategy",
        "variant",
        "seats",
        "seed",
        "outcome",
        "status",
        "reason",
        "steps",
        "metrics",
        "trace",
    ]
    assert len(line["trace"]) == 32
