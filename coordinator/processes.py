"""The coordinator's side of a worker's process: started once, seen to end, asked to stop, never signalled by number."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets as randomness
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec

from coordinator.errors import InvalidInputError, StorageError
from coordinator.files import Files
from coordinator.paths import ControlPaths
from workers.contract import ENVIRONMENT_ALLOWED

STOP_NAME = "stop"
LOG_NAME = "supervisor.log"
MAX_SECRETS_BYTES = 32 << 10
"""Fits into a pipe that nobody reads yet, so that writing never waits for the worker."""


class WorkerProcess:
    """One started worker. `exited` is set once its end was seen; `exit_code` is then its code (negative: a signal).

    Made by `launch_worker` inside a running event loop and used in that loop only.
    """

    def __init__(self, popen: subprocess.Popen[bytes], reservation_id: str, run_directory: str) -> None:
        self.reservation_id, self.run_directory, self.pid = reservation_id, run_directory, popen.pid
        self.exited = asyncio.Event()
        self.exit_code: int | None = None
        self._popen = popen
        self._pidfd: int | None = os.pidfd_open(popen.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._collect)

    @property
    def alive(self) -> bool:
        """Whether its end has not been seen; looks, never waits."""
        self._collect()
        return self.exit_code is None

    def request_stop(self, reason: str) -> None:
        """Ask for the end after the turn in flight: `interrupted` or `canceled`. Asking again climbs faster.

        Raises `StorageError` if the wish cannot be written. Nothing happens to a worker that has ended.
        """
        if not self.alive:
            return
        path = os.path.join(self.run_directory, STOP_NAME)
        data = msgspec.json.encode({"reason": reason}) + b"\n"
        temporary = f"{path}.{randomness.token_hex(8)}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.rename(temporary, path)
        except OSError as error:
            raise StorageError("cannot ask a worker to stop by", path, error) from error
        self._send(signal.SIGTERM)

    def hurry(self) -> None:
        """Climb the next step at once: from the request to SIGTERM to SIGKILL of everything below the worker."""
        if self.alive:
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the supervisor itself, at once; its player then ends everything below it. For a worker that delivered
        and does not go, or a person who cannot wait."""
        self._send(signal.SIGKILL)

    async def wait(self, limit_seconds: float) -> int | None:
        """Its exit code, or None if it still lives after `limit_seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), limit_seconds)
        return self.exit_code

    def let_go(self) -> None:
        """Stop looking at a worker that lives on: it finishes, cleans up and delivers by itself."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
            # Popen would warn of a child that nobody waited for; this one is meant to outlive us.
            self._popen.returncode = self._popen.returncode or 0

    def _send(self, number: int) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _collect(self) -> None:
        if self._pidfd is None:
            return
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        if found is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = None
        self.exit_code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        self._popen.returncode = self.exit_code
        self.exited.set()


def worker_command() -> list[str]:
    """What `bin/worker` runs, with this interpreter, so that an installed package has it too."""
    return [sys.executable, "-P", "-m", "workers.main"]


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker may see of this process's environment."""
    return {name: value for name, value in environment.items() if name in ENVIRONMENT_ALLOWED or name.startswith("LC_")}


async def launch_worker(
    control_directory: str | os.PathLike[str],
    reservation_id: str,
    job_sha256: str,
    args: Sequence[str],
    secrets: Mapping[str, str],
    *,
    command: Sequence[str] | None = None,
) -> WorkerProcess:
    """Start the worker of `control/jobs/ID.json`; `args` are the permit's. `secrets` (name -> value) go through its
    standard input and stand nowhere else. Raises `StorageError` and `InvalidInputError`, then nothing was started.
    """
    return _launch(control_directory, reservation_id, job_sha256, args, secrets, command or worker_command())


def _launch(
    control_directory: str | os.PathLike[str],
    reservation_id: str,
    job_sha256: str,
    args: Sequence[str],
    secrets: Mapping[str, str],
    command: Sequence[str],
) -> WorkerProcess:
    paths = ControlPaths(control_directory)
    run = paths.run(reservation_id)
    wishes = msgspec.json.encode(dict(secrets))
    if len(wishes) > MAX_SECRETS_BYTES:
        raise InvalidInputError(f"{len(wishes)} bytes of secrets, more than {MAX_SECRETS_BYTES}; name fewer in the job")
    Files().make_directory(run)
    log_path = os.path.join(run, LOG_NAME)
    given = ["--job", paths.job(reservation_id), "--job-sha256", job_sha256, *args]
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            popen = subprocess.Popen(
                [*command, *given],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                bufsize=0,
                cwd=run,
                env=worker_environment(os.environ),
                start_new_session=True,
                umask=0o077,
            )
        finally:
            os.close(log)
    except OSError as error:
        raise StorageError("cannot start a worker in", run, error) from error
    worker = WorkerProcess(popen, reservation_id, run)
    assert popen.stdin is not None
    # It may have ended already; its exit code tells, a broken pipe does not.
    with contextlib.suppress(BrokenPipeError):
        popen.stdin.write(wishes)
    with contextlib.suppress(BrokenPipeError):
        popen.stdin.close()
    return worker
