"""The run's folder: made private, its scratch removed and seen to be gone, small files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

PRIVATE_DIRECTORY = 0o700


def make_private_directory(path: Path) -> None:
    """Make the directory, or accept one that is there, real, ours and closed to others. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, PRIVATE_DIRECTORY)
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of ours (a directory, mode 0700, no symbolic link)")


def sync_directory(path: Path) -> None:
    """Make the directory's names durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes) -> None:
    """Write and sync a new private file under a name that nothing has yet. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_exclusively(path: Path, data: bytes) -> None:
    """Make a durable file that is never seen half-written; FileExistsError if anything has the name."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_new(temporary, data)
    try:
        os.link(temporary, path, follow_symlinks=False)
    finally:
        os.unlink(temporary)
    sync_directory(path.parent)


def remove_tree(path: Path) -> list[str]:
    """Remove a directory with all that is in it, following no link; give what could not be removed, with the reason.

    Read-only and closed directories in it are opened first: games leave such.
    """
    left: list[str] = []
    _remove(path, left)
    return left


def _remove(path: Path, left: list[str]) -> None:
    try:
        facts = os.lstat(path)
        if not stat.S_ISDIR(facts.st_mode):
            os.unlink(path)
            return
        if facts.st_mode & 0o700 != 0o700:
            os.chmod(path, 0o700)
        with os.scandir(path) as listing:
            inner = [Path(entry.path) for entry in listing]
    except FileNotFoundError:
        return
    except OSError as error:
        left.append(f"{path.name}: {error.strerror}")
        return
    before = len(left)
    for child in inner:
        _remove(child, left)
    if len(left) > before:
        return
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        left.append(f"{path.name}: {error.strerror}")


def regular_files(directory: Path) -> list[Path]:
    """Every regular file below, sorted, following no link. Raises OSError."""
    found: list[Path] = []
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
    return sorted(found)
