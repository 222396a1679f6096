"""A service over HTTP: every foreign exception becomes one of three facts: not sent, fate unknown, answered no.

No library retries behind our back, no redirects, no proxies from the environment; a total deadline stands beside
httpx's per-read one (a slow drip never times out), and an answer is read up to a cap.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from coordinator.client import AnsweredNoError, AuthenticationError, NotSentError, UnknownOutcomeError
from coordinator.documents import DocumentError, decode
from coordinator.errors import InvalidInputError
from coordinator.service.wire import (
    ErrorBody,
    Estimate,
    EstimateRequest,
    Job,
    JobState,
    Pack,
    RunResult,
    RunState,
)

TOTAL_SECONDS = 60.0
CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
MAX_ANSWER_BYTES = 4 << 20

T = TypeVar("T")


class RemoteService:
    """See `coordinator.client.Service`. `token` is the account's; it goes into one header and nowhere else."""

    is_embedded = False

    def __init__(
        self,
        url: str,
        game: str,
        token: str,
        *,
        total_seconds: float = TOTAL_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = normal_address(url)
        self._total_seconds = total_seconds
        self._prefix = f"/api/v1/games/{quote(game, safe='')}/playtest"
        try:
            self._client = httpx.AsyncClient(
                base_url=self.address,
                headers={"authorization": f"Bearer {token}", "accept": "application/json"},
                timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
                follow_redirects=False,
                trust_env=False,
                transport=transport or httpx.AsyncHTTPTransport(retries=0, trust_env=False),
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise InvalidInputError(f"service {url!r} or its token cannot be used: {type(error).__name__}") from None

    async def pack(self) -> Pack:
        return self._read(await self._call("GET", "/pack"), Pack)

    async def estimate(self, request: EstimateRequest) -> Estimate:
        return self._read(await self._call("POST", "/estimate", body=msgspec.json.encode(request)), Estimate)

    async def register(self, idempotency_key: str, body: bytes) -> Job:
        found = await self._call("POST", "/jobs", body=body, headers={"idempotency-key": idempotency_key})
        return self._read(found, Job)

    async def find_job(self, idempotency_key: str) -> Job | None:
        try:
            found = await self._call("GET", "/jobs", params={"idempotency_key": idempotency_key})
        except AnsweredNoError as error:
            if error.status == 404:
                return None
            raise
        return self._read(found, Job)

    async def job(self, job_id: str) -> JobState:
        return self._read(_inner(await self._call("GET", _job(job_id)), "job"), JobState)

    async def finish(self, job_id: str, reason: str | None = None) -> JobState:
        body = msgspec.json.encode({} if reason is None else {"reason": reason})
        return self._read(_inner(await self._call("POST", f"{_job(job_id)}/finish", body=body), "job"), JobState)

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None:
        await self._call("POST", f"{_job(job_id)}/aggregate", body=msgspec.json.encode(aggregate))

    async def run(self, job_id: str, run_id: str) -> RunState:
        return self._read_run(await self._call("GET", _run(job_id, run_id)))

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState:
        body = msgspec.json.encode({"state": state})
        return self._read_run(await self._call("POST", f"{_run(job_id, run_id)}/transition", body=body))

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState:
        body = msgspec.json.encode({"actions_taken": actions_taken, "checkpoint_step": checkpoint_step})
        return self._read_run(await self._call("POST", f"{_run(job_id, run_id)}/heartbeat", body=body))

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState:
        body = msgspec.json.encode(result)
        return self._read_run(await self._call("POST", f"{_run(job_id, run_id)}/complete", body=body))

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        headers = {"content-type": "application/octet-stream", "x-checksum-sha256": sha256}
        found = await self._call(
            "POST", f"{_run(job_id, run_id)}/uploads", body=data, headers=headers, params={"name": name}
        )
        return not found.get("already_there", False)

    async def close(self) -> None:
        await self._client.aclose()

    # -- one request

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        wanted = {"content-type": "application/json", **(headers or {})} if body is not None else headers
        what = f"{method} {self.address}{self._prefix}{path}"
        try:
            async with asyncio.timeout(self._total_seconds):
                async with self._client.stream(
                    method, self._prefix + path, content=body, headers=wanted, params=params
                ) as answer:
                    data = await _bounded(answer, what)
                    return _judge(answer, data, what)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise NotSentError(f"{what}: no connection ({type(error).__name__}: {error})") from error
        except httpx.HTTPError as error:
            raise UnknownOutcomeError(f"{what}: the answer was lost ({type(error).__name__}: {error})") from error
        except TimeoutError as error:
            raise UnknownOutcomeError(f"{what}: no whole answer within {self._total_seconds:g} s") from error

    def _read_run(self, document: dict[str, Any]) -> RunState:
        return self._read(_inner(document, "run"), RunState)

    def _read(self, document: dict[str, Any], record: type[T]) -> T:
        """Malformed is not a no: what was asked may have happened."""
        try:
            return msgspec.convert(document, record)
        except msgspec.ValidationError as error:
            raise UnknownOutcomeError(f"{self.address}: the answer is not a {record.__name__}: {error}") from error


def normal_address(url: str) -> str:
    """The service's address without trailing slashes. Raises `InvalidInputError` if it is not http(s) or has a user."""
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise InvalidInputError(f"service {url!r} is not an http or https address")
    if found.username or found.password:
        raise InvalidInputError("the service's address must not carry a user or password; the token is read apart")
    return url.rstrip("/")


async def _bounded(answer: httpx.Response, what: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise UnknownOutcomeError(f"{what}: the answer has more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _judge(answer: httpx.Response, data: bytes, what: str) -> dict[str, Any]:
    try:
        document = decode(data, limit_bytes=MAX_ANSWER_BYTES) if data else {}
    except DocumentError as error:
        if answer.is_success:
            raise UnknownOutcomeError(f"{what}: the answer {error}") from error
        document = {}
    if answer.is_success:
        return document
    if answer.status_code >= 500:
        raise UnknownOutcomeError(f"{what}: the service failed with {answer.status_code}")
    try:
        facts = msgspec.convert(document, ErrorBody).error
        code, message = facts.code, facts.message
    except msgspec.ValidationError:
        code, message = "unexplained", f"an answer without an error's code and message ({len(data)} bytes)"
    kind = AuthenticationError if answer.status_code in (401, 403) else AnsweredNoError
    raise kind(answer.status_code, code, message)


def _inner(document: dict[str, Any], key: str) -> dict[str, Any]:
    """`{"job": {...}}` and `{"run": {...}}`, or the object itself, as servers of different age answer."""
    found = document.get(key)
    return {**document, **found} if isinstance(found, dict) else document


def _job(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"


def _run(job_id: str, run_id: str) -> str:
    return f"{_job(job_id)}/runs/{quote(run_id, safe='')}"
