"""What a campaign is doing, read from its files: works with no coordinator, and never writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.documents import DocumentError, decode
from coordinator.errors import CoordinatorError, RefusedError
from coordinator.files import read_bounded
from coordinator.inspection import RecoveryReport, inspect_recovery
from coordinator.paths import ControlPaths
from coordinator.project import Campaign
from coordinator.records import UNCERTAIN_PHASES, State
from workers.contract import Progress

MAX_PROGRESS_BYTES = 64 << 10


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. `phase` is waiting, reserved, launching, launched or completed; `worker` is its liveness."""

    scenario: str
    phase: str
    run_id: str | None = None
    worker: str | None = None
    outcome: str | None = None
    actions_taken: int | None = None
    of: int | None = None
    findings: int | None = None
    spend_usd: float | None = 0.0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a campaign. `spend_usd` is None where a cost is unknown; free brains spend 0."""

    campaign: str
    manifest: str
    control: str | None
    batch: str | None
    owner: Literal["alive", "dead", "unknown", "none"]
    owner_pid: int | None
    lanes: list[LaneStatus]
    spend_usd: float | None
    stop: str | None
    uncertain: list[str]
    deliveries: list[str]
    failures: list[str]
    problems: list[str]

    def count(self, *phases: str) -> int:
        return sum(lane.phase in phases for lane in self.lanes)

    @property
    def running(self) -> bool:
        """Whether a coordinator is at work on it."""
        return self.owner == "alive"


def read_status(campaign: Campaign, control_directory: str | None = None) -> Status:
    """The state of a campaign's newest batch, or of the one in `control_directory`.

    Raises `CoordinatorError` only when the manifest cannot be read; whatever else is damaged stands in `problems`.
    """
    document = campaign.read_manifest()
    problems: list[str] = []
    control = control_directory or _newest_control(campaign)
    found: RecoveryReport | None = None
    try:
        found = inspect_recovery(campaign.manifest_path, control)
        control = found.control_directory
    except RefusedError as error:
        # Without a lock: planned, and nothing was ever opened, so there is no batch to look at.
        if campaign.is_owned:
            problems.append(str(error))
    except CoordinatorError as error:
        problems.append(str(error))
    state = _read_state(control, problems) if control is not None and os.path.isdir(control) else None
    lanes = _lanes(document, state, found, control)
    spends = [lane.spend_usd for lane in lanes]
    owner = found.owner if found is not None else None
    return Status(
        campaign=campaign.name,
        manifest=str(campaign.manifest_path),
        control=control if state is not None else None,
        batch=state.batch_id if state is not None else None,
        owner=found.owner_liveness if found is not None else "unknown" if campaign.is_owned else "none",
        owner_pid=owner.pid if owner is not None else None,
        lanes=lanes,
        spend_usd=None if None in spends else sum(spend for spend in spends if spend is not None),
        stop=found.stop if found is not None else None,
        uncertain=[worker.reservation_id for worker in found.workers] if found is not None else [],
        deliveries=found.deliveries if found is not None else [],
        failures=[f"{one.scenario_id or 'batch'} ({one.phase}): {one.summary}" for one in state.failures]
        if state is not None
        else [],
        problems=problems + [one for one in (found.problems if found is not None else []) if one not in problems],
    )


def _newest_control(campaign: Campaign) -> str | None:
    batches = campaign.batches()
    return str(batches[-1]) if batches and not campaign.is_owned else None


def _read_state(control: str, problems: list[str]) -> State | None:
    try:
        read = read_sealed(ControlPaths(control).state, State, MAX_STATE_BYTES)
    except CoordinatorError as error:
        problems.append(str(error))
        return None
    return read[0] if read is not None else None


def _lanes(
    document: dict[str, Any], state: State | None, found: RecoveryReport | None, control: str | None
) -> list[LaneStatus]:
    liveness = {worker.reservation_id: worker.liveness for worker in found.workers} if found is not None else {}
    entries = {entry.permit.scenario_id: entry for entry in state.entries.values()} if state is not None else {}
    lanes = []
    for scenario in document["scenarios"]:
        rows: list[dict[str, Any]] = scenario["attempts"]
        entry = entries.get(scenario["id"])
        if entry is None:
            phase = "waiting" if state is None or not rows else "not in this batch"
            lanes.append(LaneStatus(scenario=scenario["id"], phase=phase, spend_usd=_spent(rows)))
            continue
        run_id = entry.permit.reservation_id
        progress = read_progress(control, run_id)
        row = rows[entry.permit.ordinal - 1] if 0 < entry.permit.ordinal <= len(rows) else {}
        lanes.append(
            LaneStatus(
                scenario=scenario["id"],
                phase=entry.phase,
                run_id=run_id,
                worker=liveness.get(run_id) if entry.phase in UNCERTAIN_PHASES else None,
                outcome=row.get("outcome") if entry.phase == "completed" else None,
                actions_taken=progress.actions_taken if progress is not None else None,
                of=progress.of if progress is not None else None,
                findings=progress.findings if progress is not None else None,
                spend_usd=_spent(rows),
            )
        )
    return lanes


def read_progress(control: str | None, run_id: str) -> Progress | None:
    """A worker's own account, as it stands; None where there is none or it is not one."""
    if control is None:
        return None
    try:
        data = read_bounded(str(Path(ControlPaths(control).run(run_id), "progress.json")), MAX_PROGRESS_BYTES)
        return msgspec.convert(decode(data), Progress)
    except (CoordinatorError, DocumentError, OSError, msgspec.ValidationError):
        return None


def _spent(rows: list[dict[str, Any]]) -> float | None:
    """Dollars of all attempts; None when one of them is unknown."""
    total = 0.0
    for row in rows:
        usage = row.get("usage")
        cost = usage.get("costUsd") if isinstance(usage, dict) else 0
        if cost is None:
            return None
        total += cost if isinstance(cost, int | float) else 0
    return total
