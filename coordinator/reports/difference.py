"""Two campaigns compared by the signatures of their findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coordinator.reports.escaping import markdown_cell as cell
from coordinator.reports.records import Aggregate, MergedFinding, RunRow


class DifferenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finding and where it stands. `why` is empty unless it is not comparable."""

    signature: str
    title: str
    severity: str
    weak: bool
    why: str = ""


class CampaignDifference(msgspec.Struct, frozen=True, kw_only=True):
    """`new`: here only. `fixed`: there only. `still`: in both. `not_comparable`: in one, and the other could not tell.

    `remarks` names differences between the campaigns that a reader should know.
    """

    this_campaign: str
    other_campaign: str
    new: list[DifferenceRow]
    fixed: list[DifferenceRow]
    still: list[DifferenceRow]
    not_comparable: list[DifferenceRow]
    remarks: list[str]


def against(this: Aggregate, other: Aggregate) -> CampaignDifference:
    """What changed from campaign `other` (before) to `this` (after).

    A finding that only one of them has is new or fixed only if the other one could have met it: judged by the same
    grader, with at least one whole run of a persona and controller that met it, as long as it took to meet it. A known
    (suppressed) finding of the other campaign was met by it.
    """
    mine, theirs = _by_signature(this), _by_signature(other)
    met_here = mine.keys() | {found.signature for found in this.suppressed}
    met_there = theirs.keys() | {found.signature for found in other.suppressed}
    new: list[DifferenceRow] = []
    fixed: list[DifferenceRow] = []
    still: list[DifferenceRow] = []
    not_comparable: list[DifferenceRow] = []
    for signature, finding in mine.items():
        if signature in met_there:
            still.append(_row(finding))
        elif why := _why_not(finding, this, other, "the other campaign"):
            not_comparable.append(_row(finding, f"only here, and {why}"))
        else:
            new.append(_row(finding))
    for signature, finding in theirs.items():
        if signature in met_here:
            continue
        if why := _why_not(finding, other, this, "this campaign"):
            not_comparable.append(_row(finding, f"only there, and {why}"))
        else:
            fixed.append(_row(finding))
    return CampaignDifference(
        this_campaign=this.campaign_id,
        other_campaign=other.campaign_id,
        new=new,
        fixed=fixed,
        still=still,
        not_comparable=not_comparable,
        remarks=list(_remarks(this, other)),
    )


def render_difference(difference: CampaignDifference) -> str:
    """The difference as Markdown."""
    lines = [f"# {cell(difference.this_campaign)} against {cell(difference.other_campaign)}", ""]
    groups = (
        ("New", difference.new),
        ("Fixed", difference.fixed),
        ("Still there", difference.still),
        ("Not comparable", difference.not_comparable),
    )
    lines.append(", ".join(f"{len(rows)} {title.lower()}" for title, rows in groups) + ".")
    for title, rows in groups:
        if rows:
            lines += ["", f"## {title}", "", "| Severity | Finding | Signature | Why |", "| --- | --- | --- | --- |"]
            lines += [f"| {cell(r.severity)} | {cell(r.title)} | {cell(r.signature)} | {cell(r.why)} |" for r in rows]
    lines += ["", *(f"- {cell(remark, 400)}" for remark in difference.remarks)] if difference.remarks else []
    return "\n".join(lines) + "\n"


def _by_signature(aggregate: Aggregate) -> dict[str, MergedFinding]:
    return {finding.signature: finding for finding in aggregate.findings}


def _row(finding: MergedFinding, why: str = "") -> DifferenceRow:
    return DifferenceRow(
        signature=finding.signature, title=finding.title, severity=finding.severity, weak=finding.weak, why=why
    )


def _graders(rows: list[RunRow]) -> set[str]:
    return {row.grader_digest for row in rows if row.played}


def _why_not(finding: MergedFinding, owner: Aggregate, judge: Aggregate, name: str) -> str:
    """Why the campaign `judge` says nothing about a finding of `owner` that it does not have, or ""."""
    if not judge.played:
        return f"nothing was played in {name}"
    if _graders(owner.runs) != _graders(judge.runs):
        return f"{name} judged by another grader (oracles, severity rules or report schema differ)"
    hit = {(met.persona, met.controller) for met in finding.occurrences}
    able = [row for row in judge.runs if row.played and (row.persona, row.controller) in hit]
    if not able:
        listed = ", ".join(f"{persona} x {controller}" for persona, controller in sorted(hit))
        return f"nobody of {listed} played in {name}"
    whole = [row for row in able if not row.partial]
    if not whole:
        return f"every run in {name} that could have met it is partial"
    needed = min((met.step for met in finding.occurrences if met.step is not None), default=0)
    if all(row.max_actions is not None and row.max_actions < needed for row in whole):
        return f"it took {needed} steps, and runs in {name} were allowed fewer actions"
    return ""


def _remarks(this: Aggregate, other: Aggregate) -> Iterator[str]:
    if this.build == other.build:
        yield "Both campaigns played the same build."
    for what in ("brain", "driver", "target"):
        mine = sorted({getattr(row, what) for row in this.runs})
        theirs = sorted({getattr(row, what) for row in other.runs})
        if mine != theirs:
            yield f"The {what} differs: {', '.join(mine) or 'none'} here, {', '.join(theirs) or 'none'} there."
    if this.not_played or other.not_played:
        yield f"Not played: {this.not_played} of {this.asked} here, {other.not_played} of {other.asked} there."
