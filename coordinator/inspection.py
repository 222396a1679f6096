"""What a person must know before recovering: who owned the batch, what began, who may be alive. Reads, never writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from coordinator import lock
from coordinator.commit import MAX_STATE_BYTES, read_claims, read_sealed
from coordinator.documents import DocumentError, decode, seal, sha256
from coordinator.errors import CoordinatorError, RefusedError
from coordinator.files import read_bounded
from coordinator.identity import ProcessIdentity, liveness
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.records import UNCERTAIN_PHASES, Entry, Owner, Pending, State

T = TypeVar("T")
WorkerLiveness = Literal["alive", "dead", "may be alive", "unknown", "never begun"]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry between launch and completion. `may be alive`: a claim without `begun`."""

    reservation_id: str
    scenario_id: str
    ordinal: int
    phase: str
    liveness: WorkerLiveness
    pid: int | None = None


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`owner_liveness` is `none` without a lock. `token` is what `--owner-is-dead` takes: the lock's token, or the
    SHA-256 of a lock that cannot be read. `pending` says in words what became of a change that began."""

    manifest: str
    manifest_sha256: str
    batch_id: str
    control_directory: str
    lock: str
    owner: Owner | None
    owner_liveness: Literal["alive", "dead", "unknown", "none"]
    token: str | None
    lock_sha256: str | None
    pending: str | None
    workers: list[WorkerFacts]
    reserved: list[str]
    deliveries: list[str]
    stop: str | None
    problems: list[str]
    actions: list[str]


def find_control(
    manifest: ManifestPaths, owner: Owner | None, control_directory: str | os.PathLike[str] | None
) -> ControlPaths:
    """The control directory: the one given, else the lock's, else the newest that claims name."""
    if control_directory is not None:
        return ControlPaths(control_directory)
    if owner is not None:
        return ControlPaths(owner.control_directory)
    claims = sorted(read_claims(manifest).values(), key=lambda claim: claim.at)
    if claims:
        return ControlPaths(claims[-1].control_directory)
    raise RefusedError(
        f"{manifest.manifest} has no lock and no claim: which batch is meant is not known; say --control DIR"
    )


def inspect_recovery(
    manifest_path: str | os.PathLike[str], control_directory: str | os.PathLike[str] | None = None
) -> RecoveryReport:
    """Everything that `coordinate recover` shows. Raises `CoordinatorError` only where nothing can be shown."""
    manifest = ManifestPaths(manifest_path)
    problems: list[str] = []
    owner, lock_sha256, token = _read_lock(manifest, problems)
    control = find_control(manifest, owner, control_directory)
    state = _try(problems, lambda: _read_state(control))
    manifest_sha256 = sha256(read_bounded(manifest.manifest))
    owner_liveness: Literal["alive", "dead", "unknown", "none"] = "none"
    if lock_sha256 is not None:
        owner_liveness = "unknown" if owner is None else liveness(_identity(owner))
    entries = state.entries if state is not None else {}
    workers = [worker_facts(manifest, control, entry) for entry in entries.values() if entry.phase in UNCERTAIN_PHASES]
    reserved = [one for one, entry in entries.items() if entry.phase == "reserved"]
    pending = _try(problems, lambda: _describe_pending(control, manifest_sha256))
    report = RecoveryReport(
        manifest=manifest.manifest,
        manifest_sha256=manifest_sha256,
        batch_id=state.batch_id if state is not None else owner.batch_id if owner is not None else "",
        control_directory=control.directory,
        lock=lock.describe(manifest.lock) if lock_sha256 is not None else "no lock",
        owner=owner,
        owner_liveness=owner_liveness,
        token=token,
        lock_sha256=lock_sha256,
        pending=pending,
        workers=workers,
        reserved=reserved,
        deliveries=_waiting_deliveries(control),
        stop=f"{state.stop.reason}: {state.stop.detail}" if state is not None and state.stop is not None else None,
        problems=problems,
        actions=[],
    )
    return msgspec.structs.replace(report, actions=_actions(report))


def _read_lock(manifest: ManifestPaths, problems: list[str]) -> tuple[Owner | None, str | None, str | None]:
    try:
        data = read_bounded(manifest.lock, lock.MAX_LOCK_BYTES)
    except FileNotFoundError:
        return None, None, None
    digest = sha256(data)
    try:
        owner = msgspec.convert(decode(data), Owner)
    except (DocumentError, msgspec.ValidationError) as error:
        problems.append(f"{manifest.lock} {error}; its token is the file's SHA-256")
        return None, digest, digest
    return owner, digest, owner.token


def _read_state(control: ControlPaths) -> State | None:
    found = read_sealed(control.state, State, MAX_STATE_BYTES)
    return None if found is None else found[0]


def _identity(owner: Owner) -> ProcessIdentity:
    return ProcessIdentity(pid=owner.pid, host=owner.host, boot_id=owner.boot_id, process_start=owner.process_start)


def worker_facts(manifest: ManifestPaths, control: ControlPaths, entry: Entry) -> WorkerFacts:
    """Whether the worker of an entry may be alive, from its claim and its `begun`."""
    permit = entry.permit
    pid: int | None = None
    found: WorkerLiveness
    if not os.path.lexists(manifest.claim(permit.reservation_id)):
        found = "never begun"
    else:
        try:
            begun = msgspec.convert(
                decode(read_bounded(os.path.join(control.run(permit.reservation_id), "begun"), 64 << 10)),
                ProcessIdentity,
            )
            pid, found = begun.pid, liveness(begun)
        except (CoordinatorError, FileNotFoundError, DocumentError, msgspec.ValidationError):
            found = "may be alive"
    return WorkerFacts(
        reservation_id=permit.reservation_id,
        scenario_id=permit.scenario_id,
        ordinal=permit.ordinal,
        phase=entry.phase,
        liveness=found,
        pid=pid,
    )


def _describe_pending(control: ControlPaths, manifest_sha256: str) -> str | None:
    found = read_sealed(control.pending, Pending, MAX_STATE_BYTES)
    if found is None:
        return None
    pending, _ = found
    what = f"{pending.operation} of {pending.scenario_id} ({pending.reservation_id})"
    if manifest_sha256 == pending.manifest_after_sha256:
        return f"{what} happened; its state will be finished (state {sha256(seal(pending.state))[:12]})"
    if manifest_sha256 == pending.manifest_before_sha256:
        return f"{what} never happened; its intent will be dropped"
    return f"{what} meets an unrecognized manifest; look at it, then --accept-manifest {manifest_sha256}"


def _waiting_deliveries(control: ControlPaths) -> list[str]:
    try:
        return sorted(name for name in os.listdir(control.inbox) if name.endswith(".json"))[:1000]
    except OSError:
        return []


def _actions(report: RecoveryReport) -> list[str]:
    actions = []
    if report.owner_liveness == "alive":
        return ["nothing: the owner lives; coordinate stop asks it to stop"]
    if report.owner_liveness != "none":
        actions.append(f"take the dead owner's lock: --owner-is-dead {report.token}")
    if report.pending is not None:
        actions.append(f"settle: {report.pending}")
    for worker in report.workers:
        if worker.liveness == "alive":
            actions.append(f"wait for the worker of {worker.reservation_id} (pid {worker.pid})")
        elif worker.liveness in ("may be alive", "unknown"):
            actions.append(f"make sure that no worker runs, then --worker-is-dead {worker.reservation_id}")
        if worker.liveness != "alive":
            actions.append(f"adopt the delivery of {worker.reservation_id} if it verifies, else --end it")
    actions.extend(
        f"{one} was reserved and never launched: reopen the batch, or --end {one}" for one in report.reserved
    )
    return actions or ["nothing"]


def _try(problems: list[str], read: Callable[[], T]) -> T | None:
    """What cannot be read is part of what a person must see."""
    try:
        return read()
    except CoordinatorError as error:
        problems.append(str(error))
        return None
