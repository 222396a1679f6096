"""A control directory with one job on disk, and real supervisors over small player programs, for tests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from workers.contract import Brief, Delivery, Job, Limits, PlayOrder, verify_delivery
from workers.descendants import open_process, process_table, read_process

KEY = "5a" * 32
LIMIT_SECONDS = 30.0

PREAMBLE = """
import json, os, signal, sys, time
job = json.loads(sys.stdin.readline())
def finish(**changes):
    result = {"endReason": "goal_reached", "outcome": "passed", "partial": False, "actionsTaken": 3,
              "artefacts": [], "usage": {"costUsd": 0, "tokens": 0, "coverage": "complete"}, **changes}
    with open("result.json", "w") as file:
        json.dump(result, file)
def progress(step):
    with open("progress.json.new", "w") as file:
        json.dump({"step": step}, file)
    os.replace("progress.json.new", "progress.json")
def say(name, text=""):
    with open(name + ".new", "w") as file:
        file.write(text)
    os.rename(name + ".new", name)
"""


class Run:
    """One reservation's files under `root/control`, and what became of it."""

    def __init__(self, root: Path, reservation_id: str = "r1", **changes: Any) -> None:
        self.root = root
        self.control = root / "control"
        for name in ("", "jobs", "inbox", "rejected", "runs"):
            with contextlib.suppress(FileExistsError):
                (self.control / name).mkdir(mode=0o700)
        self.folder = self.control / "runs" / reservation_id
        self.job = make_job(root, reservation_id, **changes)
        self.path = self.control / "jobs" / f"{reservation_id}.json"
        self.sha256 = write_job(self.path, self.job)

    def start(self, player: str, *, secrets: dict[str, str] | None = None, **popen: Any) -> subprocess.Popen[bytes]:
        """A supervisor over a player of these lines; whoever starts it waits for it."""
        script = self.root / f"player-{self.job.reservation_id}.py"
        script.write_text(PREAMBLE + textwrap.dedent(player))
        stage = Path(__file__).with_name("stage.py")
        process = subprocess.Popen(
            [sys.executable, "-P", str(stage), str(self.path), self.sha256, str(script)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            **popen,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(secrets or {}).encode())
        process.stdin.close()
        return process

    def run(self, player: str, **changes: Any) -> Delivery:
        """Play to the end; give the delivery."""
        with self.start(player, **changes) as process:
            assert process.wait(LIMIT_SECONDS) == 0
        return self.delivery()

    def delivery(self) -> Delivery:
        """The one delivery in the inbox, verified."""
        (path,) = (self.control / "inbox").iterdir()
        return verify_delivery(path.read_bytes(), self.job.key, job=self.job, job_sha256=self.sha256)

    def supervision(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "supervision.json").read_text())
        return found


def make_job(root: Path, reservation_id: str = "r1", **changes: Any) -> Job:
    control = root / "control"
    job = Job(
        version=1,
        kind="play",
        batch_id="b1",
        reservation_id=reservation_id,
        scenario_id="s1",
        execution_id="e1",
        ordinal=1,
        definition_digest="d1",
        grader_digest="g1",
        key=KEY,
        run_directory=str(control / "runs" / reservation_id),
        inbox_directory=str(control / "inbox"),
        evidence_root=str(root),
        limits=Limits(wall_seconds=20, silence_seconds=20, grace_seconds=1, output_bytes=4 << 20),
        play=PlayOrder(
            persona={"name": "newcomer"},
            controller="standard",
            brain="offline",
            driver="cli_stdio",
            driver_settings={},
            brief=Brief(),
            max_actions=3,
            wall_seconds=10,
            seed=1,
        ),
    )
    return msgspec.structs.replace(job, **changes)


def limits(**changes: Any) -> Limits:
    return msgspec.structs.replace(
        Limits(wall_seconds=20, silence_seconds=20, grace_seconds=0.3, output_bytes=4 << 20), **changes
    )


def write_job(path: Path, job: Job) -> str:
    raw = msgspec.json.encode(job)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    return hashlib.sha256(raw).hexdigest()


def wait_for_file(path: Path, limit_seconds: float = LIMIT_SECONDS) -> str:
    """The text of a file that another process makes by renaming, as soon as it is there."""
    for _ in rounds(limit_seconds, f"{path} did not appear"):
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
    raise AssertionError


def rounds(limit_seconds: float, otherwise: str) -> Iterator[None]:
    """Look again and again at something outside that tells nobody, at most so long."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        yield
        select.select([], [], [], 0.02)
    raise AssertionError(otherwise)


def living_with(mark: str) -> list[int]:
    """Numbers of living processes with this text in their command line."""
    found = []
    for facts in process_table():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{facts.pid}/cmdline").read_bytes()
            if mark.encode() in command and not facts.ended and facts.pid != os.getpid():
                found.append(facts.pid)
    return found


def end_marked(mark: str) -> list[int]:
    """End every process with this text in its command line, through pidfds; give the numbers that lived."""
    found = living_with(mark)
    for pid in found:
        facts = read_process(pid)
        descriptor = open_process(facts) if facts else None
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
    return found
