"""The only door to the control files: durable replace, exclusive create, strict bounded reading.

Every system call that changes something goes through `Operations`, one method a call, so that tests can fail each of
them before, in the middle and after. A file is never written in place: temporary file in the same directory (random
name, O_EXCL, O_NOFOLLOW), write to the end, fsync, rename or link, fsync of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import Any

from coordinator.documents import MAX_DOCUMENT_BYTES, DocumentError, decode
from coordinator.errors import DamagedError, InvalidInputError, StorageError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
MAX_USERS_FILE_BYTES = 16 << 20


class Operations:
    """The system calls that change the disk, one method each."""

    def create(self, path: str) -> int:
        """Open a new private file for writing; fails if anything is there, a link included."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, PRIVATE_FILE)

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def set_mode(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, PRIVATE_DIRECTORY)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, path: str, data: bytes) -> None:
        # Not blocking: a FIFO that was planted under the name must not stop a campaign.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


class _translated:  # noqa: N801 - read as a statement; a class is cheaper than a generator
    """`exists_is_news` leaves `FileExistsError` as it is, for callers whose caller decides what it means."""

    __slots__ = ("exists_is_news", "path", "what")

    def __init__(self, what: str, path: str, *, exists_is_news: bool = True) -> None:
        self.what, self.path, self.exists_is_news = what, path, exists_is_news

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not (self.exists_is_news and isinstance(error, FileExistsError)):
            raise StorageError(self.what, self.path, error) from error


class Files:
    """Durable changes of small files. Every method raises `StorageError` for what the operating system refuses."""

    def __init__(self, operations: Operations | None = None) -> None:
        self.operations = operations or Operations()

    def replace(self, path: str, data: bytes, *, keep_mode: bool = False) -> None:
        """Make `data` the content of `path`, whole or not at all; `keep_mode` gives it the old file's mode."""
        mode = PRIVATE_FILE
        if keep_mode:
            with _translated("cannot look at", path):
                mode = stat.S_IMODE(os.stat(path).st_mode)
        temporary = self._write_temporary(path, data, mode)
        with _translated("cannot replace", path, exists_is_news=False):
            self.operations.rename(temporary, path)
        self.sync_directory_of(path)

    def create(self, path: str, data: bytes) -> None:
        """Make a new file that never exists half-written. Raises `FileExistsError` if anything has the name."""
        temporary = self._write_temporary(path, data, PRIVATE_FILE)
        try:
            with _translated("cannot create", path):
                self.operations.link(temporary, path)
        except FileExistsError:
            # A link that was made but reported as failed shows as our own file under the name.
            if not _same_file(temporary, path):
                self._discard(temporary)
                raise
        except StorageError:
            self._discard(temporary)
            raise
        with _translated("cannot remove", temporary, exists_is_news=False):
            self.operations.unlink(temporary)
        self.sync_directory_of(path)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name durably. Raises `FileExistsError`."""
        with _translated("cannot link", target):
            self.operations.link(source, target)
        self.sync_directory_of(target)

    def move(self, source: str, target: str) -> None:
        """Rename durably. Replaces `target`."""
        with _translated("cannot rename", source, exists_is_news=False):
            self.operations.rename(source, target)
        self.sync_directory_of(target)
        if os.path.dirname(source) != os.path.dirname(target):
            self.sync_directory_of(source)

    def remove(self, path: str) -> None:
        """Remove durably; nothing happens if it is not there."""
        try:
            with _translated("cannot remove", path, exists_is_news=False):
                self.operations.unlink(path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        self.sync_directory_of(path)

    def make_directory(self, path: str) -> bool:
        """Make a private directory, durably; False if a directory is there already.

        One that is there may be what an opening left that died before its sync: it is made durable all the same.
        """
        try:
            with _translated("cannot make the directory", path):
                self.operations.make_directory(path)
        except FileExistsError:
            check_private_directory(path)
            self.sync_directory_of(path)
            return False
        self.sync_directory_of(path)
        return True

    def append_line(self, path: str, line: bytes) -> None:
        """For people only: an error changes nothing and is not reported."""
        with contextlib.suppress(OSError):
            self.operations.append(path, line + b"\n")

    def sync_directory_of(self, path: str) -> None:
        directory = os.path.dirname(path) or "."
        with _translated("cannot sync the directory", directory, exists_is_news=False):
            self.operations.sync_directory(directory)

    def free_bytes(self, path: str) -> int:
        with _translated("cannot ask for the free space of", path):
            return self.operations.free_bytes(path)

    def _write_temporary(self, path: str, data: bytes, mode: int) -> str:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.tmp")
        with _translated("cannot create", temporary, exists_is_news=False):
            descriptor = self.operations.create(temporary)
        try:
            with _translated("cannot write", temporary, exists_is_news=False):
                rest = memoryview(data)
                while rest:
                    written = self.operations.write(descriptor, bytes(rest) if len(rest) < len(data) else data)
                    if written <= 0:
                        raise OSError(errno.EIO, "nothing was written")
                    rest = rest[written:]
                if mode != PRIVATE_FILE:
                    self.operations.set_mode(descriptor, mode)
                self.operations.sync(descriptor)
        except StorageError:
            self._discard(temporary)
            raise
        finally:
            os.close(descriptor)
        return temporary

    def _discard(self, temporary: str) -> None:
        with contextlib.suppress(OSError):
            self.operations.unlink(temporary)


def read_bounded(path: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a regular file, not through a link and without ever blocking.

    Raises `FileNotFoundError`; `StorageError` for the system's errors; `DamagedError` if it is no regular file or too
    large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DamagedError(f"{path} is not a regular file") from error
        raise StorageError("cannot read", path, error) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedError(f"{path} is not a regular file")
        if found.st_size > limit_bytes:
            raise DamagedError(f"{path} has {found.st_size} bytes, more than {limit_bytes}")
        with _translated("cannot read", path):
            parts: list[bytes] = []
            size = 0
            while chunk := os.read(descriptor, min(1 << 20, max(found.st_size - size, 0) + 1)):
                parts.append(chunk)
                size += len(chunk)
                if size > limit_bytes:
                    raise DamagedError(f"{path} has more than {limit_bytes} bytes")
            return b"".join(parts)
    finally:
        os.close(descriptor)


def read_users_file(path: str | os.PathLike[str], limit_bytes: int = MAX_USERS_FILE_BYTES) -> bytes:
    """A file that a user named, links followed. Raises OSError, also for what is no regular file or too large."""
    try:
        return read_bounded(os.path.realpath(path), limit_bytes)
    except StorageError as error:
        raise OSError(error.errno, str(error)) from error
    except DamagedError as error:
        raise OSError(errno.EINVAL, str(error)) from error


def read_document(path: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> tuple[dict[str, Any], bytes]:
    """One strict JSON object and its bytes. Raises as `read_bounded`, and `DamagedError` for any other content."""
    data = read_bounded(path, limit_bytes)
    try:
        return decode(data, limit_bytes=limit_bytes), data
    except DocumentError as error:
        raise DamagedError(f"{path} {error}") from error


def check_private_directory(path: str) -> os.stat_result:
    """A real directory, ours, closed to others. Raises `InvalidInputError` saying what was found."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise StorageError("cannot look at", path, error) from error
    if stat.S_ISLNK(found.st_mode):
        raise InvalidInputError(f"{path} is a symbolic link; a control directory must be a directory of its own")
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidInputError(f"{path} is not a directory")
    if found.st_uid != os.geteuid():
        raise InvalidInputError(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise InvalidInputError(f"{path} has mode {stat.S_IMODE(found.st_mode):04o}; others must not enter (chmod 700)")
    return found


def hold_directory(path: str) -> int:
    """A descriptor of a directory, not through a link and not inherited by workers."""
    with _translated("cannot open the directory", path):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _same_file(first: str, second: str) -> bool:
    try:
        return os.path.samestat(os.lstat(first), os.lstat(second))
    except OSError:
        return False
