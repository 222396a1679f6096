"""The job file: read once, on one descriptor, and believed only if it is private and has the hash that was promised."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from workers.contract import JOB_VERSION, Job

MAX_JOB_BYTES = 4 << 20


class JobRefusedError(Exception):
    """The job is not run; nothing was begun. `path` names the file, `why` says what was found."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"job refused: {path}: {why}")


def read_job(path: Path, sha256: str) -> Job:
    """The job at `path`, whose bytes have the hex SHA-256 `sha256`. Raises `JobRefusedError`.

    It must be a regular file with one link, ours, closed to others, and not reached through a symbolic link.
    """
    raw = _read_private(path)
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        raise JobRefusedError(path, f"its SHA-256 is {found}, not {sha256}")
    try:
        job = msgspec.json.decode(raw, type=Job)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise JobRefusedError(path, f"it has not the form of a job: {error}") from error
    _check(path, job)
    return job


def key_name_of(job: Job) -> str | None:
    """Under which name the key of this job's model was handed over; None where no key is wanted."""
    if job.kind != "play" or job.play is None or job.play.model_access is None:
        return None
    return job.play.model_access.key_name


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise JobRefusedError(
            path, f"it cannot be opened ({error.strerror}); a symbolic link is not followed"
        ) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            raise JobRefusedError(path, "it is not a regular file with one link")
        if facts.st_uid != os.geteuid():
            raise JobRefusedError(path, f"it belongs to user {facts.st_uid}, not to {os.geteuid()}")
        if facts.st_mode & 0o077:
            raise JobRefusedError(path, f"it has mode {stat.S_IMODE(facts.st_mode):04o}, others may look (chmod 600)")
        if facts.st_size > MAX_JOB_BYTES:
            raise JobRefusedError(path, f"it has {facts.st_size} bytes, more than {MAX_JOB_BYTES}")
        raw = b""
        while chunk := os.read(descriptor, MAX_JOB_BYTES + 1 - len(raw)):
            raw += chunk
        return raw
    finally:
        os.close(descriptor)


def _check(path: Path, job: Job) -> None:
    if job.version != JOB_VERSION:
        raise JobRefusedError(path, f"it has version {job.version}; this worker knows {JOB_VERSION}")
    orders = {
        "play": job.play,
        "probe": job.probe,
        "inspect": job.probe,
        "simulate": job.simulate,
        "replay": job.simulate or job.play,
    }
    if orders[job.kind] is None:
        raise JobRefusedError(path, f"it is of kind {job.kind!r} but carries no order of that kind")
    if len(job.key) < 32 or any(letter not in "0123456789abcdef" for letter in job.key):
        raise JobRefusedError(path, "its key is not at least 32 lower-case hexadecimal digits")
    if "/" in job.reservation_id or job.reservation_id in ("", ".", ".."):
        raise JobRefusedError(path, "its reservation id is no file name")
    run, inbox, root = Path(job.run_directory), Path(job.inbox_directory), Path(job.evidence_root)
    if not (run.is_absolute() and inbox.is_absolute() and root.is_absolute()):
        raise JobRefusedError(path, "its folders are not absolute paths")
    if not run.is_relative_to(root) or ".." in run.parts:
        raise JobRefusedError(path, f"the run's folder {run} is not under the evidence root {root}")
