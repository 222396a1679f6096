"""The state of a run in a report, and whether the run counts as played. Pure."""

from __future__ import annotations

from coordinator.reports.records import PlannedRun, RunRecord

STATE_OF_END = {
    "goal_reached": "succeeded",
    "gave_up": "succeeded",
    "stuck": "succeeded",
    "max_actions": "succeeded",
    "game_exited": "succeeded",
    "game_crashed": "succeeded",
    "page_unresponsive": "succeeded",
    "wall_clock": "succeeded",
    "needs_human": "succeeded",
    "budget": "budget_exceeded",
    "model_fault": "failed",
    "model_refused": "failed",
    "harness_fault": "failed",
    "never_started": "skipped",
    "interrupted": "interrupted",
    "canceled": "canceled",
}
"""What a run's end reason makes of its state, where no purchase keeps a journal of its own."""


def run_state(
    report: RunRecord | None,
    *,
    unreadable: bool = False,
    refused: bool = False,
    journal_state: str | None = None,
    service_state: str | None = None,
) -> str:
    """The state of one run in a report.

    Refused by the service: `failed`. A report that is there and cannot be read: `failed`. Else what the journal says,
    else what the service says, else `budget_exceeded` for a partial report and `succeeded` for a whole one. A run of
    which neither journal, service nor report tells anything is `failed`.
    """
    if refused or unreadable:
        return "failed"
    if journal_state is not None:
        return journal_state
    if service_state is not None:
        return service_state
    if report is None:
        return "failed"
    return "budget_exceeded" if report.partial else "succeeded"


def state_of(run: PlannedRun) -> str:
    """`run_state` of a planned run: the ledger is the journal of a campaign that nothing was paid for."""
    journal = run.ledger_state
    if run.report is not None and run.report.end_reason in STATE_OF_END:
        journal = STATE_OF_END[run.report.end_reason]
    return run_state(run.report, unreadable=run.unreadable, journal_state=journal)


def why_not_played(run: PlannedRun) -> str:
    """Why a run does not count as played, or "" if it does.

    Played is a run with a readable report and at least one step. A game that breaks before its first step is played
    too if that is a finding: the defect is what the run was for.
    """
    report = run.report
    if report is None:
        return run.report_fault or "no report"
    if report.end_reason == "never_started":
        return run.observed_failure or report.summary or "it never started"
    if report.steps < 1 and not (report.actions_taken or 0) and not any(f.dropped is None for f in report.findings):
        return run.observed_failure or f"it ended before its first step ({report.end_reason or 'no reason given'})"
    return ""
