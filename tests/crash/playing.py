"""A coordinator process to be killed, whose workers are small programs that outlive it."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coordinator import Permit
from coordinator.commit import MAX_STATE_BYTES
from coordinator.documents import encode, sha256
from coordinator.files import read_bounded
from coordinator.paths import ControlPaths
from coordinator.records import CompletionResult, Entry, read_record
from tests.coordinator.campaign import Campaign, completion
from workers.contract import (
    DELIVERY_VERSION,
    JOB_VERSION,
    Completion,
    Delivery,
    Job,
    Limits,
    sign_delivery,
    verify_delivery,
)

KEY = "5a" * 32
WORKER_LIMIT_SECONDS = 20
# Its first act is the line in the launch log; then who it is; a moment of play; the delivery, whole or not at all.
WORKER = """
echo "$3 $4" >> launches.log
set -- "$1" "$2" $(cat /proc/$$/stat)
printf '{"pid":%d,"host":"%s","bootId":"%s","processStart":"%s"}' \\
  $$ "$(cat /proc/sys/kernel/hostname)" "$(cat /proc/sys/kernel/random/boot_id)" "${24}" > "$1/begun.tmp"
mv "$1/begun.tmp" "$1/begun"
sleep 0.0$(( $$ % 4 ))
cp "$1/prepared" "$2.tmp"
mv "$2.tmp" "$2.json"
"""


def job_of(campaign: Campaign, control: Path, permit: Permit) -> Job:
    return Job(
        version=JOB_VERSION,
        kind="probe",
        batch_id=permit.batch_id,
        reservation_id=permit.reservation_id,
        scenario_id=permit.scenario_id,
        execution_id=permit.execution_id,
        ordinal=permit.ordinal,
        definition_digest=f"definition-{permit.scenario_id}",
        grader_digest="grader-1",
        key=KEY,
        run_directory=str(control / "runs" / permit.reservation_id),
        inbox_directory=str(control / "inbox"),
        evidence_root=str(campaign.evidence),
        limits=Limits(),
    )


def prepare_delivery(job: Job) -> bytes:
    """What the worker will deliver, signed beforehand so that it can be a shell."""
    return sign_delivery(
        Delivery(
            version=DELIVERY_VERSION,
            batch_id=job.batch_id,
            reservation_id=job.reservation_id,
            scenario_id=job.scenario_id,
            execution_id=job.execution_id,
            ordinal=job.ordinal,
            job_sha256=sha256(encode(job)),
            completion=read_record(completion(job.scenario_id), Completion, "completion"),
            end_reason="goal_reached",
            artefacts=[],
        ),
        KEY,
    )


def find_delivery(control: ControlPaths, entry: Entry) -> CompletionResult | None:
    """The verified delivery of an entry, None if there is none."""
    permit = entry.permit
    path = Path(control.inbox, f"{permit.reservation_id}.worker.json")
    if not path.exists():
        return None
    campaign = Campaign(Path(control.directory).parent, permit.scenario_id, fresh=False)
    job = job_of(campaign, Path(control.directory), permit)
    assert entry.job_sha256 == sha256(encode(job))
    found = verify_delivery(read_bounded(str(path), MAX_STATE_BYTES), KEY, job=job, job_sha256=entry.job_sha256)
    return CompletionResult(completion=found.completion)


def play(folder: str, names: str, control: str, batch: str, selections: list[Any], lifeline: Connection) -> None:
    """Run one batch to its end. Every worker holds `lifeline` open: its other end sees when all are gone."""
    asyncio.run(_play(Campaign(Path(folder), names, fresh=False), Path(control), batch, selections, lifeline))


async def _play(campaign: Campaign, control: Path, batch: str, selections: list[Any], lifeline: Connection) -> None:
    coordinator = campaign.open(control_directory=control, batch_id=batch, selections=selections)

    async def launch(permit: Permit) -> asyncio.subprocess.Process:
        job = job_of(campaign, control, permit)
        run = Path(job.run_directory)
        run.mkdir(mode=0o700)
        (run / "prepared").write_bytes(prepare_delivery(job))
        os.set_inheritable(lifeline.fileno(), True)
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            WORKER,
            "worker",
            str(run),
            str(Path(job.inbox_directory, f"{permit.reservation_id}.worker")),
            permit.scenario_id,
            str(permit.ordinal),
            cwd=campaign.folder,
            pass_fds=(lifeline.fileno(),),
            start_new_session=True,
        )

    async def read(permit: Permit, worker: asyncio.subprocess.Process) -> CompletionResult:
        await asyncio.wait_for(worker.wait(), WORKER_LIMIT_SECONDS)
        found = find_delivery(ControlPaths(control), coordinator.state.entries[permit.reservation_id])
        assert found is not None, f"{permit.scenario_id} delivered nothing"
        return found

    async def retain(permit: Permit | None, error: BaseException, phase: str) -> None:
        raise error

    await coordinator.run(
        launch_only=launch,
        read_completion=read,
        retain_failure=retain,
        job=lambda permit: encode(job_of(campaign, control, permit)),
    )
    await coordinator.close()
