"""Everything that lies on disk and crosses the Python API, as Structs: snake_case here, camelCase in JSON.

Wherever a Struct is taken, its decoded JSON form is taken too. Ledger rows stay plain dicts inside, so that keys this
program has never heard of come back as they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from os import PathLike
from typing import Any, TypeVar

import msgspec

from coordinator.documents import DocumentError, given
from coordinator.errors import InvalidInputError, NotAdmissibleError
from workers.contract import Completion as Completion

T = TypeVar("T")

STATE_VERSION = 1
MANIFEST_VERSION = 1

STOP_REASONS = (
    "coordinator_failure",
    "cleanup_failure",
    "secret_leak",
    "shared_infrastructure",
    "budget_exceeded",
    "operator_request",
    "canceled",
)
FINAL_OUTCOMES = ("passed", "failed", "interrupted", "budget_exceeded", "canceled")
OPEN_PHASES = ("reserved", "launching", "launched")
UNCERTAIN_PHASES = ("launching", "launched")


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a control file or of a call."""


class Digests(_Record, frozen=True, kw_only=True):
    """What a result was measured by: opaque strings."""

    definition_digest: str
    grader_digest: str


class Attempt(_Record, frozen=True, kw_only=True):
    """One row of a scenario's ledger, as a caller writes it. Rows with further keys are given as decoded JSON."""

    ordinal: int
    outcome: str = "running"
    execution_id: str
    started_at: str | None = None
    finished_at: str | None = None
    source_revision: str | None = None
    working_tree_digest: str | None = None
    definition_digest: str
    suite_definition_digest: str | None = None
    grader_digest: str
    model: Any = None
    profile: Any = None
    environment: Any = None
    automatic_retries: int = 0
    correction: Any = None
    classification: Any = None
    observed_failure: Any = None
    evidence_paths: list[str] = msgspec.field(default_factory=list)
    usage: Any = None
    cleanup: str = "pending"
    core_pr_dependencies: Any = msgspec.field(default_factory=list)
    database_lane: Any = None
    product_identity: Any = None


class Selection(_Record, frozen=True, kw_only=True):
    """A scenario and the exact attempt that was reviewed (an `Attempt` or its decoded JSON form)."""

    scenario_id: str
    attempt: Any


class Permit(_Record, frozen=True, kw_only=True):
    """What a reservation hands to the launcher; compared whole."""

    reservation_id: str
    batch_id: str
    scenario_id: str
    execution_id: str
    ordinal: int
    args: list[str]


class Stop(_Record, frozen=True, kw_only=True):
    """Why nothing more is admitted. `at` is set when it is recorded."""

    reason: str
    detail: str
    at: str | None = None


class Failure(_Record, frozen=True, kw_only=True):
    """An error that `run` met in phase `reserve`, `launch` or `completion`."""

    scenario_id: str | None
    reservation_id: str | None
    phase: str
    summary: str
    evidence_path: str | None


class Review(_Record, frozen=True, kw_only=True):
    """A closure review: the file at `evidence_path` says that `previous` no longer qualifies anything."""

    evidence_path: str
    receipt_sha256: Any
    previous: Any
    next: Any


class Receipt(_Record, frozen=True, kw_only=True):
    """Hashes that bind an entry to the ledger: of the row reserved and, once completed, of what completed it.

    All are SHA-256 over the canonical spelling (sorted keys, no white space). `completion` is kept for people.
    """

    reserved_sha256: str
    completion: Any = None
    completion_sha256: str | None = None
    review_sha256: str | None = None
    row_sha256: str | None = None
    completed_at: str | None = None


class Entry(_Record, frozen=True, kw_only=True):
    """One reservation: `phase` is reserved, launching, launched or completed."""

    phase: str
    permit: Permit
    reserved_attempt: dict[str, Any]
    receipt: Receipt
    job_sha256: str | None = None


class Owner(_Record, frozen=True, kw_only=True):
    """Who holds the manifest's lock. `process_start`: clock ticks since boot, names a process with `boot_id`."""

    pid: int
    host: str
    boot_id: str
    process_start: str
    token: str
    batch_id: str
    control_directory: str
    created_at: str


class State(_Record, frozen=True, kw_only=True):
    """`control/state.json`. `owner` is None once its coordinator closed. Times are UTC, ISO 8601, milliseconds, `Z`."""

    version: int
    batch_id: str
    manifest_path: str
    owner: Owner | None
    selections_sha256: str
    entries: dict[str, Entry] = msgspec.field(default_factory=dict)
    stop: Stop | None = None
    later_stops: list[Stop] = msgspec.field(default_factory=list)
    failures: list[Failure] = msgspec.field(default_factory=list)


class Pending(_Record, frozen=True, kw_only=True):
    """`control/pending.json`: a change of the ledger that began. It exists only inside a commit."""

    version: int
    operation: str
    reservation_id: str
    scenario_id: str
    manifest_before_sha256: str
    manifest_after_sha256: str
    state_before_sha256: str
    state: State
    row_before: dict[str, Any] | None
    row_after: dict[str, Any]
    """The pending change's own row before (None: it did not exist) and after, for a person's `--accept-manifest`."""


class Claim(_Record, frozen=True, kw_only=True):
    """`M.coordinator-claims/ID`: a launch was begun. Never deleted."""

    version: int
    reservation_id: str
    batch_id: str
    control_directory: str
    scenario_id: str
    execution_id: str
    ordinal: int
    at: str


class CompletionResult(_Record, frozen=True, kw_only=True):
    """What `read_completion` returns."""

    completion: Any
    stop: Any = None
    review: Any = None


class RetainedFailure(_Record, frozen=True, kw_only=True):
    """What `retain_failure` returns: where the error was kept, and one line."""

    evidence_path: str | None
    summary: str


class CoordinatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `Coordinator.open` takes.

    `selections` are `Selection`s or their decoded JSON. `max_lanes` is 1 or 2. `now()` gives the UTC time as ISO 8601
    with milliseconds and `Z`. `fault(stage)` is called inside commits with `intent`, `manifest` or `state` right after
    that file became durable; what it raises reaches the caller.
    """

    manifest_path: str | PathLike[str]
    control_directory: str | PathLike[str]
    batch_id: str
    selections: Sequence[Any]
    evidence_root: str | PathLike[str]
    max_lanes: int = 2
    now: Callable[[], str] | None = None
    fault: Callable[[str], Awaitable[None] | None] | None = None


def read_record(value: Any, record: type[T], what: str) -> T:
    """A Struct from a Struct or from its decoded JSON form. Raises `InvalidInputError` naming the field."""
    try:
        return msgspec.convert(given(value), record)
    except (msgspec.ValidationError, DocumentError) as error:
        raise InvalidInputError(f"{what}: {error}") from error


def read_permit(value: Any) -> Permit:
    """A permit from a Struct or its decoded JSON form; one that is anything else was never handed out."""
    try:
        permit = msgspec.convert(found := given(value), Permit)
    except (msgspec.ValidationError, DocumentError) as error:
        named = value.get("reservationId") if isinstance(value, dict) else value
        raise NotAdmissibleError(named, f"it has not the form of a permit: {error}") from error
    extra = found.keys() - msgspec.to_builtins(permit).keys()
    if extra:
        raise NotAdmissibleError(permit.reservation_id, f"it has further keys: {', '.join(sorted(extra))}")
    return permit


def read_selections(values: Sequence[Any]) -> tuple[Selection, ...]:
    """Copies of the selections, attempts as plain dicts with all their keys. Refuses one scenario named twice."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidInputError(f"selections: a list is needed, found {type(values).__name__}")
    selections: list[Selection] = []
    seen: set[str] = set()
    for position, value in enumerate(values):
        selection = read_record(value, Selection, f"selection {position}")
        row = read_row(selection.attempt, f"selection {position} ({selection.scenario_id})")
        if selection.scenario_id in seen:
            raise InvalidInputError(f"selection {position}: scenario {selection.scenario_id!r} is selected twice")
        seen.add(selection.scenario_id)
        selections.append(Selection(scenario_id=selection.scenario_id, attempt=row))
    return tuple(selections)


def read_row(value: Any, what: str) -> dict[str, Any]:
    """An attempt as the plain dict that goes into the ledger; its judged fields have their types."""
    try:
        row = given(value)
    except DocumentError as error:
        raise InvalidInputError(f"{what}: {error}") from error
    if not isinstance(row, dict):
        raise InvalidInputError(f"{what}: the attempt is not an object")
    read_record(row, Attempt, f"{what}: attempt")
    return row
