"""Workers as the coordinator sees them: started in a session of their own, seen to end, asked, never signalled late."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from coordinator.documents import sha256
from coordinator.errors import CoordinatorError, InvalidInputError
from coordinator.inbox import WorkerVanishedError
from coordinator.lanes import Lanes, find_delivery, run_job
from coordinator.paths import ControlPaths
from coordinator.processes import WorkerProcess, launch_worker, worker_command, worker_environment
from coordinator.records import Entry, Permit, Receipt
from tests.workers.runs import PREAMBLE, Run, end_marked, limits, living_with, make_job, rounds, wait_for_file

LIMIT_SECONDS = 30
T = TypeVar("T")
STAGE = Path(__file__).parents[1] / "workers" / "launched.py"


def permit(reservation_id: str = "r1") -> Permit:
    return Permit(
        reservation_id=reservation_id,
        batch_id="b1",
        scenario_id="s1",
        execution_id="e1",
        ordinal=1,
        args=["--id", "e1", "--max-parallel", "1", "--max-automatic-retries", "0"],
    )


def command(root: Path, player: str) -> list[str]:
    """The shipped entry over a small player program."""
    script = root / "player.py"
    script.write_text(PREAMBLE + player)
    return [sys.executable, "-P", str(STAGE), str(script)]


async def launch(run: Run, player: str, **secrets: str) -> WorkerProcess:
    return await launch_worker(run.control, "r1", run.sha256, permit().args, secrets, command=command(run.root, player))


def bounded(coroutine: Awaitable[T]) -> T:
    async def run() -> T:
        return await asyncio.wait_for(coroutine, LIMIT_SECONDS)

    return asyncio.run(run())


def test_worker_is_seen_to_end_with_its_code(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        worker = await launch(run, "finish()")
        assert worker.alive
        await worker.exited.wait()
        assert (worker.exit_code, worker.alive) == (0, False)
        assert await worker.wait(1) == 0

    bounded(go())
    assert run.delivery().completion.outcome == "passed"


def test_worker_leads_its_own_session_and_inherits_no_descriptor(tmp_path: Path) -> None:
    run = Run(tmp_path)
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_EX)

    async def go() -> None:
        worker = await launch(run, "say('up'); sys.stdin.readline(); finish(endReason='interrupted')")
        await asyncio.to_thread(wait_for_file, run.folder / "up")
        assert os.getsid(worker.pid) == worker.pid
        for folder in (Path(f"/proc/{worker.pid}/fd"), *_folders_below(worker.pid)):
            assert str(tmp_path / "lock") not in {os.readlink(path) for path in folder.iterdir()}
        worker.request_stop("interrupted")
        await worker.exited.wait()

    try:
        bounded(go())
    finally:
        os.close(lock)


def _folders_below(pid: int) -> list[Path]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/fd") for child in children]


def test_ctrl_c_to_the_coordinators_group_does_not_reach_a_worker(tmp_path: Path) -> None:
    run = Run(tmp_path)
    script = tmp_path / "coordinator.py"
    script.write_text(
        "import asyncio, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.coordinator.test_processes import launch\n"
        "from tests.workers.runs import Run\n"
        "async def go():\n"
        '    worker = await launch(Run(Path(sys.argv[2])), \'say("up")\\nwhile not os.path.exists("go"):'
        " time.sleep(0.01)\\nfinish()')\n"
        "    await worker.exited.wait()\n"
        "asyncio.run(go())\n"
    )
    here = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-P", str(script), here, str(tmp_path)], start_new_session=True, stderr=subprocess.DEVNULL
    ) as process:
        wait_for_file(run.folder / "up")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) != 0
    (run.folder / "go").write_text("")
    for _ in rounds(LIMIT_SECONDS, "nothing was delivered"):
        if any(path.suffix == ".json" for path in (run.control / "inbox").iterdir()):
            break
    assert run.delivery().completion.outcome == "passed"
    for _ in rounds(LIMIT_SECONDS, "a worker was left"):
        if not living_with(str(tmp_path)):
            break


@pytest.mark.parametrize("reason", ["interrupted", "canceled"])
def test_request_reaches_the_player_with_its_reason(tmp_path: Path, reason: str) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        worker = await launch(
            run, "say('up'); w = json.loads(sys.stdin.readline())['stop']; finish(endReason=w, outcome=w)"
        )
        await asyncio.to_thread(wait_for_file, run.folder / "up")
        worker.request_stop(reason)
        await worker.exited.wait()

    bounded(go())
    assert (run.delivery().end_reason, run.delivery().completion.outcome) == (reason, reason)


def test_hurry_climbs_to_the_kill_and_the_run_is_delivered(tmp_path: Path) -> None:
    run = Run(tmp_path, limits=limits(grace_seconds=3600))

    async def go() -> None:
        worker = await launch(run, "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('up'); time.sleep(3600)")
        await asyncio.to_thread(wait_for_file, run.folder / "up")
        worker.request_stop("interrupted")
        while worker.alive:
            worker.hurry()
            await worker.wait(0.1)

    bounded(go())
    assert run.delivery().end_reason == "interrupted"


def test_worker_that_has_ended_gets_no_signal(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        worker = await launch(run, "finish()")
        await worker.exited.wait()
        worker.request_stop("canceled")
        worker.hurry()
        worker.kill()
        assert worker.exit_code == 0

    bounded(go())
    assert not (run.folder / "stop").exists()


def test_worker_that_was_let_go_finishes_by_itself(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> int:
        worker = await launch(run, "sys.stdin.readline() if os.path.exists('never') else finish()")
        worker.let_go()
        worker.let_go()
        return worker.pid

    pid = bounded(go())
    assert os.waitpid(pid, 0)[1] == 0
    assert run.delivery().completion.outcome == "passed"


def test_secrets_go_through_standard_input_only(tmp_path: Path) -> None:
    run = Run(tmp_path, secrets=["TOKEN"])

    async def go() -> None:
        worker = await launch(
            run, "open('log', 'w').write('top-secret-value-1'); finish(artefacts=['log'])", TOKEN="top-secret-value-1"
        )
        for name in ("cmdline", "environ"):
            assert b"top-secret" not in Path(f"/proc/{worker.pid}/{name}").read_bytes()
        await worker.exited.wait()

    bounded(go())
    stop = run.delivery().stop
    assert stop is not None
    assert stop.reason == "secret_leak"


def test_environment_of_a_worker_is_an_allow_list() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "PLAYLANE_TOKEN": "x", "ANTHROPIC_API_KEY": "y", "HOME": "/root"}
    assert worker_environment(given) == {"PATH": "/bin", "LC_ALL": "C"}


def test_more_secrets_than_a_pipe_holds_are_refused_before_the_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InvalidInputError, match="bytes of secrets"):
        bounded(launch(run, "finish()", TOKEN="x" * 100_000))
    assert not (run.folder / "begun").exists()


def test_lane_gives_what_was_delivered_and_its_worker_is_gone(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        lanes = Lanes(run.control, evidence_root=tmp_path, command=command(tmp_path, "finish()"))
        try:
            worker = await lanes.launch_only(permit())
            completion, stop = await lanes.read_completion(permit(), worker)
            assert (completion.outcome, stop, worker.alive) == ("passed", None, False)
        finally:
            lanes.close()

    bounded(go())


def test_worker_killed_by_the_system_is_a_failure_and_never_a_hang(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        lanes = Lanes(run.control, evidence_root=tmp_path, command=command(tmp_path, "say('up'); time.sleep(3600)"))
        try:
            worker = await lanes.launch_only(permit())
            await asyncio.to_thread(wait_for_file, run.folder / "up")
            worker.kill()
            await lanes.read_completion(permit(), worker)
        finally:
            lanes.close()

    with pytest.raises(WorkerVanishedError, match="signal 9"):
        bounded(go())
    # This small player knows nothing of the lifeline: it is ours to end.
    end_marked(str(tmp_path / "player.py"))


def test_job_that_is_refused_is_a_failure_with_the_workers_own_words(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def go() -> None:
        lanes = Lanes(run.control, evidence_root=tmp_path)
        worker = await lanes.launch_only(permit())
        try:
            await lanes.read_completion(permit(), worker)
        finally:
            lanes.close()

    run.path.chmod(0o644)
    with pytest.raises(WorkerVanishedError, match=r"exit code 65.*others may look"):
        bounded(go())


def test_worker_without_a_job_file_is_not_started(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.path.unlink()
    with pytest.raises(CoordinatorError, match="durable job file"):
        bounded(Lanes(run.control).launch_only(permit()))
    assert not run.folder.exists()


def test_failure_is_kept_without_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "top-secret-value-2")
    run = Run(tmp_path)
    lanes = Lanes(run.control, secrets=["SERVICE_TOKEN", "NOT_SET"], now=lambda: "2026-01-01T00:00:00.000Z")
    error = ValueError("it said top-secret-value-2\nand more")
    path, summary = bounded(lanes.retain_failure(permit(), error, "launch"))
    assert path is not None
    kept = json.loads((run.control / path).read_text())
    assert (kept["phase"], kept["reservationId"], kept["at"]) == ("launch", "r1", "2026-01-01T00:00:00.000Z")
    assert summary == "ValueError: it said [redacted: SERVICE_TOKEN]"
    assert "top-secret" not in (run.control / path).read_text()
    assert (run.control / path).stat().st_mode & 0o777 == 0o600


def test_recovery_finds_the_delivery_of_a_dead_coordinators_worker(tmp_path: Path) -> None:
    run = Run(tmp_path)
    entry = Entry(
        phase="launching",
        permit=permit(),
        reserved_attempt={},
        receipt=Receipt(reserved_sha256=""),
        job_sha256=run.sha256,
    )
    control = ControlPaths(run.control)
    assert find_delivery(control, entry, evidence_root=tmp_path) is None
    run.run("finish()")
    found = find_delivery(control, entry, evidence_root=tmp_path)
    assert found is not None
    assert found.completion["outcome"] == "passed"
    other = msgspec.structs.replace(entry, job_sha256="0" * 64)
    assert find_delivery(control, other, evidence_root=tmp_path) is None


def test_job_outside_any_batch_is_run_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    job = make_job(tmp_path)
    delivery = bounded(run_job(tmp_path / "control", job, command=command(tmp_path, "finish()")))
    assert delivery.completion.outcome == "passed"
    assert sha256((tmp_path / "control/jobs/r1.json").read_bytes()) == delivery.job_sha256
    with pytest.raises(CoordinatorError, match="run once"):
        bounded(run_job(tmp_path / "control", job, command=command(tmp_path, "finish()")))


def test_cancelled_job_asks_its_worker_to_stop_and_waits_for_it(tmp_path: Path) -> None:
    job = make_job(tmp_path)

    async def go() -> None:
        task = asyncio.create_task(
            run_job(tmp_path / "control", job, command=command(tmp_path, "say('up'); sys.stdin.readline()"))
        )
        await asyncio.to_thread(wait_for_file, tmp_path / "control/runs/r1/up")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    bounded(go())
    assert living_with(str(tmp_path)) == []


def test_shipped_command_is_this_interpreter_outside_the_working_directory() -> None:
    assert worker_command() == [sys.executable, "-P", "-m", "workers.main"]
