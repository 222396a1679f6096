"""A server of models on real sockets that speaks both published formats, and can fail in every way that hurts.

`think(Asked) -> Said | Trouble` decides each answer; the server spells it in the form of the address that was asked,
as a stream where one was wanted.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

LIMIT_SECONDS = 20.0


class Asked(msgspec.Struct, kw_only=True):
    """One request: which form, its headers in lower case, its body, and its number from 1."""

    provider: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int

    @property
    def text(self) -> str:
        """What the user's turn says."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(part["text"] for part in content if part["type"] == "text")

    @property
    def system(self) -> str:
        if self.provider == "anthropic":
            return "\n".join(block["text"] for block in self.body.get("system", []))
        return "\n".join(one["content"] for one in self.body["messages"] if one["role"] == "system")

    @property
    def tools(self) -> list[str]:
        tools = self.body.get("tools", [])
        return [tool["name"] if self.provider == "anthropic" else tool["function"]["name"] for tool in tools]

    @property
    def options(self) -> list[str]:
        """The labels on offer, as they stand in the text."""
        block = self.text.split("<<options ", 1)[1].split("\noptions ", 1)[0].split("\n")[1:]
        return [line.split("] ", 1)[1] for line in block if line.startswith("[")]


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider bills, each token once."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `calls` are names and arguments; arguments that are a text go out as they are."""

    calls: Sequence[tuple[str, Any]] = ()
    text: str = ""
    stop: str | None = None
    refusal: str = ""
    usage: Counted | dict[str, Any] | None = Counted()


class Trouble(msgspec.Struct, kw_only=True):
    """Instead of an answer, or in the middle of one.

    `status` with `headers`: an error. `reset`: the connection is reset once the request was read. `silent`: nothing
    comes. `cut_after`: the answer `said` ends after so many bytes of its body. `drip_seconds`: its bytes come one by
    one. `raw`: this body with status 200. `error_event`: a stream that breaks off by saying so.
    """

    status: int = 200
    headers: dict[str, str] = {}
    message: str = "trouble"
    reset: bool = False
    silent: bool = False
    cut_after: int | None = None
    drip_seconds: float | None = None
    raw: bytes | None = None
    content_type: str = "application/json"
    error_event: str | None = None
    said: Said = msgspec.field(default_factory=lambda: Said(calls=[("wait", {"label": "wait"})]))


Think = Callable[[Asked], "Said | Trouble"]


class ModelServer:
    """Use as a context: `with ModelServer(think) as server: server.url`. `split_at`: bytes of each piece sent."""

    def __init__(self, think: Think, *, split_at: int | None = None) -> None:
        self.think, self.split_at = think, split_at
        self.asked: list[Asked] = []
        self.raw: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ModelServer:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(0.2)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._over.is_set():
                request = self._read(connection)
                if request is None or not self._answer(connection, *request):
                    return

    def _read(self, connection: socket.socket) -> tuple[str, dict[str, str], bytes] | None:
        data = b""
        wanted: int | None = None
        while wanted is None or len(data) < wanted:
            try:
                piece = connection.recv(65_536)
            except TimeoutError:
                if self._over.is_set():
                    return None
                continue
            if not piece:
                return None
            data += piece
            if wanted is None and b"\r\n\r\n" in data:
                head, _, _ = data.partition(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                wanted = len(head) + 4 + int(headers.get("content-length", "0"))
        with self._lock:
            self.raw.append(data)
        return lines[0].split(" ")[1], headers, data[len(head) + 4 :]

    def _answer(self, connection: socket.socket, path: str, headers: dict[str, str], raw: bytes) -> bool:
        """Whether the connection can be used again."""
        provider = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}.get(path.split("?")[0])
        if provider is None:
            self._send_whole(connection, 404, {}, b'{"error":{"message":"no such address"}}', "application/json")
            return True
        body = json.loads(raw)
        with self._lock:
            asked = Asked(provider=provider, headers=headers, body=body, number=len(self.asked) + 1)
            self.asked.append(asked)
        found = self.think(asked)
        trouble = found if isinstance(found, Trouble) else None
        if trouble is not None and trouble.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if trouble is not None and trouble.silent:
            self._over.wait(LIMIT_SECONDS)
            return False
        if trouble is not None and trouble.status != 200:
            self._send_whole(connection, trouble.status, trouble.headers, _error(provider, trouble), "application/json")
            return True
        if trouble is not None and trouble.raw is not None:
            self._send_whole(connection, 200, trouble.headers, trouble.raw, trouble.content_type)
            return True
        said = trouble.said if trouble is not None else found
        assert isinstance(said, Said)
        streamed = bool(body.get("stream"))
        data = spell(provider, said, streamed=streamed, include_usage=_wants_usage(provider, body))
        if trouble is not None and trouble.error_event is not None:
            data = data[: data.index(b"\n\n") + 2] + _error_event(provider, trouble)
        kind = "text/event-stream; charset=utf-8" if streamed else "application/json"
        if trouble is not None and trouble.cut_after is not None:
            self._begin(connection, len(data), kind)
            connection.sendall(data[: trouble.cut_after])
            return False
        self._begin(connection, len(data), kind)
        self._pieces(connection, data, trouble.drip_seconds if trouble is not None else None)
        return True

    def _begin(self, connection: socket.socket, length: int, kind: str) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nrequest-id: req_1\r\n\r\n"
        connection.sendall(head.encode())

    def _pieces(self, connection: socket.socket, data: bytes, drip: float | None) -> None:
        size = 1 if drip is not None else self.split_at or len(data)
        for start in range(0, len(data), size):
            connection.sendall(data[start : start + size])
            if drip is not None and self._over.wait(drip):
                return

    def _send_whole(
        self, connection: socket.socket, status: int, headers: dict[str, str], data: bytes, kind: str
    ) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)


def _wants_usage(provider: str, body: dict[str, Any]) -> bool:
    return provider == "anthropic" or bool((body.get("stream_options") or {}).get("include_usage"))


def _error(provider: str, trouble: Trouble) -> bytes:
    names = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
    error = {"type": names.get(trouble.status, "api_error"), "message": trouble.message}
    body: dict[str, Any] = {"type": "error", "error": error} if provider == "anthropic" else {"error": error}
    return json.dumps(body).encode()


def _error_event(provider: str, trouble: Trouble) -> bytes:
    error = {"type": trouble.error_event, "message": trouble.message}
    if provider == "anthropic":
        return _event("error", {"type": "error", "error": error})
    return _data({"error": error})


def spell(provider: str, said: Said, *, streamed: bool, include_usage: bool = True) -> bytes:
    """The bytes of an answer's body, as the provider's reference shows them."""
    if provider == "anthropic":
        return _anthropic_stream(said) if streamed else json.dumps(_anthropic_message(said)).encode()
    return _openai_stream(said, include_usage) if streamed else json.dumps(_openai_completion(said)).encode()


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _anthropic_usage(said: Said) -> dict[str, Any]:
    if not isinstance(said.usage, Counted):
        return said.usage or {}
    return {
        "input_tokens": said.usage.input,
        "output_tokens": said.usage.output,
        "cache_read_input_tokens": said.usage.cache_read,
        "cache_creation_input_tokens": said.usage.cache_write,
        "service_tier": "standard",
    }


def _anthropic_stop(said: Said) -> str:
    if said.refusal:
        return "refusal"
    return said.stop or ("tool_use" if said.calls else "end_turn")


def _anthropic_message(said: Said) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": "", "signature": "c2ln"}]
    if said.text:
        content.append({"type": "text", "text": said.text})
    for number, (name, given) in enumerate(said.calls):
        content.append({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content,
        "stop_reason": _anthropic_stop(said),
        "stop_sequence": None,
        "stop_details": {"type": "refusal", "category": None, "explanation": said.refusal} if said.refusal else None,
        "usage": _anthropic_usage(said),
    }


def _event(name: str, body: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def _anthropic_stream(said: Said) -> bytes:
    usage = _anthropic_usage(said)
    start = {**_anthropic_message(said), "content": [], "stop_reason": None, "stop_details": None}
    start["usage"] = {**usage, "output_tokens": 1} if "output_tokens" in usage else usage
    out = _event("message_start", {"type": "message_start", "message": start})
    out += _event("ping", {"type": "ping"})
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}],
        )
    ]
    if said.text:
        half = len(said.text) // 2
        deltas = [{"type": "text_delta", "text": part} for part in (said.text[:half], said.text[half:])]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for number, (name, given) in enumerate(said.calls):
        whole = _arguments(given)
        pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        blocks.append((block, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]]))
    for index, (block, deltas) in enumerate(blocks):
        out += _event("content_block_start", {"type": "content_block_start", "index": index, "content_block": block})
        for delta in deltas:
            out += _event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        out += _event("content_block_stop", {"type": "content_block_stop", "index": index})
    stopped = {"stop_reason": _anthropic_stop(said), "stop_sequence": None}
    if said.refusal:
        stopped["stop_details"] = {"type": "refusal", "category": None, "explanation": said.refusal}  # type: ignore[assignment]
    final = {"output_tokens": usage["output_tokens"]} if "output_tokens" in usage else {}
    out += _event("message_delta", {"type": "message_delta", "delta": stopped, "usage": final})
    return out + _event("message_stop", {"type": "message_stop"})


def _openai_usage(said: Said) -> dict[str, Any] | None:
    if not isinstance(said.usage, Counted):
        return said.usage
    used = said.usage
    prompt = used.input + used.cache_read + used.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
    }


def _openai_stop(said: Said) -> str:
    return said.stop or ("tool_calls" if said.calls else "stop")


def _openai_completion(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": said.refusal or None}
    if said.calls:
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": _arguments(given)}}
            for number, (name, given) in enumerate(said.calls)
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _openai_stop(said)}],
        "usage": _openai_usage(said),
    }


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def _openai_stream(said: Said, include_usage: bool) -> bytes:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "gpt-test"}

    def chunk(delta: dict[str, Any], stop: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
        return _data({**frame, "choices": [choice], **({"usage": None} if include_usage else {})})

    out = chunk({"role": "assistant", "content": "" if not said.calls else None})
    for part in (said.text[: len(said.text) // 2], said.text[len(said.text) // 2 :]):
        out += chunk({"content": part}) if part else b""
    if said.refusal:
        out += chunk({"refusal": said.refusal})
    for number, (name, given) in enumerate(said.calls):
        function = {"name": name, "arguments": ""}
        out += chunk(
            {"tool_calls": [{"index": number, "id": f"call_{number}", "type": "function", "function": function}]}
        )
        whole = _arguments(given)
        for at in range(0, len(whole), 5):
            out += chunk({"tool_calls": [{"index": number, "function": {"arguments": whole[at : at + 5]}}]})
    out += chunk({}, _openai_stop(said))
    usage = _openai_usage(said)
    if include_usage and usage is not None:
        out += _data({**frame, "choices": [], "usage": usage})
    return out + b"data: [DONE]\n\n"


def wait_until(true: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
    """Look until something is true. Raises `TimeoutError`."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        pause.wait(0.02)
