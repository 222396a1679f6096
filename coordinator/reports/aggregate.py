"""A campaign's runs made into one report. Pure: files were read before, `now` is an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from coordinator.reports.actions import fact_text
from coordinator.reports.comparison import controller_comparison
from coordinator.reports.evidence import locate_evidence, relative_path, video_of
from coordinator.reports.findings import merge_findings, read_fail_rule, set_aside, severity_rank
from coordinator.reports.records import (
    AGGREGATE_SCHEMA_VERSION,
    SEVERITIES,
    Aggregate,
    Campaign,
    MatrixCell,
    MergedFinding,
    PlannedRun,
    RunRow,
    Tested,
    UsageTotals,
    Verdict,
)
from coordinator.reports.states import state_of, why_not_played

MAX_VALUES_LISTED = 6


def aggregate_campaign(
    campaign: Campaign, *, report_directory: str, fail_on: str, now: str, baseline: Collection[str] | None = None
) -> Aggregate:
    """The whole report of a campaign.

    `report_directory` is what links are relative to. `baseline` holds the signatures of an earlier campaign, for
    `new:LEVEL`. Raises `InvalidInputError` for a `fail_on` that is not known.
    """
    rule = read_fail_rule(fail_on)
    runs = campaign.runs
    findings = merge_findings(
        runs, rule=rule, baseline=baseline, locate=lambda run, found: locate_evidence(run, found, report_directory)
    )
    numbers: dict[str, list[MergedFinding]] = {}
    for finding in findings:
        for run_id in dict.fromkeys(occurrence.run_id for occurrence in finding.occurrences):
            numbers.setdefault(run_id, []).append(finding)
    rows = [_run_row(run, numbers.get(run.run_id, []), report_directory) for run in runs]
    known, dropped = set_aside(runs)
    played = sum(row.played for row in rows)
    severities = {level: sum(finding.severity == level for finding in findings) for level in SEVERITIES}
    return Aggregate(
        schema_version=AGGREGATE_SCHEMA_VERSION,
        campaign_id=campaign.campaign_id,
        batch_id=campaign.batch_id,
        build=campaign.build,
        made_at=now,
        fail_on=fail_on,
        verdict=_verdict(rows, findings, severities, fail_on),
        asked=len(rows),
        played=played,
        not_played=len(rows) - played,
        partial=sum(row.partial for row in rows),
        severities=severities,
        states=_counted(row.state for row in rows),
        end_reasons=_counted(row.end_reason for row in rows if row.end_reason),
        personas=list(dict.fromkeys(run.persona for run in runs)),
        controllers=list(dict.fromkeys(run.controller for run in runs)),
        matrix=_matrix(rows),
        findings=findings,
        suppressed=known,
        dropped=dropped,
        coverage=_coverage(runs),
        usage=_usage(runs),
        tested=_tested(runs),
        limits=_limits(rows, findings, campaign),
        controller_comparison=controller_comparison(runs),
        runs=rows,
        others=campaign.others,
        stop=campaign.stop,
        failures=campaign.failures,
    )


def _run_row(run: PlannedRun, findings: Sequence[MergedFinding], report_directory: str) -> RunRow:
    report = run.report
    why = why_not_played(run)
    max_actions = run.limits.get("max_actions", run.limits.get("maxActions"))
    return RunRow(
        run_id=run.run_id,
        scenario_id=run.scenario_id,
        persona=run.persona,
        controller=run.controller,
        repetition=run.repetition,
        target=run.target,
        brain=run.brain,
        driver=run.driver,
        seed=run.seed,
        state=state_of(run),
        outcome=run.outcome,
        end_reason=report.end_reason if report is not None else "",
        played=not why,
        why_not_played=why,
        # A run that never played is not played; to call it partial too would count it twice.
        partial=report.partial and not why if report is not None else False,
        report_available=report is not None,
        actions_taken=report.actions_taken if report is not None else None,
        max_actions=max_actions if isinstance(max_actions, int) else None,
        wall_seconds=report.timing.get("wall_seconds") if report is not None else None,
        findings=[finding.number for finding in findings],
        worst=min((finding.severity for finding in findings), key=severity_rank, default=""),
        summary=report.summary if report is not None else "",
        what_worked=report.what_worked if report is not None else [],
        in_the_way=report.in_the_way if report is not None else [],
        keep_playing=report.keep_playing if report is not None else "",
        coverage=report.coverage if report is not None else {},
        attempts=run.attempts,
        ordinal=run.ordinal,
        qualifying=run.qualifying,
        grader_digest=run.grader_digest,
        recording=_recording(run),
        counts=report.counts if report is not None else {},
        controller_facts=report.controller_facts if report is not None else {},
        report_path=relative_path(run, "report.md", report_directory)
        or relative_path(run, "report.json", report_directory),
        transcript_path=relative_path(run, "transcript.jsonl", report_directory),
        video_path=relative_path(run, video_of(run), report_directory),
    )


def _recording(run: PlannedRun) -> str:
    if run.report is None:
        return ""
    status, reason = run.report.recording.get("status", ""), run.report.recording.get("reason", "")
    return f"{status}: {reason}" if reason else str(status)


def _verdict(
    rows: Sequence[RunRow], findings: Sequence[MergedFinding], severities: dict[str, int], fail_on: str
) -> Verdict:
    asked, played = len(rows), sum(row.played for row in rows)
    partial = sum(row.partial for row in rows)
    fails = any(finding.fails for finding in findings)
    detail = [f"{_count(asked, 'playthrough')} asked, {played} played, {asked - played} not played."]
    if partial:
        detail.append(f"{_count(partial, 'run')} ended before the end and {'is' if partial == 1 else 'are'} partial.")
    if fail_on != "never":
        detail.append(f"The bar is {fail_on}: {'not passed' if fails else 'nothing reaches it'}.")
    if not played and not findings:
        level, headline = "nothing_played", "Nothing was played"
    elif findings:
        level = findings[0].severity
        parts = [f"{severities[name]} {name}" for name in SEVERITIES if severities[name]]
        listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
        headline = f"{listed} {'problem' if len(findings) == 1 else 'problems'} found"
    else:
        level, headline = "clean", f"No problem found in {_count(played, 'playthrough')}"
        detail.append("That nothing was found is no proof that nothing is wrong.")
    return Verdict(level=level, headline=headline, detail=" ".join(detail), fails=fails)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _matrix(rows: Sequence[RunRow]) -> list[MatrixCell]:
    cells: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        cells.setdefault((row.persona, row.controller), []).append(row)
    return [
        MatrixCell(
            persona=persona,
            controller=controller,
            asked=len(members),
            played=sum(row.played for row in members),
            not_played=sum(not row.played for row in members),
            partial=sum(row.partial for row in members),
            findings=len({number for row in members for number in row.findings}),
            worst=min((row.worst for row in members if row.worst), key=severity_rank, default=""),
            why_not=_counted(row.why_not_played for row in members if not row.played),
        )
        for (persona, controller), members in cells.items()
    ]


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _coverage(runs: Sequence[PlannedRun]) -> dict[str, dict[str, int]]:
    """Measure -> runs that tell it, least, most. Sums would count what two runs both saw twice."""
    values: dict[str, list[int]] = {}
    for run in runs:
        for measure, value in (run.report.coverage if run.report is not None else {}).items():
            values.setdefault(measure, []).append(value)
    return {
        measure: {"runs": len(found), "least": min(found), "most": max(found)}
        for measure, found in sorted(values.items())
    }


def _usage(runs: Sequence[PlannedRun]) -> UsageTotals:
    used = [usage for run in runs for usage in run.usage]
    costs = [usage.get("costUsd") for usage in used]
    tokens = [usage.get("tokens") for usage in used]
    attempts = sum(run.attempts for run in runs)
    # An attempt that tells nothing of its cost may have cost something: the total is then unknown, never less.
    unknown = attempts - sum(isinstance(cost, int | float) for cost in costs)
    timing = [run.report.timing for run in runs if run.report is not None]
    return UsageTotals(
        attempts=attempts,
        cost_usd=None if unknown else sum(cost for cost in costs if isinstance(cost, int | float)),
        tokens=sum(n for n in tokens if isinstance(n, int))
        if all(isinstance(n, int) for n in tokens) and len(tokens) == attempts
        else None,
        unknown=unknown,
        wall_seconds=sum(times.get("wall_seconds", 0.0) for times in timing),
        game_seconds=sum(times.get("game_seconds", 0.0) for times in timing),
    )


def _tested(runs: Sequence[PlannedRun]) -> Tested:
    told: dict[str, Counter[str]] = {}
    reports = [run.report for run in runs if run.report is not None and run.report.tested]
    for report in reports:
        facts: dict[str, str] = {"brain": report.brain}
        facts |= {"model": report.model} if report.model else {}
        _flatten({"driver": report.driver, **report.tested}, "", facts)
        for name, value in facts.items():
            told.setdefault(name, Counter())[value] += 1
    shared: dict[str, str] = {}
    varying: dict[str, dict[str, int]] = {}
    own: list[str] = []
    for name, values in told.items():
        if missing := len(reports) - values.total():
            values["not told"] += missing
        if len(values) == 1:
            shared[name] = next(iter(values))
        elif len(values) <= MAX_VALUES_LISTED and len(values) < len(reports):
            varying[name] = dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
        else:
            own.append(name)
    return Tested(runs=len(reports), shared=shared, varying=varying, own=own)


def _flatten(facts: dict[str, Any], prefix: str, into: dict[str, str]) -> None:
    for key, value in facts.items():
        name = prefix + key
        if isinstance(value, dict) and value:
            # A driver's facts name the driver again.
            _flatten(value, "" if key == "driver" else f"{name} ", into)
        else:
            into[name] = fact_text(value)


def _limits(rows: Sequence[RunRow], findings: Sequence[MergedFinding], campaign: Campaign) -> list[str]:
    limits: list[str] = []
    if missing := sum(not row.played for row in rows):
        limits.append(
            f"{missing} of the {_count(len(rows), 'playthrough')} asked for were not played; why stands at each."
        )
    if partial := sum(row.partial for row in rows):
        limits.append(f"{_count(partial, 'run')} ended before the end: what came after was not seen.")
    if stale := sum(not row.qualifying for row in rows):
        limits.append(f"{_count(stale, 'run')} measured another definition or grader than the one now planned.")
    if open_seeds := sum(row.seed is None for row in rows if row.played):
        limits.append(f"{_count(open_seeds, 'run')} played without control of the game's randomness.")
    if unstamped := sum(f.replay is None or "/" not in f.replay for f in findings):
        limits.append(f"{_count(unstamped, 'finding')} could not be replayed; read the stamp before trusting it.")
    if again := sum(row.attempts > 1 for row in rows):
        limits.append(f"{_count(again, 'playthrough')} needed more than one attempt; usage counts all attempts.")
    if campaign.stop:
        limits.append(f"The batch was stopped: {campaign.stop}.")
    limits.append("Players are programs with the limits named here: no finding says how people feel about the game.")
    return limits
