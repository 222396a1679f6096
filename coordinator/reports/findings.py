"""Findings of many runs merged into the defects of one game, ranked. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import msgspec

from coordinator.errors import InvalidInputError
from coordinator.reports.records import (
    SEVERITIES,
    EvidenceLink,
    Finding,
    MergedFinding,
    Occurrence,
    PlannedRun,
    SetAside,
)

Locate = Callable[[PlannedRun, Finding], list[EvidenceLink]]
_STAMP = re.compile(r"(\d{1,6})/(\d{1,6})")


class FailRule(msgspec.Struct, frozen=True, kw_only=True):
    """`--fail-on` read: `level` is None for never; `only_new` when findings of a baseline do not count."""

    level: str | None
    only_new: bool

    def reached_by(self, severity: str, new: bool | None) -> bool:
        if self.level is None or (self.only_new and new is False):
            return False
        return severity_rank(severity) <= severity_rank(self.level)


def read_fail_rule(text: str) -> FailRule:
    """`critical`, `major`, `minor`, `new:LEVEL` or `never`. Raises `InvalidInputError` for anything else."""
    only_new = text.startswith("new:")
    level = text[4:] if only_new else text
    if level == "never" and not only_new:
        return FailRule(level=None, only_new=False)
    if level not in ("critical", "major", "minor"):
        raise InvalidInputError(
            f"fail_on {text!r} is not known; critical, major, minor, new:LEVEL (one of those three) or never is needed"
        )
    return FailRule(level=level, only_new=only_new)


def severity_rank(severity: str) -> int:
    """0 for the worst; an unknown word ranks last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def stamp_rank(stamp: str | None) -> tuple[float, int]:
    """How much a replay stamp is worth, larger is better: share reproduced, then whether the seed was controlled.

    A stamp without a count (`not replayable: why`) is worth less than a count of zero, no stamp less still.
    """
    if stamp is None:
        return (-2.0, 0)
    counted = _STAMP.match(stamp)
    if counted is None:
        return (-1.0, 0)
    done, of = int(counted[1]), int(counted[2])
    return (done / of if of else 0.0, 0 if "not controlled" in stamp else 1)


def merge_findings(
    runs: Sequence[PlannedRun], *, rule: FailRule, baseline: Collection[str] | None, locate: Locate
) -> list[MergedFinding]:
    """One row for each signature, the worst first.

    Ranked by severity, then personas hit, then stamp, then runs hit, then signature. `baseline` holds the signatures of
    an earlier campaign; None when there is none. `locate` resolves a finding's evidence to files.
    """
    groups: dict[str, list[tuple[PlannedRun, Finding]]] = {}
    for run in runs:
        for finding in run.report.findings if run.report is not None else ():
            if finding.dropped is None and finding.suppressed_by is None:
                groups.setdefault(finding.signature, []).append((run, finding))
    in_control = {
        finding.signature
        for run in runs
        if run.report is not None and run.report.control is not None
        for finding in run.report.control.findings
        if finding.dropped is None
    }
    merged = [
        _merge(signature, members, rule, baseline, signature in in_control, locate)
        for signature, members in groups.items()
    ]
    merged.sort(key=_ranking)
    return [msgspec.structs.replace(finding, number=number) for number, finding in enumerate(merged, start=1)]


def set_aside(runs: Sequence[PlannedRun]) -> tuple[list[SetAside], list[SetAside]]:
    """The findings that do not count: known ones by name, dropped ones with their reasons, in the plan's order."""
    known: list[SetAside] = []
    dropped: list[SetAside] = []
    for run in runs:
        for finding in run.report.findings if run.report is not None else ():
            if finding.dropped is not None:
                dropped.append(_aside(run, finding, finding.dropped))
            elif finding.suppressed_by is not None:
                known.append(_aside(run, finding, finding.suppressed_by))
    return known, dropped


def _ranking(finding: MergedFinding) -> tuple[int, int, float, int, int, str]:
    share, controlled = stamp_rank(finding.replay)
    return (
        severity_rank(finding.severity),
        -len(finding.personas),
        -share,
        -controlled,
        -len({occurrence.run_id for occurrence in finding.occurrences}),
        finding.signature,
    )


def _merge(
    signature: str,
    members: list[tuple[PlannedRun, Finding]],
    rule: FailRule,
    baseline: Collection[str] | None,
    in_control: bool,
    locate: Locate,
) -> MergedFinding:
    # The words come from the worst occurrence with the strongest stamp; the input list from the shortest.
    _, best = min(members, key=lambda member: (severity_rank(member[1].severity), *_negated(member[1].replay)))
    listed = [finding for _, finding in members if finding.actions]
    # An input list that was replayed is worth more than a shorter one that was not.
    shortest = min(listed, key=lambda f: (*_negated(f.replay), len(f.actions)), default=None)
    new = None if baseline is None else signature not in baseline
    return MergedFinding(
        number=0,
        signature=signature,
        weak=all(finding.weak for _, finding in members),
        title=" ".join(best.title.split()),
        category=best.category,
        severity=best.severity,
        description=best.description,
        origins=sorted({finding.origin for _, finding in members}),
        oracle=best.oracle,
        personas=list(dict.fromkeys(run.persona for run, _ in members)),
        controllers=list(dict.fromkeys(run.controller for run, _ in members)),
        replay=max((finding.replay for _, finding in members), key=stamp_rank),
        repro_steps=(shortest or best).repro_steps,
        actions=shortest.actions if shortest is not None else [],
        in_control=in_control,
        fails=rule.reached_by(best.severity, new),
        new=new,
        occurrences=[
            Occurrence(
                run_id=run.run_id,
                scenario_id=run.scenario_id,
                persona=run.persona,
                controller=run.controller,
                repetition=run.repetition,
                seed=run.seed,
                finding_id=finding.id,
                step=step_of(finding),
                replay=finding.replay,
                severity=finding.severity,
                evidence=locate(run, finding),
            )
            for run, finding in members
        ],
    )


def step_of(finding: Finding) -> int | None:
    """The step a finding points at: its own, else its first piece of evidence that names one."""
    if finding.step is not None:
        return finding.step
    return next((item.step for item in finding.evidence if item.step is not None), None)


def _negated(stamp: str | None) -> tuple[float, int]:
    share, controlled = stamp_rank(stamp)
    return (-share, -controlled)


def _aside(run: PlannedRun, finding: Finding, reason: str) -> SetAside:
    return SetAside(
        run_id=run.run_id,
        persona=run.persona,
        controller=run.controller,
        finding_id=finding.id,
        title=" ".join(finding.title.split()),
        severity=finding.severity,
        signature=finding.signature,
        reason=reason,
    )
