"""The files a run writes while it plays: one transcript line a step, and the progress file that is watched."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from workers.contract import Progress

MAX_TRANSCRIPT_BYTES = 48 << 20


def open_private(path: Path) -> BinaryIO:
    """A new file that only its owner can read, from the first byte; an existing name is refused."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "wb")


def write_private(path: Path, data: bytes) -> None:
    """Write a file whole under a temporary name, private from the first byte, then give it its name."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    with open_private(temporary) as stream:
        stream.write(data)
    temporary.replace(path)


class Transcript:
    """`transcript.jsonl`: each line is flushed, so that a killed run keeps all steps before."""

    def __init__(self, path: Path) -> None:
        self._stream = open_private(path)
        self._bytes = 0
        self.lines_left_out = 0

    def __enter__(self) -> Transcript:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()

    def write(self, row: dict[str, Any]) -> None:
        """Append a line; beyond `MAX_TRANSCRIPT_BYTES` lines are counted instead."""
        line = msgspec.json.encode(row) + b"\n"
        if self._bytes + len(line) > MAX_TRANSCRIPT_BYTES:
            self.lines_left_out += 1
            return
        self._bytes += len(line)
        self._stream.write(line)
        self._stream.flush()


class ProgressFile:
    """`progress.json`, replaced as a whole after each step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Progress | None = None

    def write(self, progress: Progress) -> None:
        self._last = progress
        write_private(self._path, msgspec.json.encode(progress) + b"\n")

    def again(self, note: str) -> None:
        """A sign of life while a step takes long: the same progress, with what is waited for."""
        if self._last is not None:
            write_private(self._path, msgspec.json.encode(msgspec.structs.replace(self._last, note=note)) + b"\n")
