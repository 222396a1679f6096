"""What a worker is asked and what it answers: plain data between processes.

The coordinator writes a `Job`, the worker mirrors `Progress` and delivers once; the run's folder holds a `RunReport`.
Control files are in camelCase, report files in snake_case.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Literal

import msgspec

from workers.models.access import ModelAccess

JOB_VERSION = DELIVERY_VERSION = 1
REPORT_SCHEMA_VERSION = "1.0"
MAX_DELIVERY_BYTES = 1 << 20
SPEND_NAME, SCRIPTED_PREFIX = "spend.jsonl", "scripted:"
ENVIRONMENT_ALLOWED = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "DISPLAY", "XAUTHORITY", "LD_LIBRARY_PATH", "LIBGL_ALWAYS_SOFTWARE", "GODOT",
     "PLAYWRIGHT_BROWSERS_PATH"}
)  # fmt: skip
"""What a worker and its games may see of the coordinator's environment, beside every `LC_*`: no account token."""

JobKind = Literal["play", "probe", "inspect", "simulate", "replay"]
EndReason = Literal[
    "goal_reached", "gave_up", "stuck", "max_actions", "game_exited", "game_crashed", "page_unresponsive",
    "wall_clock", "needs_human", "budget", "model_fault", "model_refused", "harness_fault", "never_started",
    "interrupted", "canceled",
]  # fmt: skip
Severity = Literal["critical", "major", "minor", "note"]


class _Control(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A control file's part: camelCase on disk."""


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report file's part: snake_case on disk."""


# -- the attempt's end, as it goes into the manifest ---------------------------------------------------------------


class Usage(_Control, frozen=True, kw_only=True):
    """`cost_usd` is a decimal number or None where unknown; `coverage` says how complete the count is."""

    cost_usd: float | None = 0
    tokens: int | None = 0
    coverage: str = "complete"


class Completion(_Control, frozen=True, kw_only=True):
    """The ten fields of an attempt that its end replaces. Paths are relative to the evidence root."""

    outcome: str
    finished_at: str
    definition_digest: str
    grader_digest: str
    evidence_paths: list[str] = msgspec.field(default_factory=list)
    cleanup: str = "passed"
    usage: Any = None
    classification: Any = None
    observed_failure: Any = None
    core_pr_dependencies: Any = msgspec.field(default_factory=list)


# -- what a worker is asked ----------------------------------------------------------------------------------------


class Limits(_Control, frozen=True, kw_only=True):
    """What the supervisor enforces, whatever the player does."""

    wall_seconds: float = 600.0
    silence_seconds: float = 120.0
    output_bytes: int = 64 << 20
    grace_seconds: float = 10.0


class Brief(_Control, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a player is told of the game. `goal_when` compares one path of the state: `state.level >= 3`."""

    goals: list[str] = msgspec.field(default_factory=list)
    success: str = ""
    controls: str = ""
    start: str = ""
    goal_when: str | None = None


class PlayOrder(_Control, frozen=True, kw_only=True):
    """One playthrough. `persona` is a decoded persona file; `driver_settings` go to the driver as they are.

    `known_findings` are signatures that a person marked as intended: signature -> name. `vocabulary` are words for a
    parser game. `budget_microdollars` is what the run may spend, in millionths of a dollar; None: no bound.
    """

    persona: dict[str, Any]
    controller: str
    brain: str
    driver: str
    driver_settings: dict[str, Any]
    brief: Brief
    max_actions: int
    wall_seconds: float
    seed: int | None
    model: str | None = None
    repetition: int = 1
    control_run: bool = True
    realtime: bool = False
    vocabulary: list[str] = msgspec.field(default_factory=list)
    known_findings: dict[str, str] = msgspec.field(default_factory=dict)
    fail_on: str = "never"
    record_video: bool = False
    budget_microdollars: int | None = None
    model_access: ModelAccess | None = None
    build: dict[str, Any] = msgspec.field(default_factory=dict)


class ProbeOrder(_Control, frozen=True, kw_only=True):
    """Start, reset, one step, close (`probe`), or the whole conformance suite (`inspect`)."""

    driver: str
    driver_settings: dict[str, Any]
    seed: int | None = 1


class Job(_Control, frozen=True, kw_only=True):
    """`control/jobs/ID.json`. `key` (hex) signs the delivery and stands nowhere else. Paths are absolute.

    `run_directory` is `control/runs/ID`; `evidence_root` is what a completion's evidence paths are relative to.
    """

    version: int
    kind: JobKind
    batch_id: str
    reservation_id: str
    scenario_id: str
    execution_id: str
    ordinal: int
    definition_digest: str
    grader_digest: str
    key: str
    run_directory: str
    inbox_directory: str
    evidence_root: str
    limits: Limits
    play: PlayOrder | None = None
    probe: ProbeOrder | None = None
    simulate: dict[str, Any] | None = None
    secrets: list[str] = msgspec.field(default_factory=list)
    """Names of environment variables whose values are looked for in every artefact; never the values."""


class Begun(_Control, frozen=True, kw_only=True):
    """`runs/ID/begun`, made before anything that costs; `process_start` is field 22 of the supervisor's /proc stat."""

    pid: int
    boot_id: str
    process_start: str
    host: str
    at: str


# -- what it shows while it runs -----------------------------------------------------------------------------------


class Progress(_Control, frozen=True, kw_only=True):
    """`runs/ID/progress.json`, replaced atomically by the player after each step (the supervisor watches it)."""

    state: Literal["launching", "playing", "reporting"]
    actions_taken: int
    step: int
    of: int
    note: str = ""
    findings: int = 0
    at: str = ""


class PlayResult(_Control, frozen=True, kw_only=True):
    """`runs/ID/result.json`: the player's own account of its end, read by the supervisor, who decides the completion.

    `artefacts` are paths relative to the run directory. `observed_failure` is one line or None.
    """

    end_reason: EndReason
    outcome: str
    partial: bool
    actions_taken: int
    artefacts: list[str]
    usage: Usage
    observed_failure: str | None = None
    leftovers: list[str] = msgspec.field(default_factory=list)


# -- what it answers -----------------------------------------------------------------------------------------------


class Artefact(_Control, frozen=True, kw_only=True):
    """A file that the worker vouches for. `path` is relative to the evidence root."""

    path: str
    bytes: int
    sha256: str


class DeliveredStop(_Control, frozen=True, kw_only=True):
    reason: str
    detail: str


class Delivery(_Control, frozen=True, kw_only=True):
    """The signed body of `inbox/ID.RANDOM.json`, which is `{"body": ..., "hmac": hex}`."""

    version: int
    batch_id: str
    reservation_id: str
    scenario_id: str
    execution_id: str
    ordinal: int
    job_sha256: str
    completion: Completion
    end_reason: EndReason
    artefacts: list[Artefact]
    stop: DeliveredStop | None = None


_ANSWERED = (
    "batch_id", "reservation_id", "scenario_id", "execution_id", "ordinal", "definition_digest", "grader_digest",
)  # fmt: skip


class DeliveryRefusedError(Exception):
    """A file of the inbox is not a delivery of the job it names; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"delivery refused: {reason}")


def sign_delivery(delivery: Delivery, key_hex: str) -> bytes:
    """The bytes of a delivery file, the only spelling that verifies.

    Sorted keys, two-space indent, one newline at the end; `hmac` is HMAC-SHA-256 under the job's key over the name of
    the format and the body's compact spelling. Raises `DeliveryRefusedError` above `MAX_DELIVERY_BYTES`.
    """
    if len(raw := _spell_delivery(msgspec.to_builtins(delivery), key_hex)) > MAX_DELIVERY_BYTES:
        raise DeliveryRefusedError(f"it has {len(raw)} bytes, more than {MAX_DELIVERY_BYTES}")
    return raw


def verify_delivery(raw: bytes, key_hex: str, *, job: Job, job_sha256: str) -> Delivery:
    """The delivery in `raw`, if it was signed under the key and answers exactly this job.

    Since the bytes must be the one spelling of their content, every edit is noticed, white space, duplicate keys and
    NaN included. Raises `DeliveryRefusedError`.
    """
    if len(raw) > MAX_DELIVERY_BYTES:
        raise DeliveryRefusedError(f"it has {len(raw)} bytes, more than {MAX_DELIVERY_BYTES}")
    try:
        document = msgspec.json.decode(raw)
        if not isinstance(document, dict) or not isinstance(document.get("body"), dict):
            raise DeliveryRefusedError("it is not an object with a body")
        expected = _spell_delivery(document["body"], key_hex)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise DeliveryRefusedError(f"it is not JSON as a worker writes it ({error})") from error
    if not hmac.compare_digest(raw, expected):
        raise DeliveryRefusedError("it was not signed with this reservation's key, or its bytes were changed")
    try:
        delivery = msgspec.convert(document["body"], Delivery)
    except msgspec.ValidationError as error:
        raise DeliveryRefusedError(f"its body has not the form of a delivery: {error}") from error
    answered = msgspec.structs.asdict(delivery.completion) | msgspec.structs.asdict(delivery)
    asked = {name: getattr(job, name) for name in _ANSWERED} | {"version": DELIVERY_VERSION, "job_sha256": job_sha256}
    wrong = [f"{name} is {answered[name]!r}, not {value!r}" for name, value in asked.items() if answered[name] != value]
    named = {artefact.path for artefact in delivery.artefacts}
    wrong += ["an artefact is named twice"] * (len(named) != len(delivery.artefacts))
    if unvouched := [path for path in delivery.completion.evidence_paths if path not in named]:
        wrong.append(f"evidence without size and SHA-256: {', '.join(unvouched[:3])}")
    if wrong:
        raise DeliveryRefusedError("; ".join(wrong))
    return delivery


def _spell_delivery(body: Any, key_hex: str) -> bytes:
    compact = msgspec.json.encode(body, order="sorted")
    mac = hmac.new(bytes.fromhex(key_hex), b"playlane/delivery/1\n" + compact, hashlib.sha256).hexdigest()
    return msgspec.json.format(msgspec.json.encode({"body": msgspec.Raw(compact), "hmac": mac}), indent=2) + b"\n"


# -- the run's report ----------------------------------------------------------------------------------------------


class Evidence(_Report, frozen=True, kw_only=True):
    """`ref` is an id that the harness issued (`s12`: step 12's transcript line, `c3`: a console line, ...)."""

    kind: Literal["screenshot", "video", "transcript", "console", "state", "trace"]
    ref: str
    step: int | None = None


class Finding(_Report, frozen=True, kw_only=True):
    """Something wrong with the game, with evidence. `replay` is a stamp (`3/3`, `not replayable: why`) or None before.

    `signature` is `v1:` and 16 hex digits; `weak` when it was taken from a title. `dropped` says why a finding does not
    count; it is kept for the reader. `actions` is the input list that led to it, shortest known.
    """

    id: str
    title: str
    category: str
    severity: Severity
    description: str
    repro_steps: list[str]
    evidence: list[Evidence]
    origin: Literal["oracle", "persona"]
    signature: str
    replay: str | None = None
    weak: bool = False
    dropped: str | None = None
    suppressed_by: str | None = None
    step: int | None = None
    oracle: str | None = None
    actions: list[dict[str, Any]] = msgspec.field(default_factory=list)


class ControlRun(_Report, frozen=True, kw_only=True):
    """The `random` arm beside a run: same seed, same number of actions, fresh session."""

    brain: str
    seed: int | None
    actions_taken: int
    end_reason: str
    findings: list[Finding]
    coverage: dict[str, int]


class RunReport(_Report, frozen=True, kw_only=True):
    """`runs/ID/report.json`."""

    schema_version: str
    run_id: str
    scenario_id: str
    persona: str
    controller: str
    brain: str
    model: str | None
    driver: str
    seed: int | None
    repetition: int
    end_reason: EndReason
    outcome: str
    partial: bool
    started_at: str
    finished_at: str
    actions_taken: int
    steps: int
    summary: str
    what_worked: list[str]
    in_the_way: list[str]
    keep_playing: str
    findings: list[Finding]
    coverage: dict[str, int]
    """states, actions (tried, distinct), text (distinct lines seen), ..."""
    tested: dict[str, Any]
    """build, launch line, seed control, policies, frozen time, driver facts"""
    timing: dict[str, float]
    """wall_seconds, game_seconds, brain_seconds, frozen_seconds"""
    usage: dict[str, Any]
    persona_limits: dict[str, Any]
    controller_facts: dict[str, Any]
    """selector fall-backs counted, proposals read, ..."""
    counts: dict[str, int]
    """harness events: moves not in the list, lines of noise, blocked hosts, ..."""
    recording: dict[str, Any]
    control: ControlRun | None = None
    timeline: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """one row a step, small: step, action (text), effect (words), finding ids"""


def load_persona(name_or_path: str) -> dict[str, Any]:
    """A shipped persona by name, or a user's file by path, as `PlayOrder.persona`; a `ValueError` names every fault."""
    from workers.personas import load, to_data

    return to_data(load(name_or_path))


def persona_names() -> tuple[str, ...]:
    """The shipped personas, in alphabetical order."""
    import workers.personas

    return workers.personas.names()


def persona_schema() -> dict[str, Any]:
    """The JSON Schema of a persona file, as its reader checks it."""
    import workers.personas

    return msgspec.json.schema(workers.personas.Persona)
