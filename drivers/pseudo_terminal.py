"""A game on a pseudo-terminal: the child of `processes`, with a terminal's other side in place of three pipes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, cast

from drivers.processes import GameProcess, start_child

COLUMNS = 80
LINES = 24
TERMINAL_TYPE = "linux"
# Makes the terminal the controlling one and becomes the game. A program of its own, since code between fork and exec
# in our process could deadlock beside its threads.
_BECOME_GAME = (
    "import fcntl,os,sys,termios\n"
    "fcntl.ioctl(0,termios.TIOCSCTTY,0)\n"
    "try: os.execv(sys.argv[1],sys.argv[1:])\n"
    "except OSError as error: sys.stderr.write(str(error)+'\\n'); os._exit(127)"
)
EXIT_NOT_EXECUTED = 127
_MAX_TREE = 64
_DISABLED = b"\xff" if sys.platform == "darwin" else b"\0"


class TerminalProcess(GameProcess):
    """A game whose three standard streams, and controlling terminal, are one pseudo-terminal of 80 x 24."""

    _terminal: int
    _other_side: str

    @classmethod
    def spawn_on_terminal(
        cls,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        on_output: Callable[[bytes], None],
    ) -> TerminalProcess:
        """Start `command` (its first word a path) in a session of its own with exactly `environment` (and our mark).

        Raises `OSError` when no terminal or process can be had. A command that cannot be executed says why on the
        terminal and exits with `EXIT_NOT_EXECUTED`.
        """
        mark = token_hex(16)
        master, slave = pty.openpty()
        name = os.ttyname(slave)
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            child = start_child(
                [sys.executable, "-I", "-S", "-c", _BECOME_GAME, *command],
                directory=directory,
                environment=environment,
                mark=mark,
                streams=slave,
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        # One terminal stands for three pipes; its error output has nothing of its own and ends at once.
        nothing, writer = os.pipe()
        os.close(writer)
        child.stdin = cast(BinaryIO, os.fdopen(os.dup(master), "wb", buffering=0))
        child.stdout = cast(BinaryIO, os.fdopen(master, "rb", buffering=0))
        child.stderr = cast(BinaryIO, os.fdopen(nothing, "rb", buffering=0))
        process = cls(child, mark, on_output, lambda data: None)
        process._terminal, process._other_side = master, name
        return process

    @property
    def is_canonical(self) -> bool:
        """Whether the terminal hands the game whole lines (ICANON). False when it has ended."""
        attributes = self._attributes()
        return attributes is not None and bool(attributes[3] & termios.ICANON)

    @property
    def has_literal_next(self) -> bool:
        """Whether the terminal's literal-next character is in force. Line editors take that key for themselves."""
        attributes = self._attributes()
        return attributes is not None and attributes[6][termios.VLNEXT] != _DISABLED

    def _attributes(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._terminal)
        except (termios.error, ValueError):
            return None

    @property
    def is_busy(self) -> bool:
        """Whether the game, or something that it started, computes or waits for a disk: its silence means nothing yet.

        Source: proc_pid_stat(5) and /proc/PID/task/TID/children. Where there is no /proc: False.
        """
        waiting, seen = [self.pid], 0
        while waiting and seen < _MAX_TREE:
            pid = waiting.pop()
            seen += 1
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"R", b"D"):
                    return True
                waiting += [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
        return False

    @property
    def unread_bytes(self) -> int:
        """How much of its input the game has not read yet (in line mode: of whole lines)."""
        try:
            slave = os.open(self._other_side, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            count: int = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0" * 4))[0]
            return count
        finally:
            os.close(slave)

    async def send(self, data: bytes, limit_seconds: float) -> bool:
        """Write to the game's input; tell whether it took all of it within the limit. `OSError` when it has ended."""
        try:
            async with asyncio.timeout(limit_seconds):
                await self.write(data)
        except TimeoutError:
            return False
        return True

    def reply(self, data: bytes) -> None:
        """Answer the game as a terminal does; a game that does not read its input gets no answer."""
        if self._stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._stdin, data)

    @property
    def output_has_ended(self) -> bool:
        """Whether nobody holds the game's side of the terminal any more."""
        return self._output not in self._readers

    def close_input(self) -> None:
        """Hang up, as a terminal does when its window is closed: its end of input. Safe to call again."""
        if self._stdin is not None and not self.exited.is_set():
            self._signal_child(signal.SIGHUP)
        super().close_input()
