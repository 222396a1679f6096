"""`simulate` and `replay` with real workers: a batch is a campaign of one scenario, resumed after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.inspection import inspect_recovery
from coordinator.verification import verify
from tests.cli.command import ROOT, command_line, coordinate, coordinate_apart

WAIT_SECONDS = 60.0


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """A project with the bundled dice game; `games(n)` in its configuration is few enough for a test."""
    folder = tmp_path / "pig"
    shutil.copytree(ROOT / "examples" / "pig", folder, ignore=shutil.ignore_patterns("__pycache__"))
    configure(folder, runs=90, workers=1)
    return folder


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "simulation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def start(game: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command_line("simulate", "--config", "simulation.json", *arguments),
        cwd=game,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def wait_for_games(game: Path, count: int) -> Path:
    """Wait until a batch has finished so many games; return its journal."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for progress in (game / ".playlane" / "simulations").glob("*/batch-*/runs/*/progress.json"):
            with contextlib.suppress(OSError, ValueError):
                if json.loads(progress.read_text())["step"] >= count:
                    return progress.parents[3] / "state.json"
        select.select([], [], [], 0.05)
    raise AssertionError(f"no {count} games were finished within {WAIT_SECONDS} s")


def wait_until_worker_left(journal: Path) -> None:
    """Wait for the end of a batch's worker, through its own process."""
    for begun in journal.parent.glob("batch-*/runs/*/begun"):
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(json.loads(begun.read_text())["pid"])
            try:
                assert select.select([descriptor], [], [], WAIT_SECONDS)[0]
            finally:
                os.close(descriptor)


def results(document: dict[str, Any]) -> bytes:
    return Path(document["results"]).read_bytes()


def test_batch_ends_with_0_is_proven_and_its_traces_replay(game: Path) -> None:
    ran = coordinate("simulate", "--config", "simulation.json", "--json", cwd=game)
    assert ran.code == 0, ran.err
    found = ran.document
    assert set(found) == {"job_id", "summary", "traces", "results", "journal", "report", "exit_code"}
    assert found["summary"]["completed_runs"] == 90
    assert len(results(found).splitlines()) == 90
    assert Path(found["report"]).is_file()
    assert verify(Path(found["journal"]).parent / "manifest.json").problems == []
    replayed = coordinate("replay", found["traces"][0], "--driver-config", "bridge.json", "--json", cwd=game)
    assert replayed.code == 0, replayed.err
    assert (replayed.document["matched"], replayed.document["fully_replayed"]) == (True, True)


def test_replay_of_a_changed_game_names_step_and_field(game: Path) -> None:
    found = coordinate("simulate", "--config", "simulation.json", "--json", cwd=game).document
    source = (game / "pig.py").read_text()
    (game / "pig.py").write_text(source.replace("randint(1, 6)", "randint(1, 8)"))
    replayed = coordinate("replay", found["traces"][0], "--driver-config", "bridge.json", "--json", cwd=game)
    assert replayed.code == 1
    divergence = replayed.document["first_divergence"]
    assert divergence["step"] >= 1 and divergence["field"].startswith("state")
    assert any("another bridge or build" in note for note in replayed.document["notes"])


def test_bad_configuration_is_refused_by_key_and_nothing_is_written(game: Path) -> None:
    configure(game, runs=0, sead=3)
    ran = coordinate("simulate", "--config", "simulation.json", "--json", cwd=game)
    assert ran.code == 3
    told = json.dumps(ran.document["error"])
    assert "sead" in told and "runs" in told
    assert not (game / ".playlane" / "simulations").exists()


def test_game_that_cannot_be_loaded_is_refused_with_nothing_charged(game: Path) -> None:
    (game / "bridge.json").write_text(json.dumps({"python": "pig:Nothing"}))
    ran = coordinate("simulate", "--config", "simulation.json", "--json", cwd=game)
    assert ran.code == 3
    assert "Nothing" in json.dumps(ran.document["error"])


def test_plan_says_how_exact_the_result_will_be_and_plays_nothing(game: Path) -> None:
    ran = coordinate("simulate", "--config", "simulation.json", "--plan", "--json", cwd=game)
    assert ran.code == 0
    assert ran.document["games_per_cell"] == 30
    assert not (game / ".playlane" / "simulations").exists()


def test_interrupt_sums_up_what_was_played_and_leaves_nothing_to_resume(game: Path) -> None:
    configure(game, runs=300_000)
    running = start(game, "--json")
    journal = wait_for_games(game, 1)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=WAIT_SECONDS)
    assert running.returncode == 10
    summary = json.loads(out)["summary"]
    assert 0 < summary["finished_runs"] < summary["requested_runs"]
    again = coordinate("simulate", "--resume", str(journal), "--json", cwd=game)
    assert (again.code, again.document["finished"]) == (10, True)


def test_killed_batch_is_resumed_with_the_bytes_of_one_that_was_not(game: Path) -> None:
    configure(game, runs=9_000)
    whole = coordinate("simulate", "--config", "simulation.json", "--json", cwd=game).document
    bytes_of_whole = results(whole)
    shutil.rmtree(game / ".playlane" / "simulations")
    running = start(game)
    journal = wait_for_games(game, 128)
    for begun in journal.parent.glob("batch-*/runs/*/begun"):
        os.kill(json.loads(begun.read_text())["pid"], signal.SIGKILL)
    running.kill()
    running.communicate(timeout=WAIT_SECONDS)
    wait_until_worker_left(journal)
    asked = coordinate_apart("simulate", "--resume", str(journal), "--yes", "--json", cwd=game)
    assert asked.code == 10, asked.err  # --yes alone never declares an owner dead
    token = inspect_recovery(journal.parent / "manifest.json").token
    assert token is not None
    ran = coordinate_apart("simulate", "--resume", str(journal), "--owner-is-dead", token, "--json", cwd=game)
    assert ran.code == 0, ran.err
    assert results(ran.document) == bytes_of_whole
    assert ran.document["summary"] == whole["summary"]
    assert verify(journal.parent / "manifest.json").problems == []


def test_worker_outlives_a_killed_coordinator_and_its_delivery_is_adopted(game: Path) -> None:
    configure(game, runs=3_000)
    running = start(game)
    journal = wait_for_games(game, 1)
    running.kill()
    running.communicate(timeout=WAIT_SECONDS)
    wait_until_worker_left(journal)
    token = inspect_recovery(journal.parent / "manifest.json").token
    assert token is not None
    ran = coordinate_apart("simulate", "--resume", str(journal), "--owner-is-dead", token, "--json", cwd=game)
    assert ran.code == 0, ran.err
    assert ran.document["summary"]["completed_runs"] == 3_000
    assert len(list(journal.parent.glob("batch-*"))) == 1
