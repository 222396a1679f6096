"""A person's recovery of a batch whose coordinator died: look, take the dead lock, settle, adopt, end, close.

It never launches. Only a person can say that an owner is dead, and only while its process does not prove otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec

from coordinator import lock, rules
from coordinator.commit import MAX_STATE_BYTES, Batch, decode_ledger, read_sealed
from coordinator.coordinator import Coordinator, utc_now
from coordinator.documents import encode, sha256
from coordinator.errors import CoordinatorError, InvalidInputError, LockedError, RefusedError, UnrecognizedManifestError
from coordinator.files import Files, Operations, read_bounded
from coordinator.inspection import RecoveryReport, find_control, inspect_recovery
from coordinator.manifest import same
from coordinator.opening import new_owner, read_batch_selections, take_over
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.records import (
    FINAL_OUTCOMES,
    OPEN_PHASES,
    UNCERTAIN_PHASES,
    Completion,
    CompletionResult,
    Entry,
    Owner,
    Pending,
    State,
)

FindDelivery = Callable[[ControlPaths, Entry], CompletionResult | None]


class Recovered(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a recovery did. `left` are entries of unknown fate that stay, `problems` what could not be done."""

    adopted: list[str]
    ended: list[str]
    left: list[str]
    problems: list[str]


async def recover(
    manifest_path: str | os.PathLike[str],
    *,
    owner_is_dead: str | None = None,
    control_directory: str | os.PathLike[str] | None = None,
    worker_is_dead: Sequence[str] = (),
    accept_manifest: str | None = None,
    end: Sequence[str] = (),
    outcome: str = "interrupted",
    find_delivery: FindDelivery | None = None,
    operations: Operations | None = None,
    now: Callable[[], str] = utc_now,
) -> Recovered:
    """Recover the batch that holds the lock (or, with nobody holding it, the batch of `control_directory`).

    `owner_is_dead` is the token that `inspect_recovery` showed. `end` are reservations whose rows are closed with
    `outcome`. Raises a `RefusedError` while owner or worker lives or may live, with nothing changed.
    """
    manifest = ManifestPaths(manifest_path)
    files = Files(operations)
    if outcome not in FINAL_OUTCOMES or outcome == "passed":
        raise InvalidInputError(f"outcome {outcome!r} cannot end an attempt that nobody saw end; use interrupted")
    with _only_recovery(manifest):
        found = inspect_recovery(manifest_path, control_directory)
        control = find_control(manifest, found.owner, control_directory)
        _judge_owner(found, owner_is_dead)
        _judge_workers(found, worker_is_dead)
        owner = new_owner(found.batch_id, control, secrets.token_hex(16), now())
        batch = Batch(files, manifest, control, owner=owner, now=now)
        _take_lock(files, manifest, control, owner, found)
        if accept_manifest is not None:
            _accept_manifest(batch, accept_manifest)
        take_over(batch, None)
        if not batch.began:  # the dead owner had not made its state: nothing was ever admitted
            lock.release(files, manifest.lock, owner.token)
            return Recovered(adopted=[], ended=[], left=[], problems=[])
        return await _finish(batch, end, outcome, find_delivery)


async def _finish(batch: Batch, end: Sequence[str], outcome: str, find_delivery: FindDelivery | None) -> Recovered:
    coordinator = Coordinator(batch, read_batch_selections(batch.control), batch.control.directory, 2)
    adopted, problems = [], []
    for reservation_id, entry in batch.state.entries.items():
        if entry.phase not in UNCERTAIN_PHASES or find_delivery is None:
            continue
        try:
            result = find_delivery(batch.control, entry)
            if result is not None:
                await coordinator.complete(entry.permit, result.completion, stop=result.stop)
                adopted.append(reservation_id)
        except CoordinatorError as error:
            batch.check_usable()
            problems.append(f"{reservation_id}: its delivery was not adopted: {error}")
    ended = []
    for reservation_id in end:
        try:
            await _end(batch, reservation_id, outcome)
            ended.append(reservation_id)
        except RefusedError as error:
            batch.check_usable()
            problems.append(str(error))
    left = [one for one, entry in batch.state.entries.items() if entry.phase in UNCERTAIN_PHASES]
    batch.event("recovered", adopted=adopted, ended=ended, left=left, problems=problems)
    await coordinator.close()
    return Recovered(adopted=adopted, ended=ended, left=left, problems=problems)


async def _end(batch: Batch, reservation_id: str, outcome: str) -> None:
    """Close the row of an entry that no worker will ever complete, by an ordinary commit."""
    entry = batch.state.entries.get(reservation_id)
    if entry is None:
        raise RefusedError(f"--end {reservation_id}: no such reservation in batch {batch.state.batch_id!r}")
    if entry.phase not in OPEN_PHASES:
        raise RefusedError(f"--end {reservation_id}: it is {entry.phase} already")
    ledger = batch.read_ledger()
    rules.judge_row(entry, ledger)
    launched = batch.claimed(reservation_id)
    now = batch.now()
    completion = Completion(
        outcome=outcome,
        finished_at=now,
        definition_digest=entry.reserved_attempt["definitionDigest"],
        grader_digest=entry.reserved_attempt["graderDigest"],
        # What a launch of unknown fate left behind, nobody has verified.
        cleanup="pending" if launched else "passed",
        usage=entry.reserved_attempt.get("usage"),
        classification="uncertain_launch" if launched else "never_launched",
        observed_failure="ended by a person: no worker alive, no delivery" if launched else None,
    )
    row = rules.completed_row(entry, completion)
    permit = entry.permit
    await batch.commit(
        "end",
        ledger.with_row_replaced(permit.scenario_id, permit.ordinal, row, clear_qualifying=False),
        rules.with_entry(batch.state, rules.complete_entry(entry, completion, None, row, now)),
        reservation_id=reservation_id,
        row_before=entry.reserved_attempt,
        row_after=row,
    )
    batch.event("ended", reservationId=reservation_id, classification=completion.classification)


# -- refusals


@contextlib.contextmanager
def _only_recovery(manifest: ManifestPaths) -> Iterator[None]:
    """Held by flock: the file is never deleted, so that two recoveries cannot hold two different ones."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(manifest.recovery, flags, 0o600)
    except OSError as error:
        raise RefusedError(f"{manifest.recovery} cannot be opened: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise RefusedError(f"another recovery of {manifest.manifest} is under way; wait for it") from error
    finally:
        os.close(descriptor)


def _judge_owner(found: RecoveryReport, token: str | None) -> None:
    if found.owner_liveness == "none":
        if token is not None:
            raise RefusedError("there is no lock: nobody owns the manifest, --owner-is-dead is not needed")
        return
    if token is None or token != found.token:
        raise RefusedError(
            f"the manifest is owned ({found.lock}); if you know that this owner is dead, say --owner-is-dead"
            f" {found.token}"
        )
    if found.owner_liveness == "alive":
        raise RefusedError(f"the owner lives ({found.lock}); stop it (coordinate stop) instead of recovering")


def _judge_workers(found: RecoveryReport, worker_is_dead: Sequence[str]) -> None:
    living = [one for one in found.workers if one.liveness == "alive"]
    if living:
        names = ", ".join(f"{one.reservation_id} (pid {one.pid})" for one in living)
        raise RefusedError(f"workers live: {names}; they finish within their limits, wait for them")
    doubtful = [one for one in found.workers if one.liveness in ("may be alive", "unknown")]
    unsaid = [one.reservation_id for one in doubtful if one.reservation_id not in worker_is_dead]
    if unsaid:
        raise RefusedError(
            f"workers may be alive: {', '.join(unsaid)}; if you know that they are not, say --worker-is-dead ID for"
            " each"
        )


# -- the lock and the manifest


def _take_lock(
    files: Files, manifest: ManifestPaths, control: ControlPaths, owner: Owner, found: RecoveryReport
) -> None:
    """Link the dead lock aside, then rename a complete one over it: there is no moment without a lock."""
    if found.owner_liveness == "none":
        lock.acquire(files, manifest.lock, owner)
        return
    if os.path.isdir(control.locks):
        aside = os.path.join(control.locks, f"{found.token}.json")
        with contextlib.suppress(FileExistsError):  # an earlier recovery was killed right after this
            files.link(manifest.lock, aside)
    now_there = sha256(read_bounded(manifest.lock, lock.MAX_LOCK_BYTES))
    if now_there != found.lock_sha256:
        raise LockedError(manifest.lock, "it changed while it was looked at; look again")
    files.replace(manifest.lock, encode(owner))


def _accept_manifest(batch: Batch, accepted_sha256: str) -> None:
    """A person has looked at that manifest: the pending change's own row tells whether it happened."""
    read = read_sealed(batch.control.pending, Pending, MAX_STATE_BYTES)
    if read is None:
        raise RefusedError("--accept-manifest: no change is pending, the manifest is as it should be")
    pending, _ = read
    data = batch.manifest_bytes()
    if sha256(data) != accepted_sha256:
        raise RefusedError(f"--accept-manifest: {batch.manifest.manifest} has SHA-256 {sha256(data)} now; look again")
    permit = pending.state.entries[pending.reservation_id].permit
    row = decode_ledger(batch.manifest.manifest, data).row(permit.scenario_id, permit.ordinal)
    before, after = pending.row_before, pending.row_after
    if row is not None and same(row, after):
        settled = msgspec.structs.replace(pending, manifest_after_sha256=accepted_sha256)
    elif (row is None and before is None) or (row is not None and before is not None and same(row, before)):
        settled = msgspec.structs.replace(pending, manifest_before_sha256=accepted_sha256, manifest_after_sha256="")
    else:
        raise UnrecognizedManifestError(
            batch.manifest.manifest,
            accepted_sha256,
            f"attempt {permit.ordinal} of {permit.scenario_id!r} as before",
            "the same attempt as after",
        )
    batch.remember_directory()
    batch.rewrite_pending(settled)


# -- the next batch


def retry(
    manifest_path: str | os.PathLike[str], control_directory: str | os.PathLike[str] | None = None
) -> list[dict[str, object]]:
    """Selections of the next batch, for review: every selection whose last attempt did not end, with the next ordinal.

    Raises `RefusedError` while a row of the batch is open (end it first).
    """
    manifest = ManifestPaths(manifest_path)
    found = inspect_recovery(manifest_path, control_directory)
    control = find_control(manifest, found.owner, control_directory)
    if found.owner_liveness != "none":
        raise RefusedError(f"the manifest is owned ({found.lock}); close or recover that batch first")
    read = read_sealed(control.state, State, MAX_STATE_BYTES)
    if read is None:
        raise RefusedError(f"{control.state} does not exist; there is no batch to try again")
    open_entries = [one for one, entry in read[0].entries.items() if entry.phase in OPEN_PHASES]
    if open_entries:
        raise RefusedError(f"rows are open: {', '.join(open_entries)}; end them first: coordinate recover --end ID")
    ledger = decode_ledger(manifest.manifest, read_bounded(manifest.manifest))
    again: list[dict[str, object]] = []
    for selection in read_batch_selections(control):
        attempts = ledger.scenarios[ledger.position(selection.scenario_id)]["attempts"]
        if attempts and attempts[-1].get("outcome") in ("passed", "failed", "budget_exceeded"):
            continue
        row = {**selection.attempt, "ordinal": len(attempts) + 1, "startedAt": None, "finishedAt": None}
        again.append({"scenarioId": selection.scenario_id, "attempt": row})
    return again
