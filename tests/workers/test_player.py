"""The shipped worker, whole: `bin/worker` over the real player and a real game, by kind of job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.workers.runs import LIMIT_SECONDS, Run, limits, living_with, rounds
from workers.contract import Brief, Job, PlayOrder, ProbeOrder, RunReport

REPOSITORY = Path(__file__).parents[2]
GAME = REPOSITORY / "examples" / "cavern"


def settings(root: Path) -> dict[str, Any]:
    """The example game, under a name of its own so that its processes can be told."""
    game = root / "game.py"
    game.write_text(
        f"import os, runpy, sys\nos.environ.get('PATH')\nsys.path.insert(0, {str(GAME)!r})\n"
        f"sys.argv[0] = {str(GAME / 'bridge.py')!r}\nrunpy.run_path({str(GAME / 'bridge.py')!r}, run_name='__main__')\n"
    )
    return {"command": [sys.executable, str(game)], "cwd": str(GAME)}


def play_order(root: Path, **changes: Any) -> PlayOrder:
    from workers.contract import load_persona

    order = PlayOrder(
        persona=load_persona("newcomer"),
        controller="standard",
        brain="random",
        driver="cli_stdio",
        driver_settings=settings(root),
        brief=Brief(goals=["get out"]),
        max_actions=10,
        wall_seconds=60,
        seed=7,
        control_run=False,
    )
    return msgspec.structs.replace(order, **changes)


def make_run(root: Path, **changes: Any) -> Run:
    return Run(root, limits=limits(wall_seconds=90, silence_seconds=60, grace_seconds=20), **changes)


def start(run: Run) -> subprocess.Popen[bytes]:
    job: Job = run.job
    return subprocess.Popen(
        [
            str(REPOSITORY / "bin" / "worker"), "--job", str(run.path), "--job-sha256", run.sha256, "--id",
            job.execution_id, "--max-parallel", "1", "--max-automatic-retries", "0",
        ],
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "PLAYLANE_PYTHON": sys.executable, "PLAYLANE_TOKEN": "account-token-9"},
    )  # fmt: skip


def wait_until_it_plays(run: Run) -> None:
    for _ in rounds(LIMIT_SECONDS, "nothing was played"):
        progress = run.folder / "progress.json"
        if progress.exists() and json.loads(progress.read_text())["actionsTaken"] > 0:
            return


def nothing_is_left(run: Run) -> None:
    for _ in rounds(LIMIT_SECONDS, f"left: {living_with(str(run.root))}"):
        if not living_with(str(run.root)):
            return


def test_real_run_is_played_reported_and_delivered(tmp_path: Path) -> None:
    run = make_run(tmp_path, play=play_order(tmp_path))
    with start(run) as process:
        assert process.wait(LIMIT_SECONDS * 2) == 0
    delivery = run.delivery()
    assert delivery.completion.cleanup == "passed"
    assert delivery.stop is None
    assert delivery.completion.outcome == "passed"
    names = {Path(path).name for path in delivery.completion.evidence_paths}
    assert {"report.json", "report.md", "transcript.jsonl", "supervision.json", "player.log"} <= names
    report = msgspec.json.decode((run.folder / "report.json").read_bytes(), type=RunReport)
    assert report.actions_taken > 0
    assert report.end_reason == delivery.end_reason
    nothing_is_left(run)


def test_real_run_that_is_asked_to_stop_reports_as_interrupted(tmp_path: Path) -> None:
    run = make_run(tmp_path, play=play_order(tmp_path, max_actions=1_000_000))
    with start(run) as process:
        wait_until_it_plays(run)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS * 2) == 0
    delivery = run.delivery()
    assert (delivery.end_reason, delivery.completion.outcome) == ("interrupted", "interrupted")
    assert delivery.completion.cleanup == "passed"
    assert "control/runs/r1/report.json" in delivery.completion.evidence_paths
    nothing_is_left(run)


def test_game_of_a_real_run_sees_its_marks_and_no_account(tmp_path: Path) -> None:
    run = make_run(tmp_path, play=play_order(tmp_path, max_actions=1_000_000))
    with start(run) as process:
        wait_until_it_plays(run)
        game, *_ = living_with(str(tmp_path / "game.py"))
        environ = Path(f"/proc/{game}/environ").read_bytes().split(b"\0")
        seen = dict(line.decode().split("=", 1) for line in environ if line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS * 2) == 0
    assert "account-token-9" not in seen.values()
    assert (seen["PLAYLANE_RUN_ID"], seen["PLAYLANE_JOB_ID"], seen["PLAYLANE_PERSONA"]) == ("r1", "b1", "newcomer")
    for name in ("TOKEN", "RUN_ID", "JOB_ID", "PERSONA"):
        assert seen[f"PLAYLANE_{name}"] == seen[f"RAVENSIGHT_PLAYTEST_{name}"]
    assert seen["HOME"].startswith(str(run.folder))
    assert run.job.key not in seen.values()


def test_real_run_whose_supervisor_is_killed_leaves_no_process(tmp_path: Path) -> None:
    run = make_run(tmp_path, play=play_order(tmp_path, max_actions=1_000_000))
    with start(run) as process:
        wait_until_it_plays(run)
        assert json.loads((run.folder / "begun").read_text())["pid"] == process.pid
        assert living_with(str(tmp_path / "game.py"))
        process.kill()
        process.wait(LIMIT_SECONDS)
    nothing_is_left(run)
    assert list((run.control / "inbox").iterdir()) == []


def test_probe_job_plays_one_step_and_delivers_what_it_saw(tmp_path: Path) -> None:
    order = ProbeOrder(driver="cli_stdio", driver_settings=settings(tmp_path))
    run = make_run(tmp_path, kind="probe", play=None, probe=order)
    with start(run) as process:
        assert process.wait(LIMIT_SECONDS) == 0
    delivery = run.delivery()
    assert (delivery.end_reason, delivery.completion.outcome) == ("goal_reached", "passed")
    found = json.loads((run.folder / "probe.json").read_text())
    assert found["stepped"] is True
    assert found["text"]
    nothing_is_left(run)


def test_probe_of_a_game_that_dies_is_never_started(tmp_path: Path) -> None:
    order = ProbeOrder(driver="cli_stdio", driver_settings={"command": ["/bin/false"], "cwd": "/"})
    run = make_run(tmp_path, kind="probe", play=None, probe=order)
    with start(run) as process:
        assert process.wait(LIMIT_SECONDS) == 0
    assert (run.delivery().end_reason, run.delivery().completion.outcome) == ("never_started", "failed")


def test_inspect_job_tries_every_rule_on_the_example(tmp_path: Path) -> None:
    order = ProbeOrder(driver="cli_stdio", driver_settings=settings(tmp_path))
    run = make_run(tmp_path, kind="inspect", play=None, probe=order)
    with start(run) as process:
        assert process.wait(LIMIT_SECONDS * 2) == 0
    rules = json.loads((run.folder / "rules.json").read_text())
    assert len(rules) >= 10
    assert [rule for rule in rules if not rule["passed"]] == []
    assert run.delivery().completion.outcome == "passed"
    nothing_is_left(run)
