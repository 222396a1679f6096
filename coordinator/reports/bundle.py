"""A campaign's report with its evidence in one zip, so that every relative link works where it is unpacked."""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from coordinator.errors import InvalidInputError, StorageError
from coordinator.reports.sources import list_run_files

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_PACKED = (".png", ".jpg", ".jpeg", ".webm", ".mp4")


class BundleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was packed (paths within the zip) and how large the zip is."""

    path: Path
    files: list[str]
    bytes: int


def bundle(control_directory: Path, out: Path) -> BundleResult:
    """Pack the report's folder and the evidence of every run into the zip `out`; the same files give the same bytes.

    Nothing else goes in: jobs hold keys, and a run's folder holds the game's private home. `out` appears whole or not
    at all, readable by its owner only, and replaces a file of that name. Raises `InvalidInputError` when there is no
    report yet, `StorageError` for what the operating system refuses.
    """
    control = Path(control_directory)
    if not (control / "report" / "aggregate.json").is_file():
        raise InvalidInputError(f"{control}: there is no report to bundle; build it first (coordinate report)")
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w+b") as stream:
                with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
                    packed = [name for name in _members(control) if _pack(archive, control / name, name)]
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(out)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError("cannot write the bundle", str(out), error) from error
    return BundleResult(path=out, files=packed, bytes=out.stat().st_size)


def _members(control: Path) -> Iterator[str]:
    for path in sorted((control / "report").iterdir()):
        if not path.name.startswith("."):
            yield f"report/{path.name}"
    runs = control / "runs"
    for directory in sorted(runs.iterdir()) if runs.is_dir() else ():
        if directory.is_dir() and not directory.is_symlink():
            yield from (f"runs/{directory.name}/{file}" for file in list_run_files(directory))


def _pack(archive: zipfile.ZipFile, path: Path, name: str) -> bool:
    """False for what is no regular file (any more): a link could lead to anything."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        entry = zipfile.ZipInfo(name, _FIXED_TIME)
        entry.external_attr = (stat.S_IFREG | 0o600) << 16
        # Pictures and videos are compressed already.
        entry.compress_type = zipfile.ZIP_STORED if name.lower().endswith(_PACKED) else zipfile.ZIP_DEFLATED
        with archive.open(entry, "w", force_zip64=True) as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)
    return True
