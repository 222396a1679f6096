"""JSON-RPC 2.0, one message a line, as the bridge protocol uses it: bytes in, events out, no I/O.

`LineReader` cuts a byte stream into bounded lines; `Conversation` numbers requests and judges what comes back. Neither
knows a process, a clock or a game, so a pipe, a socket or a test may feed them, whole or byte by byte.

Source: https://www.jsonrpc.org/specification, and docs/bridge-protocol.md for what is our own (line length, noise).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

MAX_LINE_BYTES = 1 << 20
MAX_NOISE_CHARACTERS = 2_000

ILLEGAL_ACTION = -32010
UNKNOWN_SESSION = -32011
SEED_NOT_SUPPORTED = -32012

_BOM = b"\xef\xbb\xbf"
_EXCERPT_CHARACTERS = 200


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of request `id`."""

    id: int
    result: Any


class Refusal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The error object that answered request `id`."""

    id: int
    code: int
    message: str


class Noise(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line that is not JSON-RPC: something the game printed. `cut` when its end was thrown away."""

    text: str
    cut: bool = False


class Fault(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line that means to be JSON-RPC and breaks a rule: `what` names the rule, `line` is how the line begins."""

    what: str
    line: str = ""


Event = Answer | Refusal | Noise | Fault


class Overlong(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The beginning of a line that went past `MAX_LINE_BYTES`; the rest of that line is thrown away."""

    start: bytes


class LineReader:
    """Cuts bytes into lines of at most `MAX_LINE_BYTES`, whatever the chunks; never holds more than one line."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        """Take the next bytes; give the lines they complete, without their line ends, and overlong ones at once."""
        lines: list[bytes | Overlong] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end], lines)
            if self._skipping:
                self._skipping = False
            else:
                lines.append(bytes(self._partial))
            self._partial.clear()
            start = end + 1
        if start < len(data):
            self._take(data[start:] if start else data, lines)
        return lines

    def end(self) -> list[bytes | Overlong]:
        """The stream ended; give the last line if it had no newline."""
        rest, self._partial, self._skipping = bytes(self._partial), bytearray(), False
        return [rest] if rest else []

    def _take(self, piece: bytes, lines: list[bytes | Overlong]) -> None:
        if self._skipping:
            return
        self._partial += piece
        # A line end of CRLF may still be coming, hence one byte of grace.
        if len(self._partial) > MAX_LINE_BYTES and not (
            len(self._partial) == MAX_LINE_BYTES + 1 and self._partial.endswith(b"\r")
        ):
            lines.append(Overlong(start=bytes(self._partial[: MAX_NOISE_CHARACTERS * 4])))
            self._partial.clear()
            self._skipping = True


class Conversation:
    """One side's view of a JSON-RPC connection: what was asked, what is still open, what came back.

    Any number of requests may be open at once. An answer to a request that was never made, or a second answer to one,
    is a `Fault`: after it nobody can tell which answer belongs to what.
    """

    def __init__(self) -> None:
        self._reader = LineReader()
        self._next_id = 1
        self._open: set[int] = set()

    @property
    def open_requests(self) -> frozenset[int]:
        """The ids of requests without an answer so far."""
        return frozenset(self._open)

    def request(self, method: str, params: object) -> tuple[int, bytes]:
        """Number and encode a request; give its id and its line. `ValueError` when the line is over the limit."""
        request_id = self._next_id
        line = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a {method} request of {len(line)} bytes is over the limit of {MAX_LINE_BYTES} a line")
        self._next_id += 1
        self._open.add(request_id)
        return request_id, line + b"\n"

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes that the game wrote; give what they complete, in order."""
        return [event for line in self._reader.feed(data) if (event := self._judge(line)) is not None]

    def end(self) -> list[Event]:
        """The game closed its output; give what an unfinished last line holds."""
        return [event for line in self._reader.end() if (event := self._judge(line)) is not None]

    def _judge(self, line: bytes | Overlong) -> Event | None:
        if isinstance(line, Overlong):
            if line.start.lstrip(_BOM + b" \t").startswith(b"{"):
                return Fault(what=f"a line is longer than {MAX_LINE_BYTES} bytes", line=_excerpt(line.start))
            return Noise(text=_text(line.start), cut=True)
        line = line.removeprefix(_BOM).strip()
        if not line:
            return None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _explain(line)
        if type(message) is not dict:
            return _noise(line)
        if b"-0" in line:
            message = _without_negative_zero(message)
        return self._judge_message(message, line)

    def _judge_message(self, message: dict[str, Any], line: bytes) -> Event:
        answers = "result" in message or "error" in message
        if message.get("jsonrpc") != "2.0":
            if answers and "id" in message:
                return Fault(what='an answer lacks "jsonrpc": "2.0"', line=_excerpt(line))
            return _noise(line)
        if not answers:
            if "method" in message:
                return _noise(line)  # a notification or a request of the game's own: the protocol has none
            return Fault(what='an answer has neither "result" nor "error"', line=_excerpt(line))
        if "result" in message and "error" in message:
            return Fault(what='an answer has both "result" and "error"', line=_excerpt(line))
        request_id = _as_id(message.get("id"))
        if request_id is None:
            if message.get("id") is None and "error" in message:
                return Fault(what="the game could not read our request (an error without an id)", line=_excerpt(line))
            return Fault(what=f"an answer has the id {message.get('id')!r}, no number of ours", line=_excerpt(line))
        if request_id not in self._open:
            known = 0 < request_id < self._next_id
            what = "was answered twice" if known else "was answered and never asked"
            return Fault(what=f"request {request_id} {what}", line=_excerpt(line))
        self._open.discard(request_id)
        if "result" in message:
            return Answer(id=request_id, result=message["result"])
        error = message["error"]
        if not isinstance(error, dict) or type(error.get("code")) is not int:
            return Fault(what='an "error" is not {"code": integer, "message": text}', line=_excerpt(line))
        return Refusal(id=request_id, code=error["code"], message=str(error.get("message", ""))[:MAX_NOISE_CHARACTERS])


def _as_id(value: object) -> int | None:
    """Our id back as an integer; languages without integers (Lua, JavaScript) may write 3.0 for 3."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return None


def _explain(line: bytes) -> Event:
    """Say what is wrong with a line that does not decode: a broken answer is a fault, anything else is noise."""
    means_json_rpc = line.startswith(b"{") and b'"jsonrpc"' in line
    if not means_json_rpc:
        return _noise(line)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Fault(what=f"a line is not UTF-8 (byte {error.start})", line=_excerpt(line))
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except _NotFiniteError as error:
        return Fault(what=f"the number {error} is not finite; JSON has no such number", line=_excerpt(line))
    except RecursionError:
        return Fault(what="a line is nested too deeply", line=_excerpt(line))
    except ValueError as error:
        return Fault(what=f"a line is not whole JSON: {error}"[:_EXCERPT_CHARACTERS], line=_excerpt(line))
    return Fault(what="a line is not strict JSON (a lone surrogate, or a number out of range)", line=_excerpt(line))


class _NotFiniteError(ValueError):
    pass


def _refuse_constant(token: str) -> NoReturn:
    raise _NotFiniteError(token)


def _finite(token: str) -> float:
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise _NotFiniteError(token[:40])
    return value


def _without_negative_zero(value: Any) -> Any:
    """The same value with -0.0 as 0.0, so that equal states are equal bytes in hashes and files."""
    if type(value) is float:
        return value + 0.0
    if type(value) is list:
        return [_without_negative_zero(item) for item in value]
    if type(value) is dict:
        return {key: _without_negative_zero(item) for key, item in value.items()}
    return value


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")[:MAX_NOISE_CHARACTERS]


def _noise(line: bytes) -> Noise:
    return Noise(text=_text(line[: MAX_NOISE_CHARACTERS * 4]), cut=len(line) > MAX_NOISE_CHARACTERS * 4)


def _excerpt(line: bytes) -> str:
    return line[: _EXCERPT_CHARACTERS * 4].decode("utf-8", "replace")[:_EXCERPT_CHARACTERS]
