"""A service over HTTP: every foreign exception becomes one of three facts: not sent, fate unknown, answered no.

No library retries behind our back, no redirects, no proxies from the environment, no compression (a small answer
cannot unpack into a huge one). A total deadline stands beside httpx's per-read one (a slow drip never times out), and
an answer is read up to a cap. Each request has a connection of its own: on a kept one a repeated answer would be taken
for the answer to the next request, and a server that just closed it would make a fate unknown that need not be.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from coordinator.client import AnsweredNoError, AuthenticationError, NotSentError, UnknownOutcomeError
from coordinator.documents import DocumentError, decode
from coordinator.errors import InvalidInputError
from coordinator.service.answers import inner, read_answer, read_estimate, read_job, read_pack, read_run
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
MAX_MESSAGE_CHARACTERS = 500
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
NOT_IMPLEMENTED = 501
# 404 for a missing game or route, or a page of a proxy's own, says nothing about whether a job was registered.
_NOT_ABOUT_THE_JOB = ("unexplained", "no_such_game", "no_such_route")


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
        # The HTTP library quotes an illegal header's value in its error: the token must never get that far.
        if not _TOKEN.fullmatch(token):
            raise InvalidInputError("the service's token is empty, too long, or has a space, line end or odd character")
        if not game or game in (".", ".."):
            raise InvalidInputError(f"game {game!r} is not the id of a game of a service")
        self._total_seconds, self._token = total_seconds, token
        self._prefix = f"/api/v1/games/{quote(game, safe='')}/playtest"
        self._client = httpx.AsyncClient(
            base_url=self.address,
            headers={
                "authorization": f"Bearer {token}",
                "accept": "application/json",
                "accept-encoding": "identity",
                "connection": "close",
            },
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            transport=transport
            or httpx.AsyncHTTPTransport(
                retries=0, trust_env=False, limits=httpx.Limits(max_connections=32, max_keepalive_connections=0)
            ),
        )

    async def pack(self) -> Pack:
        return read_pack(await self._call("GET", "/pack"), self._named("/pack"))

    async def estimate(self, request: EstimateRequest) -> Estimate:
        found = await self._call("POST", "/estimate", body=msgspec.json.encode(request))
        return read_estimate(found, self._named("/estimate"))

    async def register(self, idempotency_key: str, body: bytes) -> Job:
        found = await self._call("POST", "/jobs", body=body, headers={"idempotency-key": idempotency_key})
        return read_job(found, self._named("/jobs"))

    async def find_job(self, idempotency_key: str) -> Job | None:
        try:
            found = await self._call("GET", "/jobs", params={"idempotency_key": idempotency_key})
        except AnsweredNoError as error:
            if error.status == 404 and error.code not in _NOT_ABOUT_THE_JOB:
                return None
            raise
        return read_job(found, self._named("/jobs"))

    async def job(self, job_id: str) -> JobState:
        return self._job_state(await self._call("GET", _job(job_id)))

    async def finish(self, job_id: str, reason: str | None = None) -> JobState:
        body = msgspec.json.encode({} if reason is None else {"reason": reason})
        return self._job_state(await self._call("POST", f"{_job(job_id)}/finish", body=body))

    def _job_state(self, document: dict[str, Any]) -> JobState:
        return read_answer(inner(document, "job"), JobState, self._named("/jobs"))

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None:
        await self._call("POST", f"{_job(job_id)}/aggregate", body=msgspec.json.encode(aggregate))

    async def run(self, job_id: str, run_id: str) -> RunState:
        return self._run_state(run_id, await self._call("GET", _run(job_id, run_id)))

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState:
        body = msgspec.json.encode({"state": state})
        return self._run_state(run_id, await self._call("POST", f"{_run(job_id, run_id)}/transition", body=body))

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState:
        body = msgspec.json.encode({"actions_taken": actions_taken, "checkpoint_step": checkpoint_step})
        return self._run_state(run_id, await self._call("POST", f"{_run(job_id, run_id)}/heartbeat", body=body))

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState:
        body = msgspec.json.encode(result)
        return self._run_state(run_id, await self._call("POST", f"{_run(job_id, run_id)}/complete", body=body))

    def _run_state(self, run_id: str, document: dict[str, Any]) -> RunState:
        return read_run(document, run_id, self._named("/jobs"))

    def _named(self, path: str) -> str:
        return f"{self.address}{self._prefix}{path}"

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        """Ask by checksum first: what is there is not sent again."""
        path = f"{_run(job_id, run_id)}/uploads/{quote(sha256, safe='')}"
        try:
            if (await self._call("GET", path)).get("present") is True:
                return False
        except AnsweredNoError as error:
            # A service that cannot be asked takes the file itself, and says better what is wrong.
            if error.status not in (404, 405):
                raise
        headers = {"content-type": "application/octet-stream"}
        await self._call("PUT", path, body=data, headers=headers, params={"name": name})
        return True

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
                    return _judge(answer, await _bounded(answer))
        except AnsweredNoError as error:
            raise type(error)(error.status, self._safe(error.code), self._safe(error.message)) from None
        except UnknownOutcomeError as error:
            raise UnknownOutcomeError(f"{what}: {self._safe(error)}") from self._cause(error)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise NotSentError(f"{what}: no connection ({_said(error)})") from error
        except httpx.HTTPError as error:
            text = self._safe(_said(error))
            raise UnknownOutcomeError(f"{what}: the answer was lost ({text})") from self._cause(error)
        except TimeoutError as error:
            raise UnknownOutcomeError(f"{what}: no whole answer within {self._total_seconds:g} s") from error

    def _safe(self, text: object) -> str:
        """What a service says, for people: one bounded line without control codes, and never the token: a service, or
        something between, may repeat what it was sent.
        """
        line = "".join(one if one.isprintable() else " " for one in str(text).replace(self._token, "[token]"))
        return line if len(line) <= MAX_MESSAGE_CHARACTERS else line[:MAX_MESSAGE_CHARACTERS] + "..."

    def _cause(self, error: Exception) -> Exception | None:
        """The cause to keep, unless its text holds the token."""
        return None if self._token in str(error) else error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def normal_address(url: str) -> str:
    """The service's address without trailing slashes. Raises `InvalidInputError` if it is not plain http(s).

    An address with a user or password is refused without being quoted.
    """
    try:
        found = urlsplit(url)
        user, has_port = found.username or found.password, found.port != 0
    except ValueError as error:
        raise InvalidInputError("the service's address is not a URL") from error
    if user or "@" in found.netloc:
        raise InvalidInputError("the service's address must not carry a user or password; the token is read apart")
    if found.scheme not in ("http", "https") or not found.hostname or not has_port:
        raise InvalidInputError(f"service {url!r} is not an http or https address")
    if found.query or found.fragment or not (url.isascii() and url.isprintable()) or " " in url:
        raise InvalidInputError(f"service {url!r} has more than scheme, host, port and path")
    return url.rstrip("/")


async def _bounded(answer: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise UnknownOutcomeError("the answer is compressed, which was not asked for")
    async for part in answer.aiter_raw():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise UnknownOutcomeError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _judge(answer: httpx.Response, data: bytes) -> dict[str, Any]:
    """The document of a good answer; else which kind of no, or of not knowing, it is."""
    try:
        document = decode(data, limit_bytes=MAX_ANSWER_BYTES) if data else {}
    except DocumentError as error:
        if answer.is_success:
            raise UnknownOutcomeError(f"the answer {error}") from error
        document = {}
    if answer.is_success:
        return document
    if answer.status_code >= 500 and answer.status_code != NOT_IMPLEMENTED:
        raise UnknownOutcomeError(f"the service failed with {answer.status_code}")
    try:
        facts = msgspec.convert(document, ErrorBody).error
        code, message = facts.code, facts.message
    except msgspec.ValidationError:
        code, message = "unexplained", f"an answer without an error's code and message ({len(data)} bytes)"
    kind = AuthenticationError if answer.status_code in (401, 403) else AnsweredNoError
    raise kind(answer.status_code, code, message)


def _job(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"


def _run(job_id: str, run_id: str) -> str:
    return f"{_job(job_id)}/runs/{quote(run_id, safe='')}"
