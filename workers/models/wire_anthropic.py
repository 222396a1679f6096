"""The Messages API of Anthropic: requests with tools and pictures, whole answers, streams. Pure.

Source: the API reference, version header 2023-06-01. Cache reads and writes stand beside `input_tokens`, not in it.
A forced tool choice is not sent: models that always think refuse it.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from workers.models.access import ModelAccess, Tokens
from workers.models.conversation import (
    MAX_REPLY_CALLS,
    Ask,
    Call,
    Reply,
    Stop,
    StreamFailedError,
    WireError,
    count,
)

API_VERSION = "2023-06-01"
_STOPS: dict[str, Stop] = {
    "tool_use": "calls", "end_turn": "text", "stop_sequence": "text", "max_tokens": "length",
    "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip


class AnthropicWire:
    """Spells asks and reads answers for one model."""

    name = "anthropic"
    path = "/v1/messages"

    def __init__(self, access: ModelAccess) -> None:
        self._access = access

    def headers(self, key: str | None) -> dict[str, str]:
        headers = {"anthropic-version": API_VERSION, "content-type": "application/json"}
        if key:
            headers["x-api-key"] = key
        return headers

    def encode(self, ask: Ask) -> bytes:
        content: list[dict[str, Any]] = [{"type": "text", "text": ask.text}]
        if ask.picture is not None:
            data = base64.b64encode(ask.picture.data).decode()
            source = {"type": "base64", "media_type": ask.picture.media_type, "data": data}
            content.insert(0, {"type": "image", "source": source})
        body: dict[str, Any] = {
            "model": self._access.model,
            "max_tokens": ask.max_output_tokens,
            # Tools stand before the system text in what is cached: one mark at its end keeps both.
            "system": [{"type": "text", "text": ask.system, "cache_control": {"type": "ephemeral"}}],
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in ask.tools
            ],
            "messages": [{"role": "user", "content": content}],
        }
        if self._access.stream:
            body["stream"] = True
        return msgspec.json.encode(body)

    def decode(self, raw: bytes) -> Reply:
        message = _object(raw)
        reader = AnthropicStream()
        reader.start(message)
        content = message.get("content")
        if not isinstance(content, list):
            raise WireError(self.name, "there is no list of content")
        for index, block in enumerate(content[:MAX_REPLY_CALLS]):
            reader.block(index, block)
        reader.stopped(message.get("stop_reason"), message.get("stop_details"))
        return reader.reply()

    def stream_reader(self) -> AnthropicStream:
        return AnthropicStream()


class AnthropicStream:
    """Puts a message together from `message_start`, `content_block_*`, `message_delta` and `message_stop`."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}
        self._usage: dict[str, Any] = {}
        self._stop_word = ""
        self._refusal = ""
        self._model = ""
        self._whole = False

    @property
    def is_whole(self) -> bool:
        return self._whole

    def take(self, event: str, data: str) -> None:
        body = _object(data.encode())
        kind = body.get("type") or event
        if kind == "error":
            error = body.get("error") if isinstance(body.get("error"), dict) else {}
            assert isinstance(error, dict)
            raise StreamFailedError(str(error.get("type", "error")), str(error.get("message", "")))
        if kind == "message_start":
            message = body.get("message")
            if not isinstance(message, dict):
                raise WireError("anthropic", "message_start without a message")
            self.start(message)
        elif kind == "content_block_start":
            self.block(_index(body), body.get("content_block"))
        elif kind == "content_block_delta":
            self._delta(_index(body), body.get("delta"))
        elif kind == "message_delta":
            delta, usage = body.get("delta"), body.get("usage")
            if isinstance(delta, dict):
                self.stopped(delta.get("stop_reason"), delta.get("stop_details"))
            if isinstance(usage, dict):
                self._usage.update({key: value for key, value in usage.items() if value is not None})
        elif kind == "message_stop":
            self._whole = True

    def start(self, message: dict[str, Any]) -> None:
        """The message's own fields, its usage among them."""
        if message.get("type") not in ("message", None):
            raise WireError("anthropic", f"type is {str(message.get('type'))[:40]!r}, not message")
        usage = message.get("usage")
        self._usage = dict(usage) if isinstance(usage, dict) else {}
        self._model = str(message.get("model", ""))[:200]

    def block(self, index: int, block: object) -> None:
        """The start of a content block, or a whole one. Blocks of thinking are not read."""
        if not isinstance(block, dict) or index >= MAX_REPLY_CALLS:
            return
        if block.get("type") == "text":
            self._texts[index] = str(block.get("text") or "")
        elif block.get("type") == "tool_use":
            self._names[index] = str(block.get("name") or "")
            given = block.get("input")
            self._arguments[index] = msgspec.json.encode(given).decode() if given else ""

    def stopped(self, word: object, details: object) -> None:
        self._stop_word = str(word or "")[:80]
        if self._stop_word == "refusal":
            told = details.get("explanation") if isinstance(details, dict) else None
            self._refusal = str(told or "the model refused")[:500]

    def _delta(self, index: int, delta: object) -> None:
        if not isinstance(delta, dict):
            return
        if delta.get("type") == "text_delta" and index in self._texts:
            self._texts[index] += str(delta.get("text", ""))
        elif delta.get("type") == "input_json_delta" and index in self._arguments:
            self._arguments[index] += str(delta.get("partial_json", ""))

    def reply(self) -> Reply:
        return Reply(
            calls=tuple(
                Call(name=name, arguments=self._arguments[index] or "{}") for index, name in sorted(self._names.items())
            ),
            text="\n".join(text for _, text in sorted(self._texts.items()) if text),
            stop=_STOPS.get(self._stop_word, "other"),
            stop_word=self._stop_word,
            usage=read_usage(self._usage),
            refusal=self._refusal,
            model=self._model,
        )


def read_usage(usage: dict[str, Any]) -> Tokens | None:
    """Tokens by kind; None where a count is missing or no count. The caches' counts may be left out."""
    counts = [count(usage.get(key)) for key in ("input_tokens", "output_tokens")]
    kept = [
        0 if usage.get(key) is None else count(usage[key])
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    if any(one is None for one in (*counts, *kept)):
        return None
    return Tokens(input=counts[0] or 0, output=counts[1] or 0, cache_read=kept[0] or 0, cache_write=kept[1] or 0)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError("anthropic", f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise WireError("anthropic", "it is not an object")
    return found


def _index(body: dict[str, Any]) -> int:
    index = count(body.get("index"))
    if index is None:
        raise WireError("anthropic", "a content block without an index")
    return index
