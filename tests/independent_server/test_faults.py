"""What the breaking proxy does to one message, and that torn requests never reach the independent server's books."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.independent_server.asking import BASE, ask, asked, buy, confirmed, outcome
from tests.independent_server.faults import Fault, FaultProxy, Kind, Side, breaking, single_faults
from tests.independent_server.server import IndependentServer, serving
from tests.independent_server.terms import JsonObject

ENDS_THE_CONNECTION = list(itertools.product(Side, (Kind.DROP, Kind.TRUNCATE, Kind.RESET)))


@pytest.fixture
def proxy(server: IndependentServer) -> Iterator[FaultProxy]:
    with breaking(server.port) as running:
        yield running


def registration_bytes(*, key: str = "key-1") -> bytes:
    body = json.dumps(confirmed(25, asked("newcomer"))).encode()
    head = (
        f"POST {BASE}jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer account-token\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def read_to_end(connection: socket.socket) -> bytes:
    content = b""
    while piece := connection.recv(65536):
        content += piece
    return content


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def send_alone(port: int, content: bytes) -> bytes:
    """Everything that comes back for these bytes on a connection of their own."""
    with connect(port) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return read_to_end(connection)


# Without a fault.


def test_messages_pass_unchanged(server: IndependentServer, proxy: FaultProxy) -> None:
    through = buy(proxy.port, 25, asked("newcomer"))
    assert {**through, "replayed": True} == buy(server.port, 25, asked("newcomer"))
    assert [exchange.request_line for exchange in proxy.exchanges] == [f"POST {BASE}jobs HTTP/1.1"]
    assert server.requests[0].body == server.requests[1].body


def test_one_connection_carries_many_exchanges(proxy: FaultProxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    for _ in range(3):
        connection.request("GET", BASE + "pack", headers={"Authorization": "Bearer account-token"})
        assert json.loads(connection.getresponse().read())["personas"]
    connection.close()
    assert [exchange.number for exchange in proxy.exchanges] == [1, 2, 3]


def test_absent_server_ends_the_connection(server: IndependentServer) -> None:
    with serving() as short_lived:
        port = short_lived.port
    with breaking(port) as proxy, pytest.raises(http.client.RemoteDisconnected):
        ask(proxy.port, "GET", "pack")


# Every kind of fault, and what a retry with the same key and bytes makes of it.


@pytest.mark.parametrize(("side", "kind"), ENDS_THE_CONNECTION)
def test_broken_registration_charges_once_after_a_retry(
    server: IndependentServer, proxy: FaultProxy, side: Side, kind: Kind
) -> None:
    fault = proxy.add(Fault(side=side, kind=kind, number=1))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        buy(proxy.port, 25, asked("newcomer"))
    assert fault.struck.wait(30)
    reached = side is Side.RESPONSE
    assert len(server.charges) == int(reached)
    assert buy(proxy.port, 25, asked("newcomer"))["replayed"] is reached
    assert (len(server.charges), server.balance_cents, server.imbalance_cents()) == (1, 9_975, 0)


@pytest.mark.parametrize("side", Side)
def test_reset_is_seen_as_a_reset(proxy: FaultProxy, side: Side) -> None:
    proxy.add(Fault(side=side, kind=Kind.RESET, number=1))
    with connect(proxy.port) as connection, pytest.raises(ConnectionResetError):
        connection.sendall(registration_bytes())
        read_to_end(connection)


@pytest.mark.parametrize("side", Side)
def test_drop_is_seen_as_an_orderly_end_without_an_answer(proxy: FaultProxy, side: Side) -> None:
    proxy.add(Fault(side=side, kind=Kind.DROP, number=1))
    with connect(proxy.port) as connection:
        connection.sendall(registration_bytes())
        assert read_to_end(connection) == b""


@pytest.mark.parametrize("keep_bytes", [0, 1, 40, 150, 200, 10**6])
def test_truncated_request_is_never_acted_upon(server: IndependentServer, proxy: FaultProxy, keep_bytes: int) -> None:
    fault = proxy.add(Fault(side=Side.REQUEST, kind=Kind.TRUNCATE, number=1, keep_bytes=keep_bytes))
    with connect(proxy.port) as connection:
        connection.sendall(registration_bytes())
        assert read_to_end(connection) == b""
    assert fault.struck.is_set()
    assert (server.requests, server.charges) == ([], [])
    assert server.torn_requests == int(keep_bytes > 0)


def test_every_cut_of_a_registration_is_torn(server: IndependentServer) -> None:
    whole = registration_bytes()
    for length in range(1, len(whole), 7):
        with connect(server.port) as connection:
            connection.sendall(whole[:length])
            connection.shutdown(socket.SHUT_WR)
            assert read_to_end(connection) == b""
    server.wait_for_torn_requests(len(range(1, len(whole), 7)))
    assert (server.requests, server.charges) == ([], [])


@pytest.mark.parametrize("keep_bytes", [0, 1, 60, 10**6])
def test_truncated_response_gives_exactly_its_first_bytes(
    server: IndependentServer, proxy: FaultProxy, keep_bytes: int
) -> None:
    send_alone(server.port, registration_bytes())
    replay = send_alone(server.port, registration_bytes())
    proxy.add(Fault(side=Side.RESPONSE, kind=Kind.TRUNCATE, number=1, keep_bytes=keep_bytes))
    with connect(proxy.port) as connection:
        connection.sendall(registration_bytes())
        assert read_to_end(connection) == replay[: min(keep_bytes, len(replay) - 1)]


def test_repeated_request_reaches_the_server_twice_and_charges_once(
    server: IndependentServer, proxy: FaultProxy
) -> None:
    fault = proxy.add(Fault(side=Side.REQUEST, kind=Kind.REPEAT, number=1))
    assert buy(proxy.port, 25, asked("newcomer"))["replayed"] is False
    assert fault.struck.is_set()
    first, second = server.requests
    assert (first.body, first.key, first.status) == (second.body, second.key, second.status)
    assert len(server.charges) == 1


def test_repeated_response_arrives_twice(server: IndependentServer, proxy: FaultProxy) -> None:
    proxy.add(Fault(side=Side.RESPONSE, kind=Kind.REPEAT, number=1))
    content = send_alone(proxy.port, registration_bytes())
    assert content[: len(content) // 2] == content[len(content) // 2 :]
    assert content.count(b"HTTP/1.1 200") == 2
    assert len(server.requests) == 1


# Delays.


@pytest.mark.parametrize("side", Side)
def test_delayed_message_is_held_until_it_is_released(server: IndependentServer, proxy: FaultProxy, side: Side) -> None:
    fault = proxy.add(Fault(side=side, kind=Kind.DELAY, number=1))
    answers: list[Any] = []
    client = threading.Thread(target=lambda: answers.append(buy(proxy.port, 25, asked("newcomer"))))
    client.start()
    assert fault.struck.wait(30)
    assert (answers, len(server.charges)) == ([], int(side is Side.RESPONSE))
    fault.release.set()
    client.join()
    assert [answer["replayed"] for answer in answers] == [False]


def test_delayed_request_arrives_after_its_client_gave_up_and_the_retry_was_paid(
    server: IndependentServer, proxy: FaultProxy
) -> None:
    fault = proxy.add(Fault(side=Side.REQUEST, kind=Kind.DELAY, number=1))
    with connect(proxy.port) as connection:
        connection.sendall(registration_bytes())
        assert fault.struck.wait(30)
    # The same bytes by another way; the first copy is still on its way.
    assert b'"replayed": false' in send_alone(server.port, registration_bytes())
    fault.release.set()
    proxy.wait_until_idle()
    assert [request.status for request in server.requests] == [200, 200]
    assert len(server.charges) == 1


def test_closing_the_proxy_releases_what_it_holds(server: IndependentServer) -> None:
    fault = Fault(side=Side.REQUEST, kind=Kind.DELAY, number=1)
    with breaking(server.port, fault) as proxy, connect(proxy.port) as connection:
        connection.sendall(registration_bytes())
        assert fault.struck.wait(30)
        with pytest.raises(TimeoutError, match="1 exchanges"):
            proxy.wait_until_idle(limit_seconds=0.05)
    assert fault.release.is_set()


# Which message is broken.


def test_only_the_numbered_exchange_among_the_matching_is_broken(server: IndependentServer, proxy: FaultProxy) -> None:
    fault = proxy.add(Fault(side=Side.REQUEST, kind=Kind.DROP, number=2, matching="/pack"))
    assert ask(proxy.port, "GET", "pack")[0] == 200
    assert ask(proxy.port, "POST", "estimate", asked("newcomer"))[0] == 200
    with pytest.raises(http.client.RemoteDisconnected):
        ask(proxy.port, "GET", "pack")
    assert ask(proxy.port, "GET", "pack")[0] == 200
    assert [exchange.fault for exchange in proxy.exchanges] == [None, None, fault, None]
    assert [request.route for request in server.requests] == ["pack", "estimate", "pack"]


def test_two_faults_break_two_exchanges(server: IndependentServer) -> None:
    faults = [Fault(side=Side.RESPONSE, kind=kind, number=number) for number, kind in ((1, Kind.DROP), (2, Kind.RESET))]
    with breaking(server.port, *faults) as proxy:
        for _ in faults:
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                buy(proxy.port, 25, asked("newcomer"))
        assert buy(proxy.port, 25, asked("newcomer"))["replayed"] is True
    assert all(fault.struck.is_set() for fault in faults)
    assert len(server.charges) == 1


# A whole purchase under every single fault.


def ask_until_answered(port: int, path: str, body: JsonObject, key: str | None = None) -> Any:
    """Sends the same bytes at most three times; fails on anything but a success."""
    for _ in range(3):
        try:
            status, answer = ask(port, "POST", path, body, key=key)
        except (http.client.HTTPException, ConnectionError, ValueError):
            continue
        assert status == 200, answer
        return answer
    raise AssertionError(f"three sends of {path} were broken by a single fault")


def play_one_purchase(port: int, key: str) -> None:
    """Six exchanges when nothing breaks."""
    price = ask_until_answered(port, "estimate", asked("newcomer"))["estimate_cents"]
    bought = ask_until_answered(port, "jobs", confirmed(price, asked("newcomer")), key)
    run = f"jobs/{bought['job_id']}/runs/{bought['runs'][0]['run_id']}"
    ask_until_answered(port, f"{run}/heartbeat", {"actions_taken": 0, "checkpoint_step": 0})
    ask_until_answered(port, f"{run}/transition", {"state": "playing"})
    ask_until_answered(port, f"{run}/complete", outcome("failed", report=None))
    ask_until_answered(port, f"jobs/{bought['job_id']}/finish", {"reason": "failed"})


def test_whole_purchase_survives_every_single_fault(server: IndependentServer) -> None:
    faults = list(single_faults(6))
    assert len(faults) == 60
    for number, fault in enumerate(faults, start=1):
        fault.release.set()  # a delay that ends by itself; longer ones have their own tests
        with breaking(server.port, fault) as proxy:
            play_one_purchase(proxy.port, f"key-{number}")
        assert fault.struck.is_set(), fault
        assert (len(server.charges), len(server.refunds)) == (number, number), fault
        assert (server.balance_cents, server.imbalance_cents()) == (10_000, 0), fault
    assert {job.state for job in server.jobs.values()} == {"failed"}


# The server's own door.


def test_failure_inside_a_handler_is_raised_at_the_end() -> None:
    def fails(answer: dict[str, Any]) -> None:
        raise KeyError("a test's own mistake")

    with pytest.raises(ExceptionGroup) as caught, serving() as server:
        server.edit("pack", fails)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server.port, "GET", "pack")
    assert [type(error) for error in caught.value.exceptions] == [KeyError]


def test_chunked_request_is_read_whole(server: IndependentServer) -> None:
    content = json.dumps(asked("newcomer")).encode()
    pieces = (content[:5], content[5:])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"Authorization": "Bearer account-token", "Transfer-Encoding": "chunked"}
    connection.request("POST", BASE + "estimate", iter(pieces), headers, encode_chunked=True)
    assert json.loads(connection.getresponse().read())["estimate_cents"] == 25
    connection.close()
    assert server.requests[0].body == content


def test_line_that_is_no_request_is_refused(server: IndependentServer) -> None:
    with connect(server.port) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert read_to_end(connection).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_idle_connection_does_not_hold_up_the_end() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", BASE + "pack")
        assert connection.getresponse().read()
    assert connection.sock is not None
    assert read_to_end(connection.sock) == b""
    connection.close()
