"""What the remote client makes of servers and networks that fail, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from coordinator.client import (
    AnsweredNoError,
    AuthenticationError,
    NotSentError,
    ServiceError,
    UnknownOutcomeError,
    UnusableAnswerError,
)
from coordinator.errors import InvalidInputError
from coordinator.service.remote import MAX_ANSWER_BYTES, RemoteService, normal_address
from tests.service.servers import (
    GAME,
    LIMIT_SECONDS,
    TOKEN,
    Script,
    answer,
    drip,
    head,
    listening,
    reset,
    scripted,
    send,
    until_gone,
)
from tests.service.stage import body_of, plan, played, run

Call = Callable[[RemoteService], Awaitable[Any]]
JOB = {
    "job_id": "job_1",
    "replayed": False,
    "price": {"price_cents": 20},
    "runs": [{"run_id": "run_1", "module": "persona_playtest", "state": "queued", "persona": "newcomer"}],
}
QUOTE = {
    "ok": True,
    "estimate_cents": 20,
    "balance_cents": 100,
    "breakdown": [{"unit": "persona_run", "count": 2, "unit_cents": 10}],
    "persona_run_count": 2,
    "run_length": "standard",
}


async def registering(service: RemoteService) -> Any:
    return await service.register("key-1", body_of())


async def estimating(service: RemoteService) -> Any:
    return await service.estimate(plan())


CALLS: dict[str, Call] = {
    "pack": lambda s: s.pack(),
    "estimate": estimating,
    "register": registering,
    "find_job": lambda s: s.find_job("key-1"),
    "job": lambda s: s.job("job_1"),
    "finish": lambda s: s.finish("job_1", "done"),
    "send_aggregate": lambda s: s.send_aggregate("job_1", {}),
    "run": lambda s: s.run("job_1", "run_1"),
    "transition": lambda s: s.transition("job_1", "run_1", "playing"),
    "heartbeat": lambda s: s.heartbeat("job_1", "run_1", 1, 1),
    "complete": lambda s: s.complete("job_1", "run_1", played()),
    "upload": lambda s: s.upload("job_1", "run_1", "a", b"data", "0" * 64),
}


async def closing(service: RemoteService, call: Call) -> Any:
    try:
        return await call(service)
    finally:
        await service.close()


def asked(script: Script, call: Call = registering, **settings: Any) -> Any:
    """What one call to a server with one answer comes to."""
    with scripted(script) as server:
        return run(closing(server.remote(**settings), call))


def failed(script: Script, call: Call = registering, **settings: Any) -> ServiceError:
    """The error of one call; the account's token stands nowhere in it, nor in what led to it."""
    with pytest.raises(ServiceError) as found:
        asked(script, call, **settings)
    assert TOKEN not in "".join(traceback.format_exception(found.value))
    return found.value


# -- not sent, or not known


@pytest.mark.parametrize("name", CALLS)
def test_a_refused_connection_is_certainly_not_sent(name: str) -> None:
    listener = listening()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(NotSentError, match="no connection"):
        run(closing(RemoteService(address, GAME, TOKEN), CALLS[name]))


@pytest.mark.parametrize("name", CALLS)
def test_a_reset_after_the_request_leaves_the_fate_unknown(name: str) -> None:
    assert type(failed(reset, CALLS[name])) is UnknownOutcomeError


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda connection: None, id="closed without an answer"),
        pytest.param(send(b"HTTP/1.1 200 OK\r\ncontent-le"), id="ends in the headers"),
        pytest.param(send(head(200, 500) + json.dumps(JOB).encode()), id="ends in the body"),
        pytest.param(send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), id="broken chunks"),
        pytest.param(send(b"nonsense\r\n\r\n"), id="not HTTP"),
        pytest.param(answer(200, ""), id="empty"),
        pytest.param(answer(200, "<html>"), id="not JSON"),
        pytest.param(answer(200, "[]"), id="not an object"),
        pytest.param(answer(200, "{}"), id="nothing in it"),
        pytest.param(answer(200, '{"job_id": NaN}'), id="not a number"),
        pytest.param(answer(200, '{"job_id": "a", "job_id": "b"}'), id="a key twice"),
        pytest.param(answer(200, "[" * 100_000), id="brackets"),
        pytest.param(answer(200, b"\xff\xfe"), id="not UTF-8"),
        pytest.param(answer(500, '{"error": {"code": "x", "message": "y"}}'), id="500"),
        pytest.param(answer(502, "<html>"), id="502"),
        pytest.param(answer(503, ""), id="503"),
        pytest.param(answer(200, gzip.compress(json.dumps(JOB).encode()), "content-encoding: gzip"), id="compressed"),
    ],
)
def test_a_lost_or_malformed_answer_leaves_the_fate_unknown(script: Script) -> None:
    assert type(failed(script)) is UnknownOutcomeError


def test_a_slow_drip_ends_at_the_total_deadline() -> None:
    """Every read gets a byte in time, so the library's own time-out never strikes."""
    script = drip(head(200, 100_000) + b" " * 100_000)
    assert "no whole answer within 0.5 s" in str(failed(script, total_seconds=0.5))


def test_a_silent_server_ends_at_the_total_deadline() -> None:
    assert type(failed(until_gone, total_seconds=0.3)) is UnknownOutcomeError


def test_an_answer_over_the_cap_is_cut_off_without_its_end() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
        while True:
            connection.sendall(b" " * 65536)

    assert f"more than {MAX_ANSWER_BYTES} bytes" in str(failed(endless))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with scripted(answer(200, json.dumps(JOB))) as other:
        found = failed(answer(status, "", f"location: {other.url}/"))
        assert isinstance(found, AnsweredNoError)
        assert found.status == status
        assert other.requests == []


def test_nothing_is_tried_again_behind_our_back() -> None:
    with scripted(reset, answer(200, json.dumps(JOB))) as server:
        with pytest.raises(UnknownOutcomeError):
            run(closing(server.remote(), registering))
        assert len(server.requests) == 1


def test_a_repeated_answer_is_not_taken_for_the_answer_to_the_next_request() -> None:
    """The first answer arrives twice on its connection; the second request must be answered by its own."""
    first = json.dumps({"run": {"run_id": "run_1", "state": "queued"}}).encode()
    second = json.dumps({"run": {"run_id": "run_1", "state": "playing"}})
    once = head(200, len(first)) + first

    async def both(service: RemoteService) -> list[str]:
        states = [(await service.run("job_1", "run_1")).state, (await service.run("job_1", "run_1")).state]
        await service.close()
        return states

    with scripted(send(once + once), answer(200, second)) as server:
        assert run(both(server.remote())) == ["queued", "playing"]
        assert len(server.requests) == 2


def test_a_canceled_call_is_canceled_and_not_an_error() -> None:
    async def cancel() -> None:
        with scripted(until_gone) as server:
            service = server.remote()
            task = asyncio.ensure_future(registering(service))
            assert await asyncio.to_thread(server.received.wait, LIMIT_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await service.close()

    run(cancel())


# -- the same bytes, and nothing else


def test_a_registration_sends_the_journals_bytes_and_one_token_in_one_header() -> None:
    body = body_of() + b" \n"
    with scripted(answer(200, json.dumps(JOB))) as server:
        run(closing(server.remote(), lambda service: service.register("key-1", body)))
    top, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert sent == body
    lines = top.decode().lower().split("\r\n")
    assert lines[0] == f"post /api/v1/games/{GAME}/playtest/jobs http/1.1"
    assert "idempotency-key: key-1" in lines
    assert server.requests[0].count(TOKEN.encode()) == 1


def test_ids_and_keys_cannot_leave_their_place_in_the_path() -> None:
    with scripted(answer(404, "{}"), answer(404, "{}")) as server:
        for call in (lambda s: s.job("../../../admin?x=1#"), lambda s: s.find_job("a&game=b")):
            with pytest.raises(AnsweredNoError):
                run(closing(server.remote(), call))
    paths = [request.split(b" ")[1].decode() for request in server.requests]
    assert paths == [
        f"/api/v1/games/{GAME}/playtest/jobs/..%2F..%2F..%2Fadmin%3Fx%3D1%23",
        f"/api/v1/games/{GAME}/playtest/jobs?idempotency_key=a%26game%3Db",
    ]


def test_an_upload_is_asked_for_by_checksum_and_sent_where_it_is_not() -> None:
    there, missing = answer(200, '{"present": true}'), answer(200, '{"present": false}')
    cannot_be_asked = answer(404, '{"error": {"code": "not_found", "message": "?"}}')
    with scripted(there, missing, there, cannot_be_asked, there) as server:
        sent = [run(closing(server.remote(), CALLS["upload"])) for _ in range(3)]
    assert sent == [False, True, True]
    path = f"/api/v1/games/{GAME}/playtest/jobs/job_1/runs/run_1/uploads/{'0' * 64}"
    assert [request.split(b" HTTP")[0].decode() for request in server.requests] == [
        f"GET {path}", f"GET {path}", f"PUT {path}?name=a", f"GET {path}", f"PUT {path}?name=a",
    ]  # fmt: skip
    assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [b"", b"", b"data", b"", b"data"]


# -- answered no


@pytest.mark.parametrize("status", [400, 402, 404, 409, 413, 422, 429, 501])
def test_a_no_carries_the_services_code_and_words(status: int) -> None:
    found = failed(answer(status, '{"error": {"code": "invalid_estimate", "message": "long is not sold here"}}'))
    assert type(found) is AnsweredNoError
    assert (found.status, found.code, found.message) == (status, "invalid_estimate", "long is not sold here")


@pytest.mark.parametrize("status", [401, 403])
def test_401_and_403_are_about_the_account(status: int) -> None:
    found = failed(answer(status, '{"error": {"code": "unauthorized", "message": "no"}}'))
    assert isinstance(found, AuthenticationError)


@pytest.mark.parametrize("body", ["", "<html>", "{}", '{"error": "no"}', '{"error": {"code": 5}}'])
def test_a_no_without_words_is_said_to_be_unexplained(body: str) -> None:
    found = failed(answer(409, body))
    assert isinstance(found, AnsweredNoError)
    assert (found.status, found.code) == (409, "unexplained")


def test_a_job_that_is_not_there_is_none_but_a_strangers_404_is_not() -> None:
    gone = answer(404, '{"error": {"code": "not_found", "message": "no such job"}}')
    assert asked(gone, CALLS["find_job"]) is None
    for body in ("<html>", '{"error": {"code": "no_such_game", "message": "?"}}'):
        assert isinstance(failed(answer(404, body), CALLS["find_job"]), AnsweredNoError)


def test_a_service_that_repeats_the_token_does_not_get_it_into_our_errors() -> None:
    echo = f"you sent {TOKEN}\x1b[31m\nand more " + "x" * 5_000
    body = json.dumps({"error": {"code": TOKEN, "message": echo}})
    found = failed(answer(401, body))
    assert isinstance(found, AuthenticationError)
    assert found.message.startswith("you sent [token] [31m and more x")
    assert len(found.message) < 600
    failed(send(f"HTTP/1.1 200 OK\r\nx y: {TOKEN}\r\n\r\n".encode()))


# -- answers that must not be acted on


AMOUNTS: list[object] = [20.5, 20.0, -1, 10**11 + 1, 10**19, True, "20", None, [20]]


@pytest.mark.parametrize("amount", AMOUNTS, ids=repr)
@pytest.mark.parametrize("field", ["estimate_cents", "balance_cents", "worst", "unit_cents", "count"])
def test_a_quote_with_an_amount_that_is_none_is_unusable(field: str, amount: object) -> None:
    quote = json.loads(json.dumps(QUOTE))
    (quote["breakdown"][0] if field in ("unit_cents", "count") else quote)[field] = amount
    if field == "worst" and amount is None:
        assert asked(answer(200, json.dumps(quote)), estimating).worst is None
        return
    assert type(failed(answer(200, json.dumps(quote)), estimating)) is UnusableAnswerError


@pytest.mark.parametrize("field", ["estimate_cents", "balance_cents", "breakdown", "persona_run_count", "run_length"])
def test_a_quote_that_leaves_something_out_is_unusable(field: str) -> None:
    quote = {key: value for key, value in QUOTE.items() if key != field}
    assert type(failed(answer(200, json.dumps(quote)), estimating)) is UnusableAnswerError


def test_a_quote_of_0_is_unusable() -> None:
    assert "quote of 0" in str(failed(answer(200, json.dumps({**QUOTE, "estimate_cents": 0})), estimating))


@pytest.mark.parametrize("amount", [-1, 10**11 + 1, 10**19], ids=repr)
def test_a_registered_job_at_no_possible_price_is_unusable(amount: int) -> None:
    job = {**JOB, "price": {"price_cents": amount}}
    assert type(failed(answer(200, json.dumps(job)))) is UnusableAnswerError


@pytest.mark.parametrize("run_id", ["", "..", ".", "a" * 201, "a\nb", "ä", "a\x1b[2J"])
def test_a_registered_job_with_an_id_that_is_none_is_unusable(run_id: str) -> None:
    job = {**JOB, "runs": [{"run_id": run_id, "module": "persona_playtest", "state": "queued"}]}
    assert type(failed(answer(200, json.dumps(job)))) is UnusableAnswerError


def test_a_registered_job_that_names_a_run_twice_is_unusable() -> None:
    rows = [{"run_id": "run_1", "module": "persona_playtest", "state": "queued"}] * 2
    assert type(failed(answer(200, json.dumps({**JOB, "runs": rows})))) is UnusableAnswerError


def test_an_answer_about_another_run_leaves_the_fate_unknown() -> None:
    body = json.dumps({"run": {"run_id": "run_2", "state": "succeeded"}})
    assert type(failed(answer(200, body), CALLS["complete"])) is UnknownOutcomeError


def test_keys_of_a_newer_server_and_both_forms_of_a_job_are_understood() -> None:
    newer = {**JOB, "new": {"deep": [1]}, "price": {"price_cents": 20, "currency": "USD"}}
    plain, wrapped = asked(answer(200, json.dumps(newer))), asked(answer(200, json.dumps({"job": newer})))
    assert plain == wrapped
    assert (plain.price.price_cents, plain.runs[0].persona) == (20, "newcomer")
    state = json.dumps({"job": {"state": "succeeded", "new": 1}, "more": []})
    assert asked(answer(200, state), CALLS["job"]).state == "succeeded"


# -- addresses and tokens


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080///"])
def test_trailing_slashes_make_no_other_address(url: str) -> None:
    assert normal_address(url) == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1", "ftp://host", "http://", "file:///etc/passwd", "http://h:99999", "http://h:0", "http://[::1",
     "http://h?x=1", "http://h#x", "http://h /", "http://h\n", "http://ü"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        normal_address(url)


@pytest.mark.parametrize("url", ["http://user:hunter2@host", "ftp://user:hunter2@host", "http://hunter2@host:99999"])
def test_an_address_with_a_password_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidInputError) as found:
        normal_address(url)
    assert "hunter2" not in "".join(traceback.format_exception(found.value))


@pytest.mark.parametrize(
    "token", ["", "secret-token\n", "secret token", "secret-tökén", "secret-token\x00", "s" * 5000]
)
def test_a_token_that_no_header_carries_is_refused_without_being_quoted(token: str) -> None:
    with pytest.raises(InvalidInputError) as found:
        RemoteService("http://127.0.0.1:1", GAME, token)
    assert "secret" not in str(found.value)


def test_the_wire_leaves_out_what_was_not_given() -> None:
    """`controllers` is sent only when a controller flag was given."""
    with scripted(answer(200, json.dumps(QUOTE)), answer(200, json.dumps(QUOTE))) as server:
        for request in (plan(), plan(controllers=None)):
            run(closing(server.remote(), lambda service, asked_for=request: service.estimate(asked_for)))  # type: ignore[misc]
    bodies = [msgspec.json.decode(one.partition(b"\r\n\r\n")[2]) for one in server.requests]
    assert [sorted(body) for body in bodies] == [
        ["controllers", "modules", "personas", "run_length"],
        ["modules", "personas", "run_length"],
    ]
