"""An attempt's folder: what is written while a batch is played, and what a later attempt takes over from it.

`results.jsonl` is the journal: whole lines in run order. A killed batch keeps its folder; the next attempt gets a new
one, begins with the finished games of the longest earlier one, and plays the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from workers.simulation.play import CUT_SHORT, GameResult
from workers.simulation.trace import TraceSample, write_private

ATTEMPT_VERSION = 1
FOLDER = "attempt-"
HEADER_NAME = "attempt.json"
RESULTS_NAME = "results.jsonl"
TRACES_NAME = "traces"
_BLOCK_LINES = 4_096


class AttemptHeader(msgspec.Struct, frozen=True, kw_only=True):
    """`attempt.json`: what this attempt plays, so that only the same batch takes over its games."""

    version: int
    configuration_sha256: str
    bridge_sha256: str
    runs: int
    started_at: str


class Attempt:
    """A folder of its own, made new. `append` writes results; `reused` counts the games taken over."""

    def __init__(self, directory: Path, header: AttemptHeader) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = _make_next(directory)
        self.header = header
        write_private(self.directory / HEADER_NAME, msgspec.json.encode(header) + b"\n")
        self.sample = TraceSample(self.directory / TRACES_NAME)
        self.results = self.directory / RESULTS_NAME
        descriptor = os.open(self.results, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self.reused = 0
        self.reused_steps = 0

    def append(self, lines: bytes) -> None:
        """Add whole lines; they are the kernel's before this returns, so a kill of this process does not lose them."""
        self._file.write(lines)
        self._file.flush()

    def close(self) -> None:
        """Make what was written durable."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def take_over(self, folders: Iterable[Path]) -> None:
        """Begin with the finished games of the longest earlier attempt at the same batch, traces included."""
        best: tuple[int, Path] | None = None
        for folder in folders:
            if folder != self.directory and self._is_same_batch(folder):
                count = sum(1 for _ in _finished(folder / RESULTS_NAME))
                if count and (best is None or count > best[0]):
                    best = (count, folder)
        if best is None:
            return
        folder = best[1]
        block: list[bytes] = []
        for line, result in _finished(folder / RESULTS_NAME):
            self.sample.adopt(folder / TRACES_NAME, result)
            self.reused += 1
            self.reused_steps += result.steps
            block.append(line)
            if len(block) == _BLOCK_LINES:
                self.append(b"".join(block))
                block.clear()
        self.append(b"".join(block))

    def lines(self) -> Iterator[bytes]:
        """The results written so far, a line at a time."""
        with self.results.open("rb") as file:
            yield from file

    def _is_same_batch(self, folder: Path) -> bool:
        try:
            header = msgspec.json.decode((folder / HEADER_NAME).read_bytes(), type=AttemptHeader)
        except (OSError, msgspec.MsgspecError):
            return False
        return (header.version, header.configuration_sha256, header.bridge_sha256, header.runs) == (
            ATTEMPT_VERSION,
            self.header.configuration_sha256,
            self.header.bridge_sha256,
            self.header.runs,
        )


def earlier_attempts(directories: Iterable[Path]) -> list[Path]:
    """The attempt folders in these directories, oldest first."""
    found = []
    for directory in directories:
        with contextlib.suppress(OSError):
            found += [path for path in directory.iterdir() if _number_of(path) is not None and not path.is_symlink()]
    return sorted(found, key=lambda path: (str(path.parent), _number_of(path) or 0))


def _finished(results: Path) -> Iterator[tuple[bytes, GameResult]]:
    """Whole lines in run order without a gap, up to the first that is torn, damaged, or was cut short by us."""
    decode = msgspec.json.Decoder(GameResult).decode
    with contextlib.suppress(OSError), results.open("rb") as file:
        for index, line in enumerate(file):
            if not line.endswith(b"\n"):
                return
            try:
                result = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return
            if result.index != index or result.reason in CUT_SHORT:
                return
            yield line, result


def _make_next(directory: Path) -> Path:
    number = 1 + max((_number_of(path) or 0 for path in directory.iterdir()), default=0)
    while True:
        folder = directory / f"{FOLDER}{number}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            number += 1  # another process took it at the same moment
            continue
        return folder


def _number_of(path: Path) -> int | None:
    text = path.name.removeprefix(FOLDER)
    return int(text) if path.name.startswith(FOLDER) and text.isascii() and text.isdigit() and path.is_dir() else None
