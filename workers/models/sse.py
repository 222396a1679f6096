"""Server-sent events (WHATWG HTML, section 9.2), decoded from bytes that may be split anywhere. Pure."""

from __future__ import annotations

import msgspec

MAX_EVENT_BYTES = 4 << 20


class EventTooLongError(ValueError):
    """An event has more than `MAX_EVENT_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"an event of more than {MAX_EVENT_BYTES} bytes came")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is empty where the stream names none."""

    name: str
    data: str


class EventDecoder:
    """Feed it bytes as they come; it gives the events that became whole. What is unfinished at the end is no event."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self._first = True
        self._after_return = False

    def feed(self, data: bytes) -> list[Event]:
        """Raises `EventTooLongError`."""
        self._buffer += data
        events: list[Event] = []
        while (line := self._next_line()) is not None:
            if self._first:
                line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
            event = self._take(line.decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        if len(self._buffer) + self._size > MAX_EVENT_BYTES:
            raise EventTooLongError
        return events

    def _next_line(self) -> bytes | None:
        """Lines end with CR LF, LF or CR; a CR at the end of what came may have its LF still to come."""
        if self._after_return and self._buffer:
            if self._buffer[0] == 0x0A:
                del self._buffer[0]
            self._after_return = False
        ends = [at for at in (self._buffer.find(b"\n"), self._buffer.find(b"\r")) if at >= 0]
        if not ends:
            return None
        end = min(ends)
        line = bytes(self._buffer[:end])
        self._after_return = self._buffer[end] == 0x0D
        del self._buffer[: end + 1]
        return line

    def _take(self, line: str) -> Event | None:
        if not line:
            found = Event(name=self._name, data="\n".join(self._data)) if self._data else None
            self._name, self._data, self._size = "", [], 0
            return found
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
            self._size += len(value)
        return None
