"""A game as a child process: started privately, drained for ever, stopped by a ladder, with nothing left behind.

Every signal goes through a process descriptor (pidfd) or to a child that has not been waited for yet, never to a
remembered number: numbers are reused. What the game started is found by its session, its parent and a mark in its
environment, so that a helper which forked twice and left the session is found too. Where there is no pidfd (macOS) only
the child and its process group are ended; `can_see_descendants` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex

import msgspec

MARK_NAME = "PLAYLANE_GAME"
READ_BYTES = 1 << 16
SETTLE_SECONDS = 0.5
KILL_SECONDS = 5.0
MAX_KILL_ROUNDS = 50
MAX_LEFTOVERS_NAMED = 20

can_see_descendants = sys.platform == "linux"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A living process of a game; pid and start time together name it, the command is for people."""

    pid: int
    start: int
    command: str


class StopReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a game ended: by itself, on "end of input", "SIGTERM" or "SIGKILL", and what it had left behind."""

    how: str
    exit_code: int | None
    leftovers: tuple[str, ...]


class GameProcess:
    """One child and everything it starts. Made by `spawn`, inside a running event loop; ended by `stop`.

    `on_output` and `on_error` get bytes as they are read, in the loop; `on_output` gets b"" once, at the end of output.
    `exited` is set when the child itself has ended, also while a helper of its still holds the pipes.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        mark: str,
        on_output: Callable[[bytes], None],
        on_error: Callable[[bytes], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._mark = f"{MARK_NAME}={mark}".encode()
        self.exited = asyncio.Event()
        self._exit_code: int | None = None
        self._report: StopReport | None = None
        self._exit_watch = _watch_exit(child.pid)
        self._loop.add_reader(self._exit_watch, self._note_exit)
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._stdin: int | None = child.stdin.fileno()
        self._readers = {child.stdout.fileno(): on_output, child.stderr.fileno(): on_error}
        self._output = child.stdout.fileno()
        for descriptor in (self._stdin, *self._readers):
            os.set_blocking(descriptor, False)
        for descriptor in tuple(self._readers):
            self._loop.add_reader(descriptor, self._read, descriptor)

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        on_output: Callable[[bytes], None],
        on_error: Callable[[bytes], None],
    ) -> GameProcess:
        """Start `command` in a session of its own, with exactly `environment` (and our mark), files private, no cores.

        Raises `OSError` when the command cannot be executed.
        """
        mark = token_hex(16)
        child = start_child(command, directory=directory, environment=environment, mark=mark, streams=subprocess.PIPE)
        return cls(child, mark, on_output, on_error)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The child's exit code (negative: ended by that signal), None while it lives."""
        return self._exit_code

    async def write(self, data: bytes) -> None:
        """Write all of `data` to the child's input; `BrokenPipeError` when nobody reads it any more."""
        view = memoryview(data)
        while view:
            if self._stdin is None:
                raise BrokenPipeError("the game's input is closed")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._until_writable(self._stdin)

    async def wait_exit(self, seconds: float) -> bool:
        """Wait for the child's end, at most `seconds`; tell whether it ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def kill(self) -> None:
        """SIGKILL to the child alone, as a crash would end it; what it started is `stop`'s to find."""
        self._signal_child(signal.SIGKILL)

    def drain(self) -> None:
        """Read what already lies in the pipes; after the child's end this is the last of what it wrote."""
        for descriptor in tuple(self._readers):
            # Bounded: a helper that goes on writing must not hold us here.
            for _ in range(64):
                if not self._read(descriptor):
                    break

    async def stop(self, *, grace_seconds: float = 2.0, terminate_seconds: float = 2.0) -> StopReport:
        """End the child and all it started: end of input, SIGTERM, SIGKILL; safe to call again.

        Cancelled in the middle, everything is killed at once before the cancellation goes on.
        """
        if self._report is not None:
            return self._report
        try:
            how, leftovers = await self._descend(grace_seconds, terminate_seconds)
        except BaseException:
            self._kill_everything()
            self._close("SIGKILL", ())
            raise
        return self._close(how, leftovers)

    async def _descend(self, grace_seconds: float, terminate_seconds: float) -> tuple[str, tuple[str, ...]]:
        how = "by itself" if self.exited.is_set() else "end of input"
        self.close_input()
        # A helper that has already left the tree by the time we look is known by this first look.
        known = self._members()
        if not await self.wait_exit(grace_seconds):
            how = "SIGTERM"
            known |= self._members()
            self._signal(known, signal.SIGTERM)
            if not await self.wait_exit(terminate_seconds):
                how = "SIGKILL"
                self._signal_child(signal.SIGKILL)
                await self.wait_exit(KILL_SECONDS)
        known = self._members(known)
        # Whoever was about to end with the game may do so; what stays is left over.
        known = set() if await self._wait_gone(known, SETTLE_SECONDS) else self._members(known)
        leftovers = tuple(f"process {member.pid} ({member.command})" for member in sorted(known, key=lambda m: m.pid))
        if known:
            self._signal(known, signal.SIGTERM)
            await self._wait_gone(known, SETTLE_SECONDS)
        for _ in range(MAX_KILL_ROUNDS):
            known = self._members(known)
            if not known:
                break
            self._signal(known, signal.SIGKILL)
            await self._wait_gone(known, SETTLE_SECONDS)
        return how, leftovers[:MAX_LEFTOVERS_NAMED]

    def _close(self, how: str, leftovers: tuple[str, ...]) -> StopReport:
        self.drain()
        for descriptor in tuple(self._readers):
            self._loop.remove_reader(descriptor)
        self._readers.clear()
        self.close_input()
        self._loop.remove_reader(self._exit_watch)
        os.close(self._exit_watch)
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._exit_code = self._child.wait(KILL_SECONDS)
            self.exited.set()
        self._report = StopReport(how=how, exit_code=self._exit_code, leftovers=leftovers)
        return self._report

    def _kill_everything(self) -> None:
        known: set[Member] = set()
        self._signal_child(signal.SIGKILL)
        for _ in range(MAX_KILL_ROUNDS):
            known = self._members(known)
            if not known:
                return
            self._signal(known, signal.SIGKILL)

    def close_input(self) -> None:
        """Tell the game that nothing more will come; safe to call again."""
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
            if self._child.stdin is not None:
                self._child.stdin.close()

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose other side is gone says EIO instead of an end
        receive = self._readers[descriptor]
        if not data:
            self._loop.remove_reader(descriptor)
            del self._readers[descriptor]
        if data or descriptor == self._output:
            receive(data)
        return bool(data)

    async def _until_writable(self, descriptor: int) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(descriptor, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(descriptor)

    def _note_exit(self) -> None:
        self._loop.remove_reader(self._exit_watch)
        self._exit_code = _exit_code_unreaped(self._exit_watch)
        self.exited.set()

    def _signal_child(self, number: signal.Signals) -> None:
        # The child is not waited for before `_close`, so its number is still its own (and its group's).
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if can_see_descendants:
                signal.pidfd_send_signal(self._exit_watch, number)
            else:
                os.killpg(self._child.pid, number)

    def _signal(self, members: Iterable[Member], number: signal.Signals) -> None:
        self._signal_child(number)
        for member in members:
            with _descriptor_of(member) as descriptor:
                if descriptor is not None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(descriptor, number)

    async def _wait_gone(self, members: Iterable[Member], seconds: float) -> bool:
        with contextlib.ExitStack() as stack:
            waits = []
            for member in members:
                descriptor = stack.enter_context(_descriptor_of(member))
                if descriptor is not None:
                    gone: asyncio.Future[None] = self._loop.create_future()
                    self._loop.add_reader(descriptor, _settle, gone)
                    stack.callback(self._loop.remove_reader, descriptor)
                    waits.append(gone)
            if not waits:
                return True
            _, pending = await asyncio.wait(waits, timeout=seconds)
            return not pending

    def _members(self, known: Iterable[Member] = ()) -> set[Member]:
        if not can_see_descendants:
            return set()
        return _find_members(self._child.pid, self._mark, frozenset((m.pid, m.start) for m in known))


def start_child(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str], mark: str, streams: int
) -> subprocess.Popen[bytes]:
    """The bare child, for `GameProcess` to own; `streams` is a descriptor for all three, or `subprocess.PIPE`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    # Inherited by the child: set before it exists, so that not even a crash at once writes its memory to disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        return subprocess.Popen(
            list(command), cwd=directory, env={**environment, MARK_NAME: mark}, stdin=streams, stdout=streams,
            stderr=streams, bufsize=0, start_new_session=True, umask=0o077, close_fds=True,
        )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _find_members(root: int, mark: bytes, known: frozenset[tuple[int, int]]) -> set[Member]:
    """All living processes of a game but its first: by session, by descent, by mark, or because they were seen before.

    Source: proc_pid_stat(5). Zombies are dead; they belong to whoever is their parent now.
    """
    rows: dict[int, tuple[int, int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (row := _read_stat(int(entry.name))) is not None:
            rows[int(entry.name)] = row
    inside = {root} | {
        pid
        for pid, (_, session, start) in rows.items()
        if session == root or (pid, start) in known or _has_mark(pid, mark)
    }
    grew = True
    while grew:
        children = {pid for pid, (parent, _, _) in rows.items() if parent in inside} - inside
        inside |= children
        grew = bool(children)
    return {
        Member(pid=pid, start=rows[pid][2], command=_command_of(pid)) for pid in inside if pid != root and pid in rows
    }


def _read_stat(pid: int) -> tuple[int, int, int] | None:
    """Parent, session and start time (clock ticks after boot) of a living process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # another user's process, or gone


def _command_of(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        raw = b""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120] or "unknown"


@contextlib.contextmanager
def _descriptor_of(member: Member) -> Iterator[int | None]:
    """A pidfd that surely names this member: opened first, its start time compared afterwards."""
    descriptor: int | None = None
    try:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(member.pid)
            row = _read_stat(member.pid)
            if row is None or row[2] != member.start:
                os.close(descriptor)
                descriptor = None
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


if sys.platform == "darwin":

    def _watch_exit(pid: int) -> int:
        queue = select.kqueue()
        queue.control(
            [select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT)], 0
        )
        return os.dup(queue.fileno())

    def _exit_code_unreaped(watch: int) -> int | None:
        return None  # known after `stop` has waited for the child

else:

    def _watch_exit(pid: int) -> int:
        return os.pidfd_open(pid)

    def _exit_code_unreaped(watch: int) -> int | None:
        """The exit code while the child stays a zombie, so that its number and session cannot be reused meanwhile."""
        state = os.waitid(os.P_PIDFD, watch, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
