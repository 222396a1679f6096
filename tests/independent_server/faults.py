"""A TCP proxy that breaks one chosen HTTP message: for tests that money survives every single fault, on real sockets.

It listens on 127.0.0.1 and passes whole messages on, byte for byte, except the ones a `Fault` names. Every exchange
with the server behind it has a connection of its own, so that a fault on one never touches the next.
"""

from __future__ import annotations

import contextlib
import enum
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.independent_server.framing import ByteStream, Message, TornError, read_message

LIMIT_SECONDS = 30.0


class Side(enum.Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Kind(enum.Enum):
    """What happens to the message.

    DROP: it is swallowed, and the client's connection ends without an answer. DELAY: it is held until `release` is
    set, and then passed on even when the client has given up meanwhile. REPEAT: a request reaches the server a second
    time, after its first answer, which the client gets; a response reaches the client twice in a row. TRUNCATE: only
    its first bytes are passed on, then that connection ends. RESET: it is swallowed, and the client's connection is
    reset.
    """

    DROP = "drop"
    DELAY = "delay"
    REPEAT = "repeat"
    TRUNCATE = "truncate"
    RESET = "reset"


@dataclass(eq=False, kw_only=True)
class Fault:
    """One broken message: the `number`-th (from 1) exchange whose request line contains `matching`.

    `struck` is set once the fault has been applied, for DELAY once the message is held; `release` lets it go.
    `keep_bytes` is how much TRUNCATE passes on: by default half of the message, never all of it.
    """

    side: Side
    kind: Kind
    number: int
    matching: str = ""
    keep_bytes: int | None = None
    struck: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    seen: int = 0

    def cut(self, raw: bytes) -> bytes:
        keep = len(raw) // 2 if self.keep_bytes is None else self.keep_bytes
        return raw[: max(0, min(keep, len(raw) - 1))]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request that reached the proxy whole, in order of arrival, and the fault it met (None: passed on)."""

    number: int
    request_line: str
    fault: Fault | None


class EndOfConnectionError(Exception):
    """The client's connection must end now; with `is_reset` by a reset in place of an orderly end."""

    def __init__(self, *, is_reset: bool = False) -> None:
        super().__init__("reset" if is_reset else "end")
        self.is_reset = is_reset


class FaultProxy:
    """A running proxy in front of 127.0.0.1:`target_port`.

    Faults may be added while it runs. `close` releases what is held, ends every connection and waits for every
    thread; it raises what went wrong inside one.
    """

    def __init__(self, target_port: int, *faults: Fault) -> None:
        self._target_port = target_port
        self._faults = list(faults)
        self._exchanges: list[Exchange] = []
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._failures: list[Exception] = []
        self._active = 0
        self._is_closing = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._wake, self._wakeable = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name="fault-proxy")
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def exchanges(self) -> list[Exchange]:
        with self._changed:
            return list(self._exchanges)

    def add(self, fault: Fault) -> Fault:
        """Counts this fault's exchanges from now on."""
        with self._changed:
            self._faults.append(fault)
        return fault

    def wait_until_idle(self, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Returns once no message is under way, held ones included; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._active == 0, timeout=limit_seconds):
                raise TimeoutError(f"{self._active} exchanges are still under way after {limit_seconds} s")

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            for fault in self._faults:
                fault.release.set()
        self._wake.close()
        self._acceptor.join()
        with self._changed:
            for connection in self._sockets:
                with contextlib.suppress(OSError):  # the other end was faster
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise ExceptionGroup("the proxy failed", self._failures)

    def _accept(self) -> None:
        with self._listener, self._wakeable:
            while True:
                readable, _, _ = select.select([self._listener, self._wakeable], [], [])
                if self._wakeable in readable:
                    return
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), name="fault-proxy-connection")
                self._threads.append(thread)
                thread.start()

    @contextmanager
    def _owned(self, connection: socket.socket) -> Iterator[ByteStream]:
        """A connection that close() can wake, and its buffered reader."""
        connection.settimeout(LIMIT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream:
            with self._changed:
                self._sockets.add(connection)
                if self._is_closing:
                    connection.shutdown(socket.SHUT_RDWR)
            try:
                yield stream
            finally:
                with self._changed:
                    self._sockets.discard(connection)

    def _serve(self, client: socket.socket) -> None:
        """Serves one client's connection to its end. A broken connection is an end like any other."""
        try:
            with self._owned(client) as stream:
                try:
                    while (request := read_message(stream)) is not None:
                        self._exchange(client, request)
                except EndOfConnectionError as end:
                    if end.is_reset:
                        # No lingering: closing now sends a reset, and the client's unread bytes are gone.
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, TornError):
            return
        except (ValueError, LookupError, TypeError) as error:
            self._failures.append(error)

    def _exchange(self, client: socket.socket, request: Message) -> None:
        with self._changed:
            self._active += 1
            fault = self._choose(request.start_line)
            self._exchanges.append(
                Exchange(number=len(self._exchanges) + 1, request_line=request.start_line, fault=fault)
            )
        try:
            is_request = fault is not None and fault.side is Side.REQUEST
            response = self._break_request(fault, request) if fault and is_request else self._ask(request)
            if fault is None or is_request:
                self._send(client, response.raw)
            else:
                self._break_response(client, fault, response.raw)
            if request.asks_to_close or not response.states_its_length:
                raise EndOfConnectionError
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _choose(self, request_line: str) -> Fault | None:
        """The first fault whose turn has come; every fault that matches counts this exchange."""
        chosen = None
        for fault in self._faults:
            if fault.matching in request_line:
                fault.seen += 1
                if fault.seen == fault.number and chosen is None:
                    chosen = fault
        return chosen

    def _break_request(self, fault: Fault, request: Message) -> Message:
        """Returns what the client gets, or raises EndOfConnectionError."""
        if fault.kind is Kind.DELAY:
            self._hold(fault)
            return self._ask(request)
        if fault.kind is Kind.REPEAT:
            response = self._ask(request)
            self._ask(request)
            fault.struck.set()
            return response
        if fault.kind is Kind.TRUNCATE:
            with self._to_server() as (server, stream):
                server.sendall(fault.cut(request.raw))
                server.shutdown(socket.SHUT_WR)
                # Until the server has seen the end, so that whatever it does has been done when the client knows.
                with contextlib.suppress(TornError):
                    read_message(stream, answers=method_of(request))
        fault.struck.set()
        raise EndOfConnectionError(is_reset=fault.kind is Kind.RESET)

    def _break_response(self, client: socket.socket, fault: Fault, response: bytes) -> None:
        if fault.kind is Kind.DELAY:
            self._hold(fault)
            self._send(client, response)
            return
        if fault.kind is Kind.REPEAT:
            self._send(client, response + response)
            fault.struck.set()
            return
        if fault.kind is Kind.TRUNCATE:
            self._send(client, fault.cut(response))
        fault.struck.set()
        raise EndOfConnectionError(is_reset=fault.kind is Kind.RESET)

    def _hold(self, fault: Fault) -> None:
        fault.struck.set()
        if not fault.release.wait(LIMIT_SECONDS):
            raise EndOfConnectionError

    @contextmanager
    def _to_server(self) -> Iterator[tuple[socket.socket, ByteStream]]:
        server = socket.create_connection(("127.0.0.1", self._target_port), timeout=LIMIT_SECONDS)
        with self._owned(server) as stream:
            yield server, stream

    def _ask(self, request: Message) -> Message:
        """Passes a request on and returns the answer.

        Raises EndOfConnectionError when the server is not there or ends without a whole answer: the client then sees
        its own connection end, as it would without a proxy.
        """
        try:
            with self._to_server() as (server, stream):
                server.sendall(request.raw)
                response = read_message(stream, answers=method_of(request))
        except (OSError, TornError) as error:
            raise EndOfConnectionError from error
        if response is None:
            raise EndOfConnectionError
        return response

    def _send(self, client: socket.socket, content: bytes) -> None:
        try:
            client.sendall(content)
        except OSError as error:
            raise EndOfConnectionError from error


def single_faults(exchange_count: int, *, matching: str = "") -> Iterator[Fault]:
    """One fault of every kind on each side of each of the first `exchange_count` matching exchanges."""
    for number in range(1, exchange_count + 1):
        for side in Side:
            for kind in Kind:
                yield Fault(side=side, kind=kind, number=number, matching=matching)


def method_of(request: Message) -> str:
    return request.start_line.partition(" ")[0]


@contextmanager
def breaking(target_port: int, *faults: Fault) -> Iterator[FaultProxy]:
    """A running proxy for the length of a `with`."""
    proxy = FaultProxy(target_port, *faults)
    try:
        yield proxy
    finally:
        proxy.close()
