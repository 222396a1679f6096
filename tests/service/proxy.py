"""A proxy between client and service on real sockets that does to the n-th connection what a `Fault` says.

The client opens a connection for each request, so connections are counted as calls. What the kinds mean stands in
`tests.service.faults`; waiting out a deadline is the client's part here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tests.service.faults import Fault
from tests.service.servers import LIMIT_SECONDS, listening, read_request, reset, until_gone


class Proxy:
    """`url` is what the client is told. `late` are requests that the service has not got yet."""

    def __init__(self, target: str, faults: Sequence[Fault]) -> None:
        found = urlsplit(target)
        assert found.hostname is not None
        assert found.port is not None
        self._target = (found.hostname, found.port)
        self._faults = {(fault.call, fault.side): fault for fault in faults}
        self._listener = listening()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.calls = 0
        self.struck: list[Fault] = []
        self._late: list[bytes] = []

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(LIMIT_SECONDS)
                self._carry(connection)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _carry(self, connection: socket.socket) -> None:
        number, self.calls = self.calls, self.calls + 1
        request = self._take(number, "request")
        if request is not None and request.kind == "reset":
            reset(connection)
            return
        data = read_request(connection)
        if request is not None and request.kind in ("drop", "delay"):
            if request.kind == "delay":
                self._late.append(data)
            until_gone(connection)
            return
        if request is not None and request.kind == "truncate":
            self._asked(data[: len(data) * 2 // 3])
            return
        answer = self._asked(data)
        if request is not None:
            self._asked(data)
        while self._late:
            self._asked(self._late.pop(0))
        self._answer(connection, self._take(number, "response"), answer)

    def _answer(self, connection: socket.socket, fault: Fault | None, answer: bytes) -> None:
        kind = None if fault is None else fault.kind
        if kind == "drop":
            until_gone(connection)
        elif kind == "reset":
            reset(connection)
        elif kind == "truncate":
            connection.sendall(answer[: len(answer) * 2 // 3])
        elif kind == "repeat":
            connection.sendall(answer + answer)
        elif kind == "delay":
            connection.sendall(answer[:1])
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                connection.recv(1)
            connection.sendall(answer[1:])
        else:
            connection.sendall(answer)

    def _take(self, call: int, side: str) -> Fault | None:
        found = next((one for one in self._faults.values() if (one.call, one.side) == (call, side)), None)
        if found is not None:
            self.struck.append(found)
        return found

    def _asked(self, data: bytes) -> bytes:
        """Everything that the service answers to these bytes, until it closes the connection."""
        with socket.create_connection(self._target, timeout=LIMIT_SECONDS) as upstream:
            upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)
            parts = []
            while part := upstream.recv(65536):
                parts.append(part)
            return b"".join(parts)


@contextlib.contextmanager
def proxied(target: str, *faults: Fault) -> Iterator[Proxy]:
    proxy = Proxy(target, faults)
    thread = threading.Thread(target=proxy.serve, name="proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
