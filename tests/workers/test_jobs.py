"""What a worker refuses before anything is run, through the shipped command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.workers.runs import Run, make_job, write_job
from workers import VERSION
from workers.jobs import JobRefusedError, read_job

REPOSITORY = Path(__file__).parents[2]
WORKER = [str(REPOSITORY / "bin" / "worker")]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PLAYLANE_PYTHON": sys.executable}


def worker(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WORKER, *arguments], input=stdin, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )


def arguments_of(run: Run, **changes: str) -> list[str]:
    options = {
        "job": str(run.path), "job-sha256": run.sha256, "id": "e1", "max-parallel": "1", "max-automatic-retries": "0",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }  # fmt: skip
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def test_version_is_the_packages() -> None:
    assert worker("--version").stdout == f"playlane worker {VERSION}\n"
    text = (REPOSITORY / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    assert found is not None
    assert found[1] == VERSION


def test_version_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from workers.main import main; main(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    modules = set(found.stdout.split())
    assert not modules & {"msgspec", "asyncio", "httpx", "drivers", "workers.contract", "argparse", "subprocess"}


@pytest.mark.parametrize(
    "given", [[], ["--job", "x"], ["--what"], ["--version", "--player"], ["--job"], ["--id", "a", "--id", "b"]]
)
def test_wrong_command_lines_are_refused(given: list[str]) -> None:
    found = worker(*given)
    assert found.returncode == 64
    assert "usage: worker" in found.stderr


@pytest.mark.parametrize("changes", [{"max_parallel": "2"}, {"max_automatic_retries": "1"}])
def test_other_numbers_than_one_lane_and_no_retry_are_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    run = Run(tmp_path)
    assert worker(*arguments_of(run, **changes)).returncode == 64
    assert not run.folder.exists()


@pytest.mark.parametrize("changes", [{"job_sha256": "0" * 64}, {"id": "e2"}])
def test_another_hash_or_execution_is_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    run = Run(tmp_path)
    found = worker(*arguments_of(run, **changes))
    assert found.returncode == 65
    assert "job refused" in found.stderr
    assert not run.folder.exists()


def _through_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def _as_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.chmod(0o640),
        lambda path: path.chmod(0o604),
        lambda path: os.link(path, path.with_suffix(".second")),
        lambda path: path.unlink(),
        lambda path: os.truncate(path, 1 << 40),
        _through_a_link,
        _as_a_pipe,
    ],
)
def test_job_file_that_is_not_private_and_plain_is_refused(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    run = Run(tmp_path)
    plant(run.path)
    assert worker(*arguments_of(run)).returncode == 65
    assert not run.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_job_file_of_another_user_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    os.chown(run.path, 12345, -1)
    with pytest.raises(JobRefusedError, match="belongs to user 12345"):
        read_job(run.path, run.sha256)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "version 2"),
        ({"kind": "simulate"}, "no order of that kind"),
        ({"kind": "probe"}, "no order of that kind"),
        ({"key": "short"}, "key"),
        ({"reservation_id": "../r1"}, "no file name"),
        ({"run_directory": "/tmp/elsewhere"}, "not under the evidence root"),
        ({"inbox_directory": "inbox"}, "not absolute"),
    ],
)
def test_job_that_this_worker_does_not_run_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    path = tmp_path / "job.json"
    sha256 = write_job(path, msgspec.structs.replace(make_job(tmp_path), **changes))
    with pytest.raises(JobRefusedError, match=re.escape(said)):
        read_job(path, sha256)


@pytest.mark.parametrize("given", ["", "nonsense", "[1]", '{"SERVICE_TOKEN": 5}'])
def test_secrets_that_do_not_come_whole_are_refused_before_anything_is_begun(tmp_path: Path, given: str) -> None:
    run = Run(tmp_path, secrets=["SERVICE_TOKEN"])
    assert worker(*arguments_of(run), stdin=given).returncode == 65
    assert not run.folder.exists()


def test_game_that_cannot_start_is_delivered_as_never_started(tmp_path: Path) -> None:
    run = Run(tmp_path)
    found = worker(*arguments_of(run))
    assert (found.returncode, found.stderr) == (0, "")
    assert (run.delivery().end_reason, run.delivery().completion.outcome) == ("never_started", "failed")
    assert json.loads((run.folder / "result.json").read_text())["endReason"] == "never_started"


def test_worker_started_as_leader_of_a_process_group_gets_a_session_all_the_same(tmp_path: Path) -> None:
    """As a shell starts it by hand."""
    run = Run(tmp_path)
    with subprocess.Popen([*WORKER, *arguments_of(run)], env=ENVIRONMENT, process_group=0) as process:
        assert process.wait(60) == 0
    assert run.delivery().end_reason == "never_started"


@pytest.mark.measured
def test_version_costs_little_more_than_importing_what_any_worker_needs() -> None:
    """Paired in one run, best of many: the machine's load hits both alike."""
    bare = [sys.executable, "-c", "import msgspec, json, hashlib"]
    best = {"worker": float("inf"), "bare": float("inf")}
    for _ in range(20):
        for name, command in (("worker", [*WORKER, "--version"]), ("bare", bare)):
            before = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
            best[name] = min(best[name], time.perf_counter() - before)
    assert best["worker"] <= 1.6 * best["bare"]
