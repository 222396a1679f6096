"""A bridge that misbehaves costs its own game, with a reason; the others go on, and nothing is left behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers.simulation.batches import GAMES, configuration, play, reasons
from workers.simulation.batch import BatchResult
from workers.simulation.configuration import load
from workers.simulation.errors import GameStartError
from workers.simulation.seeds import game_seed

RUNS = 6
FAULTY = [k for k in range(RUNS) if game_seed(3, k, 64) % 3 == 0]


def hostile(fault: str, *, sessions: int = 1, **keys: Any) -> dict[str, Any]:
    command = [sys.executable, "hostile.py", fault, "4"]
    return {"command": command, "cwd": str(GAMES), "sessions": sessions, "step_timeout_ms": 1_000, **keys}


def rows(result: BatchResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.results.read_text().splitlines()]


def play_hostile(tmp_path: Path, fault: str, *, sessions: int = 1, runs: int = RUNS) -> BatchResult:
    return play(tmp_path, hostile(fault, sessions=sessions), configuration(seed=3, runs=runs))


def test_the_seed_chosen_here_has_faulty_and_sound_games() -> None:
    assert 0 < len(FAULTY) < RUNS - 2
    assert load(configuration(seed=3)).seed == 3


@pytest.mark.parametrize(
    ("fault", "sessions", "reason"),
    [
        ("killed", 2, "crash: the bridge ended (signal 9)"),
        ("closes", 1, "crash: the bridge closed its standard output and still runs"),
        ("unknown", 2, "protocol: request"),
        ("twice", 1, "protocol: request"),
        ("NaN", 2, "protocol: the number NaN is not finite"),
        ("1e400", 1, "protocol: the number 1e400 is not finite"),
        ("overlong", 1, "protocol: a line is longer than 1048576 bytes"),
        ("no_turn", 1, "not a turn: the answer to step is no Turn"),
        ("refuses", 1, "illegal: the game refused the action: not now"),
        ("raises", 1, "game error: -32603 KeyError at 0x#"),
        ("stalemate", 4, "stalemate: the game lists no legal action and is not done"),
    ],
)
def test_a_fault_fails_its_own_game_and_no_other(tmp_path: Path, fault: str, sessions: int, reason: str) -> None:
    result = play_hostile(tmp_path, fault, sessions=sessions)
    failed = [row for row in rows(result) if row["status"] == "failed"]
    assert [row["index"] for row in failed] == FAULTY
    assert all(row["reason"].startswith(reason) for row in failed)
    assert result.summary["completed_runs"] == RUNS - len(FAULTY)
    assert result.summary["finished_runs"] == RUNS
    assert (result.exit_code, result.ended) == (1, None)
    assert b"NaN" not in result.summary_path.read_bytes() + result.results.read_bytes() or fault == "NaN"


@pytest.mark.parametrize("fault", ["silent", "no_newline"])
def test_a_silent_bridge_is_given_up_within_its_limit(tmp_path: Path, fault: str) -> None:
    result = play(tmp_path, hostile(fault, sessions=2, step_timeout_ms=400), configuration(seed=3, runs=4))
    failed = [row for row in rows(result) if row["status"] == "failed"]
    assert [row["index"] for row in failed] == [k for k in FAULTY if k < 4]
    assert {row["reason"] for row in failed} == {"silent: no answer within 0.4 s"}


def test_the_stderr_tail_of_a_bridge_that_died_is_in_its_trace(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "dies")
    headers = [json.loads(path.read_text().splitlines()[0]) for path in result.traces]
    tails = [header["tail"] for header in headers if header["result"]["status"] == "failed"]
    assert tails == ["about to die of a planted fault"]
    assert "planted fault" not in result.summary_path.read_text()


def test_results_do_not_depend_on_who_shared_a_bridge_with_one_that_died(tmp_path: Path) -> None:
    alone = play_hostile(tmp_path / "one", "dies", sessions=1)
    together = play_hostile(tmp_path / "many", "dies", sessions=4)
    assert alone.results.read_bytes() == together.results.read_bytes()
    assert alone.summary_path.read_bytes() == together.summary_path.read_bytes()


@pytest.mark.parametrize("fault", ["chatty", "dribbles", "large"])
def test_noise_bom_crlf_split_utf8_and_long_lines_are_no_failure(tmp_path: Path, fault: str) -> None:
    result = play_hostile(tmp_path, fault, sessions=2)
    assert result.summary["completed_runs"] == RUNS and result.exit_code == 0
    noise = json.loads(result.timing_path.read_text())["noise_lines"]
    assert noise >= 3 * RUNS if fault == "chatty" else noise == 0


def test_minus_zero_is_written_as_zero(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "minus_zero", runs=2)
    assert result.summary["completed_runs"] == 2
    for path in [result.results, result.summary_path, *result.traces]:
        assert "-0" not in path.read_text().replace("T00", "")
    assert rows(result)[0]["metrics"] == {"m": 0.0}


def test_seeds_go_out_and_come_back_in_the_same_digits(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "none", runs=4)
    assert [row["seed"] for row in rows(result)] == [str(game_seed(3, k, 64)) for k in range(4)]
    assert result.summary["seed_control"] == "confirmed"
    assert any(int(row["seed"]) > 2**53 for row in rows(result))


def test_a_game_that_loses_digits_of_the_seed_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(GameStartError, match="seed: the game was given"):
        play_hostile(tmp_path, "binary64_seed")
    narrow = play(tmp_path / "53", hostile("binary64_seed", seed_bits=53), configuration(seed=3, runs=3))
    assert narrow.exit_code == 0
    assert all(int(row["seed"]) < 2**53 for row in rows(narrow))


def test_a_game_without_an_echo_is_reported_as_not_confirmed(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "no_echo", runs=3)
    assert result.exit_code == 0
    assert result.summary["seed_control"] == "not confirmed"
    assert "seed not confirmed" in result.report.read_text()


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("ends_at_once", "exit code 5.*no licence file"),
        ("protocol", "protocol 2"),
        ("no_greeting", "no answer within 0.5 s"),
    ],
)
def test_a_game_that_does_not_start_costs_nothing_and_says_why(tmp_path: Path, fault: str, found: str) -> None:
    with pytest.raises(GameStartError, match=found):
        play(tmp_path, hostile(fault, startup_timeout_ms=500), configuration(runs=4))


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GameStartError, match="'no-such-program-here' was not found"):
        play(tmp_path, {"command": ["no-such-program-here"], "cwd": str(tmp_path)})


@pytest.mark.skipif(sys.platform != "linux", reason="descendants are only visible on Linux")
def test_a_helper_that_the_bridge_forked_is_gone_afterwards_and_the_report_says_so(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "helper_and_exit")
    leftovers = json.loads(result.timing_path.read_text())["leftovers"]
    assert leftovers and all("time.sleep(600)" in text for text in leftovers)
    assert "time.sleep(600)" in result.report.read_text()
    for text in leftovers:
        assert not Path("/proc", text.split()[1], "cmdline").exists() or not _is_helper(int(text.split()[1]))
    failed = [row["index"] for row in rows(result) if row["status"] == "failed"]
    assert failed == FAULTY


def _is_helper(pid: int) -> bool:
    try:
        return b"time.sleep(600)" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_hostile_text_is_text_in_the_report_and_clean_in_the_results(tmp_path: Path) -> None:
    result = play_hostile(tmp_path, "text", runs=2)
    page = result.report.read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert "\x1b" not in rows(result)[0]["outcome"]
    assert reasons(result) == []


def test_the_game_sees_no_more_of_the_environment_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY_FOR_TEST", "sk-secret")
    seen = tmp_path / "seen.json"
    bridge = tmp_path / "look.py"
    bridge.write_text(f"import os, json\njson.dump(dict(os.environ), open({str(seen)!r}, 'w'))\n")
    with pytest.raises(GameStartError):
        play(tmp_path / "out", {"command": [sys.executable, str(bridge)], "cwd": str(tmp_path), "env": {"MINE": "1"}})
    environment = json.loads(seen.read_text())
    assert environment["MINE"] == "1" and "PATH" in environment
    assert "PROVIDER_KEY_FOR_TEST" not in environment
    assert os.environ["PROVIDER_KEY_FOR_TEST"] == "sk-secret"
