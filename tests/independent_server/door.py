"""The independent service's HTTP door: whole requests in, one JSON object out, one thread per connection."""

from __future__ import annotations

import http
import json
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.independent_server.framing import TornError, read_message
from tests.independent_server.terms import JsonObject, RefusalError

IDLE_LIMIT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One whole request; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    body: JsonObject


def read_json(request: Request, *, may_be_empty: bool = False) -> JsonObject:
    """The body as a JSON object, {} for no body where that is allowed. Raises RefusalError (400)."""
    if may_be_empty and not request.body:
        return {}
    try:
        value = json.loads(request.body)
    except ValueError as error:
        raise RefusalError(400, "invalid_json", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusalError(400, "invalid_json", f"the body must be an object; found {type(value).__name__}")
    return value


class Listener(socketserver.ThreadingTCPServer):
    """Counts no connection as done before its thread has ended, and forgets no failure."""

    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.torn_requests = 0
        self.failures: list[Exception] = []
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        super().__init__(("127.0.0.1", 0), Handler)

    def count_torn_request(self) -> None:
        with self._changed:
            self.torn_requests += 1
            self._changed.notify_all()

    def wait_for_torn_requests(self, count: int, limit_seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.torn_requests >= count, timeout=limit_seconds):
                raise TimeoutError(f"{self.torn_requests} of {count} torn requests came in {limit_seconds} s")

    def enter(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.add(connection)
            if self._is_closing:
                connection.shutdown(socket.SHUT_RDWR)

    def leave(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.discard(connection)

    def end_connections(self) -> None:
        """Wakes every thread that waits for its client's next request."""
        with self._changed:
            self._is_closing = True
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # its client was faster

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is that client's affair; anything else is kept until close() raises it."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.failures.append(error)


class Handler(socketserver.StreamRequestHandler):
    """Reads requests of one connection until it ends; a request that is torn is never acted upon."""

    timeout = IDLE_LIMIT_SECONDS
    disable_nagle_algorithm = True
    server: Listener

    def setup(self) -> None:
        super().setup()
        self.server.enter(self.connection)

    def finish(self) -> None:
        self.server.leave(self.connection)
        super().finish()

    def handle(self) -> None:
        while True:
            try:
                message = read_message(self.rfile)
            except TornError:
                self.server.count_torn_request()
                return
            if message is None:
                return
            words = message.start_line.split(" ")
            if len(words) != 3 or not words[2].startswith("HTTP/1."):
                text = f"not an HTTP/1.1 request line: {message.start_line!r}"
                self._send(Answer(400, {"error": {"code": "invalid_request", "message": text}}))
                return
            request = Request(method=words[0], target=words[1], headers=message.headers, body=message.payload)
            self._send(self.server.answer(request))
            if message.asks_to_close:
                return

    def _send(self, answer: Answer) -> None:
        content = json.dumps(answer.body).encode()
        head = (
            f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        # One write for head and body, so that a slow acknowledgement never holds back the second part.
        self.wfile.write(head.encode() + content)


class Door:
    """The listening socket and its thread, until close()."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._listener = Listener(answer)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, name="independent-server"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def wait_for_torn_requests(self, count: int, limit_seconds: float) -> None:
        """Returns once that many requests were torn in all; raises TimeoutError."""
        self._listener.wait_for_torn_requests(count, limit_seconds)

    @property
    def torn_requests(self) -> int:
        return self._listener.torn_requests

    def close(self) -> None:
        """Stops listening, ends open connections and waits for every thread; raises what failed in a handler."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.end_connections()
        self._listener.server_close()
        if self._listener.failures:
            raise ExceptionGroup("the independent server failed", self._listener.failures)
