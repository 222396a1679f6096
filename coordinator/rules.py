"""What may be admitted, launched, completed and reviewed: pure decisions, no file, no clock, no process.

Each function takes what was read and returns what is to be written, or raises the refusal.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from coordinator.documents import content_sha256, plain
from coordinator.errors import (
    ContentConflictError,
    InvalidInputError,
    LanesTakenError,
    NotAdmissibleError,
    QualifyingError,
    ReceiptError,
    RefusedError,
    ReservedAttemptChangedError,
    StoppedError,
)
from coordinator.manifest import Ledger, ScenarioView, same
from coordinator.records import (
    FINAL_OUTCOMES,
    OPEN_PHASES,
    STOP_REASONS,
    Claim,
    Completion,
    Digests,
    Entry,
    Permit,
    Receipt,
    Review,
    Selection,
    State,
    Stop,
)

MIN_FREE_BYTES = 32 << 20
_PINNED_IMAGE = re.compile(r".+@sha256:[0-9a-f]{64}")
_PLAIN_LANES = ("embedded-postgres", "embedded-sqlite", "none")


# -- admission


def refuse_stopped(state: State) -> None:
    if state.stop is not None:
        raise StoppedError(state.stop.reason, state.stop.detail)


def find_entry(state: State, scenario_id: str) -> Entry | None:
    """The batch's reservation of a scenario: there is at most one."""
    for entry in state.entries.values():
        if entry.permit.scenario_id == scenario_id:
            return entry
    return None


def open_lanes(state: State, ledger: Ledger) -> tuple[int, int]:
    """How many attempts are open in all, and how many of them are running rows of other batches."""
    ours = {
        (entry.permit.scenario_id, entry.permit.ordinal)
        for entry in state.entries.values()
        if entry.phase in OPEN_PHASES
    }
    foreign = sum((scenario_id, row.get("ordinal")) not in ours for scenario_id, row in ledger.running())
    return len(ours) + foreign, foreign


def admit(
    state: State,
    ledger: Ledger,
    selections: tuple[Selection, ...],
    scenario_id: str,
    *,
    reservation_id: str,
    max_lanes: int,
    free_bytes: int,
    now: str,
) -> Entry:
    """Judge one reservation; return the entry to be written. The row to add is its `reserved_attempt`."""
    refuse_stopped(state)
    lanes, foreign = open_lanes(state, ledger)
    if lanes >= max_lanes:
        raise LanesTakenError(lanes, max_lanes, foreign)
    selection = next((one for one in selections if one.scenario_id == scenario_id), None)
    if selection is None:
        raise RefusedError(f"scenario {scenario_id!r} is not among the selections of this batch")
    entry = find_entry(state, scenario_id)
    if entry is not None:
        raise RefusedError(f"scenario {scenario_id!r} was reserved in this batch already and is {entry.phase}")
    view = ledger.view(scenario_id)
    _judge_attempt(view, selection.attempt)
    if free_bytes < MIN_FREE_BYTES:
        raise RefusedError(f"{free_bytes} bytes of free space are left, fewer than {MIN_FREE_BYTES}; make room first")
    row = {**selection.attempt, "startedAt": now}
    permit = Permit(
        reservation_id=reservation_id,
        batch_id=state.batch_id,
        scenario_id=scenario_id,
        execution_id=row["executionId"],
        ordinal=row["ordinal"],
        args=["--id", row["executionId"], "--max-parallel", "1", "--max-automatic-retries", "0"],
    )
    return Entry(
        phase="reserved",
        permit=permit,
        reserved_attempt=row,
        receipt=Receipt(reserved_sha256=content_sha256(row)),
    )


def _judge_attempt(view: ScenarioView, row: dict[str, Any]) -> None:
    where = f"scenario {view.id!r}"
    if view.blocked is not None:
        raise RefusedError(f"{where} is blocked: {view.blocked}")
    if not view.implemented:
        raise RefusedError(
            f"{where} is not implemented (readiness {view.readiness!r}, authoringStatus {view.authoring_status!r})"
        )
    for earlier in view.attempts:
        if earlier.get("outcome") == "running":
            raise RefusedError(f"{where}: attempt {earlier.get('ordinal')!r} is still running; end it first")
    if row["executionId"] != view.execution_id:
        raise RefusedError(f"{where}: executionId {row['executionId']!r} is not the scenario's {view.execution_id!r}")
    for key, qualifying in (
        ("definitionDigest", view.qualifying_definition_digest),
        ("graderDigest", view.qualifying_grader_digest),
    ):
        if qualifying is None or row[key] != qualifying:
            raise RefusedError(f"{where}: {key} {row[key]!r} is not the qualifying one, {qualifying!r}; plan again")
    expected = len(view.attempts) + 1
    if row["ordinal"] != expected:
        raise RefusedError(f"{where}: ordinal {row['ordinal']} is not the next one, {expected}")
    fresh = {"outcome": "running", "cleanup": "pending", "automaticRetries": 0}
    for key, wanted in fresh.items():
        if not same(row.get(key), wanted):
            raise RefusedError(f"{where}: the attempt is not fresh: {key} is {row.get(key)!r}, not {wanted!r}")
    if row.get("finishedAt") is not None:
        raise RefusedError(f"{where}: the attempt is not fresh: finishedAt is {row['finishedAt']!r}")
    _judge_product(where, view.product_policy, row.get("productIdentity"))
    _judge_database_lane(where, row.get("databaseLane"))


def _judge_product(where: str, policy: Any, identity: Any) -> None:
    if not isinstance(policy, dict) or not isinstance(identity, dict):
        raise RefusedError(f"{where}: productIdentity does not fit productPolicy: one of them is no object")
    for ours, theirs in (("kind", "lane"), ("productionSourceRevision", "sourceBaselineRevision")):
        if identity.get(ours) is None or identity.get(ours) != policy.get(theirs):
            raise RefusedError(
                f"{where}: productIdentity does not fit productPolicy: {ours} is {identity.get(ours)!r},"
                f" {theirs} is {policy.get(theirs)!r}"
            )


def _judge_database_lane(where: str, lane: Any) -> None:
    name = lane.get("lane") if isinstance(lane, dict) else None
    if name in _PLAIN_LANES and len(lane) == 1:
        return
    if name == "owned-docker-postgres":
        image = lane.get("image")
        if lane.get("engine") == "postgres" and isinstance(image, str) and _PINNED_IMAGE.fullmatch(image):
            return
        raise RefusedError(f"{where}: databaseLane {name} needs engine postgres and an image pinned by @sha256:")
    raise RefusedError(f"{where}: databaseLane {lane!r} is none of the known shapes")


# -- launch


def judge_permit(state: State, permit: Permit) -> Entry:
    """The entry that a permit belongs to. Raises `NotAdmissibleError` for one that differs in any field."""
    entry = state.entries.get(permit.reservation_id)
    if entry is None:
        raise NotAdmissibleError(permit.reservation_id, "no such reservation in this batch")
    if not same(plain(entry.permit), plain(permit)):
        raise NotAdmissibleError(permit.reservation_id, "it differs from the permit that was handed out")
    return entry


def judge_launch(state: State, ledger: Ledger, permit: Permit, *, claimed: bool) -> Entry:
    """The reserved entry whose launch may begin now."""
    entry = judge_permit(state, permit)
    if entry.phase != "reserved" or claimed:
        raise NotAdmissibleError(permit.reservation_id, f"its launch was begun before (phase {entry.phase})")
    refuse_stopped(state)
    judge_row(entry, ledger)
    return entry


def new_claim(permit: Permit, control_directory: str, now: str) -> Claim:
    """The mark that the permit's launch was begun."""
    return Claim(
        version=1,
        reservation_id=permit.reservation_id,
        batch_id=permit.batch_id,
        control_directory=control_directory,
        scenario_id=permit.scenario_id,
        execution_id=permit.execution_id,
        ordinal=permit.ordinal,
        at=now,
    )


def judge_row(entry: Entry, ledger: Ledger) -> None:
    """The ledger's row must be exactly the one that was reserved."""
    permit = entry.permit
    row = ledger.row(permit.scenario_id, permit.ordinal)
    if row is None:
        raise ReservedAttemptChangedError(permit.scenario_id, permit.ordinal, "the row is missing")
    if not same(row, entry.reserved_attempt):
        keys = sorted(
            key
            for key in row.keys() | entry.reserved_attempt.keys()
            if not same(row.get(key), entry.reserved_attempt.get(key))
            or (key in row) != (key in entry.reserved_attempt)
        )
        raise ReservedAttemptChangedError(permit.scenario_id, permit.ordinal, f"different: {', '.join(keys)}")


# -- completion


def completed_row(entry: Entry, completion: Completion) -> dict[str, Any]:
    """The reserved attempt with the completion's ten fields replaced."""
    row: dict[str, Any] = {**entry.reserved_attempt, **plain(completion)}
    return row


def is_repeat(entry: Entry, ledger: Ledger, completion: Completion, review: Review | None) -> bool:
    """True if exactly this completion was committed before and still stands; False if none was.

    Raises `ContentConflictError` for another content and `ReceiptError` when the row is no longer the receipt's.
    """
    if entry.phase != "completed":
        return False
    permit, receipt = entry.permit, entry.receipt
    if content_sha256(plain(completion)) != receipt.completion_sha256:
        raise ContentConflictError(permit.scenario_id, permit.ordinal, "content")
    if (content_sha256(plain(review)) if review is not None else None) != receipt.review_sha256:
        raise ContentConflictError(permit.scenario_id, permit.ordinal, "review")
    row = ledger.row(permit.scenario_id, permit.ordinal)
    if row is None or content_sha256(row) != receipt.row_sha256:
        raise ReceiptError(
            f"attempt {permit.ordinal} of {permit.scenario_id!r} in the manifest differs from receipt"
            f" {permit.reservation_id}; put the row back (its completion stands in state.json)"
        )
    return True


def judge_completion(entry: Entry, ledger: Ledger, completion: Completion) -> None:
    """Row, digests, outcome, in this order."""
    permit = entry.permit
    where = f"completion of attempt {permit.ordinal} of {permit.scenario_id!r}"
    if entry.phase not in ("launching", "launched"):
        raise NotAdmissibleError(permit.reservation_id, f"it was never launched (phase {entry.phase})")
    judge_row(entry, ledger)
    for key, value in (("definitionDigest", completion.definition_digest), ("graderDigest", completion.grader_digest)):
        if value != entry.reserved_attempt[key]:
            raise RefusedError(f"{where}: {key} {value!r} is not the reserved {entry.reserved_attempt[key]!r}")
    if completion.outcome not in FINAL_OUTCOMES:
        raise RefusedError(f"{where}: outcome {completion.outcome!r} is not final ({', '.join(FINAL_OUTCOMES)})")


def judge_review(entry: Entry, completion: Completion, review: Review) -> None:
    """What a closure review says, before its file is read."""
    if completion.outcome != "passed":
        raise QualifyingError(f"it goes with the outcome passed only, found {completion.outcome!r}")
    reserved = {key: entry.reserved_attempt[key] for key in ("definitionDigest", "graderDigest")}
    digests: dict[str, dict[str, Any]] = {}
    for name, value in (("previous", review.previous), ("next", review.next)):
        try:
            digests[name] = plain(msgspec.convert(value, Digests))
        except msgspec.ValidationError as error:
            raise QualifyingError(f"{name} is not a pair of digests: {error}") from error
        if not same(digests[name], value):
            raise QualifyingError(f"{name} has keys beside the two digests")
    if digests["previous"] != reserved:
        raise QualifyingError("previous are not the reserved digests")
    if digests["next"] == reserved:
        raise QualifyingError("next differs in neither digest")


def judge_review_file(
    entry: Entry, completion: Completion, review: Review, found_sha256: str, found: dict[str, Any] | None
) -> None:
    """The review's file: its hash, that it is evidence, and exactly the object `{id, ordinal, previous, next}`."""
    if found_sha256 != review.receipt_sha256:
        raise ReceiptError(
            f"receipt mismatch: {review.evidence_path} has SHA-256 {found_sha256}, the review says"
            f" {review.receipt_sha256!r}"
        )
    if review.evidence_path not in completion.evidence_paths:
        raise RefusedError(f"review: {review.evidence_path!r} is not among the completion's evidence")
    wanted = {
        "id": entry.permit.scenario_id,
        "ordinal": entry.permit.ordinal,
        "previous": review.previous,
        "next": review.next,
    }
    if found is None or not same(found, wanted):
        raise RefusedError(f"review: {review.evidence_path} does not hold exactly id, ordinal, previous and next")


def complete_entry(entry: Entry, completion: Completion, review: Review | None, row: dict[str, Any], now: str) -> Entry:
    content = plain(completion)
    receipt = msgspec.structs.replace(
        entry.receipt,
        completion=content,
        completion_sha256=content_sha256(content),
        review_sha256=content_sha256(plain(review)) if review is not None else None,
        row_sha256=content_sha256(row),
        completed_at=now,
    )
    return msgspec.structs.replace(entry, phase="completed", receipt=receipt)


# -- stops


def read_stop(stop: Stop, now: str) -> Stop:
    """A stop to be recorded. Raises `InvalidInputError` for a reason that is not one of the seven."""
    if stop.reason not in STOP_REASONS:
        raise InvalidInputError(f"stop: reason {stop.reason!r} is not one of {', '.join(STOP_REASONS)}")
    return msgspec.structs.replace(stop, at=stop.at or now)


def with_stop(state: State, stop: Stop) -> State:
    """The first stop stands, later ones are kept beside it; the same one again is not kept twice."""
    if state.stop is None:
        return msgspec.structs.replace(state, stop=stop)
    known = [state.stop, *state.later_stops]
    if any((one.reason, one.detail) == (stop.reason, stop.detail) for one in known):
        return state
    return msgspec.structs.replace(state, later_stops=[*state.later_stops, stop])


def with_entry(state: State, entry: Entry) -> State:
    return msgspec.structs.replace(state, entries={**state.entries, entry.permit.reservation_id: entry})


def selections_content(selections: tuple[Selection, ...]) -> list[dict[str, Any]]:
    """What must be the same when a batch is reopened: everything but the two times."""
    return [
        {
            "scenarioId": one.scenario_id,
            "attempt": {key: value for key, value in one.attempt.items() if key not in ("startedAt", "finishedAt")},
        }
        for one in selections
    ]
