"""Requests to a playtest service as any client could send them, for the tests of the independent server."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any

from tests.independent_server.terms import JsonObject

BASE = "/api/v1/games/game-1/playtest/"
CLIENT_LIMIT_SECONDS = 30.0


def ask(
    port: int,
    method: str,
    path: str,
    body: JsonObject | bytes | None = None,
    *,
    token: str | None = "account-token",
    key: str | None = None,
    timeout_seconds: float = CLIENT_LIMIT_SECONDS,
) -> tuple[int, Any]:
    """Status and decoded body of one request on a connection of its own; `path` is below the game's playtest."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)) as connection:
        connection.request(method, path if path.startswith("/") else BASE + path, content, headers)
        with connection.getresponse() as response:
            return response.status, json.loads(response.read())


def asked(*personas: str, **more: Any) -> JsonObject:
    """What an estimate asks for: a standard playtest of these personas, unless `more` says otherwise."""
    return {"modules": ["persona_playtest"], "personas": list(personas), "run_length": "standard", **more}


def confirmed(price_cents: int, order: JsonObject) -> JsonObject:
    """The registration of an order at a price."""
    build = {"kind": "local", "ref": "build-1"}
    return {**order, "confirm_price_cents": price_cents, "cli_version": "0.1.0", "build": build}


def asked_simulation() -> JsonObject:
    return asked(modules=["balance_sim"], simulation={"games": 100})


def buy(port: int, price_cents: int, order: JsonObject, *, key: str = "key-1") -> Any:
    """Registers and returns the answer; fails unless it is a success."""
    status, answer = ask(port, "POST", "jobs", confirmed(price_cents, order), key=key)
    assert status == 200, answer
    return answer


def outcome(state: str = "succeeded", **more: Any) -> JsonObject:
    """The completion of a playthrough with a usable report, unless `more` says otherwise."""
    return {"state": state, "quit_reason": "goal_reached", "actions_taken": 12, "report": {"findings": []}, **more}
