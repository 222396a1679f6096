"""What is asked of a model and what it answers, in no provider's words."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from workers.models.access import Tokens

Stop = Literal["calls", "text", "length", "refusal", "other"]
MAX_REPLY_CALLS = 64


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a model may call. `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A screenshot. `reference` is the harness's own name of it, which stands in transcripts in the picture's place."""

    media_type: Literal["image/png", "image/jpeg"]
    data: bytes
    reference: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `system` and `tools` are the same from call to call, so that a provider can keep them in its cache."""

    system: str
    text: str
    tools: tuple[Tool, ...]
    picture: Picture | None = None
    max_output_tokens: int


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model wants called; `arguments` is the JSON text as it came, perhaps cut off."""

    name: str
    arguments: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. `usage` is None where it is missing or cannot be true."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    stop: Stop = "other"
    stop_word: str = ""
    usage: Tokens | None = None
    refusal: str = ""
    model: str = ""


class WireError(ValueError):
    """What came is no answer in this provider's form; `found` says what it is instead."""

    def __init__(self, provider: str, found: str) -> None:
        self.provider, self.found = provider, found
        super().__init__(f"the answer has not the form of {provider}: {found}")


class StreamFailedError(Exception):
    """The provider broke a stream off by saying so. `busy`: it is overloaded and may be asked again."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        self.busy = kind in ("overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_overloaded")
        super().__init__(f"the stream was ended with {kind}: {message}"[:500])


class StreamReader(Protocol):
    """Puts an answer together from the events of a stream."""

    def take(self, event: str, data: str) -> None:
        """Raises `WireError` and `StreamFailedError`."""
        ...

    @property
    def is_whole(self) -> bool: ...

    def reply(self) -> Reply: ...


class Wire(Protocol):
    """One provider's spelling of the same conversation. Pure."""

    name: str
    path: str

    def headers(self, key: str | None) -> dict[str, str]: ...

    def encode(self, ask: Ask) -> bytes: ...

    def decode(self, raw: bytes) -> Reply:
        """A whole answer; raises `WireError`."""
        ...

    def stream_reader(self) -> StreamReader: ...


def count(value: object) -> int | None:
    """A number of tokens as providers tell it, or None for anything that is none: NaN, negative, a text, a truth."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
