"""Proof from files that every attempt was launched at most once and every receipt matches. Reads, never writes."""

from __future__ import annotations

import os
from collections import Counter

import msgspec

from coordinator import rules
from coordinator.commit import MAX_STATE_BYTES, decode_ledger, read_claims, read_sealed
from coordinator.documents import content_sha256, sha256
from coordinator.errors import CoordinatorError
from coordinator.files import read_bounded
from coordinator.inspection import inspect_recovery
from coordinator.manifest import Ledger, same
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.records import OPEN_PHASES, UNCERTAIN_PHASES, Claim, Completion, Entry, State, read_record
from workers.contract import DeliveryRefusedError, Job, verify_delivery


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What does not fit, and in which file."""

    where: str
    what: str


class Verification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`checked` counts what was compared; `notes` are facts that are no contradiction."""

    problems: list[Problem]
    notes: list[Problem]
    checked: dict[str, int]


class _Check:
    def __init__(self, manifest: ManifestPaths) -> None:
        self.manifest = manifest
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.checked: Counter[str] = Counter()

    def problem(self, where: str, what: str) -> None:
        self.problems.append(Problem(where=where, what=what))

    def note(self, where: str, what: str) -> None:
        self.notes.append(Problem(where=where, what=what))


def verify(
    manifest_path: str | os.PathLike[str], control_directory: str | os.PathLike[str] | None = None
) -> Verification:
    """Compare manifest, claims, states, receipts, jobs and deliveries of every batch that the claims name.

    Raises `CoordinatorError` only if the manifest itself cannot be read.
    """
    manifest = ManifestPaths(manifest_path)
    check = _Check(manifest)
    ledger = decode_ledger(manifest.manifest, read_bounded(manifest.manifest))
    _check_ledger(check, ledger)
    claims = _readable_claims(check)
    directories = {claim.control_directory for claim in claims.values()}
    if control_directory is not None:
        directories.add(ControlPaths(control_directory).directory)
    elif not directories:
        try:
            directories.add(inspect_recovery(manifest_path).control_directory)
        except CoordinatorError:
            check.note(manifest.manifest, "no lock and no claim: nothing was ever launched from it")
    _check_launches(check, claims)
    for directory in sorted(directories):
        _check_batch(check, ledger, ControlPaths(directory), claims)
    return Verification(problems=check.problems, notes=check.notes, checked=dict(check.checked))


def _check_ledger(check: _Check, ledger: Ledger) -> None:
    names = Counter(scenario["id"] for scenario in ledger.scenarios)
    for name, count in names.items():
        if count > 1:
            check.problem(check.manifest.manifest, f"scenario {name!r} is listed {count} times")
    for scenario in ledger.scenarios:
        running = 0
        for position, row in enumerate(scenario["attempts"], 1):
            check.checked["attempts"] += 1
            running += row.get("outcome") == "running"
            if row.get("ordinal") != position:
                check.problem(
                    check.manifest.manifest,
                    f"attempt {position} of {scenario['id']!r} has the ordinal {row.get('ordinal')!r}",
                )
        if running > 1:
            check.problem(check.manifest.manifest, f"{running} attempts of {scenario['id']!r} are running")


def _readable_claims(check: _Check) -> dict[str, Claim]:
    try:
        return read_claims(check.manifest)
    except CoordinatorError as error:
        check.problem(check.manifest.claims, str(error))
    readable: dict[str, Claim] = {}
    for name in check.manifest.claim_names():
        try:
            found = read_sealed(check.manifest.claim(name), Claim, MAX_STATE_BYTES)
        except CoordinatorError:
            continue
        if found is not None:
            readable[name] = found[0]
    return readable


def _check_launches(check: _Check, claims: dict[str, Claim]) -> None:
    """One claim is one launch that was begun: no two for the same attempt."""
    launches: dict[tuple[str, int], list[str]] = {}
    for name, claim in claims.items():
        check.checked["claims"] += 1
        launches.setdefault((claim.scenario_id, claim.ordinal), []).append(name)
    for (scenario_id, ordinal), names in launches.items():
        if len(names) > 1:
            check.problem(
                check.manifest.claims, f"attempt {ordinal} of {scenario_id!r} was launched twice: {', '.join(names)}"
            )


def _check_batch(check: _Check, ledger: Ledger, control: ControlPaths, claims: dict[str, Claim]) -> None:
    try:
        found = read_sealed(control.state, State, MAX_STATE_BYTES)
    except CoordinatorError as error:
        check.problem(control.state, str(error))
        return
    if found is None:
        if any(claim.control_directory == control.directory for claim in claims.values()):
            check.problem(control.state, "is missing, but launches of its batch were begun")
        return
    state = found[0]
    if state.manifest_path != check.manifest.manifest:
        check.problem(control.state, f"belongs to the manifest {state.manifest_path}")
    if os.path.lexists(control.pending):
        check.note(control.pending, "a change began and has not ended (a living owner is at work, or recover)")
    for reservation_id, entry in state.entries.items():
        check.checked["reservations"] += 1
        _check_entry(check, ledger, control, reservation_id, entry, claims.get(reservation_id))
    for reservation_id, claim in claims.items():
        if claim.control_directory == control.directory and reservation_id not in state.entries:
            check.problem(control.state, f"does not know {reservation_id}, whose launch was begun (an older copy?)")
    _check_runs(check, control, state, claims)


def _check_entry(
    check: _Check, ledger: Ledger, control: ControlPaths, reservation_id: str, entry: Entry, claim: Claim | None
) -> None:
    permit, receipt, where = entry.permit, entry.receipt, f"{control.state} {reservation_id}"
    if permit.reservation_id != reservation_id:
        check.problem(where, f"its permit is of {permit.reservation_id}")
    if content_sha256(entry.reserved_attempt) != receipt.reserved_sha256:
        check.problem(where, "its reserved attempt does not have the receipt's SHA-256")
    row = ledger.row(permit.scenario_id, permit.ordinal)
    if entry.phase in OPEN_PHASES:
        if row is None or not same(row, entry.reserved_attempt):
            check.problem(check.manifest.manifest, f"the row of {reservation_id} is not the reserved one")
    else:
        _check_receipt(check, where, entry, row)
    if claim is None and entry.phase == "launched":
        check.problem(where, "it was launched, but has no claim")
    if claim is not None and entry.phase == "reserved":
        check.problem(where, "stands as not launched, but its claim exists (an older copy?)")
    if claim is not None:
        wanted = (permit.batch_id, permit.scenario_id, permit.execution_id, permit.ordinal)
        if (claim.batch_id, claim.scenario_id, claim.execution_id, claim.ordinal) != wanted:
            check.problem(check.manifest.claim(reservation_id), "is not the claim of that reservation")
    if entry.phase in UNCERTAIN_PHASES:
        check.note(where, f"is {entry.phase}: under way, or of unknown fate")
    if entry.job_sha256 is not None:
        _check_job(check, control, reservation_id, entry)


def _check_receipt(check: _Check, where: str, entry: Entry, row: object) -> None:
    receipt = entry.receipt
    check.checked["receipts"] += 1
    if receipt.completion is None or content_sha256(receipt.completion) != receipt.completion_sha256:
        check.problem(where, "its completion does not have the receipt's SHA-256")
        return
    completion = read_record(receipt.completion, Completion, where)
    if content_sha256(rules.completed_row(entry, completion)) != receipt.row_sha256:
        check.problem(where, "the reserved attempt with this completion is not the receipt's row")
    if row is None or content_sha256(row) != receipt.row_sha256:
        permit = entry.permit
        check.problem(
            check.manifest.manifest, f"attempt {permit.ordinal} of {permit.scenario_id!r} differs from its receipt"
        )


def _check_job(check: _Check, control: ControlPaths, reservation_id: str, entry: Entry) -> None:
    path = control.job(reservation_id)
    try:
        data = read_bounded(path)
        if sha256(data) != entry.job_sha256:
            check.problem(path, "does not have the SHA-256 that the reservation's entry has")
            return
        check.checked["jobs"] += 1
        job = msgspec.json.decode(data, type=Job)
    except (FileNotFoundError, CoordinatorError, msgspec.DecodeError) as error:
        check.problem(path, f"cannot be read: {error}")
        return
    try:
        names = sorted(os.listdir(control.inbox))
    except OSError as error:
        check.problem(control.inbox, f"cannot be listed: {error}")
        return
    for name in names:
        if name.startswith(reservation_id + ".") and name.endswith(".json"):
            _check_delivery(check, os.path.join(control.inbox, name), job, entry)


def _check_delivery(check: _Check, path: str, job: Job, entry: Entry) -> None:
    try:
        delivery = verify_delivery(read_bounded(path), job.key, job=job, job_sha256=entry.job_sha256 or "")
    except (DeliveryRefusedError, CoordinatorError, FileNotFoundError) as error:
        check.note(path, f"waits in the inbox and does not verify: {error}")
        return
    check.checked["deliveries"] += 1
    if entry.phase in OPEN_PHASES:
        check.note(path, "waits to be taken up")
    elif content_sha256(msgspec.to_builtins(delivery.completion)) != entry.receipt.completion_sha256:
        check.problem(path, "was delivered and signed, but the receipt is of another completion")


def _check_runs(check: _Check, control: ControlPaths, state: State, claims: dict[str, Claim]) -> None:
    """A run's folder that was begun belongs to a reservation that was claimed."""
    try:
        names = sorted(os.listdir(control.runs))
    except OSError:
        return
    for name in names:
        if os.path.lexists(os.path.join(control.runs, name, "begun")):
            check.checked["runs"] += 1
            if name not in state.entries or name not in claims:
                check.problem(os.path.join(control.runs, name), "was begun without a reservation and claim")
