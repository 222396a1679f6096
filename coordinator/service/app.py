"""The embedded logic for a team: an ASGI application under bearer tokens.

Every refusal is `{"error": {"code", "message"}}`; nothing of a traceback reaches a client.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator.client import AnsweredNoError
from coordinator.errors import CoordinatorError
from coordinator.service.embedded import EmbeddedService
from coordinator.service.wire import EstimateRequest, RunResult

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MAX_REQUEST_BYTES = 64 << 20

Handler = Callable[[EmbeddedService, "Request", bytes], Awaitable[Any]]


def make_app(services: dict[str, EmbeddedService], tokens: list[str]) -> Starlette:
    """`services`: game id -> its service. `tokens`: the bearer tokens that are let in."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    def answer(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                _authenticate(request, tokens)
                service = services.get(request.path_params["game"])
                if service is None:
                    raise AnsweredNoError(404, "no_such_game", f"there is no game {request.path_params['game']}")
                found = await handler(service, request, await _body(request))
            except AnsweredNoError as error:
                return _error(error.status, error.code, error.message)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                return _error(400, "invalid_request", str(error))
            except CoordinatorError as error:
                return _error(503, "unavailable", str(error))
            return Response(msgspec.json.encode(found), media_type="application/json")

        return endpoint

    base = "/api/v1/games/{game}/playtest"
    job, run = f"{base}/jobs/{{job}}", f"{base}/jobs/{{job}}/runs/{{run}}"
    routes: list[tuple[str, str, Handler]] = [
        ("GET", f"{base}/pack", _pack),
        ("POST", f"{base}/estimate", _estimate),
        ("POST", f"{base}/jobs", _register),
        ("GET", f"{base}/jobs", _find),
        ("GET", job, _job),
        ("POST", f"{job}/finish", _finish),
        ("POST", f"{job}/aggregate", _aggregate),
        ("GET", run, _run),
        ("POST", f"{run}/transition", _transition),
        ("POST", f"{run}/heartbeat", _heartbeat),
        ("POST", f"{run}/complete", _complete),
        ("POST", f"{run}/uploads", _upload),
    ]
    return Starlette(routes=[Route(path, answer(handler), methods=[method]) for method, path, handler in routes])


def _authenticate(request: Request, tokens: list[str]) -> None:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    known = [hmac.compare_digest(given.encode(), token.encode()) for token in tokens]
    if kind.lower() != "bearer" or not any(known):
        raise AnsweredNoError(401, "unauthorized", "a bearer token that this service knows is needed")


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_REQUEST_BYTES:
            raise AnsweredNoError(413, "too_large", f"a request has at most {MAX_REQUEST_BYTES} bytes")
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
    return await service.estimate(msgspec.json.decode(body, type=EstimateRequest))


async def _register(service: EmbeddedService, request: Request, body: bytes) -> Any:
    key = request.headers.get("idempotency-key", "")
    if not 1 <= len(key) <= 200:
        raise AnsweredNoError(400, "invalid_request", "the header Idempotency-Key is needed, 1 to 200 characters")
    return await service.register(key, body)


async def _find(service: EmbeddedService, request: Request, body: bytes) -> Any:
    found = await service.find_job(request.query_params.get("idempotency_key", ""))
    if found is None:
        raise AnsweredNoError(404, "no_such_job", "no job was registered under this key")
    return found


async def _job(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"job": await service.job(_ids(request)[0])}


class _Reason(msgspec.Struct):
    reason: str | None = None


class _State(msgspec.Struct):
    state: str


class _Beat(msgspec.Struct):
    actions_taken: int
    checkpoint_step: int


async def _finish(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"job": await service.finish(_ids(request)[0], msgspec.json.decode(body or b"{}", type=_Reason).reason)}


async def _aggregate(service: EmbeddedService, request: Request, body: bytes) -> Any:
    await service.send_aggregate(_ids(request)[0], msgspec.json.decode(body, type=dict[str, object]))
    return {}


async def _run(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.run(*_ids(request))}


async def _transition(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.transition(*_ids(request), msgspec.json.decode(body, type=_State).state)}


async def _heartbeat(service: EmbeddedService, request: Request, body: bytes) -> Any:
    beat = msgspec.json.decode(body, type=_Beat)
    return {"run": await service.heartbeat(*_ids(request), beat.actions_taken, beat.checkpoint_step)}


async def _complete(service: EmbeddedService, request: Request, body: bytes) -> Any:
    return {"run": await service.complete(*_ids(request), msgspec.json.decode(body, type=RunResult)), "report_lint": []}


async def _upload(service: EmbeddedService, request: Request, body: bytes) -> Any:
    job_id, run_id = _ids(request)
    name, digest = request.query_params.get("name", ""), request.headers.get("x-checksum-sha256", "")
    return {"already_there": not await service.upload(job_id, run_id, name, body, digest)}
