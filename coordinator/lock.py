"""Ownership of a manifest: one complete lock file, made by linking, never stolen.

The token is the owner. Process facts stand in the lock for the operator who must decide whether its owner is dead;
this program never takes a lock away because of them.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from coordinator.documents import encode
from coordinator.errors import CoordinatorError, DamagedError, LockedError, LockLostError
from coordinator.files import Files, read_bounded, read_document
from coordinator.records import Owner

MAX_LOCK_BYTES = 64 << 10


def read_owner(path: str) -> Owner | None:
    """Who the lock names; None if there is no lock. Raises `DamagedError` if it is not a lock of ours."""
    try:
        document, _ = read_document(path, MAX_LOCK_BYTES)
    except FileNotFoundError:
        return None
    try:
        return msgspec.convert(document, Owner)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path} is not a complete lock: {error}") from error


def describe(path: str) -> str:
    """The lock's facts in one line, for people, whatever its content."""
    try:
        owner = read_owner(path)
    except CoordinatorError as error:
        return f"unreadable: {error}"
    if owner is None:
        return "it is gone by now"
    return f"pid {owner.pid} on {owner.host}, batch {owner.batch_id}, since {owner.created_at}, token {owner.token}"


def acquire(files: Files, path: str, owner: Owner) -> None:
    """Make the lock. Raises `LockedError` if anything has its name, whatever its content."""
    if os.path.lexists(path):
        raise LockedError(path, describe(path))
    try:
        files.create(path, encode(owner))
    except FileExistsError as error:
        raise LockedError(path, describe(path)) from error
    except CoordinatorError:
        with contextlib.suppress(CoordinatorError):
            release(files, path, owner.token)
        raise


def check(path: str, ours: Owner) -> None:
    """Raises `LockLostError` unless the lock is there and, byte for byte, ours."""
    try:
        if read_bounded(path, MAX_LOCK_BYTES) == encode(ours):
            return
        owner = read_owner(path)
    except FileNotFoundError as error:
        raise LockLostError(path, "is missing") from error
    except CoordinatorError as error:
        raise LockLostError(path, f"cannot be read ({error})") from error
    if owner is None:
        raise LockLostError(path, "is missing")
    if owner.token != ours.token:
        raise LockLostError(path, f"belongs to pid {owner.pid} on {owner.host}, token {owner.token}")
    raise LockLostError(path, "has our token, but was edited")


def release(files: Files, path: str, token: str) -> bool:
    """Remove the lock if it has this token; False if it is missing or another's."""
    try:
        owner = read_owner(path)
    except CoordinatorError:
        return False
    if owner is None or owner.token != token:
        return False
    files.remove(path)
    return True
