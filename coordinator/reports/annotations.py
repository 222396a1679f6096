"""Findings as lines that a GitHub workflow shows beside the build. Pure."""

from __future__ import annotations

from coordinator.reports.escaping import annotation_message, annotation_property, one_line
from coordinator.reports.records import Aggregate

MAX_ANNOTATIONS = 50
LEVELS = {"critical": "error", "major": "error", "minor": "warning", "note": "notice"}


def render_github(aggregate: Aggregate) -> str:
    """One workflow command a line: the findings, worst first, then what was not played, then the verdict.

    Everything is percent-encoded, so that no text of a game can begin a command of its own.
    """
    lines: list[str] = []
    for finding in aggregate.findings[:MAX_ANNOTATIONS]:
        title = annotation_property(one_line(f"{finding.severity}: {finding.title}", 200))
        told = [
            one_line(finding.description, 1_000),
            f"Replay: {finding.replay or 'not tried'}. Personas: {', '.join(finding.personas)}.",
            *(one_line(f"{at}. {step}") for at, step in enumerate(finding.repro_steps[:20], start=1)),
        ]
        lines.append(f"::{LEVELS[finding.severity]} title={title}::{annotation_message(chr(10).join(told))}")
    if len(aggregate.findings) > MAX_ANNOTATIONS:
        more = len(aggregate.findings) - MAX_ANNOTATIONS
        lines.append(f"::notice title=More findings::{more} more findings stand in the report")
    if aggregate.not_played:
        reasons: dict[str, int] = {}
        for cell in aggregate.matrix:
            for why, runs in cell.why_not.items():
                reasons[why] = reasons.get(why, 0) + runs
        listed = "\n".join(f"{runs} x {one_line(why)}" for why, runs in list(reasons.items())[:20])
        title = annotation_property(f"{aggregate.not_played} of {aggregate.asked} playthroughs were not played")
        lines.append(f"::warning title={title}::{annotation_message(listed)}")
    verdict = f"{aggregate.verdict.headline}. {aggregate.verdict.detail}"
    level = "error" if aggregate.verdict.fails else "notice"
    lines.append(f"::{level} title=Playtest::{annotation_message(verdict)}")
    return "\n".join(lines) + "\n"
