"""Offer the embedded service to a team: one socket, one ledger, a flat price, until somebody asks to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import read_bounded
from coordinator.interrupts import Interrupts
from coordinator.service.embedded import DEFAULT_STALL_SECONDS, EmbeddedService
from coordinator.service.ledger import Ledger, dollars, read_dollars
from coordinator.service.matrix import RunPrice
from coordinator.service.wire import MICRODOLLARS_PER_CENT

if TYPE_CHECKING:
    import uvicorn

LEDGER_NAME = "served.sqlite"
"""Apart from the project's own ledger: what a team bought has its journals on other machines."""
UPLOADS_NAME = "served-uploads"
MAX_TOKEN_FILE_BYTES = 64 << 10
MIN_TOKEN_CHARACTERS = 16
GRACE_SECONDS = 10
MAX_CONNECTIONS = 64


class ServeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is served. Prices are flat, in millionths of a dollar, whole cents."""

    folder: str
    games: tuple[str, ...]
    tokens: tuple[str, ...]
    run_price: int
    long_run_price: int
    simulation_price: int
    host: str = "127.0.0.1"
    port: int = 0
    stall_seconds: int = DEFAULT_STALL_SECONDS


async def serve(order: ServeOrder, started: Callable[[str], None]) -> None:
    """Serve until the first signal, then let requests in flight end; a second signal ends at once.

    `started` gets the address once connections are taken. Raises `RefusedError` when the address cannot be had or the
    packages are missing, and `LedgerError`.
    """
    try:
        import uvicorn

        from coordinator.service.app import make_app
    except ImportError as error:
        raise RefusedError(f"serve needs {error.name}; install it with: pip install 'playlane[serve]'") from error

    class Server(uvicorn.Server):
        """Signals belong to the command: uvicorn would take them and raise them again after its end."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    listener = _listen(order.host, order.port)
    try:
        with contextlib.closing(Ledger(os.path.join(order.folder, LEDGER_NAME))) as ledger:
            app = make_app({game: _service(ledger, order, game) for game in order.games}, order.tokens)
            server = Server(
                uvicorn.Config(
                    app,
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    limit_concurrency=MAX_CONNECTIONS,
                    timeout_graceful_shutdown=GRACE_SECONDS,
                )
            )
            interrupts = Interrupts()
            with interrupts.caught():
                started(_address(listener))
                await _until_asked(server.serve(sockets=[listener]), server, interrupts)
    finally:
        listener.close()


async def _until_asked(serving: Coroutine[Any, Any, None], server: uvicorn.Server, interrupts: Interrupts) -> None:
    task = asyncio.ensure_future(serving)
    while not task.done():
        asked = asyncio.ensure_future(interrupts.came.wait())
        await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        interrupts.came.clear()
        server.should_exit = True
        server.force_exit = interrupts.count > 1
    await task


def _service(ledger: Ledger, order: ServeOrder, game: str) -> EmbeddedService:
    run, long_run, simulation = (
        RunPrice(low=price, likely=price, worst=price)
        for price in (order.run_price, order.long_run_price, order.simulation_price)
    )
    return EmbeddedService(
        ledger,
        now=utc_now,
        game=game,
        run_price=run,
        long_run_price=long_run,
        simulation_price=simulation,
        is_flat=True,
        stall_seconds=order.stall_seconds,
        store=os.path.join(order.folder, UPLOADS_NAME),
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise RefusedError(f"{host!r} is no address to serve at: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise RefusedError(f"cannot serve at {host} port {port}: {error.strerror or error}") from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is served there."""
    return host in ("localhost", "::1") or host.startswith("127.")


def read_price(text: str, what: str) -> int:
    """A price in whole cents, at least one, as millionths of a dollar: a quote of 0 is never accepted from a service.

    Raises `InvalidInputError`.
    """
    try:
        found = read_dollars(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from error
    if found < MICRODOLLARS_PER_CENT or found % MICRODOLLARS_PER_CENT:
        raise InvalidInputError(f"{what}: {dollars(found)} is not a price of whole cents, at least $0.01")
    return found


def read_tokens(token_file: str | None, token_variable: str | None) -> tuple[str, ...]:
    """Bearer tokens, one a line of a private file, or the value of an environment variable.

    Raises `InvalidInputError` without quoting any. The variable is taken out of the environment: nothing started later
    may see it.
    """
    found: list[str] = []
    if token_file is not None:
        found.extend(_token_lines(token_file))
    if token_variable is not None:
        value = os.environ.pop(token_variable, "")
        if not value:
            raise InvalidInputError(f"the environment's {token_variable} is not set")
        found.append(value)
    if not found:
        raise InvalidInputError("no token: name a private file with --token-file, or a variable with --token-env")
    for position, token in enumerate(found, 1):
        if len(token) < MIN_TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
            raise InvalidInputError(
                f"token {position} is not usable: at least {MIN_TOKEN_CHARACTERS} characters, ASCII, without spaces"
            )
    return tuple(found)


def _token_lines(path: str) -> list[str]:
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            raise InvalidInputError(f"{path} has mode {stat.S_IMODE(mode):04o}; others must not read it (chmod 600)")
        text = read_bounded(path, MAX_TOKEN_FILE_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} has a line that is not ASCII") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
