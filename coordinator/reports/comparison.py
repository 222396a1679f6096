"""Controllers compared, from the plan and the reports alone: no model, no clock, the same bytes every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from coordinator.reports.records import Finding, PlannedRun
from coordinator.reports.states import state_of

COMPARISON_SCHEMA_VERSION = "1.0"
MULTIPLE = "reported_by_multiple_controllers"
ONE = "reported_by_one_controller"

LIMITS = (
    "Each controller played in sessions of its own. Equal starts are not proven: progress and randomness on a server"
    " may differ between them.",
    "Agreement between controllers verifies nothing: the same finding may be the same mistake.",
    "A finding that a controller did not report passes nothing: that controller may not have come to the place.",
)


def controller_comparison(runs: Sequence[PlannedRun]) -> dict[str, Any] | None:
    """`controller_comparison` of `aggregate.json`, or None with fewer than two controllers.

    `runs` is the plan in its order, played or not, so that a controller whose runs all vanished still stands there.
    Findings group by persona, category and title (case and white space folded); dropped ones and those without
    evidence are left out, known (suppressed) ones too.
    """
    controllers = list(dict.fromkeys(run.controller for run in runs))
    if len(controllers) < 2:
        return None
    rows = [_run_row(run) for run in runs]
    complete = all(row["report_available"] and not row["partial"] and row["state"] == "succeeded" for row in rows)
    return {
        "schema_version": COMPARISON_SCHEMA_VERSION,
        "controllers": controllers,
        "status": "reports_complete" if complete else "inconclusive",
        "limits": list(LIMITS),
        "runs": rows,
        "findings": _findings(runs),
        "control": _control(runs),
    }


def folded(text: str) -> str:
    """A title or category with case and white space folded."""
    return " ".join(text.split()).casefold()


def counts(finding: Finding) -> bool:
    """Whether a finding takes part: not dropped, not known, with evidence."""
    return finding.dropped is None and finding.suppressed_by is None and bool(finding.evidence)


def _run_row(run: PlannedRun) -> dict[str, Any]:
    report = run.report
    return {
        "run_id": run.run_id,
        "persona": run.persona,
        "controller": run.controller,
        "state": state_of(run),
        "report_available": report is not None,
        "partial": report.partial if report is not None else False,
        "actions_taken": report.actions_taken if report is not None else None,
    }


def _findings(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[tuple[PlannedRun, Finding]]] = {}
    for run in runs:
        for finding in run.report.findings if run.report is not None else ():
            if counts(finding):
                key = (run.persona, folded(finding.category), folded(finding.title))
                groups.setdefault(key, []).append((run, finding))
    found: list[dict[str, Any]] = []
    for key in sorted(groups):
        members = groups[key]
        _, first = members[0]
        several = len({run.controller for run, _ in members}) > 1
        found.append(
            {
                "title": " ".join(first.title.split()),
                "persona": key[0],
                "category": first.category,
                "match": MULTIPLE if several else ONE,
                "occurrences": [
                    {
                        "run_id": run.run_id,
                        "controller": run.controller,
                        "evidence": [msgspec.to_builtins(item) for item in finding.evidence],
                    }
                    for run, finding in members
                ],
            }
        )
    return found


def _control(runs: Sequence[PlannedRun]) -> dict[str, Any] | None:
    """The control arm: who played beside which run, how much, and what it met; None when no run has one."""
    rows: list[dict[str, Any]] = []
    groups: dict[tuple[str, str], list[tuple[PlannedRun, Finding]]] = {}
    for run in runs:
        control = run.report.control if run.report is not None else None
        if control is None:
            continue
        met = [finding for finding in control.findings if counts(finding)]
        rows.append(
            {
                "beside_run_id": run.run_id,
                "persona": run.persona,
                "controller": run.controller,
                "brain": control.brain,
                "seed": control.seed,
                "actions_taken": control.actions_taken,
                "end_reason": control.end_reason,
                "findings": len(met),
                "coverage": control.coverage,
            }
        )
        for finding in met:
            groups.setdefault((folded(finding.category), folded(finding.title)), []).append((run, finding))
    if not rows:
        return None
    return {
        "runs": rows,
        "findings": [
            {
                "title": " ".join(groups[key][0][1].title.split()),
                "category": groups[key][0][1].category,
                "signature": groups[key][0][1].signature,
                "beside_run_ids": [run.run_id for run, _ in groups[key]],
            }
            for key in sorted(groups)
        ],
    }
