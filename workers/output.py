"""A player's output on disk: the beginning and the end, never more than a stated size."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path

HEAD_BYTES = 512 << 10
TAIL_BYTES = 256 << 10


class BoundedLog:
    """Keeps the first `head_bytes` as they come and, on `close`, the last `tail_bytes`, with a line of what is missing.

    `seen_bytes` counts everything. A full disk loses log lines, never the run: the file's errors are swallowed here
    and counted as bytes that are missing.
    """

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._head_left = head_bytes
        self._tail_bytes = tail_bytes
        self._tail: deque[bytes] = deque()
        self._held_bytes = 0
        self._lost_bytes = 0
        self._recent = b""
        self.seen_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of output."""
        self.seen_bytes += len(data)
        self._recent = (self._recent + data)[-4096:]
        head, rest = data[: self._head_left], data[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._write(head)
        if rest:
            self._tail.append(rest)
            self._held_bytes += len(rest)
            while self._held_bytes - len(self._tail[0]) >= self._tail_bytes:
                dropped = self._tail.popleft()
                self._held_bytes -= len(dropped)
                self._lost_bytes += len(dropped)

    def last_text(self, characters: int) -> str:
        """The end of the output, at most 4,096 bytes of it, for a message."""
        return self._recent.decode("utf-8", "replace")[-characters:]

    def close(self) -> None:
        """Write the end and close the file; called once."""
        tail = b"".join(self._tail)
        self._lost_bytes += max(0, len(tail) - self._tail_bytes)
        if self._lost_bytes:
            self._write(f"\n[... {self._lost_bytes} bytes of output are not kept ...]\n".encode())
        self._write(tail[-self._tail_bytes :])
        os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        self._lost_bytes += len(rest)
