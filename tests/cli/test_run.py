"""Whole campaigns through the real command: play, interrupt, kill, recover, retry, prove."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.documents import decode
from tests.cli.command import Ran, command_line, coordinate

GAME = Path(__file__).with_name("endless_game.py")
SECONDS = 60.0
ENDLESS = "100000"


PATIENT = """
name = "{name}"
title = "Never gives up"
text = "You walk on."
[limits]
patience_steps = 10000
memory_steps = 2
actions_per_observation = 1
reading_characters = 2000
reaction_delay_ms = 0
[inputs]
devices = ["text"]
"""
PATIENT_PERSONAS = ("--personas", "walker.toml,runner.toml")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_endless(tmp_path / "road")
    for name in ("walker", "runner"):
        (tmp_path / f"{name}.toml").write_text(PATIENT.format(name=name))
    return tmp_path


def make_endless(folder: Path, *modes: str) -> Path:
    folder.mkdir()
    path = folder / "bridge.json"
    path.write_text(json.dumps({"command": [sys.executable, str(GAME), *modes]}))
    return path


def play(project: Path, *arguments: str, bridge: str = "road/bridge.json") -> Ran:
    return coordinate("run", "--json", "--no-control", "--driver-config", bridge, *arguments, cwd=project)


class Running:
    """A `coordinate run` in flight, in a session of its own, so that a signal reaches it alone."""

    def __init__(self, project: Path, *arguments: str) -> None:
        self.project = project
        self.process = subprocess.Popen(
            command_line("run", "--json", "--no-control", "--driver-config", "road/bridge.json", *arguments),
            cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def wait_until_playing(self, runs: int) -> list[Path]:
        """The run folders, once each of `runs` has taken an action. The lines of the command wake this up."""
        deadline = time.monotonic() + SECONDS
        assert self.process.stderr is not None
        while time.monotonic() < deadline:
            runs_of = self.project.glob(".playlane/campaigns/*/batch-*/runs/*/progress.json")
            found = [path.parent for path in runs_of if _actions(path) > 0]
            if len(found) >= runs:
                return sorted(found)
            select.select([self.process.stderr], [], [], 0.05)
        raise AssertionError(f"{runs} runs did not begin to play")

    def wait_for_line(self, word: bytes) -> None:
        """Read what the command says until `word` stands in it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if word in line:
                return
        raise AssertionError(f"the command ended without saying {word!r}")

    def end(self) -> Ran:
        out, err = self.process.communicate(timeout=SECONDS)
        return Ran(code=self.process.returncode, out=out.decode(), err=err.decode())


@pytest.fixture
def started(project: Path) -> Iterator[list[Running]]:
    """Commands that a test started; whatever still lives is ended and waited for."""
    running: list[Running] = []
    yield running
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate(timeout=SECONDS)


def _actions(path: Path) -> int:
    try:
        taken: int = json.loads(path.read_bytes())["actionsTaken"]
    except (OSError, ValueError, KeyError):
        return 0
    return taken


def manifest(project: Path) -> dict[str, Any]:
    [path] = (project / ".playlane" / "campaigns").glob("*/manifest.json")
    return decode(path.read_bytes())


def outcomes(document: dict[str, Any]) -> list[list[str]]:
    return [[row["outcome"] for row in scenario["attempts"]] for scenario in document["scenarios"]]


def wait_until_gone(pids: Sequence[int]) -> None:
    """By pidfds, with a limit: workers that nobody waits for any more end by themselves."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], SECONDS)[0], f"worker {pid} is still there"
        finally:
            os.close(descriptor)


# -- a campaign from end to end


def test_campaign_ends_with_0_and_names_files_that_exist(project: Path) -> None:
    ran = play(project, "--compare-with", "rune", "--max-actions", "12")
    assert ran.code == 0, ran.err
    document = ran.document
    assert [(one["persona"], one["controller"]) for one in document["runs"]] == [
        ("newcomer", "standard"), ("newcomer", "rune"), ("explorer", "standard"), ("explorer", "rune"),
    ]  # fmt: skip
    for one in document["runs"]:
        assert (one["state"], one["outcome"], one["end_reason"]) == ("succeeded", "passed", "max_actions")
        assert one["actions_taken"] == 12
        report = Path(one["report"])
        assert json.loads(report.read_bytes())["run_id"] == one["run_id"]
        assert len((report.parent / "transcript.jsonl").read_text().splitlines()) >= 12
    for key in ("report", "aggregate", "control", "campaign"):
        assert Path(document[key]).is_absolute()
        assert Path(document[key]).exists()
    assert set(document) >= {"campaign", "batch", "control", "job_id", "replayed", "job_url", "stop", "reasons"}
    assert "nothing was charged" in ran.err
    assert outcomes(manifest(project)) == [["passed"]] * 4
    verified = coordinate("verify", "--json", cwd=project)
    assert (verified.code, verified.document["problems"]) == (0, [])
    status = coordinate("status", "--json", cwd=project).document
    assert (status["owner"], status["spend_usd"], status["uncertain"]) == ("none", 0, [])
    again = coordinate("report", "--format", "junit", cwd=project)
    assert again.code == 0
    assert again.out.count("<testcase") == 4


def test_planned_campaign_is_the_one_that_is_played_and_the_next_run_is_a_new_one(project: Path) -> None:
    flags = ("--driver-config", "road/bridge.json", "--personas", "newcomer", "--max-actions", "3")
    planned = coordinate("plan", "--json", "--no-control", *flags, cwd=project).document["campaign"]
    first = coordinate("run", "--json", "--no-control", *flags, cwd=project).document
    second = coordinate("run", "--json", "--no-control", *flags, cwd=project).document
    assert first["campaign"] == planned
    assert second["campaign"] != planned
    compared = coordinate("report", "--json", "--against", Path(planned).name, cwd=project)
    assert compared.code == 0, compared.err
    assert compared.document["against"]["new"] == []


def test_quote_is_free_and_registers_nothing(project: Path) -> None:
    ran = play(project, "--quote")
    assert (ran.code, ran.document["estimate_cents"], ran.document["persona_run_count"]) == (0, 0, 2)
    assert not (project / ".playlane").exists()


def test_bridge_that_does_not_play_is_refused_before_anything_is_planned(project: Path) -> None:
    (project / "road" / "bridge.json").write_text(json.dumps({"command": [sys.executable, "-c", "print('hi')"]}))
    ran = play(project)
    assert ran.code == 3
    assert "the bridge does not play" in ran.document["error"]["message"]
    assert "Nothing was registered or charged." in ran.document["error"]["message"]
    assert not list((project / ".playlane" / "campaigns").iterdir())


def test_name_of_a_target_stays_inside_the_project_whatever_it_is(project: Path) -> None:
    (project / "playlane.toml").write_text(
        '[target]\nname = "../../Игра 🎲 <b>"\ndriver_config = "road/bridge.json"\n'
        '[run]\npersonas = ["newcomer"]\n[run.limits]\nmax_actions = 3\n'
    )
    ran = coordinate("run", "--json", "--no-control", cwd=project)
    assert ran.code == 0, ran.err
    assert Path(ran.document["report"]).is_relative_to(project / ".playlane")
    assert sorted(one.name for one in project.parent.iterdir() if one.name.startswith("..")) == []


def test_game_that_writes_into_its_own_build_is_said(project: Path) -> None:
    folder = project / "writer"
    path = make_endless(folder, "write")
    ran = play(project, "--personas", "newcomer", "--max-actions", "3", bridge=str(path))
    assert ran.code == 0, ran.err
    assert "changed since it was planned" in ran.document["warnings"][0]


def test_check_of_a_bridge_prints_every_rule(project: Path) -> None:
    ran = coordinate("check", "--json", "--driver-config", "road/bridge.json", cwd=project)
    failed = {rule["rule"] for rule in ran.document["rules"] if not rule["passed"]}
    assert ran.code == 1
    assert len(ran.document["rules"]) > 10
    assert any("refuses a move that it did not list" in rule for rule in failed)
    assert not any("handshake" in rule for rule in failed)
    assert ran.err.count("  pass  ") + ran.err.count("  fail  ") == len(ran.document["rules"])
    assert list((project / ".playlane" / "asked").iterdir()) == []


# -- people who stop it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_once_lets_runs_finish_their_turn_and_retry_plays_the_rest(
    project: Path, started: list[Running], number: signal.Signals
) -> None:
    running = Running(project, "--repetitions", "2", "--max-actions", ENDLESS, *PATIENT_PERSONAS)
    started.append(running)
    folders = running.wait_until_playing(2)
    running.process.send_signal(number)
    ran = running.end()
    assert ran.code == 10, ran.err
    assert ran.document["stop"]["reason"] == "canceled"
    assert "coordinate retry" in ran.err
    assert sorted(outcomes(manifest(project))) == [[], [], ["interrupted"], ["interrupted"]]
    for folder in folders:
        report = json.loads((folder / "report.json").read_bytes())
        assert (report["end_reason"], report["partial"]) == ("interrupted", True)
        assert report["actions_taken"] >= 1
    assert coordinate("verify", cwd=project).code == 0
    written = coordinate("retry", "--json", cwd=project)
    assert written.code == 0, written.err
    assert sorted(one["attempt"]["ordinal"] for one in written.document["selections"]) == [1, 1, 2, 2]


def test_signal_twice_ends_the_children_and_the_files_stay_whole(project: Path, started: list[Running]) -> None:
    running = Running(project, "--max-actions", ENDLESS, *PATIENT_PERSONAS)
    started.append(running)
    running.wait_until_playing(2)
    for _ in range(4):
        running.process.send_signal(signal.SIGINT)
    ran = running.end()
    assert ran.code == 10, ran.err
    assert [len(rows) for rows in outcomes(manifest(project))] == [1, 1]
    assert "running" not in str(outcomes(manifest(project)))
    assert coordinate("verify", cwd=project).code == 0


def test_signal_before_the_first_action_is_heeded_too(project: Path, started: list[Running]) -> None:
    running = Running(project, "--max-actions", ENDLESS, *PATIENT_PERSONAS)
    started.append(running)
    running.wait_for_line(b"playing")
    running.process.send_signal(signal.SIGINT)
    ran = running.end()
    assert ran.code == 10, ran.err
    assert coordinate("verify", cwd=project).code == 0


def test_signal_while_the_bridge_is_probed_is_exit_10_and_leaves_nothing(project: Path, started: list[Running]) -> None:
    silent = "import sys\nopen('asked.flag', 'w').close()\nsys.stdin.read()\n"
    content = {"command": [sys.executable, "-c", silent], "startup_timeout_ms": 60_000}
    (project / "road" / "bridge.json").write_text(json.dumps(content))
    running = Running(project)
    started.append(running)
    deadline = time.monotonic() + SECONDS
    while not (project / "road" / "asked.flag").exists():
        assert time.monotonic() < deadline
        assert running.process.stderr is not None
        select.select([running.process.stderr], [], [], 0.05)
    running.process.send_signal(signal.SIGINT)
    ran = running.end()
    assert ran.code == 10, ran.err
    assert ran.document["error"]["code"] == "canceled"
    assert list((project / ".playlane" / "asked").iterdir()) == []


def test_stop_by_file_starts_nothing_more_and_lets_runs_end(project: Path, started: list[Running]) -> None:
    running = Running(project, "--repetitions", "3", "--personas", "walker.toml", "--concurrency", "1",
                      "--max-actions", ENDLESS)  # fmt: skip
    started.append(running)
    running.wait_until_playing(1)
    shown = coordinate("status", "--json", cwd=project).document
    assert shown["owner"] == "alive"
    asked = coordinate("stop", "--json", "--detail", "enough", cwd=project)
    assert asked.code == 0, asked.err
    running.wait_for_line(b"stopping")
    (project / "road" / "finish.flag").touch()
    ran = running.end()
    assert ran.code == 10, ran.err
    assert (ran.document["stop"]["reason"], ran.document["stop"]["detail"]) == ("operator_request", "enough")
    assert sorted(outcomes(manifest(project))) == [[], [], ["passed"]]


def test_killed_coordinator_is_shown_recovered_and_retried_without_launching_twice(
    project: Path, started: list[Running]
) -> None:
    running = Running(project, "--max-actions", ENDLESS, *PATIENT_PERSONAS)
    started.append(running)
    running.wait_until_playing(2)
    pids = [lane["run_id"] for lane in coordinate("status", "--json", cwd=project).document["lanes"]]
    running.process.kill()
    running.end()
    (project / "road" / "finish.flag").touch()
    begun = [
        json.loads(path.read_bytes())["pid"] for path in project.glob(".playlane/campaigns/*/batch-*/runs/*/begun")
    ]
    assert len(begun) == len(pids) == 2
    wait_until_gone(begun)
    status = coordinate("status", "--json", cwd=project).document
    assert status["owner"] == "dead"
    assert len(status["uncertain"]) == 2
    refused = coordinate("retry", cwd=project)
    assert refused.code == 3
    shown = coordinate("recover", "--json", cwd=project).document
    text = coordinate("recover", cwd=project).out
    [token] = re.findall(r"--owner-is-dead (\S+)", text)
    assert token == shown["token"]
    done = coordinate("recover", "--json", "--owner-is-dead", token, cwd=project)
    assert done.code == 0, done.err
    assert sorted(done.document["adopted"]) == sorted(pids)
    assert outcomes(manifest(project)) == [["passed"], ["passed"]]
    assert coordinate("verify", cwd=project).code == 0
    nothing = coordinate("retry", "--json", cwd=project)
    assert nothing.document["selections"] == []


def test_retried_selections_are_played_in_a_batch_of_their_own(project: Path, started: list[Running]) -> None:
    running = Running(project, "--personas", "walker.toml", "--max-actions", ENDLESS)
    started.append(running)
    running.wait_until_playing(1)
    running.process.send_signal(signal.SIGINT)
    assert running.end().code == 10
    (project / "road" / "finish.flag").touch()
    path = coordinate("retry", "--json", cwd=project).document["path"]
    ran = coordinate("run", "--json", "--selections", path, cwd=project)
    assert ran.code == 0, ran.err
    assert Path(ran.document["control"]).name == "batch-2"
    assert outcomes(manifest(project)) == [["interrupted", "passed"]]
    assert coordinate("verify", cwd=project).code == 0
    again = coordinate("run", "--json", "--selections", path, cwd=project)
    assert again.code != 0
    assert outcomes(manifest(project)) == [["interrupted", "passed"]]
