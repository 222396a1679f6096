"""Where everything of one batch lies on disk."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from coordinator.errors import InvalidInputError, StorageError

RESERVATION_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,63}")
CONTROL_SUBDIRECTORIES = ("jobs", "inbox", "rejected", "runs", "locks")


def read_path(value: object, what: str) -> str:
    """A path as text. Raises `InvalidInputError` for what no control file could name."""
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
    except TypeError as error:
        raise InvalidInputError(f"{what}: a path is needed, found {type(value).__name__}") from error
    try:
        if not isinstance(path, str) or not path or "\0" in path or not path.encode():
            raise InvalidInputError(f"{what}: a path of text is needed, found {path!r}")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{what}: {path!r} is not UTF-8, so no control file could name it") from error
    return path


class ManifestPaths:
    """The manifest's real path `M` and what lies beside it."""

    def __init__(self, manifest_path: str | os.PathLike[str]) -> None:
        given = read_path(manifest_path, "manifest_path")
        self.manifest = os.path.realpath(given)
        try:
            found = os.stat(self.manifest)
        except OSError as error:
            raise StorageError("cannot read the manifest", given, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInputError(f"{self.manifest} is not a regular file")
        if found.st_nlink != 1:
            raise InvalidInputError(
                f"{self.manifest} has {found.st_nlink} hard links; a lock could not guard it under every name: copy it"
            )
        self.lock = self.manifest + ".coordinator-lock"
        self.claims = self.manifest + ".coordinator-claims"
        self.recovery = self.manifest + ".coordinator-recovery"

    def claim(self, reservation_id: str) -> str:
        return os.path.join(self.claims, reservation_id)

    def claim_names(self) -> Iterator[str]:
        """Names in the claims directory, temporary files aside."""
        try:
            names = os.listdir(self.claims)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError("cannot list", self.claims, error) from error
        yield from (name for name in sorted(names) if not name.startswith("."))


class ControlPaths:
    """The files of one control directory."""

    def __init__(self, control_directory: str | os.PathLike[str]) -> None:
        given = os.path.abspath(read_path(control_directory, "control_directory"))
        # The directory itself must be no link; how one gets there may be.
        self.directory = os.path.join(os.path.realpath(os.path.dirname(given)), os.path.basename(given))
        self.state = self._in("state.json")
        self.pending = self._in("pending.json")
        self.selections = self._in("selections.json")
        self.events = self._in("events.jsonl")
        self.stop_request = self._in("stop-request.json")
        self.jobs = self._in("jobs")
        self.inbox = self._in("inbox")
        self.rejected = self._in("rejected")
        self.runs = self._in("runs")
        self.locks = self._in("locks")

    def _in(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def job(self, reservation_id: str) -> str:
        return os.path.join(self.jobs, reservation_id + ".json")

    def run(self, reservation_id: str) -> str:
        return os.path.join(self.runs, reservation_id)

    def subdirectories(self) -> Iterator[str]:
        yield from (self._in(name) for name in CONTROL_SUBDIRECTORIES)
