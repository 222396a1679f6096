"""Chat completions of OpenAI, and of the many servers that speak the same: whole answers and streams. Pure.

Source: the API reference of chat completions. `prompt_tokens` holds what was read from the cache and written to it;
both are taken out of it here, so that each token is counted once.
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

DONE = "[DONE]"
_STOPS: dict[str, Stop] = {
    "tool_calls": "calls", "function_call": "calls", "stop": "text", "length": "length", "content_filter": "refusal",
}  # fmt: skip


class OpenAIWire:
    """Spells asks and reads answers for one model."""

    name = "openai"
    path = "/v1/chat/completions"

    def __init__(self, access: ModelAccess) -> None:
        self._access = access

    def headers(self, key: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        return headers

    def encode(self, ask: Ask) -> bytes:
        content: str | list[dict[str, Any]] = ask.text
        if ask.picture is not None:
            data = base64.b64encode(ask.picture.data).decode()
            url = f"data:{ask.picture.media_type};base64,{data}"
            content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": ask.text}]
        # Compatible servers know the older name of the limit; the provider's newer models only know the newer one.
        limit = "max_completion_tokens" if self._access.official else "max_tokens"
        body: dict[str, Any] = {
            "model": self._access.model,
            limit: ask.max_output_tokens,
            "messages": [{"role": "system", "content": ask.system}, {"role": "user", "content": content}],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in ask.tools
            ],
            "tool_choice": "auto",
        }
        if self._access.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(body)

    def decode(self, raw: bytes) -> Reply:
        body = _object(raw)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise WireError(self.name, "there is no choice")
        reader = OpenAIStream()
        reader.begin(body)
        reader.piece(choices[0], choices[0].get("message"))
        return reader.reply()

    def stream_reader(self) -> OpenAIStream:
        return OpenAIStream()


class OpenAIStream:
    """Puts a completion together from chunks; it is whole at `[DONE]`."""

    def __init__(self) -> None:
        self._text = ""
        self._refusal = ""
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}
        self._stop_word = ""
        self._usage: object = None
        self._model = ""
        self._whole = False

    @property
    def is_whole(self) -> bool:
        return self._whole

    def take(self, event: str, data: str) -> None:
        if data.strip() == DONE:
            self._whole = True
            return
        body = _object(data.encode())
        error = body.get("error")
        if error is not None or event == "error":
            told = error if isinstance(error, dict) else {"message": error}
            raise StreamFailedError(str(told.get("code") or told.get("type") or "error"), str(told.get("message", "")))
        self.begin(body)
        choices = body.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                # Only the first choice is asked for; a server that sends more is heard on that one.
                if isinstance(choice, dict) and choice.get("index", 0) == 0:
                    self.piece(choice, choice.get("delta"))

    def begin(self, body: dict[str, Any]) -> None:
        """The fields beside the choices."""
        if isinstance(body.get("usage"), dict):
            self._usage = body["usage"]
        self._model = str(body.get("model") or self._model)[:200]

    def piece(self, choice: dict[str, Any], message: object) -> None:
        """A delta of the message, or the whole of it."""
        if choice.get("finish_reason"):
            self._stop_word = str(choice["finish_reason"])[:80]
        if not isinstance(message, dict):
            return
        if isinstance(message.get("content"), str):
            self._text += message["content"]
        if isinstance(message.get("refusal"), str):
            self._refusal = (self._refusal + message["refusal"])[:500]
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                self._call(call, position)

    def _call(self, call: dict[str, Any], position: int) -> None:
        index = count(call.get("index", position))
        function = call.get("function")
        if index is None or index >= MAX_REPLY_CALLS or not isinstance(function, dict):
            return
        self._names.setdefault(index, "")
        self._arguments.setdefault(index, "")
        if isinstance(function.get("name"), str) and not self._names[index]:
            self._names[index] = function["name"]
        if isinstance(function.get("arguments"), str):
            self._arguments[index] += function["arguments"]

    def reply(self) -> Reply:
        stop = _STOPS.get(self._stop_word, "other")
        if self._refusal or stop == "refusal":
            stop = "refusal"
        elif self._names and stop == "text":
            # Some compatible servers end a message with calls by "stop".
            stop = "calls"
        return Reply(
            calls=tuple(
                Call(name=name, arguments=self._arguments[index] or "{}") for index, name in sorted(self._names.items())
            ),
            text=self._text,
            stop=stop,
            stop_word=self._stop_word,
            usage=read_usage(self._usage),
            refusal=self._refusal or ("the provider's filter left the answer out" if stop == "refusal" else ""),
            model=self._model,
        )


def read_usage(usage: object) -> Tokens | None:
    """Tokens by kind, what was cached taken out of the prompt; None where a count is missing or cannot be."""
    if not isinstance(usage, dict):
        return None
    prompt, output = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    told = details if isinstance(details, dict) else {}
    read = 0 if told.get("cached_tokens") is None else count(told["cached_tokens"])
    written = 0 if told.get("cache_write_tokens") is None else count(told["cache_write_tokens"])
    if prompt is None or output is None or read is None or written is None or read + written > prompt:
        return None
    return Tokens(input=prompt - read - written, cache_read=read, cache_write=written, output=output)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError("openai", f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise WireError("openai", "it is not an object")
    return found
