"""Files that a completion points to: opened without following any link, without blocking, judged on one descriptor."""

from __future__ import annotations

import os
import stat

from coordinator.documents import DocumentError, decode, sha256
from coordinator.errors import ReceiptError, RefusedError
from coordinator.files import read_bounded

MAX_REVIEW_BYTES = 1 << 20


def check_evidence_path(root: str, path: object) -> str | None:
    """The file's absolute path, or None if nothing is there.

    Raises `RefusedError` for a path that is not relative, has `..`, or leads to anything but a regular file with one
    link under `root` without a symbolic link on the way.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise RefusedError(f"evidence path {path!r} is not a path")
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise RefusedError(f"evidence path {path!r} must be relative and have no '..'")
    current = root
    names = [part for part in parts if part not in ("", ".")]
    if not names:
        raise RefusedError(f"evidence path {path!r} names no file")
    for position, name in enumerate(names):
        current = os.path.join(current, name)
        try:
            found = os.lstat(current)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RefusedError(f"evidence path {path[:200]!r} cannot be followed: {error}") from error
        if stat.S_ISLNK(found.st_mode):
            raise RefusedError(f"evidence path {path!r} goes through the symbolic link {current}")
        last = position == len(names) - 1
        if not last and not stat.S_ISDIR(found.st_mode):
            raise RefusedError(f"evidence path {path!r} goes through {current}, which is no directory")
        if last and not stat.S_ISREG(found.st_mode):
            raise RefusedError(f"evidence path {path!r} is not a regular file")
        if last and found.st_nlink != 1:
            raise RefusedError(f"evidence path {path!r} has {found.st_nlink} hard links")
    return current


def read_review_file(root: str, path: str) -> tuple[str, dict[str, object] | None]:
    """SHA-256 of a review's file, and its object (None if it is not one strict object)."""
    found = check_evidence_path(root, path)
    if found is None:
        raise ReceiptError(f"receipt mismatch: {path!r} does not exist under {root}")
    try:
        data = read_bounded(found, MAX_REVIEW_BYTES)
    except FileNotFoundError as error:
        raise ReceiptError(f"receipt mismatch: {path!r} is gone") from error
    try:
        return sha256(data), decode(data)
    except DocumentError:
        return sha256(data), None
