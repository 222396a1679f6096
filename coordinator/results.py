"""What each bought run came to, as its files tell: to be delivered, to be played again, or known to nobody."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from coordinator.commit import read_claims
from coordinator.errors import CoordinatorError
from coordinator.files import read_bounded, read_document
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.reports.records import PlannedRun
from coordinator.reports.sources import read_campaign
from coordinator.reports.states import STATE_OF_END
from coordinator.service.wire import FINAL_RUN_STATES, RunResult
from workers.contract import SPEND_NAME

MAX_SPEND_BYTES = 64 << 20
MAX_MARKDOWN_CHARACTERS = 200_000
# What of a run's report leaves the machine: nothing of how the game is started, where it lies, or its environment.
SENT_OF_REPORT = (
    "schema_version", "persona", "controller", "brain", "model", "driver", "seed", "repetition", "end_reason",
    "outcome", "partial", "started_at", "finished_at", "actions_taken", "steps", "summary", "what_worked", "in_the_way",
    "keep_playing", "coverage", "timing", "usage", "counts",
)  # fmt: skip
SENT_OF_FINDING = (
    "id", "title", "category", "severity", "description", "repro_steps", "evidence", "origin", "signature", "replay",
)  # fmt: skip

Kind = Literal["unplayed", "interrupted", "running", "unknown", "final"]
_STATE_OF_OUTCOME = {"passed": "succeeded", "failed": "failed", "budget_exceeded": "budget_exceeded"}


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of the purchase.

    `unplayed`: no attempt was launched; `interrupted`: its last attempt was delivered as interrupted or canceled;
    `running`: its row is open; `unknown`: a person closed a row whose end nobody saw, so only a person may decide on
    another attempt; `final`: `result` is what `complete` says. `spent` is of all attempts, millionths of a dollar.
    """

    scenario_id: str
    kind: Kind
    spent: int = 0
    result: RunResult | None = None
    directory: str = ""


def read_standings(control_directory: Path, manifest_path: Path) -> list[Standing]:
    """Every playthrough of the manifest. Raises `CoordinatorError` when manifest or claims cannot be read."""
    campaign = read_campaign(control_directory, manifest_path)
    document, _ = read_document(os.path.realpath(manifest_path))
    rows = {one["id"]: one["attempts"] for one in document["scenarios"]}
    spent = _spent_by_scenario(manifest_path)
    found = []
    for run in campaign.runs:
        used = max(spent.get(run.scenario_id, 0), _booked(run))
        kind = kind_of(rows[run.scenario_id])
        found.append(
            Standing(
                scenario_id=run.scenario_id,
                kind=kind,
                spent=used,
                result=_result(run, rows[run.scenario_id][-1], used) if kind == "final" else None,
                directory=run.directory,
            )
        )
    return found


def kind_of(attempts: Sequence[dict[str, Any]]) -> Kind:
    """What a scenario's rows say of its last attempt."""
    if not attempts:
        return "unplayed"
    last = attempts[-1]
    if last.get("outcome") == "running":
        return "running"
    if last.get("outcome") in _STATE_OF_OUTCOME:
        return "final"
    if last.get("classification") == "never_launched":
        return kind_of(attempts[:-1])
    return "unknown" if last.get("classification") == "uncertain_launch" else "interrupted"


def _spent_by_scenario(manifest_path: Path) -> dict[str, int]:
    totals: dict[str, int] = {}
    for reservation_id, claim in read_claims(ManifestPaths(manifest_path)).items():
        path = os.path.join(ControlPaths(claim.control_directory).run(reservation_id), SPEND_NAME)
        totals[claim.scenario_id] = totals.get(claim.scenario_id, 0) + read_spent(path)
    return totals


def read_spent(path: str) -> int:
    """Millionths of a dollar in a `spend.jsonl`; 0 where there is none.

    A line that is cut off belongs to a call that was not made: the line is durable before the call begins.
    """
    try:
        data = read_bounded(path, MAX_SPEND_BYTES)
    except FileNotFoundError:
        return 0
    total = 0
    for line in data.split(b"\n"):
        try:
            amount = msgspec.json.decode(line)["microdollars"] if line else 0
        except (msgspec.DecodeError, KeyError, TypeError):
            continue
        total += amount if type(amount) is int and amount >= 0 else 0
    return total


def _booked(run: PlannedRun) -> int:
    costs = [used.get("costUsd") for used in run.usage]
    return round(1_000_000 * sum(cost for cost in costs if isinstance(cost, int | float)))


def _result(run: PlannedRun, row: dict[str, Any], spent: int) -> RunResult:
    report = run.report
    outcome = str(row.get("outcome"))
    state = _STATE_OF_OUTCOME[outcome]
    # The report may be an earlier attempt's, where the last one left none: an interrupted one does not end a run.
    told = STATE_OF_END.get(report.end_reason) if report is not None else None
    if told in FINAL_RUN_STATES:
        state = str(told)
    return RunResult(
        state=state,
        quit_reason=report.end_reason if report is not None and report.end_reason else outcome,
        actions_taken=(report.actions_taken or 0) if report is not None else 0,
        reason=run.observed_failure[:500] or None,
        duration=report.timing.get("wall_seconds") if report is not None else None,
        report=sent_report(run) if report is not None and report.steps else None,
        report_md=_markdown(run.directory),
        usage={"microdollars": spent, "coverage": "complete", "attempts": run.attempts},
    )


def sent_report(run: PlannedRun) -> dict[str, Any]:
    """The allowed part of a run's report."""
    report = msgspec.to_builtins(run.report)
    sent = {key: report[key] for key in SENT_OF_REPORT if key in report}
    findings = [{key: one[key] for key in SENT_OF_FINDING if key in one} for one in report["findings"]]
    return {**sent, "persona": run.persona, "controller": run.controller, "findings": findings}


def _markdown(directory: str) -> str | None:
    try:
        data = read_bounded(os.path.join(directory, "report.md"), 4 * MAX_MARKDOWN_CHARACTERS)
    except (FileNotFoundError, CoordinatorError):
        return None
    return data.decode("utf-8", "replace")[:MAX_MARKDOWN_CHARACTERS]
