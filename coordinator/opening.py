"""Opening a batch: lock, settle, check, own. Whatever refuses, refuses before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from coordinator import lock, rules
from coordinator.commit import MAX_STATE_BYTES, Batch, Fault, read_claims, read_sealed, settle
from coordinator.documents import content_sha256, seal
from coordinator.errors import (
    CoordinatorError,
    DamagedError,
    InvalidInputError,
    OlderControlDirectoryError,
    UnrecognizedManifestError,
)
from coordinator.files import Files, check_private_directory
from coordinator.identity import own_identity
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.records import STATE_VERSION, UNCERTAIN_PHASES, Claim, Owner, Selection, State, Stop


class SelectionsRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`control/selections.json`: what the batch intends, for `retry` and for people."""

    version: int
    batch_id: str
    selections: list[Selection]


def new_owner(batch_id: str, control: ControlPaths, token: str, now: str) -> Owner:
    identity = own_identity()
    return Owner(
        pid=identity.pid,
        host=identity.host,
        boot_id=identity.boot_id,
        process_start=identity.process_start,
        token=token,
        batch_id=batch_id,
        control_directory=control.directory,
        created_at=now,
    )


def open_batch(
    files: Files,
    manifest: ManifestPaths,
    control: ControlPaths,
    *,
    owner: Owner,
    selections: tuple[Selection, ...],
    now: Callable[[], str],
    fault: Fault | None,
) -> Batch:
    """Take the lock and the batch. Raises with the lock released, unless the disk is not understood."""
    if os.path.lexists(control.directory):
        check_private_directory(control.directory)
    batch = Batch(files, manifest, control, owner=owner, now=now, fault=fault)
    lock.acquire(files, manifest.lock, owner)
    try:
        take_over(batch, selections)
    except (DamagedError, UnrecognizedManifestError):
        raise  # the lock is kept: the disk is not understood, and nobody may build on it
    except CoordinatorError:
        if batch.poisoned is None:
            lock.release(files, manifest.lock, owner.token)
        raise
    return batch


def take_over(batch: Batch, selections: tuple[Selection, ...] | None) -> None:
    """Settle, check against claims, and write the one state that makes this owner the batch's owner.

    `selections` None (recovery) leaves the batch's own.
    """
    state = settle_checked(batch, selections)
    batch.read_ledger()
    if state is None:
        if selections is not None:
            _create(batch, selections)
        return
    crashed = state.owner is not None
    uncertain = [entry for entry in state.entries.values() if entry.phase in UNCERTAIN_PHASES]
    changed = msgspec.structs.replace(state, owner=batch.owner)
    if crashed or uncertain:
        why = "the previous coordinator did not close" if crashed else "the previous coordinator closed"
        ids = ", ".join(entry.permit.reservation_id for entry in uncertain) or "none"
        stop = Stop(reason="coordinator_failure", detail=f"{why}; entries of unknown fate: {ids}", at=batch.now())
        changed = rules.with_stop(changed, stop)
    for path in batch.control.subdirectories():
        batch.files.make_directory(path)
    batch.files.make_directory(batch.manifest.claims)
    batch.state = state
    batch.replace_state(changed)
    batch.event("reopened", batchId=state.batch_id, crashed=crashed, uncertain=len(uncertain))


def settle_checked(batch: Batch, selections: tuple[Selection, ...] | None) -> State | None:
    """The batch's standing state after settling, proven to be this batch's and not older than its claims."""
    owner = batch.owner
    found = batch.read_state() if os.path.lexists(batch.control.state) else None
    if found is not None:
        if found.manifest_path != batch.manifest.manifest:
            raise InvalidInputError(
                f"{batch.control.directory} belongs to the manifest {found.manifest_path},"
                f" not to {batch.manifest.manifest}"
            )
        if found.batch_id != owner.batch_id:
            raise InvalidInputError(
                f"{batch.control.directory} belongs to batch {found.batch_id!r}, not {owner.batch_id!r};"
                " a control directory is one batch's for ever"
            )
        digest = content_sha256(rules.selections_content(selections)) if selections is not None else None
        if digest is not None and digest != found.selections_sha256:
            raise InvalidInputError(
                f"batch {found.batch_id!r} was opened with other selections; reopen it with the same, in the same order"
            )
    for path in (batch.manifest.claims, *batch.control.subdirectories()):
        if os.path.lexists(path):
            check_private_directory(path)
    claims = read_claims(batch.manifest)
    ours = [
        name
        for name, claim in claims.items()
        if claim.batch_id == owner.batch_id and claim.control_directory == batch.control.directory
    ]
    if found is None and ours:
        raise DamagedError(
            f"{batch.control.state} is missing, but {len(ours)} launches of batch {owner.batch_id!r} were begun"
            f" (claims in {batch.manifest.claims}); put the control directory back"
        )
    if found is not None:
        batch.remember_directory()
        _check_selections(batch, found)
        for name in ours:
            if name not in found.entries:
                raise OlderControlDirectoryError(batch.control.directory, name)
        _refuse_older(batch, found, claims)
    return settle(batch)


def _check_selections(batch: Batch, state: State) -> None:
    path = batch.control.selections
    record = read_sealed(path, SelectionsRecord, MAX_STATE_BYTES)
    if record is None:
        raise DamagedError(f"{path} is missing; put it back")
    if content_sha256(rules.selections_content(tuple(record[0].selections))) != state.selections_sha256:
        raise DamagedError(f"{path} does not hold the selections that {batch.control.state} is about; put it back")


def _refuse_older(batch: Batch, state: State, claims: dict[str, Claim]) -> None:
    """Claims are looked for by reservation: a copy of the directory that was put elsewhere is older just the same."""
    for reservation_id, entry in state.entries.items():
        claim = claims.get(reservation_id)
        if claim is None:
            continue
        if entry.phase == "reserved":
            raise OlderControlDirectoryError(batch.control.directory, reservation_id)
        permit = entry.permit
        wanted = (permit.scenario_id, permit.execution_id, permit.ordinal)
        if (claim.scenario_id, claim.execution_id, claim.ordinal) != wanted:
            raise DamagedError(f"{batch.manifest.claim(reservation_id)} is not the claim of that reservation")


def _create(batch: Batch, selections: tuple[Selection, ...]) -> None:
    files, control = batch.files, batch.control
    missing = []
    parent = os.path.dirname(control.directory)
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for path in [*reversed(missing), control.directory, *control.subdirectories(), batch.manifest.claims]:
        files.make_directory(path)
    batch.remember_directory()
    record = SelectionsRecord(version=1, batch_id=batch.owner.batch_id, selections=list(selections))
    # One may be left by an opening that was killed before the state: its batch never began.
    files.replace(control.selections, seal(record))
    batch.create_state(
        State(
            version=STATE_VERSION,
            batch_id=batch.owner.batch_id,
            manifest_path=batch.manifest.manifest,
            owner=batch.owner,
            selections_sha256=content_sha256(rules.selections_content(selections)),
        )
    )
    batch.event("opened", batchId=batch.owner.batch_id, selections=len(selections))


def read_batch_selections(control: ControlPaths) -> tuple[Selection, ...]:
    """What the batch was opened with. Raises `DamagedError`."""
    found = read_sealed(control.selections, SelectionsRecord, MAX_STATE_BYTES)
    if found is None:
        raise DamagedError(f"{control.selections} is missing; put it back")
    return tuple(found[0].selections)
