"""A run's report: `report.json` for programs, `report.md` for people. Everything in it was measured, none of it felt.

Game text is hostile: in Markdown it is escaped, so that it stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workers.contract import ControlRun, Finding, PlayOrder, RunReport
from workers.findings import SEVERITIES
from workers.personas import Persona
from workers.session import Ended

MAX_LINE_CHARACTERS = 400
MAX_MARKDOWN_FINDINGS = 50
MAX_MARKDOWN_STEPS = 40

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~>-])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]+")

_ENDINGS = {
    "goal_reached": "reached the goal",
    "gave_up": "gave up",
    "stuck": "got stuck",
    "max_actions": "used all its actions",
    "game_exited": "saw the game end",
    "game_crashed": "saw the game crash",
    "page_unresponsive": "was left without an answer",
    "wall_clock": "ran out of time",
    "needs_human": "stopped where a person's credentials are asked for",
    "harness_fault": "was ended by a fault of the harness",
    "never_started": "could not start the game",
    "budget": "had used up its budget",
    "model_fault": "was ended by a fault of its model",
    "model_refused": "was ended because its model refused",
    "interrupted": "was interrupted",
    "canceled": "was canceled",
}


def plain(text: str, limit: int = MAX_LINE_CHARACTERS) -> str:
    """A text as one bounded line of Markdown that means nothing but itself."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", line)


def summary(persona: Persona, order: PlayOrder, ended: Ended, findings: Sequence[Finding]) -> str:
    """One or two sentences: who played, how it ended, what was found."""
    counting = [finding for finding in findings if finding.dropped is None and finding.suppressed_by is None]
    counts = [
        f"{number} {severity}"
        for severity in SEVERITIES
        if (number := sum(finding.severity == severity for finding in counting))
    ]
    ending = _ENDINGS.get(ended.end_reason, ended.end_reason)
    why = f" ({' '.join(ended.detail.split())[:300]})" if ended.detail else ""
    return (
        f"{persona.title} with {order.brain}/{order.controller} {ending} after {ended.actions_taken} actions{why}. "
        + (f"Findings: {', '.join(counts)}." if counts else "No findings.")
    )


def what_worked(ended: Ended) -> list[str]:
    """What the run shows to be in order."""
    lines = []
    if ended.goal_reached:
        lines.append("The goal was reached.")
    if ended.best_progress is not None and ended.best_progress > 0:
        lines.append(f"Progress rose to {ended.best_progress:g}.")
    if ended.coverage.get("situations"):
        lines.append(
            f"{ended.coverage['situations']} different situations were seen, with {ended.coverage['distinct_actions']}"
            " different actions."
        )
    if ended.outcomes:
        lines.append("Endings seen: " + ", ".join(ended.outcomes[:10]) + ".")
    if ended.restarts:
        lines.append(f"The game could be started again ({ended.restarts} times).")
    return lines


def in_the_way(ended: Ended, findings: Sequence[Finding]) -> list[str]:
    """What kept this player from going on, findings first."""
    lines = [f"{finding.severity}: {finding.title}" for finding in findings if finding.dropped is None][:50]
    nothing = sum(row["effect"] == "nothing" for row in ended.timeline)
    if ended.steps and nothing * 3 > ended.steps:
        lines.append(f"{nothing} of {ended.steps} actions had no effect at all.")
    if ended.counts.get("inputs_illegal"):
        lines.append(f"{ended.counts['inputs_illegal']} inputs were refused.")
    if ended.end_reason in ("gave_up", "stuck", "needs_human", "wall_clock", "never_started", "harness_fault"):
        lines.append(f"The run ended early: {ended.detail or ended.end_reason}.")
    return lines


def keep_playing(ended: Ended, findings: Sequence[Finding]) -> str:
    """A judgement by rule, and said to be one."""
    bad = any(f.severity in ("critical", "major") and f.dropped is None for f in findings)
    if ended.end_reason in ("never_started", "harness_fault"):
        answer = "Not known: the game was not really played."
    elif ended.end_reason in ("gave_up", "stuck"):
        answer = "No: nothing new happened for longer than this player's patience lasts."
    elif bad:
        answer = "Not before the findings above are mended."
    elif ended.goal_reached:
        answer = "Yes: the goal could be reached and nothing serious stood in the way."
    else:
        answer = "Yes: something new still happened within this player's patience."
    return answer + " (Judged by rule from what was measured; no person and no model was asked.)"


def cost_of_findings(
    cost_usd: float | None, findings: Sequence[Finding], control: ControlRun | None
) -> dict[str, float | int | None]:
    """How many findings are new (they stand, and the control run did not meet them), and what each of them cost.

    None where no cost is known or there is no new finding.
    """
    met = {finding.signature for finding in control.findings} if control is not None else set()
    new = [
        finding
        for finding in findings
        if finding.dropped is None and finding.suppressed_by is None and finding.signature not in met
    ]
    each = None if cost_usd is None or not new else cost_usd / len(new)
    return {"new_findings": len(new), "cost_per_new_finding_usd": each}


def _cost(report: RunReport) -> list[str]:
    """The line on money, for runs that cost any."""
    usage = report.usage
    if not usage.get("calls"):
        return []
    cost, each = usage.get("cost_usd"), usage.get("cost_per_new_finding_usd")
    told = "cost not known" if cost is None else f"cost ${cost:.6f}"
    line = f"- {told}, {usage.get('tokens', 0)} tokens in {usage['calls']} calls ({usage.get('coverage')})"
    new = usage.get("new_findings", 0)
    line += f"; {new} findings that the control run did not meet"
    return [line + (f", ${each:.6f} each" if each is not None else "")]


def markdown(report: RunReport) -> str:
    """The text of `report.md`, with exactly four headings."""
    lines = ["# Summary", "", plain(report.summary, 1_200), ""]
    if report.partial:
        lines += ["This run is **partial**: it ended before it was complete.", ""]
    lines += [
        f"- run `{_code(report.run_id)}`, scenario `{_code(report.scenario_id)}`",
        f"- persona {plain(report.persona)}, controller {plain(report.controller)}, brain {plain(report.brain)},"
        f" seed {report.seed if report.seed is not None else 'none'}",
        f"- end: {plain(report.end_reason)}, outcome {plain(report.outcome)}, {report.actions_taken} actions",
        *_cost(report),
    ]
    if report.control is not None:
        control = report.control
        lines.append(
            f"- beside it `random` with the same seed: {control.actions_taken} actions, end"
            f" {plain(control.end_reason)},"
            f" {len(control.findings)} findings, {control.coverage.get('situations', 0)} situations"
            f" (this run: {report.coverage.get('situations', 0)})"
        )
    lines += ["", "# What worked", ""]
    lines += [f"- {plain(line)}" for line in report.what_worked] or ["Nothing that could be measured."]
    lines += ["", "# What got in the way", ""]
    lines += [f"- {plain(line)}" for line in report.in_the_way] or ["Nothing that could be measured."]
    for finding in report.findings[:MAX_MARKDOWN_FINDINGS]:
        lines += ["", *_finding(finding)]
    if len(report.findings) > MAX_MARKDOWN_FINDINGS:
        lines += ["", f"{len(report.findings) - MAX_MARKDOWN_FINDINGS} more findings stand in report.json."]
    lines += ["", "# Would I keep playing", "", plain(report.keep_playing), ""]
    return "\n".join(lines)


def _finding(finding: Finding) -> list[str]:
    evidence = ", ".join(f"{item.ref} ({item.kind})" for item in finding.evidence)
    lines = [
        f"**{plain(finding.id)}, {finding.severity}: {plain(finding.title)}**",
        "",
        plain(finding.description, 1_000),
        "",
        f"- signature `{_code(finding.signature)}`, replay {plain(finding.replay or 'not replayed')}",
        f"- evidence: {plain(evidence) or 'none'}",
    ]
    if finding.dropped:
        lines.append(f"- dropped: {plain(finding.dropped)}")
    if finding.suppressed_by:
        lines.append(f"- known and intended: {plain(finding.suppressed_by)}")
    steps = finding.repro_steps
    shown = steps[:MAX_MARKDOWN_STEPS]
    lines.append(f"- inputs ({len(steps)}): " + ("; ".join(plain(step, 120) for step in shown) or "none"))
    if len(steps) > len(shown):
        lines[-1] += f"; and {len(steps) - len(shown)} more"
    return lines


def _code(text: str) -> str:
    return _CONTROL.sub(" ", text).replace("`", "'")[:200]
