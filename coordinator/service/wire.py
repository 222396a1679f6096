"""What a playtest service and its clients say to each other: the bodies of `/api/v1/games/{game}/playtest/...`.

Snake_case as on the wire. Amounts are whole cents, rounded up; inside they are integers of millionths of a dollar.
Unknown keys of a newer server are ignored; keys beyond the oldest table are optional.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MICRODOLLARS_PER_CENT = 10_000

RUN_STATES = ("queued", "launching", "playing", "reporting", "uploading")
FINAL_RUN_STATES = ("succeeded", "failed", "canceled", "budget_exceeded", "skipped", "stalled")
MODULES = ("persona_playtest", "aggregate_report", "balance_sim")
CONTROLLERS = ("standard", "jev", "rune")
RUN_LENGTHS = ("standard", "long")
MAX_REPETITIONS = 100
MAX_CENTS = 10**11
"""No amount on the wire is above this: a thousand million dollars is a mistake, not a price."""
RunLength = Literal["standard", "long"]


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a request or an answer."""


class Routing(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """What the service supports. Without `max_personas` that check is skipped. `repetitions`: at most so many."""

    max_personas: int | None = None
    action_controllers: list[str] | None = None
    controller_plans: bool | None = None
    repetitions: int | bool | None = None
    """At most so many of a run; true: without a limit that is told."""


class Pack(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """GET `pack`."""

    personas: list[Any]
    routing: Routing = Routing()


class EstimateRequest(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """POST `estimate`. `controllers` is sent only when a controller flag was given."""

    modules: list[str]
    personas: list[str]
    run_length: str
    controllers: list[str] | None = None
    repetitions: int | None = None
    driver: str | None = None
    simulation: dict[str, Any] | None = None


class BreakdownRow(_Body, frozen=True, kw_only=True, omit_defaults=True):
    unit: str
    count: int
    unit_cents: int


class Estimate(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """The quote. `low`, `likely`, `worst` are whole cents where the service tells them."""

    ok: bool
    estimate_cents: int
    balance_cents: int
    breakdown: list[BreakdownRow]
    persona_run_count: int
    run_length: str
    controllers: list[str] | None = None
    execution_mode: str | None = None
    simulation_limits: dict[str, Any] | None = None
    low: int | None = None
    likely: int | None = None
    worst: int | None = None


class Build(_Body, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    ref: str


class JobRequest(EstimateRequest, frozen=True, kw_only=True, omit_defaults=True):
    """POST `jobs` with the header `Idempotency-Key`."""

    confirm_price_cents: int
    cli_version: str
    build: Build


class RunLimits(_Body, frozen=True, kw_only=True, omit_defaults=True):
    wall_seconds: float | None = None


class RunBudget(_Body, frozen=True, kw_only=True, omit_defaults=True):
    wall_seconds_max: float | None = None


class JobRun(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """One registered run. `playtest_token` is for this run alone; the worker never sees the account's token."""

    run_id: str
    module: str
    state: str
    persona: str | None = None
    controller: str | None = None
    repetition: int | None = None
    playtest_token: str | None = None
    limits: RunLimits = RunLimits()
    budget: RunBudget = RunBudget()


class Price(_Body, frozen=True, kw_only=True, omit_defaults=True):
    price_cents: int


class Job(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `jobs`; `replayed` when the key was used before with the same bytes."""

    job_id: str
    replayed: bool
    price: Price
    runs: list[JobRun]
    state: str | None = None
    cancel_requested: bool = False


class JobState(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """`jobs/{job}`, `finish`: `{"job": {...}}`."""

    state: str
    cancel_requested: bool = False
    job_id: str | None = None
    refunded_cents: int | None = None


class RunState(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """`runs/{run}`, `transition`, `heartbeat`, `complete`."""

    run_id: str
    state: str
    cancel_requested: bool = False
    report_lint: list[str] | None = None
    budget_warning: str | None = None


class RunResult(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """POST `complete`. `state` is final. Which texts and files go in is the client's allow-list's business."""

    state: str
    quit_reason: str
    actions_taken: int
    reason: str | None = None
    duration: float | None = None
    report: dict[str, Any] | None = None
    report_md: str | None = None
    recording: dict[str, Any] | None = None
    simulation: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class ErrorFacts(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """`{"error": {"code", "message"}}`."""

    code: str
    message: str


class ErrorBody(_Body, frozen=True, kw_only=True, omit_defaults=True):
    error: ErrorFacts


def cents(microdollars: int) -> int:
    """Whole cents, rounded up: nobody is asked for less than what will be charged."""
    return -(-microdollars // MICRODOLLARS_PER_CENT)
