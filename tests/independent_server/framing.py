"""Where one HTTP/1.1 message ends (RFC 9112, section 6): for the server and for the proxy that breaks messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class ByteStream(Protocol):
    """A buffered reader: both calls return fewer bytes than asked for only at the end of the stream."""

    def readline(self, limit: int, /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class TornError(Exception):
    """The stream ended, or stopped making sense, inside a message; `raw` is what there was of it."""

    def __init__(self, raw: bytes, reason: str) -> None:
        super().__init__(f"a message was torn after {len(raw)} bytes: {reason}")
        self.raw = raw


@dataclass(frozen=True, kw_only=True)
class Message:
    """One whole message: its exact bytes, and their meaning. Header names are in lower case."""

    raw: bytes
    start_line: str
    headers: dict[str, str]
    payload: bytes

    @property
    def asks_to_close(self) -> bool:
        return "close" in self.headers.get("connection", "").lower()

    @property
    def states_its_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers


def read_message(stream: ByteStream, *, answers: str | None = None) -> Message | None:
    """Reads a request, or the response to a request of method `answers`; None when the stream ended before it.

    A response without a length goes on to the end of the stream. Raises TornError; OSError comes through.
    """
    raw = b""
    while not raw.endswith(b"\r\n\r\n"):
        line = stream.readline(MAX_HEAD_BYTES)
        if not line:
            if not raw:
                return None
            raise TornError(raw, "it ended inside its head")
        raw += line
        if not raw.strip():
            raw = b""  # an empty line before a request is allowed
        if len(raw) > MAX_HEAD_BYTES:
            raise TornError(raw, "its head is too long")
    start_line, *fields = raw[:-4].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for text in fields:
        name, colon, value = text.partition(":")
        if not colon:
            raise TornError(raw, f"its head has a line without a colon: {text!r}")
        headers[name.strip().lower()] = value.strip()
    body, payload = _read_body(stream, raw, start_line, headers, answers)
    return Message(raw=raw + body, start_line=start_line, headers=headers, payload=payload)


def _read_body(
    stream: ByteStream, head: bytes, start_line: str, headers: dict[str, str], answers: str | None
) -> tuple[bytes, bytes]:
    """The body's exact bytes and its payload."""
    if answers is not None and (answers == "HEAD" or start_line.split(" ")[1:2] in (["204"], ["304"])):
        return b"", b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_chunks(stream, head)
    length = headers.get("content-length")
    if length is None:
        body = b"" if answers is None else stream.read(MAX_BODY_BYTES)
        return body, body
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        raise TornError(head, f"its length is {length!r}")
    body = stream.read(int(length))
    if len(body) < int(length):
        raise TornError(head + body, f"it has {len(body)} of {length} bytes of its body")
    return body, body


def _read_chunks(stream: ByteStream, head: bytes) -> tuple[bytes, bytes]:
    raw, payload = b"", b""
    while True:
        line = stream.readline(MAX_HEAD_BYTES)
        raw += line
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError as error:
            raise TornError(head + raw, "it ended between chunks") from error
        if not 0 <= size <= MAX_BODY_BYTES - len(payload):
            raise TornError(head + raw, f"a chunk has {size} bytes")
        chunk = stream.read(size + 2)
        raw += chunk
        if len(chunk) < size + 2:
            raise TornError(head + raw, "it ended inside a chunk")
        if size == 0:
            return raw, payload
        payload += chunk[:-2]
