"""What a game prints, kept small: equal lines in a row folded, the rest capped and counted, the end always kept."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from drivers.base import MAX_LOG_LINES, LogLine

Level = Literal["debug", "info", "warning", "error"]

MAX_LOG_CHARACTERS = 500
TAIL_BYTES = 4_096

_SOUNDS_LIKE_AN_ERROR = re.compile(r"\b(error|exception|traceback|fatal|panic|assert\w*|segmentation)\b", re.IGNORECASE)


class LogFolder:
    """Collects lines between two observations: at most `MAX_LOG_LINES` rows, `dropped` beyond them, `total` in all."""

    def __init__(self) -> None:
        self._rows: list[LogLine] = []
        self.total = 0
        self.dropped = 0

    def add(self, level: Level, text: str, source: str) -> None:
        """Take one line; a repetition of the last one only counts it."""
        self.total += 1
        text = text[:MAX_LOG_CHARACTERS]
        if self._rows:
            last = self._rows[-1]
            if last.text == text and last.level == level and last.source == source:
                self._rows[-1] = msgspec.structs.replace(last, count=last.count + 1)
                return
        if len(self._rows) >= MAX_LOG_LINES:
            self.dropped += 1
            return
        self._rows.append(LogLine(level=level, text=text, source=source))

    def take(self) -> tuple[LogLine, ...]:
        """Give what came since the last call, and begin anew."""
        rows, self._rows = tuple(self._rows), []
        return rows


class ErrorOutput:
    """A game's error output: whole lines into a `LogFolder`, the last `TAIL_BYTES` for a message about its death."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._tail = bytearray()
        self._partial = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes as they were read; memory stays bounded whatever the line lengths."""
        self._tail += data[-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line(bytes(self._partial) + line)
            self._partial.clear()
        if len(self._partial) < MAX_LOG_CHARACTERS * 4:
            self._partial += rest[: MAX_LOG_CHARACTERS * 4]

    def end(self) -> None:
        """The stream ended: an unfinished last line counts too."""
        self._line(bytes(self._partial))
        self._partial.clear()

    @property
    def tail(self) -> str:
        """The end of the output as text, cut at a line where there is one."""
        text = self._tail.decode("utf-8", "replace").strip()
        if len(self._tail) >= TAIL_BYTES and "\n" in text:
            text = text.split("\n", 1)[1]
        return text

    def _line(self, line: bytes) -> None:
        text = line[: MAX_LOG_CHARACTERS * 4].decode("utf-8", "replace").rstrip("\r")
        if text.strip():
            self._folder.add("error" if _SOUNDS_LIKE_AN_ERROR.search(text) else "warning", text, "stderr")
