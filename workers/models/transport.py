"""One call over httpx: sent once, within a total deadline and a byte cap, and judged by what is known of its fate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpx
import msgspec

from workers.models.access import ModelAccess
from workers.models.conversation import Reply, StreamFailedError, Wire, WireError
from workers.models.errors import BusyError, CallRefusedError, NotSentError, UnknownOutcomeError
from workers.models.sse import EventDecoder, EventTooLongError

MAX_ANSWER_BYTES = 8 << 20
MAX_ERROR_BYTES = 64 << 10
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BUSY_STATUSES = (429, 503, 529)
UNSURE_STATUSES = (408, 500, 502, 504)
"""A gateway that answers so may have handed the call on: whether it was charged is not known."""


class Sends(Protocol):
    """Whatever carries one call to a model."""

    async def send(self, body: bytes) -> Reply: ...

    async def close(self) -> None: ...


class Transport:
    """No retries of its own, and none of httpx's: whoever calls counts each call."""

    def __init__(
        self,
        access: ModelAccess,
        wire: Wire,
        key: str | None,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._access, self._wire, self._key, self._max_bytes = access, wire, key, max_bytes
        timeout = httpx.Timeout(read_seconds, connect=CONNECT_SECONDS)
        # A redirect would carry the key to another host, and a proxy of the environment would see it.
        self._client = httpx.AsyncClient(
            timeout=timeout, follow_redirects=False, trust_env=False, transport=httpx.AsyncHTTPTransport(retries=0)
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, body: bytes) -> Reply:
        """The whole answer. Raises `NotSentError`, `BusyError`, `CallRefusedError`, `UnknownOutcomeError`."""
        try:
            async with asyncio.timeout(self._access.call_seconds):
                return await self._exchange(body)
        except TimeoutError as error:
            raise UnknownOutcomeError(f"no whole answer within {self._access.call_seconds:g} s") from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise NotSentError(f"the provider was not reached: {_words(error)}") from error
        except httpx.HTTPError as error:
            raise UnknownOutcomeError(f"the connection broke after sending: {_words(error)}") from error
        except (WireError, EventTooLongError) as error:
            raise UnknownOutcomeError(str(error)) from error
        except StreamFailedError as error:
            # The stream had begun: what it had read by then may be on the bill.
            raise UnknownOutcomeError(str(error)) from error

    async def _exchange(self, body: bytes) -> Reply:
        headers = {**self._wire.headers(self._key), "accept-encoding": "identity"}
        request = self._client.build_request(
            "POST", self._access.base_url + self._wire.path, content=body, headers=headers
        )
        response = await self._client.send(request, stream=True)
        try:
            if response.status_code != 200:
                raise await self._failure(response)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return await self._read_stream(response)
            return self._wire.decode(await self._read_whole(response, self._max_bytes))
        finally:
            await response.aclose()

    async def _read_stream(self, response: httpx.Response) -> Reply:
        reader, decoder = self._wire.stream_reader(), EventDecoder()
        async for data in self._bounded(response, self._max_bytes):
            for event in decoder.feed(data):
                reader.take(event.name, event.data)
            if reader.is_whole:
                return reader.reply()
        raise UnknownOutcomeError("the stream ended before its answer was whole")

    async def _read_whole(self, response: httpx.Response, most: int) -> bytes:
        return b"".join([data async for data in self._bounded(response, most)])

    async def _bounded(self, response: httpx.Response, most: int) -> AsyncIterator[bytes]:
        seen = 0
        async for data in response.aiter_raw():
            seen += len(data)
            if seen > most:
                raise UnknownOutcomeError(f"the answer has more than {most} bytes")
            yield data

    async def _failure(self, response: httpx.Response) -> Exception:
        message = ""
        with contextlib.suppress(UnknownOutcomeError, httpx.HTTPError):
            message = _message(await self._read_whole(response, MAX_ERROR_BYTES))
        if self._key:
            # Some servers repeat the key that they refuse.
            message = message.replace(self._key, "[the key]")
        status = response.status_code
        if status in BUSY_STATUSES:
            return BusyError(status, retry_after(response.headers.get("retry-after"), now=time.time()), message)
        if status in UNSURE_STATUSES or status > 500:
            return UnknownOutcomeError(f"the provider answered {status}: {message[:200]}")
        return CallRefusedError(status, message)


def retry_after(value: str | None, *, now: float) -> float | None:
    """Seconds to wait by a Retry-After header: a number, or a date against `now` (seconds since 1970)."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds and seconds < 1e9 else None


def _message(raw: bytes) -> str:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return " ".join(raw[:300].decode("utf-8", "replace").split())
    error = found.get("error") if isinstance(found, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or "")[:500].split())


def _words(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]
