"""Finds a finding of an earlier run by its name, RUN/FINDING, and has it played again."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Any

import msgspec

from coordinator.asking import run_asking_job
from coordinator.documents import decode
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import read_bounded, read_document
from coordinator.jobs import replay_finding_job
from coordinator.paths import ControlPaths
from coordinator.project import Campaign, Project
from workers.contract import Job, PlayOrder

WALL_SECONDS = 180.0
MAX_REPORT_BYTES = 64 << 20
MAX_JOB_BYTES = 4 << 20
ANSWER_NAME = "finding-replay.json"


def replay_finding(project: Project, run_id: str, finding_id: str, manifest: str | None) -> dict[str, Any]:
    """Play a finding's actions again through a worker; give the worker's answer, `finding-replay.json`.

    Raises `InvalidInputError` when there is no such run or finding, `RefusedError` when the worker gave no answer.
    """
    campaigns = [project.campaign_of(manifest)] if manifest is not None else project.campaigns()
    order, finding = _find(campaigns, run_id, finding_id)
    project.make_store()
    folder = project.store / "asked" / secrets.token_hex(8)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    job = replay_finding_job(order, finding, control_directory=folder, wall=WALL_SECONDS)
    try:
        delivery = asyncio.run(run_asking_job(folder, job, f"replay of {run_id}/{finding_id}"))
        try:
            return read_document(f"{job.run_directory}/{ANSWER_NAME}", MAX_JOB_BYTES)[0]
        except FileNotFoundError:
            why = delivery.completion.observed_failure or f"its worker ended with {delivery.end_reason}"
            raise RefusedError(f"replay: the finding was not played: {why}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find(campaigns: list[Campaign], run_id: str, finding_id: str) -> tuple[PlayOrder, dict[str, Any]]:
    """The order that the run was played by, and the finding as its report has it; the newest batch first."""
    for campaign in reversed(campaigns):
        for control in reversed(campaign.batches()):
            paths = ControlPaths(control)
            report = Path(paths.runs) / run_id / "report.json"
            if "/" in run_id or not report.is_file():
                continue
            document = decode(read_bounded(str(report), MAX_REPORT_BYTES), limit_bytes=MAX_REPORT_BYTES)
            found = [one for one in document.get("findings") or () if one.get("id") == finding_id]
            if not found:
                ids = ", ".join(str(one.get("id")) for one in document.get("findings") or ()) or "none"
                raise InvalidInputError(f"{run_id}/{finding_id}: the run has no such finding; it has: {ids}")
            job = msgspec.json.decode(read_bounded(paths.job(run_id), MAX_JOB_BYTES), type=Job)
            if job.play is None:
                raise InvalidInputError(f"{run_id}: is no playthrough")
            return job.play, found[0]
    raise InvalidInputError(f"{run_id}/{finding_id}: there is no such run here; coordinate findings -v lists them")
