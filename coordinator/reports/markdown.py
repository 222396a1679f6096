"""`aggregate.md`: the report for a pull request, a wiki, a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coordinator.reports.actions import action_text
from coordinator.reports.escaping import markdown_cell as cell
from coordinator.reports.escaping import markdown_text as text
from coordinator.reports.escaping import seen_text
from coordinator.reports.records import Aggregate, EvidenceLink, MergedFinding, SetAside

MAX_LISTED_RUNS = 1_000
MAX_OCCURRENCES = 20
MAX_ACTIONS = 60


def render_markdown(aggregate: Aggregate) -> str:
    """The whole report as Markdown. Game text in it is text: no markup, no HTML, no link of its own."""
    return "\n".join(_lines(aggregate)) + "\n"


def _lines(aggregate: Aggregate) -> Iterator[str]:
    yield f"# Playtest report: {text(aggregate.campaign_id)}"
    yield ""
    yield f"**{text(aggregate.verdict.headline)}.** {text(aggregate.verdict.detail)}"
    yield ""
    yield f"Batch {text(aggregate.batch_id)}, build {text(aggregate.build)}, made at {text(aggregate.made_at)}."
    if aggregate.stop:
        yield ""
        yield f"The batch was stopped: {text(aggregate.stop)}"
    for failure in aggregate.failures:
        yield f"- Failure: {text(failure)}"
    yield from _findings(aggregate)
    yield from _matrix(aggregate)
    if aggregate.controller_comparison is not None:
        yield from _comparison(aggregate.controller_comparison)
    yield from _runs(aggregate)
    yield from _aside("Known findings, not counted", "Known as", aggregate.suppressed)
    yield from _aside("Dropped findings", "Why", aggregate.dropped)
    yield from _facts(aggregate)


def _findings(aggregate: Aggregate) -> Iterator[str]:
    yield from ("", "## Findings", "")
    if not aggregate.findings:
        yield "None."
    for finding in aggregate.findings:
        yield from _finding(finding)


def _finding(finding: MergedFinding) -> Iterator[str]:
    marks = [finding.severity, finding.category, f"replay {finding.replay or 'not tried'}"]
    marks += ["new"] if finding.new else []
    marks += ["weak signature"] if finding.weak else []
    marks += ["also met by the control arm"] if finding.in_control else []
    yield f"### {finding.number}. {text(finding.title)}"
    yield ""
    yield " · ".join(text(mark) for mark in marks)
    yield ""
    yield f"Personas: {text(', '.join(finding.personas))}. Controllers: {text(', '.join(finding.controllers))}."
    if finding.description:
        yield ""
        yield from _described(finding.description)
    if finding.repro_steps:
        yield ""
        yield from (f"{at}. {text(step)}" for at, step in enumerate(finding.repro_steps[:MAX_ACTIONS], start=1))
    elif finding.actions:
        yield ""
        yield from (f"{at}. {text(action_text(act))}" for at, act in enumerate(finding.actions[:MAX_ACTIONS], start=1))
    yield ""
    for met in finding.occurrences[:MAX_OCCURRENCES]:
        place = f"step {met.step}" if met.step is not None else "no step"
        links = ", ".join(_evidence(item) for item in met.evidence) or "no evidence"
        yield f"- {text(met.persona)} x {text(met.controller)}, run {text(met.run_id)}, {place}: {links}"
    if len(finding.occurrences) > MAX_OCCURRENCES:
        yield f"- and {len(finding.occurrences) - MAX_OCCURRENCES} more"
    yield ""
    yield f"Signature {text(finding.signature)}"
    yield ""


def _described(description: str) -> Iterator[str]:
    """One line as text; several, as of a stack trace, fenced by more backticks than any line of it holds."""
    lines = seen_text(description).strip().splitlines()
    if len(lines) <= 1:
        yield text(description, 2_000)
        return
    longest = max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence
    yield from lines
    yield fence


def _evidence(item: EvidenceLink) -> str:
    label = f"{text(item.kind)} {text(item.ref)}"
    if item.line is not None:
        label += f" (line {item.line})"
    # Parentheses and blanks are percent-encoded in the path already, so the link cannot end early.
    target = item.path.replace("(", "%28").replace(")", "%29")
    return f"[{label}]({target})" if item.present else f"{label} (file missing)"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "|".join(" --- " for _ in heads) + "|"
    for row in rows:
        yield "| " + " | ".join("-" if value is None else cell(str(value)) for value in row) + " |"


def _matrix(aggregate: Aggregate) -> Iterator[str]:
    yield from ("", "## Asked and played", "")
    yield f"{aggregate.asked} asked, {aggregate.played} played, {aggregate.not_played} not played."
    yield ""
    yield from _table(
        ("Persona", "Controller", "Asked", "Played", "Not played", "Partial", "Findings", "Worst", "Why not"),
        (
            (
                found.persona, found.controller, found.asked, found.played, found.not_played, found.partial,
                found.findings, found.worst or None,
                "; ".join(f"{why} ({runs})" for why, runs in found.why_not.items()) or None,
            )
            for found in aggregate.matrix
        ),
    )  # fmt: skip


def _comparison(comparison: dict[str, Any]) -> Iterator[str]:
    yield from ("", "## Controllers compared", "")
    yield f"Status: {text(comparison['status'])}."
    yield ""
    yield from (f"- {text(limit)}" for limit in comparison["limits"])
    yield ""
    yield from _table(
        ("Run", "Persona", "Controller", "State", "Report", "Partial", "Actions"),
        (
            (
                run["run_id"], run["persona"], run["controller"], run["state"],
                "yes" if run["report_available"] else "no", "yes" if run["partial"] else "no", run["actions_taken"],
            )
            for run in comparison["runs"][:MAX_LISTED_RUNS]
        ),
    )  # fmt: skip
    if comparison["findings"]:
        yield ""
        yield from _table(
            ("Finding", "Persona", "Category", "Match", "Reported by"),
            (
                (
                    found["title"], found["persona"], found["category"], found["match"],
                    ", ".join(dict.fromkeys(met["controller"] for met in found["occurrences"])),
                )
                for found in comparison["findings"]
            ),
        )  # fmt: skip
    control = comparison["control"]
    if control is not None:
        yield ""
        yield "Control arm (random play beside the runs, equal numbers of actions):"
        yield ""
        yield from _table(
            ("Beside run", "Persona", "Controller", "Actions", "Ended by", "Findings"),
            (
                (
                    run["beside_run_id"], run["persona"], run["controller"], run["actions_taken"],
                    run["end_reason"], run["findings"],
                )
                for run in control["runs"][:MAX_LISTED_RUNS]
            ),
        )  # fmt: skip


def _runs(aggregate: Aggregate) -> Iterator[str]:
    yield from ("", "## Runs", "")
    yield from _table(
        ("Run", "Persona", "Controller", "Repetition", "State", "Ended by", "Partial", "Actions", "Findings"),
        (
            (
                run.run_id, run.persona, run.controller, run.repetition, run.state,
                run.end_reason or run.why_not_played, "yes" if run.partial else "no", run.actions_taken,
                ", ".join(str(number) for number in run.findings) or None,
            )
            for run in aggregate.runs[:MAX_LISTED_RUNS]
        ),
    )  # fmt: skip
    if len(aggregate.runs) > MAX_LISTED_RUNS:
        yield ""
        yield f"{len(aggregate.runs) - MAX_LISTED_RUNS} more runs stand in aggregate.json."
    for other in aggregate.others:
        yield ""
        yield f"Not a playthrough: {text(other.scenario_id)} ({text(other.kind)}), {text(other.outcome)}."


def _aside(title: str, reason: str, findings: Sequence[SetAside]) -> Iterator[str]:
    if not findings:
        return
    yield from ("", f"## {title}", "")
    yield from _table(
        ("Finding", "Severity", "Run", "Persona", "Signature", reason),
        (
            (found.title, found.severity, found.run_id, found.persona, found.signature, found.reason)
            for found in findings[:MAX_LISTED_RUNS]
        ),
    )


def _facts(aggregate: Aggregate) -> Iterator[str]:
    usage = aggregate.usage
    cost = "unknown" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    tokens = "unknown" if usage.tokens is None else str(usage.tokens)
    yield from ("", "## Coverage", "")
    yield from _table(
        ("Measure", "Runs", "Least", "Most"),
        ((measure, *found.values()) for measure, found in aggregate.coverage.items()),
    )
    yield from ("", "## Usage and cost", "")
    yield f"{usage.attempts} attempts, {cost}, {tokens} tokens, {usage.wall_seconds:.1f} s of runs."
    yield from ("", "## What was tested", "")
    tested = aggregate.tested
    yield from (f"- {text(name)}: {text(value)}" for name, value in tested.shared.items())
    for name, values in tested.varying.items():
        yield f"- {text(name)}: {text('; '.join(f'{value} (runs: {runs})' for value, runs in values.items()))}"
    if tested.own:
        yield f"- Different from run to run, told in each run's own report: {text(', '.join(tested.own))}"
    yield from ("", "## Limits of this report", "")
    yield from (f"- {text(limit)}" for limit in aggregate.limits)
