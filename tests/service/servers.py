"""Real sockets on 127.0.0.1: the service under uvicorn, and servers that answer what a test tells them to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from coordinator.service.app import make_app
from coordinator.service.embedded import EmbeddedService
from coordinator.service.ledger import Ledger
from coordinator.service.remote import RemoteService
from tests.service.faults import VirtualClock
from tests.service.stage import DOLLAR, PRICE

TOKEN = "account-token-7f3a9c"
GAME = "cavern"
LIMIT_SECONDS = 30.0


def listening() -> socket.socket:
    """A socket that queues connections already, so that nobody has to wait for a server to be up."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(32)
    return listener


class Served:
    """`coordinator.service` on a real port. Look at the ledger through `ledger_path`, once or after a call."""

    def __init__(self, url: str, ledger_path: Path, clock: VirtualClock) -> None:
        self.url, self.ledger_path, self.clock = url, ledger_path, clock
        self.service: EmbeddedService

    def remote(self, **settings: Any) -> RemoteService:
        return self.remote_at(self.url, **settings)

    def remote_at(self, url: str, **settings: Any) -> RemoteService:
        """A client that reaches the service by another address."""
        return RemoteService(url, **{"game": GAME, "token": TOKEN, **settings})


@contextlib.contextmanager
def served(folder: Path, *, budget: int = DOLLAR, busy_seconds: float = 20.0, **settings: Any) -> Iterator[Served]:
    """The service in a thread of its own, which owns the ledger's connection."""
    listener = listening()
    stage = Served(f"http://127.0.0.1:{listener.getsockname()[1]}", folder / "ledger.sqlite", VirtualClock())
    servers: list[uvicorn.Server] = []
    ready, failures = threading.Event(), []

    def work() -> None:
        try:
            ledger = Ledger(stage.ledger_path, busy_seconds=busy_seconds)
            ledger.set_budget(budget, stage.clock.now())
            stage.service = EmbeddedService(
                ledger, now=stage.clock.now, game=GAME, **{"run_price": PRICE, "is_flat": True, **settings}
            )
            app = make_app({GAME: stage.service}, ["another-token", TOKEN])
            servers.append(uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")))
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()
        servers[0].run(sockets=[listener])
        ledger.close()

    thread = threading.Thread(target=work, name="served")
    thread.start()
    assert ready.wait(LIMIT_SECONDS)
    try:
        assert not failures
        yield stage
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(LIMIT_SECONDS)
        listener.close()
        assert not thread.is_alive()


class Scripted:
    """What a scripted server saw: each request's bytes; `received` is set with the first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[bytes] = []
        self.received = threading.Event()

    def remote(self, **settings: Any) -> RemoteService:
        return RemoteService(self.url, **{"game": GAME, "token": TOKEN, **settings})


Script = Callable[[socket.socket], None]


@contextlib.contextmanager
def scripted(*scripts: Script) -> Iterator[Scripted]:
    """Answer the first connection with the first script, and so on; a script gets the socket after one whole request.

    A connection beyond the scripts is closed at once and still noted.
    """
    listener = listening()
    found = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def work() -> None:
        for number in range(64):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(LIMIT_SECONDS)
                request = read_request(connection)
                if not request:
                    continue
                found.requests.append(request)
                found.received.set()
                if number < len(scripts):
                    scripts[number](connection)

    thread = threading.Thread(target=work, name="scripted")
    thread.start()
    try:
        yield found
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def read_request(connection: socket.socket) -> bytes:
    """Head and body of one request; what came so far if the client goes away."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            break
        body += part
    return head + b"\r\n\r\n" + body


def answer(status: int, body: bytes | str, *headers: str) -> Script:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else body
    return send(head(status, len(data), *headers) + data)


def head(status: int, length: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {length}", "content-type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def send(data: bytes) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(data)

    return script


def reset(connection: socket.socket) -> None:
    """Cut the connection hard, after the request was read."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def until_gone(connection: socket.socket) -> None:
    """Say nothing until the client goes away."""
    while connection.recv(65536):
        pass


def drip(data: bytes) -> Script:
    """One byte whenever the client has not gone away within a moment: every single read gets something in time."""

    def script(connection: socket.socket) -> None:
        connection.settimeout(0.02)
        for position in range(len(data)):
            connection.sendall(data[position : position + 1])
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    return script
