"""The purchase's own file: what was asked for, in exact bytes, before it is sent, and all that a resume needs.

`.playlane/campaigns/KEY/journal.json`. Sealed like a control file; a journal that was edited is refused. Its lock names
the process that uses it: a dead one's may be taken (nothing is launched by taking it; the coordinator's own lock still
guards launches), a living one's never.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from typing import Any, Literal

import msgspec

from coordinator.commit import read_sealed
from coordinator.documents import DocumentError, decode, encode, seal
from coordinator.errors import CoordinatorError
from coordinator.files import Files
from coordinator.identity import ProcessIdentity, liveness, own_identity

JOURNAL_VERSION = 1
MAX_JOURNAL_BYTES = 8 << 20
MAX_LOCK_BYTES = 64 << 10
KEY_WINDOW_SECONDS = 24 * 3600
"""How long a registration may be sent again under its key; later the key is only looked up."""

JournalState = Literal["registering", "registered", "settled", "finished"]


class JournalError(CoordinatorError):
    """A journal that must not be used: unreadable, locked by a living process, or of another purchase."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One coordinator's batch within the purchase."""

    batch_id: str
    control_directory: str


class Journal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`request` is the exact body that is sent, `price_cents` what was agreed to, `options` whatever changes what is
    played, recorded or uploaded. `runs`: scenario id -> run id of the job. `results`: run id -> what `complete` said.
    """

    version: int
    kind: Literal["campaign", "simulation"]
    key: str
    game: str
    service: str
    state: JournalState
    created_at: str
    request: str
    price_cents: int
    limits: dict[str, Any]
    options: dict[str, Any]
    manifest_path: str
    batches: list[Batch] = msgspec.field(default_factory=list)
    job_id: str | None = None
    runs: dict[str, str] = msgspec.field(default_factory=dict)
    results: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    job_state: str | None = None
    exit_code: int | None = None


class JournalFile:
    """A journal on disk under its lock. `change` is one durable replace."""

    def __init__(self, path: str, journal: Journal, files: Files, lock: int) -> None:
        self.path, self.journal, self._files, self._lock = path, journal, files, lock

    @classmethod
    def create(cls, folder: str, journal: Journal, *, files: Files | None = None) -> JournalFile:
        """A new purchase in a new private folder. Raises `JournalError` if one is there."""
        files = files or Files()
        _make_private_folders(files, folder)
        path = os.path.join(folder, "journal.json")
        lock = _lock(path)
        try:
            files.create(path, _sealed(path, journal))
        except FileExistsError as error:
            _unlock(lock)
            raise JournalError(f"{path} exists; that purchase goes on with coordinate resume {journal.key}") from error
        except CoordinatorError:
            _unlock(lock)
            raise
        return cls(path, journal, files, lock)

    @classmethod
    def open(cls, path: str, *, files: Files | None = None) -> JournalFile:
        """An existing purchase. Raises `JournalError` if it is damaged or a living process uses it."""
        files = files or Files()
        lock = _lock(path)
        try:
            return cls(path, read_journal(path), files, lock)
        except CoordinatorError:
            _unlock(lock)
            raise

    def change(self, **changes: Any) -> Journal:
        """Make it durable, whole or not at all; what is in memory changes with the disk and never before it."""
        changed = msgspec.structs.replace(self.journal, **changes)
        self._files.replace(self.path, _sealed(self.path, changed))
        self.journal = changed
        return changed

    def close(self) -> None:
        _unlock(self._lock)


def _sealed(path: str, journal: Journal) -> bytes:
    data = seal(journal)
    if len(data) > MAX_JOURNAL_BYTES:
        raise JournalError(f"{path} would have {len(data)} bytes, more than the {MAX_JOURNAL_BYTES} that can be read")
    return data


def _make_private_folders(files: Files, folder: str) -> None:
    """Every folder that is missing, private from the start: `os.makedirs` gives the outer ones the usual mode."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        files.make_directory(one)


def new_key() -> str:
    """An idempotency key: random, so that no two purchases share one."""
    return secrets.token_hex(16)


def read_journal(path: str) -> Journal:
    """What a journal says, without its lock. Raises `JournalError`."""
    try:
        found = read_sealed(path, Journal, MAX_JOURNAL_BYTES)
    except CoordinatorError as error:
        raise JournalError(f"the journal cannot be used: {error}") from error
    if found is None:
        raise JournalError(f"there is no journal at {path}")
    if found[0].version != JOURNAL_VERSION:
        raise JournalError(f"{path} has version {found[0].version}; this program reads {JOURNAL_VERSION}")
    return found[0]


def list_journals(project: str) -> list[tuple[str, Journal | JournalError]]:
    """Path and content (or what is wrong) of every campaign journal of a project, by name."""
    root = os.path.join(project, ".playlane", "campaigns")
    found: list[tuple[str, Journal | JournalError]] = []
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return found
    for name in names:
        path = os.path.join(root, name, "journal.json")
        if os.path.lexists(path):
            try:
                found.append((path, read_journal(path)))
            except JournalError as error:
                found.append((path, error))
    return found


def _lock(path: str) -> int:
    """Hold the journal's lock file by flock, which dies with its process, and write into it who holds it.

    Also refused is a lock that names a living process or another host's without being held: flock does not reach there.
    """
    lock = path + ".lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"the journal's lock {lock} cannot be opened: {error.strerror}") from error
    try:
        held = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
        _judge_owner(lock, os.pread(descriptor, MAX_LOCK_BYTES + 1, 0), held=held)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, encode(own_identity()), 0)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _judge_owner(lock: str, data: bytes, *, held: bool) -> None:
    if not data and not held:
        return
    try:
        owner = msgspec.convert(decode(data, limit_bytes=MAX_LOCK_BYTES), ProcessIdentity)
    except (DocumentError, msgspec.ValidationError) as error:
        raise JournalError(f"the journal's lock {lock} cannot be read: {error}; remove it if nobody uses it") from error
    found = liveness(owner)
    if held or (found != "dead" and owner != own_identity()):
        raise JournalError(f"the journal is used by process {owner.pid} on {owner.host} ({found}); its lock is {lock}")


def _unlock(descriptor: int) -> None:
    """Emptied, not removed: whoever waits for this very file must not end up with a lock on a file that is gone."""
    os.ftruncate(descriptor, 0)
    os.close(descriptor)
