"""What a campaign's report is made of, as Structs: the fields of `aggregate.json`, spelt in snake_case.

Reading is tolerant where older or newer programs wrote: unknown keys are passed over, and a run's report needs none of
its fields to be readable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from workers.contract import ControlRun, Evidence, Finding

AGGREGATE_SCHEMA_VERSION = "1.0"
SEVERITIES = ("critical", "major", "minor", "note")
"""Worst first."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a report."""


# -- what is read ---------------------------------------------------------------------------------------------------


class RunRecord(_Record, frozen=True, kw_only=True):
    """A run's `report.json` as the campaign reads it: `workers.contract.RunReport` with every field optional.

    `actions_taken` is None where the report does not say. Findings that do not decode are kept as dropped ones.
    """

    run_id: str = ""
    brain: str = ""
    model: str | None = None
    driver: str = ""
    seed: int | None = None
    end_reason: str = ""
    outcome: str = ""
    partial: bool = False
    started_at: str = ""
    finished_at: str = ""
    actions_taken: int | None = None
    steps: int = 0
    summary: str = ""
    what_worked: list[str] = msgspec.field(default_factory=list)
    in_the_way: list[str] = msgspec.field(default_factory=list)
    keep_playing: str = ""
    findings: list[Finding] = msgspec.field(default_factory=list)
    coverage: dict[str, int] = msgspec.field(default_factory=dict)
    tested: dict[str, Any] = msgspec.field(default_factory=dict)
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    persona_limits: dict[str, Any] = msgspec.field(default_factory=dict)
    controller_facts: dict[str, Any] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    recording: dict[str, Any] = msgspec.field(default_factory=dict)
    control: ControlRun | None = None
    timeline: list[dict[str, Any]] = msgspec.field(default_factory=list)


class PlannedRun(_Record, frozen=True, kw_only=True):
    """One cell of the requested matrix, and what became of it.

    `run_id` is the reservation's id, or the scenario's where nothing was ever reserved. `report` is None when there is
    none or it cannot be read (`report_fault` says which). `directory` is the run's folder, absolute, or "".
    `transcript_lines` gives the line, from 1, of each step that a finding names.
    `ledger_state` is what the ledger knows of the run's state without its report, None for nothing.
    """

    run_id: str
    scenario_id: str
    persona: str
    controller: str
    repetition: int = 1
    target: str = ""
    brain: str = ""
    driver: str = ""
    seed: int | None = None
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    ordinal: int = 0
    attempts: int = 0
    outcome: str = ""
    observed_failure: str = ""
    ledger_state: str | None = None
    report: RunRecord | None = None
    report_fault: str = ""
    unreadable: bool = False
    directory: str = ""
    files: list[str] = msgspec.field(default_factory=list)
    transcript_lines: dict[int, int] = msgspec.field(default_factory=dict)
    usage: list[dict[str, Any]] = msgspec.field(default_factory=list)
    grader_digest: str = ""
    definition_digest: str = ""
    qualifying: bool = True


class OtherScenario(_Record, frozen=True, kw_only=True):
    """A scenario of the manifest that is no playthrough (a simulation batch, somebody else's row)."""

    scenario_id: str
    kind: str
    outcome: str
    attempts: int


class Campaign(_Record, frozen=True, kw_only=True):
    """Everything that a report is built from, read once."""

    campaign_id: str
    batch_id: str
    build: str
    runs: list[PlannedRun]
    others: list[OtherScenario] = msgspec.field(default_factory=list)
    stop: str = ""
    failures: list[str] = msgspec.field(default_factory=list)


# -- what is written ------------------------------------------------------------------------------------------------


class EvidenceLink(_Record, frozen=True, kw_only=True):
    """Where a piece of evidence is. `path` is relative to the report's folder, "" where no file is meant.

    `present` is False when the file was not there as the report was built. `line` is the transcript's line, from 1.
    """

    kind: str
    ref: str
    step: int | None = None
    path: str = ""
    present: bool = False
    line: int | None = None
    second: float | None = None


class Occurrence(_Record, frozen=True, kw_only=True):
    """One run in which a finding was met."""

    run_id: str
    scenario_id: str
    persona: str
    controller: str
    repetition: int
    seed: int | None
    finding_id: str
    step: int | None
    replay: str | None
    severity: str
    evidence: list[EvidenceLink]


class MergedFinding(_Record, frozen=True, kw_only=True):
    """One defect of the game: every occurrence with the same signature.

    `replay` is the strongest stamp. `actions` is the shortest known input list. `new` is None without a baseline.
    """

    number: int
    signature: str
    weak: bool
    title: str
    category: str
    severity: str
    description: str
    origins: list[str]
    oracle: str | None
    personas: list[str]
    controllers: list[str]
    replay: str | None
    repro_steps: list[str]
    actions: list[dict[str, Any]]
    in_control: bool
    fails: bool
    new: bool | None
    occurrences: list[Occurrence]


class SetAside(_Record, frozen=True, kw_only=True):
    """A finding that does not count: known (`reason` is the name it is known by) or dropped (`reason` says why)."""

    run_id: str
    persona: str
    controller: str
    finding_id: str
    title: str
    severity: str
    signature: str
    reason: str


class MatrixCell(_Record, frozen=True, kw_only=True):
    """`why_not` folds equal reasons: reason -> runs. `worst` is the worst severity met, "" for none."""

    persona: str
    controller: str
    asked: int
    played: int
    not_played: int
    partial: int
    findings: int
    worst: str
    why_not: dict[str, int]


class RunRow(_Record, frozen=True, kw_only=True):
    """One run, as the report lists it. Paths are relative to the report's folder, "" where the file is missing."""

    run_id: str
    scenario_id: str
    persona: str
    controller: str
    repetition: int
    target: str
    brain: str
    driver: str
    seed: int | None
    state: str
    outcome: str
    end_reason: str
    played: bool
    why_not_played: str
    partial: bool
    report_available: bool
    actions_taken: int | None
    max_actions: int | None
    wall_seconds: float | None
    findings: list[int]
    worst: str
    summary: str
    what_worked: list[str]
    in_the_way: list[str]
    keep_playing: str
    coverage: dict[str, int]
    attempts: int
    ordinal: int
    qualifying: bool
    grader_digest: str
    recording: str
    counts: dict[str, int]
    controller_facts: dict[str, Any]
    report_path: str
    transcript_path: str
    video_path: str


class Tested(_Record, frozen=True, kw_only=True):
    """What was tested, over the `runs` that tell it.

    `shared`: facts that are the same in all of them. `varying`: fact -> value -> runs, for facts with a few values.
    `own`: names of facts that are different nearly everywhere; their values stand in the runs' own reports.
    """

    runs: int
    shared: dict[str, str]
    varying: dict[str, dict[str, int]]
    own: list[str]


class UsageTotals(_Record, frozen=True, kw_only=True):
    """Over all attempts, earlier ones included. `cost_usd` and `tokens` are None when any part is unknown."""

    attempts: int
    cost_usd: float | None
    tokens: int | None
    unknown: int
    wall_seconds: float
    game_seconds: float


class Verdict(_Record, frozen=True, kw_only=True):
    """`level`: `nothing_played`, a severity, or `clean`. `fails` is whether a finding reaches `fail_on`."""

    level: str
    headline: str
    detail: str
    fails: bool


class Aggregate(_Record, frozen=True, kw_only=True):
    """`aggregate.json`. The requested matrix is the denominator: `asked` = `played` + `not_played`, everywhere."""

    schema_version: str
    campaign_id: str
    batch_id: str
    build: str
    made_at: str
    fail_on: str
    verdict: Verdict
    asked: int
    played: int
    not_played: int
    partial: int
    severities: dict[str, int]
    states: dict[str, int]
    end_reasons: dict[str, int]
    personas: list[str]
    controllers: list[str]
    matrix: list[MatrixCell]
    findings: list[MergedFinding]
    suppressed: list[SetAside]
    dropped: list[SetAside]
    coverage: dict[str, dict[str, int]]
    usage: UsageTotals
    tested: Tested
    limits: list[str]
    controller_comparison: dict[str, Any] | None
    runs: list[RunRow]
    others: list[OtherScenario]
    stop: str
    failures: list[str]


__all__ = [
    "AGGREGATE_SCHEMA_VERSION",
    "SEVERITIES",
    "Aggregate",
    "Campaign",
    "ControlRun",
    "Evidence",
    "EvidenceLink",
    "Finding",
    "MatrixCell",
    "MergedFinding",
    "Occurrence",
    "OtherScenario",
    "PlannedRun",
    "RunRecord",
    "RunRow",
    "SetAside",
    "Tested",
    "UsageTotals",
    "Verdict",
]
