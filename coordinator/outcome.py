"""What a campaign's end means to whoever started it: one exit code, with every reason listed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

SUCCESS = 0
FAILURE = 1
BUDGET_EXCEEDED = 2
ENVIRONMENT = 3
AUTHENTICATION = 4
MODEL_ERROR = 5
CANCELED = 10

_CANCELED_ENDS = ("interrupted", "canceled")
_MODEL_ENDS = ("model_fault", "model_refused")
_FAILED_ENDS = ("harness_fault", "never_started")


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the campaign, as its report and ledger tell. `end_reason` is empty for a run that was not played."""

    scenario_id: str
    end_reason: str
    outcome: str
    played: bool
    partial: bool = False


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why the campaign does not simply end with 0."""

    exit_code: int
    what: str


def judge_campaign(
    runs: Sequence[Ended], *, stop: tuple[str, str] | None, failed_findings: int, fail_on: str, fault: str | None = None
) -> tuple[int, list[Reason]]:
    """The exit code and its reasons: the first that applies of 10, 4, 3 (nothing was played), 1 (a finding at
    fail_on), 5, 2, 1 (a run failed or was not played), 0.

    `stop` is the batch's stop (reason, detail), `failed_findings` the number of findings that reach `fail_on`, `fault`
    what broke outside any run.
    """
    reasons = list(_reasons(runs, stop, failed_findings, fail_on, fault))
    return (reasons[0].exit_code if reasons else SUCCESS), reasons


def _reasons(
    runs: Sequence[Ended], stop: tuple[str, str] | None, failed_findings: int, fail_on: str, fault: str | None
) -> Iterable[Reason]:
    interrupted = [run.scenario_id for run in runs if _canceled(run)]
    if stop is not None and stop[0] in ("operator_request", "canceled"):
        yield Reason(exit_code=CANCELED, what=f"stopped: {stop[0]}: {stop[1]}")
    elif interrupted:
        yield Reason(exit_code=CANCELED, what=f"interrupted: {_named(interrupted)}")
    if runs and not any(run.played for run in runs):
        yield Reason(exit_code=ENVIRONMENT, what="nothing was played")
    if failed_findings:
        count = f"{failed_findings} finding{'s' * (failed_findings != 1)}"
        yield Reason(exit_code=FAILURE, what=f"{count} at or above {fail_on}")
    model = [run.scenario_id for run in runs if run.end_reason in _MODEL_ENDS]
    if model:
        yield Reason(exit_code=MODEL_ERROR, what=f"the model failed: {_named(model)}")
    budget = [run.scenario_id for run in runs if run.end_reason == "budget" or run.outcome == "budget_exceeded"]
    if budget or (stop is not None and stop[0] == "budget_exceeded"):
        yield Reason(exit_code=BUDGET_EXCEEDED, what=f"the budget ended: {_named(budget) or 'the campaign'}")
    failed = [run.scenario_id for run in runs if run.end_reason in _FAILED_ENDS]
    if failed:
        yield Reason(exit_code=FAILURE, what=f"failed: {_named(failed)}")
    missing = [run.scenario_id for run in runs if not run.played and run.end_reason not in _FAILED_ENDS]
    if missing:
        yield Reason(exit_code=FAILURE, what=f"not played: {_named(missing)}")
    if stop is not None and stop[0] not in ("operator_request", "canceled", "budget_exceeded"):
        yield Reason(exit_code=FAILURE, what=f"stopped: {stop[0]}: {stop[1]}")
    if fault is not None:
        yield Reason(exit_code=FAILURE, what=fault)


def _canceled(run: Ended) -> bool:
    return run.end_reason in _CANCELED_ENDS or run.outcome in _CANCELED_ENDS


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
