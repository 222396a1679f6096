"""Where workers deliver: the listing decides, events only shorten the wait, and nothing in it is trusted.

A file of the inbox is believed if it is a regular file of ours, signed with its reservation's key, answers exactly
the job on disk, and every artefact that it names is there with its size and SHA-256. The first such file of a
reservation stands; an equal one is ignored; all others are moved to `rejected/` with the reason beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.files import read_bounded
from coordinator.paths import ControlPaths
from coordinator.watching import DirectoryWatch
from workers.contract import MAX_DELIVERY_BYTES, Artefact, Delivery, DeliveryRefusedError, Job, verify_delivery

LISTING_SECONDS = 2.0
JUNK_PER_LISTING = 200
MAX_JOB_BYTES = 4 << 20
MAX_NAME_BYTES = 200
_NAME = re.compile(rb"([0-9a-zA-Z][0-9a-zA-Z_-]{0,63})\.[0-9a-f]{8,64}\.(json|tmp)")


class WorkerVanishedError(CoordinatorError):
    """A worker ended and no delivery of its reservation verifies; what it did is not known."""

    def __init__(self, reservation_id: str, exit_code: int | None, rejected: list[str], last_words: str) -> None:
        self.reservation_id, self.exit_code, self.rejected = reservation_id, exit_code, rejected
        ending = "was let go" if exit_code is None else f"exit code {exit_code}"
        if exit_code is not None and exit_code < 0:
            ending = f"signal {-exit_code}"
        message = f"the worker of {reservation_id} ended ({ending}) without a delivery that verifies"
        if rejected:
            message += f"; rejected: {'; '.join(rejected)}"
        if last_words:
            message += f"; its last words: {last_words}"
        super().__init__(message)


class Exiting(Protocol):
    """A started worker, as far as waiting for it goes."""

    run_directory: str
    exited: asyncio.Event
    exit_code: int | None


class InboxName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a worker could have written: `RESERVATION.RANDOM.json`, or `.tmp` while it writes."""

    reservation_id: str
    complete: bool


def read_name(name: bytes) -> InboxName | None:
    """The parts of a file's name, or None for one that no worker writes."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return InboxName(reservation_id=match[1].decode(), complete=match[2] == b"json")


def reading_order(names: Iterable[bytes], awaited: set[str]) -> list[bytes]:
    """What to judge in one listing: all that is awaited, then what may be a delivery, then a bounded share of junk."""
    first: list[bytes] = []
    second: list[bytes] = []
    junk: list[bytes] = []
    for name in names:
        parts = read_name(name)
        if parts is None:
            if len(junk) < JUNK_PER_LISTING:
                junk.append(name)
        else:
            (first if parts.reservation_id in awaited else second).append(name)
    return sorted(first) + sorted(second)[:JUNK_PER_LISTING] + sorted(junk)


class Inbox:
    """One control directory's inbox.

    `evidence_root` is what artefact paths are relative to. `ended(reservation_id)` says that a person closed that
    reservation's row: its late deliveries are rejected. `now()` is the UTC time for reasons.
    """

    def __init__(
        self,
        control_directory: str | os.PathLike[str],
        evidence_root: str | os.PathLike[str],
        *,
        ended: Callable[[str], bool] | None = None,
        now: Callable[[], str] | None = None,
    ) -> None:
        self.paths = ControlPaths(control_directory)
        self._root = os.path.realpath(os.fspath(evidence_root))
        self._ended = ended or (lambda reservation_id: False)
        self._now = now or (lambda: "")
        self._believed: dict[str, tuple[bytes, Delivery]] = {}
        self._expected: dict[str, str] = {}
        self._settled: dict[bytes, tuple[int, int, int]] = {}
        self._reasons: dict[str, list[str]] = {}
        self._awaited: dict[str, int] = {}
        self._gone: set[str] = set()
        self._wakers: set[asyncio.Event] = set()
        self._lock = threading.Lock()
        self._watch: DirectoryWatch | None = None

    def expect(self, reservation_id: str, job_sha256: str) -> None:
        """From now on a delivery of this reservation must answer the job file with this SHA-256."""
        self._expected[reservation_id] = job_sha256

    def delivery_of(self, reservation_id: str) -> Delivery | None:
        """What was believed of a reservation in the listings so far."""
        found = self._believed.get(reservation_id)
        return found[1] if found else None

    async def wait_for(self, reservation_id: str, worker: Exiting) -> Delivery:
        """The reservation's delivery, as soon as one verifies.

        Raises `WorkerVanishedError` when the worker has ended and the listing after that has none.
        """
        waker = asyncio.Event()
        self._wakers.add(waker)
        self._awaited[reservation_id] = self._awaited.get(reservation_id, 0) + 1
        try:
            while True:
                waker.clear()
                self._keep_watching()
                # Looked at before the listing: whatever was delivered before the exit is in a listing after it.
                exited = worker.exited.is_set()
                if exited:
                    self._gone.add(reservation_id)
                await asyncio.to_thread(self.collect)
                if (delivery := self.delivery_of(reservation_id)) is not None:
                    return delivery
                if exited:
                    raise WorkerVanishedError(
                        reservation_id,
                        worker.exit_code,
                        self._reasons.get(reservation_id, [])[-3:],
                        _last_words(worker.run_directory),
                    )
                await _first_of(waker, worker.exited, LISTING_SECONDS)
        finally:
            self._wakers.discard(waker)
            self._awaited[reservation_id] -= 1

    def close(self) -> None:
        """Stop watching; may be called twice."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def collect(self) -> None:
        """List the whole inbox once, judge what is new, move away what is not believed. Called from any thread."""
        with self._lock:
            awaited = {one for one, count in self._awaited.items() if count}
            for name in reading_order(self._new_names(), awaited):
                self._take(name)

    def _new_names(self) -> list[bytes]:
        directory = os.fsencode(self.paths.inbox)
        try:
            if not stat.S_ISDIR(os.lstat(directory).st_mode):
                return []
            names = os.listdir(directory)
        except OSError:
            return []  # moved away, perhaps to come back; a worker's exit ends the wait
        for name in self._settled.keys() - set(names):
            del self._settled[name]
        return [name for name in names if name not in self._settled or self._settled[name] != self._facts(name)]

    def _facts(self, name: bytes) -> tuple[int, int, int]:
        try:
            found = os.lstat(os.path.join(os.fsencode(self.paths.inbox), name))
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_mtime_ns, found.st_size)

    def _take(self, name: bytes) -> None:
        facts = self._facts(name)
        parts = read_name(name)
        if parts is None:
            self._reject(name, None, "no worker gives such a name")
            return
        if not parts.complete:
            # A living worker is writing it; once its worker has gone it never becomes more.
            if parts.reservation_id in self._gone:
                self._reject(name, parts.reservation_id, "half-written: its worker ended before it was complete")
            return
        try:
            raw, delivery = self._verify(name, parts.reservation_id)
        except FileNotFoundError:
            return
        except DeliveryRefusedError as refused:
            self._reject(name, parts.reservation_id, refused.reason)
            return
        first = self._believed.get(parts.reservation_id)
        if first is not None and first[0] != raw:
            self._reject(name, parts.reservation_id, "another delivery of this reservation came first")
            return
        self._believed[parts.reservation_id] = (raw, delivery)
        self._settled[name] = facts

    def _verify(self, name: bytes, reservation_id: str) -> tuple[bytes, Delivery]:
        if self._ended(reservation_id):
            raise DeliveryRefusedError("its reservation has ended")
        raw = _read_delivery(os.path.join(os.fsencode(self.paths.inbox), name))
        try:
            job_bytes = read_bounded(self.paths.job(reservation_id), MAX_JOB_BYTES)
            job = msgspec.json.decode(job_bytes, type=Job)
        except FileNotFoundError as error:
            raise DeliveryRefusedError("no job of this control directory has its reservation") from error
        except (CoordinatorError, msgspec.DecodeError, ValueError) as error:
            raise DeliveryRefusedError(f"its job cannot be read: {error}") from error
        job_sha256 = hashlib.sha256(job_bytes).hexdigest()
        if self._expected.get(reservation_id, job_sha256) != job_sha256:
            raise DeliveryRefusedError("its job file is not the one that was launched")
        if job.reservation_id != reservation_id:
            raise DeliveryRefusedError(f"its job is of reservation {job.reservation_id!r}")
        delivery = verify_delivery(raw, job.key, job=job, job_sha256=job_sha256)
        for artefact in delivery.artefacts:
            check_artefact(self._root, artefact)
        return raw, delivery

    def _reject(self, name: bytes, reservation_id: str | None, reason: str) -> None:
        if reservation_id is not None:
            self._reasons.setdefault(reservation_id, []).append(reason)
        rejected = os.fsencode(self.paths.rejected)
        target = os.path.join(rejected, _free_name(rejected, name))
        told = {"name": name.decode("utf-8", "backslashreplace"), "reason": reason, "at": self._now()}
        # For people: a reason that cannot be written does not keep the file in the inbox.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(target + b".reason.json", flags, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")
        try:
            os.rename(os.path.join(os.fsencode(self.paths.inbox), name), target)
        except OSError:
            self._settled[name] = self._facts(name)  # it cannot be moved: not judged again in every listing

    def _keep_watching(self) -> None:
        if self._watch is None:
            loop = asyncio.get_running_loop()

            def woken() -> None:
                # The loop may be closed by the time a last event arrives.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._wake_all)

            self._watch = DirectoryWatch(self.paths.inbox, woken)
        self._watch.keep()

    def _wake_all(self) -> None:
        for waker in self._wakers:
            waker.set()


def check_artefact(root: str, artefact: Artefact) -> None:
    """Raises `DeliveryRefusedError` unless exactly this file lies under `root`, reached without a link or blocking."""
    shown = artefact.path[:200]
    parts = artefact.path.split("/")
    if not artefact.path or "\0" in artefact.path or any(part in ("", ".", "..") for part in parts):
        raise DeliveryRefusedError(f"artefact {shown!r} is not a path under the evidence root")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for position, part in enumerate(parts):
            last = position == len(parts) - 1
            try:
                inner = os.open(part, flags | (os.O_NONBLOCK if last else os.O_DIRECTORY), dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
    except (OSError, ValueError) as error:
        raise DeliveryRefusedError(f"artefact {shown!r} cannot be opened without following links: {error}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise DeliveryRefusedError(f"artefact {shown!r} is not a regular file with one link")
        if found.st_size != artefact.bytes:
            raise DeliveryRefusedError(f"artefact {shown!r} has {found.st_size} bytes, not {artefact.bytes}")
        digest, size = hashlib.sha256(), 0
        while size <= artefact.bytes and (data := file.read(1 << 20)):
            digest.update(data)
            size += len(data)
    if size != artefact.bytes or digest.hexdigest() != artefact.sha256:
        raise DeliveryRefusedError(f"artefact {shown!r} does not have the SHA-256 that was delivered")


def _read_delivery(path: bytes) -> bytes:
    try:
        # Looked at first, since opening a device can do something; the descriptor is judged again.
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise DeliveryRefusedError("it is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DeliveryRefusedError(f"it cannot be opened ({error.strerror})") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise DeliveryRefusedError("it is not a regular file with one link")
        if found.st_uid != os.geteuid():
            raise DeliveryRefusedError(f"it belongs to user {found.st_uid}, not to {os.geteuid()}")
        if found.st_size > MAX_DELIVERY_BYTES:
            raise DeliveryRefusedError(f"it has {found.st_size} bytes, more than {MAX_DELIVERY_BYTES}")
        return file.read(MAX_DELIVERY_BYTES + 1)


def _free_name(directory: bytes, name: bytes) -> bytes:
    short = name if len(name) <= MAX_NAME_BYTES else name[:120] + b"." + hashlib.sha256(name).hexdigest()[:16].encode()
    while os.path.lexists(os.path.join(directory, short)):
        short = short[:MAX_NAME_BYTES] + b"." + secrets.token_hex(6).encode()
    return short


def _last_words(run_directory: str) -> str:
    with contextlib.suppress(FileNotFoundError, CoordinatorError):
        return (
            read_bounded(os.path.join(run_directory, "supervisor.log"), 1 << 20)[-500:]
            .decode("utf-8", "replace")
            .strip()
        )
    return ""


async def _first_of(one: asyncio.Event, other: asyncio.Event, limit_seconds: float) -> None:
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    try:
        await asyncio.wait(waits, timeout=limit_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
