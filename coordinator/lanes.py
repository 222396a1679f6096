"""One lane's work on real workers: launch, wait for the delivery, keep what is known of a failure."""

from __future__ import annotations

import json
import os
import secrets as randomness
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from coordinator.documents import encode, sha256
from coordinator.errors import CoordinatorError
from coordinator.files import Files, read_bounded
from coordinator.inbox import Inbox
from coordinator.paths import ControlPaths
from coordinator.processes import WorkerProcess, launch_worker
from coordinator.records import CompletionResult, Entry, Stop
from workers.contract import Completion, DeliveredStop, Delivery, Job

LEAVE_SECONDS = 10.0
ENDED_BY_A_PERSON = ("uncertain_launch", "never_launched")
MAX_SUMMARY_CHARACTERS = 500


class PermitLike(Protocol):
    """What a lane reads of a permit."""

    @property
    def reservation_id(self) -> str: ...

    @property
    def scenario_id(self) -> str: ...

    @property
    def args(self) -> Sequence[str]: ...


class Lanes:
    """Both lanes of one batch; their workers deliver into one inbox.

    `secrets` are names of environment variables: the values go to the workers' standard input, to be looked for in
    artefacts. `evidence_root` (default: the control directory) is what artefact paths are relative to.
    `entries()` gives the entries as they are durable, so that late deliveries of ended reservations are told apart.
    `command` starts a worker; the default is what `bin/worker` runs.
    """

    def __init__(
        self,
        control_directory: str | os.PathLike[str],
        *,
        secrets: Sequence[str] = (),
        evidence_root: str | os.PathLike[str] | None = None,
        entries: Callable[[], Mapping[str, Entry]] | None = None,
        now: Callable[[], str] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.paths = ControlPaths(control_directory)
        self._secrets = {name: os.environ[name] for name in secrets if name in os.environ}
        self._entries = entries or (lambda: {})
        self._now = now or (lambda: "")
        self._command = command
        self.inbox = Inbox(
            self.paths.directory, evidence_root or self.paths.directory, ended=self._ended, now=self._now
        )

    async def launch_only(self, permit: PermitLike) -> WorkerProcess:
        """Start the worker of a permit whose job file is durable. Raises `CoordinatorError`: not started."""
        path = self.paths.job(permit.reservation_id)
        try:
            job_sha256 = sha256(read_bounded(path))
        except FileNotFoundError as error:
            raise CoordinatorError(f"{path} does not exist: a worker is started on a durable job file only") from error
        self.inbox.expect(permit.reservation_id, job_sha256)
        return await launch_worker(
            self.paths.directory,
            permit.reservation_id,
            job_sha256,
            permit.args,
            self._secrets,
            command=self._command,
        )

    async def read_completion(
        self, permit: PermitLike, worker: WorkerProcess
    ) -> tuple[Completion, DeliveredStop | None]:
        """What the worker delivered, once it has also left: a lane is free when its process is gone.

        Raises `WorkerVanishedError` for a worker that ended without a delivery that verifies.
        """
        delivery = await self.inbox.wait_for(permit.reservation_id, worker)
        if await worker.wait(LEAVE_SECONDS) is None:
            # It delivered, so everything below it is gone and nothing is lost with it.
            worker.kill()
            await worker.exited.wait()
        return delivery.completion, delivery.stop

    async def retain_failure(
        self, permit: PermitLike | None, error: BaseException, phase: str
    ) -> tuple[str | None, str]:
        """Keep an error under `control/failures/`; give that path, relative to the control directory, and a line."""
        summary = f"{type(error).__name__}: {error}".splitlines()[0][:MAX_SUMMARY_CHARACTERS]
        name = f"{permit.reservation_id if permit else 'none'}.{randomness.token_hex(6)}.json"
        kept = {
            "version": 1,
            "at": self._now(),
            "phase": phase,
            "scenarioId": permit.scenario_id if permit else None,
            "reservationId": permit.reservation_id if permit else None,
            "error": type(error).__name__,
            "message": self._without_secrets(str(error)),
            "traceback": self._without_secrets("".join(traceback.format_exception(error)))[-100_000:],
        }
        files = Files()
        folder = os.path.join(self.paths.directory, "failures")
        files.make_directory(folder)
        files.create(os.path.join(folder, name), encode(kept))
        return f"failures/{name}", self._without_secrets(summary)

    def close(self) -> None:
        """Stop watching the inbox; may be called twice."""
        self.inbox.close()

    def _ended(self, reservation_id: str) -> bool:
        entry = self._entries().get(reservation_id)
        if entry is None or entry.phase != "completed":
            return False
        completion = entry.receipt.completion
        return isinstance(completion, dict) and completion.get("classification") in ENDED_BY_A_PERSON

    def _without_secrets(self, text: str) -> str:
        for name, value in self._secrets.items():
            for spelling in {value, json.dumps(value)[1:-1]}:
                if spelling:
                    text = text.replace(spelling, f"[redacted: {name}]")
        return text


def find_delivery(
    control: ControlPaths, entry: Entry, *, evidence_root: str | os.PathLike[str] | None = None
) -> CompletionResult | None:
    """What a worker delivered for an entry whose coordinator is gone, if it verifies; for `recover`."""
    inbox = Inbox(control.directory, evidence_root or control.directory)
    reservation_id = entry.permit.reservation_id
    if entry.job_sha256 is not None:
        inbox.expect(reservation_id, entry.job_sha256)
    inbox.collect()
    delivery = inbox.delivery_of(reservation_id)
    if delivery is None:
        return None
    stop = delivery.stop
    return CompletionResult(
        completion=msgspec.to_builtins(delivery.completion),
        stop=Stop(reason=stop.reason, detail=stop.detail) if stop else None,
    )


async def run_job(
    control_directory: str | os.PathLike[str],
    job: Job,
    *,
    secrets: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> Delivery:
    """Run one job outside any batch (a probe, an inspection) and give its delivery.

    `control_directory` must be private and free for it; folders are made. Cancellation asks the worker to stop and
    waits for it. Raises `CoordinatorError`, `WorkerVanishedError` included.
    """
    paths = ControlPaths(control_directory)
    files = Files()
    for folder in (paths.directory, paths.jobs, paths.inbox, paths.rejected, paths.runs):
        files.make_directory(folder)
    data = encode(job)
    try:
        files.create(paths.job(job.reservation_id), data)
    except FileExistsError as error:
        raise CoordinatorError(f"{paths.job(job.reservation_id)} exists: a job is run once") from error
    inbox = Inbox(paths.directory, job.evidence_root)
    inbox.expect(job.reservation_id, sha256(data))
    args = ["--id", job.execution_id, "--max-parallel", "1", "--max-automatic-retries", "0"]
    worker = await launch_worker(
        paths.directory, job.reservation_id, sha256(data), args, secrets or {}, command=command
    )
    try:
        delivery = await inbox.wait_for(job.reservation_id, worker)
        await worker.wait(LEAVE_SECONDS)
        return delivery
    finally:
        inbox.close()
        if worker.alive:
            worker.request_stop("interrupted")
            # Its own limits end it; ours only bounds a supervisor that is stuck.
            if await worker.wait(job.limits.grace_seconds * 3 + LEAVE_SECONDS) is None:
                worker.kill()
                await worker.exited.wait()
