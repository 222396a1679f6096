"""The embedded logic for a team: an ASGI application under bearer tokens.

Every refusal is `{"error": {"code", "message"}}`; nothing of a traceback, a path or a token reaches a client.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator.client import AnsweredNoError
from coordinator.errors import CoordinatorError, InvalidInputError
from coordinator.service.embedded import EmbeddedService
from coordinator.service.received import MAX_BODY_BYTES, read_body, refuse
from coordinator.service.wire import EstimateRequest, RunResult

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MAX_UPLOAD_BYTES = 64 << 20

_log = logging.getLogger(__name__)

Handler = Callable[[EmbeddedService, "Request", bytes], Awaitable[Any]]


class _Empty(msgspec.Struct):
    """A body that says nothing."""


class _Reason(msgspec.Struct):
    reason: str | None = None


class _State(msgspec.Struct):
    state: str


class _Beat(msgspec.Struct):
    actions_taken: int
    checkpoint_step: int


def make_app(services: Mapping[str, EmbeddedService], tokens: Sequence[str]) -> Starlette:
    """`services`: game id -> its service. `tokens`: the bearer tokens that are let in.

    Runs in the thread that made the services' ledgers. Raises `InvalidInputError` without tokens.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response
    from starlette.routing import Route

    if not tokens or not all(tokens):
        raise InvalidInputError("a service needs at least one bearer token, and none may be empty")
    known = [token.encode() for token in tokens]

    def answer(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                _authenticate(request, known)
                service = services.get(request.path_params["game"])
                if service is None:
                    refuse(404, "no_such_game", "this service does not have that game")
                found = await handler(service, request, await _body(request))
            except AnsweredNoError as error:
                return _error(error.status, error.code, error.message)
            except InvalidInputError as error:
                return _error(400, "invalid_request", str(error))
            except ClientDisconnect:
                return _error(400, "invalid_request", "the request was cut off")
            except CoordinatorError as error:
                # The text names files of this machine: it is for the operator's log, not for a client.
                _log.error("%s %s: %s", request.method, request.url.path, error)
                return _error(503, "unavailable", "the ledger cannot be used now; send the same request again")
            return Response(msgspec.json.encode(found), media_type="application/json")

        return endpoint

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        code = {404: "no_such_route", 405: "method_not_allowed"}.get(status, "internal")
        return _error(status, code, "this service does not have that route")

    return Starlette(
        routes=[Route(path, answer(handler), methods=[method]) for method, path, handler in _ROUTES],
        exception_handlers={HTTPException: unknown},
    )


def _authenticate(request: Request, known: Sequence[bytes]) -> None:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    # Each token is compared, whole, whether an earlier one fitted or not: the time tells nothing.
    fits = [hmac.compare_digest(given.encode(), token) for token in known]
    if kind.lower() != "bearer" or not any(fits):
        refuse(401, "unauthorized", "a bearer token that this service knows is needed")


async def _body(request: Request) -> bytes:
    limit = MAX_UPLOAD_BYTES if request.method == "PUT" else MAX_BODY_BYTES
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            refuse(413, "too_large", f"this request may have at most {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _error(status: int, code: str, message: str) -> Response:
    from starlette.responses import Response

    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Response(body, status_code=status, media_type="application/json")


def _ids(request: Request) -> tuple[str, str]:
    return request.path_params["job"], request.path_params.get("run", "")


async def _pack(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return await service.pack()


async def _estimate(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return await service.estimate(read_body(body, EstimateRequest))


async def _register(service: EmbeddedService, request: Request, body: bytes) -> Any:
    keys = request.headers.getlist("idempotency-key")
    if len(keys) != 1:
        refuse(400, "invalid_request", "the header Idempotency-Key is needed once")
    return await service.register(keys[0], body)


async def _find(service: EmbeddedService, request: Request, body: bytes) -> Any:
    found = await service.find_job(request.query_params.get("idempotency_key", ""))
    if found is None:
        refuse(404, "no_such_job", "no job was registered under this key")
    return found


async def _job(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"job": await service.job(_ids(request)[0])}


async def _finish(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"job": await service.finish(_ids(request)[0], read_body(body or b"{}", _Reason).reason)}


async def _aggregate(service: EmbeddedService, request: Request, body: bytes) -> Any:
    await service.send_aggregate(_ids(request)[0], read_body(body, dict[str, object]))
    return _Empty()


async def _run(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.run(*_ids(request))}


async def _transition(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.transition(*_ids(request), read_body(body, _State).state)}


async def _heartbeat(service: EmbeddedService, request: Request, body: bytes) -> Any:
    beat = read_body(body, _Beat)
    return {"run": await service.heartbeat(*_ids(request), beat.actions_taken, beat.checkpoint_step)}


async def _complete(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.complete(*_ids(request), read_body(body, RunResult)), "report_lint": []}


async def _uploaded(service: EmbeddedService, request: Request, body: bytes) -> Any:
    digest = request.path_params["sha256"]
    return {"sha256": digest, "present": await service.has_upload(*_ids(request), digest)}


async def _upload(service: EmbeddedService, request: Request, body: bytes) -> Any:
    digest = request.path_params["sha256"]
    await service.upload(*_ids(request), request.query_params.get("name", digest), body, digest)
    return {"sha256": digest, "present": True}


async def _not_supported(service: EmbeddedService, request: Request, body: bytes) -> Any:
    """Players here choose their actions themselves and call their models themselves."""
    await service.run(*_ids(request))
    refuse(501, "not_supported", "this service neither selects actions nor calls models")


_BASE = "/api/v1/games/{game}/playtest"
_JOB, _RUN = f"{_BASE}/jobs/{{job}}", f"{_BASE}/jobs/{{job}}/runs/{{run}}"
_ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", f"{_BASE}/pack", _pack),
    ("POST", f"{_BASE}/estimate", _estimate),
    ("POST", f"{_BASE}/jobs", _register),
    ("GET", f"{_BASE}/jobs", _find),
    ("GET", _JOB, _job),
    ("POST", f"{_JOB}/finish", _finish),
    ("POST", f"{_JOB}/aggregate", _aggregate),
    ("GET", _RUN, _run),
    ("POST", f"{_RUN}/transition", _transition),
    ("POST", f"{_RUN}/heartbeat", _heartbeat),
    ("POST", f"{_RUN}/complete", _complete),
    ("GET", f"{_RUN}/uploads/{{sha256}}", _uploaded),
    ("PUT", f"{_RUN}/uploads/{{sha256}}", _upload),
    ("POST", f"{_RUN}/select-action", _not_supported),
    ("POST", f"{_RUN}/model", _not_supported),
]
