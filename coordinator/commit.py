"""The commit protocol: intent, manifest, state. Synchronous but for the crash seam, never interrupted half-way.

A change of the ledger writes three files in an order that lets any reader of the disk tell what happened: with the
intent on disk, a manifest equal to its before-hash means the change never happened, one equal to its after-hash means
it did. Nothing is tried again after an error: the disk decides at recovery.
"""

from __future__ import annotations

import inspect
import json
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from coordinator import lock
from coordinator.documents import (
    MAX_DOCUMENT_BYTES,
    DocumentError,
    decode,
    encode,
    encode_around,
    plain,
    seal,
    seal_encoded,
    seal_hashed,
    sha256,
    unseal,
)
from coordinator.errors import (
    DamagedError,
    InvalidInputError,
    LockLostError,
    OutsideCoordinatorError,
    PoisonedError,
    RefusedError,
    UnrecognizedManifestError,
)
from coordinator.files import Files, check_private_directory, hold_directory, read_bounded
from coordinator.manifest import Ledger
from coordinator.paths import ControlPaths, ManifestPaths
from coordinator.records import STATE_VERSION, Claim, Owner, Pending, State

MAX_STATE_BYTES = 64 << 20
MAX_CLAIM_BYTES = 64 << 10

T = TypeVar("T")
Fault = Callable[[str], Awaitable[None] | None]


class Batch:
    """One batch's files under one lock, its state in memory, and the only ways to change either."""

    def __init__(
        self,
        files: Files,
        manifest: ManifestPaths,
        control: ControlPaths,
        *,
        owner: Owner,
        now: Callable[[], str],
        fault: Fault | None = None,
    ) -> None:
        self.files, self.manifest, self.control = files, manifest, control
        self.owner, self.now, self.fault = owner, now, fault
        self.state: State
        self.state_sha256 = ""
        self.poisoned: str | None = None
        self._directory: tuple[int, int] | None = None
        self._ledger: tuple[str, Ledger] | None = None

    @property
    def began(self) -> bool:
        """Whether there is a state: an opening can be killed before it made one."""
        return hasattr(self, "state")

    # -- guards

    def check_usable(self) -> None:
        if self.poisoned is not None:
            raise PoisonedError(self.poisoned)

    def check_ownership(self) -> None:
        """The lock is ours still and the control directory the same; else nothing may be written."""
        lock.check(self.manifest.lock, self.owner)
        found = os.lstat(self.control.directory) if os.path.lexists(self.control.directory) else None
        if found is None or (found.st_dev, found.st_ino) != self._directory:
            raise LockLostError(self.manifest.lock, f"is ours, but {self.control.directory} is not the same directory")

    def remember_directory(self) -> None:
        """From here on it must stay this directory. Raises as `check_private_directory`."""
        check_private_directory(self.control.directory)
        held = hold_directory(self.control.directory)
        # Held open as long as this batch lives: else a directory made anew could get the number of the removed one.
        weakref.finalize(self, os.close, held)
        found = os.fstat(held)
        self._directory = (found.st_dev, found.st_ino)

    # -- reading

    def read_ledger(self) -> Ledger:
        """The manifest as it is on disk now. Bytes that were judged before are not decoded again."""
        data = self.manifest_bytes()
        digest = sha256(data)
        if self._ledger is None or self._ledger[0] != digest:
            self._ledger = (digest, decode_ledger(self.manifest.manifest, data))
        return self._ledger[1]

    def manifest_bytes(self) -> bytes:
        """The manifest's bytes now. Raises `InvalidInputError`: it is the caller's file, not one of ours."""
        try:
            return read_bounded(self.manifest.manifest)
        except FileNotFoundError as error:
            raise InvalidInputError(f"{self.manifest.manifest} is gone; put it back") from error
        except DamagedError as error:
            raise InvalidInputError(str(error)) from error

    def read_state(self) -> State | None:
        """The state on disk, or None if there is none. Raises `DamagedError`."""
        found = read_sealed(self.control.state, State, MAX_STATE_BYTES)
        if found is None:
            return None
        state, self.state_sha256 = found
        return state

    # -- changes of the state alone

    def create_state(self, state: State) -> None:
        data = seal(state)
        try:
            self.files.create(self.control.state, data)
        except FileExistsError as error:
            raise DamagedError(f"{self.control.state} appeared while the batch was opened") from error
        self.state, self.state_sha256 = state, sha256(data)

    def replace_state(self, state: State) -> None:
        """One durable replace. An error poisons: both contents are legal now."""
        self.check_usable()
        self.check_ownership()
        data = seal(state)
        refuse_oversize(self.control.state, data, MAX_STATE_BYTES)
        with Poisoning(self):
            self.files.replace(self.control.state, data)
        self.state, self.state_sha256 = state, sha256(data)

    # -- changes of the ledger

    async def commit(
        self,
        operation: str,
        document: dict[str, Any],
        state: State,
        *,
        reservation_id: str,
        row_before: dict[str, Any] | None,
        row_after: dict[str, Any],
    ) -> None:
        """Make `document` the manifest and `state` the state, or leave on disk what tells how far it went.

        The manifest must still be the one that `read_ledger` returned last. Raises `OutsideCoordinatorError`, or what
        the disk or `fault` raises; either poisons.
        """
        self.check_usable()
        self.check_ownership()
        assert self._ledger is not None
        before = self._ledger[0]
        manifest_data = encode(document)
        state_body = encode(state)
        state_data, state_sha256 = seal_hashed(state_body)
        after = sha256(manifest_data)

        def pending(spelt_state: Any) -> Pending:
            return Pending(
                version=1,
                operation=operation,
                reservation_id=reservation_id,
                scenario_id=state.entries[reservation_id].permit.scenario_id,
                manifest_before_sha256=before,
                manifest_after_sha256=after,
                state_before_sha256=self.state_sha256,
                state=spelt_state,
                row_before=row_before,
                row_after=row_after,
            )

        pending_data = seal_encoded(encode_around(pending, state_body))
        refuse_oversize(self.manifest.manifest, manifest_data, MAX_DOCUMENT_BYTES)
        refuse_oversize(self.control.pending, pending_data, MAX_STATE_BYTES)
        with Poisoning(self):
            self.files.replace(self.control.pending, pending_data)
            await self._reach("intent")
            self._check_untouched(before)
            self.files.replace(self.manifest.manifest, manifest_data, keep_mode=True)
            await self._reach("manifest")
            self.files.replace(self.control.state, state_data)
            await self._reach("state")
            self.files.remove(self.control.pending)
        self.state, self.state_sha256 = state, state_sha256
        self._ledger = (after, Ledger(document))

    def _check_untouched(self, before_sha256: str) -> None:
        try:
            found = sha256(self.manifest_bytes())
        except InvalidInputError as error:  # gone, or no regular file any more
            raise OutsideCoordinatorError(self.manifest.manifest) from error
        if found != before_sha256:
            raise OutsideCoordinatorError(self.manifest.manifest)

    async def _reach(self, stage: str) -> None:
        if self.fault is not None:
            answer = self.fault(stage)
            if inspect.isawaitable(answer):
                await answer

    def rewrite_pending(self, pending: Pending) -> None:
        """For a person's `--accept-manifest`: the same change, with the hashes that make `settle` decide."""
        self.check_ownership()
        with Poisoning(self):
            self.files.replace(self.control.pending, seal(pending))

    # -- claims

    def claim(self, claim: Claim) -> None:
        """Mark that a launch is begun. Raises `FileExistsError` if it was begun before."""
        with Poisoning(self, but=FileExistsError):
            self.files.create(self.manifest.claim(claim.reservation_id), seal(claim))

    def claimed(self, reservation_id: str) -> bool:
        return os.path.lexists(self.manifest.claim(reservation_id))

    # -- for people

    def event(self, what: str, **facts: Any) -> None:
        """A line in `events.jsonl`; an error while writing it changes nothing."""
        line = {"at": self.now(), "event": what, **facts}
        self.files.append_line(self.control.events, json.dumps(plain(line), ensure_ascii=False).encode())


class Poisoning:
    """From here on an error leaves a change of unknown fate: nothing more is written by this process."""

    def __init__(self, batch: Batch, but: type[BaseException] | tuple[type[BaseException], ...] = ()) -> None:
        self.batch, self.but = batch, but

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, self.but):
            self.batch.poisoned = f"{type(error).__name__}: {error}"


def refuse_oversize(path: str, data: bytes, limit_bytes: int) -> None:
    """What could be written but not read again would end the campaign."""
    if len(data) > limit_bytes:
        raise RefusedError(f"{path} would have {len(data)} bytes, more than {limit_bytes}; nothing was changed")


def decode_ledger(path: str, data: bytes) -> Ledger:
    """A manifest from its bytes. Raises `InvalidInputError` naming the file."""
    try:
        return Ledger.read(decode(data))
    except DocumentError as error:
        raise InvalidInputError(f"{path} {error}") from error


def read_sealed(path: str, record: type[T], limit_bytes: int) -> tuple[T, str] | None:
    """A sealed control file and the SHA-256 of its bytes; None if it is not there. Raises `DamagedError`."""
    try:
        data = read_bounded(path, limit_bytes)
    except FileNotFoundError:
        return None
    try:
        document = unseal(data, limit_bytes=limit_bytes)
        if document.get("version") != STATE_VERSION:
            raise DamagedError(f"{path} has version {document.get('version')!r}; this program reads {STATE_VERSION}")
        return msgspec.convert(document, record), sha256(data)
    except DocumentError as error:
        raise DamagedError(f"{path} {error}") from error
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path} does not have its form: {error}") from error


def read_claims(manifest: ManifestPaths) -> dict[str, Claim]:
    """Every claim beside the manifest, of all batches. Raises `DamagedError` for one that is not what was written."""
    claims: dict[str, Claim] = {}
    for name in manifest.claim_names():
        found = read_sealed(manifest.claim(name), Claim, MAX_CLAIM_BYTES)
        if found is None:
            continue
        if found[0].reservation_id != name:
            raise DamagedError(f"{manifest.claim(name)} is the claim of {found[0].reservation_id}")
        claims[name] = found[0]
    return claims


def settle(batch: Batch) -> State | None:
    """Bring a change that began to its end or drop it; return the state that stands, None for a new batch.

    Raises `UnrecognizedManifestError` and `DamagedError`, for which the lock is to be kept.
    """
    state = batch.read_state()
    found = read_sealed(batch.control.pending, Pending, MAX_STATE_BYTES)
    if found is None:
        return state
    pending, _ = found
    if state is None:
        raise DamagedError(f"{batch.control.pending} exists without {batch.control.state}")
    state_after_sha256 = sha256(seal(pending.state))
    if batch.state_sha256 not in (pending.state_before_sha256, state_after_sha256):
        raise DamagedError(f"{batch.control.pending} belongs to another {batch.control.state}")
    manifest_sha256 = sha256(batch.manifest_bytes())
    if manifest_sha256 == pending.manifest_after_sha256:
        if batch.state_sha256 != state_after_sha256:
            with Poisoning(batch):
                batch.files.replace(batch.control.state, seal(pending.state))
            batch.state_sha256 = state_after_sha256
        state = pending.state
    elif manifest_sha256 != pending.manifest_before_sha256 or batch.state_sha256 != pending.state_before_sha256:
        raise UnrecognizedManifestError(
            batch.manifest.manifest, manifest_sha256, pending.manifest_before_sha256, pending.manifest_after_sha256
        )
    with Poisoning(batch):
        batch.files.remove(batch.control.pending)
    return state
