"""The pool: a small `concurrent.futures.Executor` over spawned processes and pipes, in which no work is ever lost.

A process owns the piece of work that it was sent. When it dies, for whatever reason, or shows no sign of life for
`silence_seconds` and is ended, its piece is given to another one, at most `retries` times; then its future fails with
`ProcessDiedError`. A pool whose processes cannot start fails every future instead of hanging.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from workers.simulation.errors import PoolError, ProcessDiedError, SimulationError

MAX_START_DEATHS = 3
END_SECONDS = 10.0
EXIT_SECONDS = 2.0

_READY, _TICK, _DONE, _RAISED = "ready", "tick", "done", "raised"
_WORK, _STOP, _LEAVE = "work", "stop", "leave"


class _Task:
    """A piece of work: what is to be called, whose future it is, how often it may be given back."""

    def __init__(self, call: tuple[Any, ...], retries: int) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.retries = retries


class _Process:
    """One process and the owner's end of its pipe."""

    def __init__(self, process: Any, connection: Any) -> None:
        self.process = process
        self.connection = connection
        self.task: _Task | None = None
        self.ready = False
        self.ticked = False
        self.heard = time.monotonic()
        self.silenced: float | None = None


class ProcessPool(Executor):
    """`submit(function, *args)` calls a module-level function in one of `processes` processes.

    `environment` is all that these see of the environment. `silence_seconds` is how long a process may go without a
    sign of life while it works (`start_seconds` until it is ready and heard for the first time); None: for ever.
    """

    def __init__(
        self,
        processes: int,
        *,
        environment: Mapping[str, str],
        silence_seconds: float | None = None,
        start_seconds: float = 60.0,
        retries: int = 2,
    ) -> None:
        # Untyped, hence by name.
        multiprocess: Any = importlib.import_module("multiprocess")
        self._context = multiprocess.get_context("spawn")
        self._wait = importlib.import_module("multiprocess.connection").wait
        self._size = processes
        self._environment = dict(environment)
        self._silence_seconds = silence_seconds
        self._start_seconds = start_seconds
        self._retries = retries
        self._waiting: deque[_Task] = deque()
        self._processes: list[_Process] = []
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._closing = False
        self._stop_asked = False
        self._broken: PoolError | None = None
        self._start_deaths = 0
        self._progress: dict[int, tuple[int, int]] = {}
        self.deaths = 0
        self._thread = threading.Thread(target=self._run, name="simulation-pool", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, **kwargs)` in a process. Raises `PoolError` once the pool is broken or shut down."""
        return self.submit_with(self._retries, fn, *args, **kwargs)

    def submit_with(self, retries: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The same, with a number of retries of its own."""
        task = _Task((fn, args, kwargs), retries)
        with self._lock:
            if self._closing:
                raise PoolError("the pool is shut down and takes no more work")
            if self._broken is not None:
                raise self._broken
            self._waiting.append(task)
        self._wake()
        return task.future

    def stop_games(self) -> None:
        """Ask every process to end its piece of work early; what it has is still sent back."""
        self._stop_asked = True
        self._wake()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the work end (`cancel_futures`: only what has begun), then the processes; safe to call again."""
        with self._lock:
            self._closing = True
            if cancel_futures:
                while self._waiting:
                    self._waiting.popleft().future.cancel()
        self._wake()
        if wait:
            self._thread.join()

    def in_play(self) -> tuple[int, int]:
        """Games and steps of pieces that are being worked at now, as last heard."""
        progress = list(self._progress.values())
        return sum(games for games, _ in progress), sum(steps for _, steps in progress)

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        return [entry.process.pid for entry in list(self._processes) if entry.process.is_alive()]

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b"w")

    # -- everything below runs in the pool's own thread ------------------------------------------------------------

    def _run(self) -> None:
        stop_sent = False
        try:
            while not self._is_over():
                self._dispatch()
                if self._stop_asked and not stop_sent:
                    stop_sent = True
                    for entry in self._processes:
                        self._send(entry, (_STOP,))
                self._listen()
                self._end_silent()
        finally:
            # Also after an error of this thread's own: nobody may wait for ever.
            self._break(PoolError("the pool has ended"))
            self._end_all()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _is_over(self) -> bool:
        with self._lock:
            idle = not self._waiting and not any(entry.task for entry in self._processes)
            return self._closing and idle

    def _dispatch(self) -> None:
        with self._lock:
            tasks = len(self._waiting)
        free = sum(entry.task is None for entry in self._processes)
        while len(self._processes) < self._size and free < tasks and self._broken is None:
            self._start()
            free += 1
        for entry in self._processes:
            if entry.task is not None or not entry.ready:
                continue
            task = self._next_task()
            if task is None:
                return
            entry.task, entry.heard, entry.ticked = task, time.monotonic(), False
            self._send(entry, (_WORK, task.call))

    def _next_task(self) -> _Task | None:
        with self._lock:
            while self._waiting:
                task = self._waiting.popleft()
                # One that was given back is running already.
                if task.future.running() or task.future.set_running_or_notify_cancel():
                    return task
        return None

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._environment), daemon=False)
        process.start()
        theirs.close()
        self._processes.append(_Process(process, ours))

    def _listen(self) -> None:
        watched: dict[Any, _Process | None] = {self._wake_reader: None}
        for entry in self._processes:
            watched[entry.connection] = watched[entry.process.sentinel] = entry
        dead = []
        for thing in self._wait(list(watched), timeout=self._patience()):
            owner = watched[thing]
            if owner is None:
                os.read(self._wake_reader, 4096)
            elif thing is owner.connection:
                if not self._hear(owner) and owner not in dead:
                    dead.append(owner)
            elif owner not in dead:
                dead.append(owner)
        for entry in dead:
            self._bury(entry)

    def _hear(self, entry: _Process) -> bool:
        """Take what a process says; tell whether its pipe is still open."""
        try:
            while entry.connection.poll():
                message = entry.connection.recv()
                entry.heard = time.monotonic()
                if message[0] == _READY:
                    entry.ready = True
                    self._start_deaths = 0
                    if self._stop_asked:
                        self._send(entry, (_STOP,))
                elif message[0] == _TICK:
                    entry.ticked = True
                    self._progress[id(entry)] = message[1]
                else:
                    task, entry.task = entry.task, None
                    self._progress.pop(id(entry), None)
                    if task is not None:
                        if message[0] == _DONE:
                            task.future.set_result(message[1])
                        else:
                            task.future.set_exception(message[1])
        except (EOFError, OSError):
            return False
        return True

    def _bury(self, entry: _Process) -> None:
        """A process is gone: its work goes back, or its future learns of it."""
        self._hear(entry)
        self._processes.remove(entry)
        self._progress.pop(id(entry), None)
        entry.connection.close()
        # A dying process closes its pipe first; how it ends by itself is what its game's result will say.
        entry.process.join(EXIT_SECONDS)
        if entry.process.is_alive():
            entry.process.kill()  # it closed its pipe and lives: of no use to anybody
        entry.process.join(END_SECONDS)
        exit_code = entry.process.exitcode
        entry.process.close()
        self.deaths += 1
        task = entry.task
        if not entry.ready:
            self._start_deaths += 1
            if self._start_deaths >= MAX_START_DEATHS:
                self._break(PoolError(f"{MAX_START_DEATHS} pool processes in a row did not start ({exit_code})"))
        if task is None:
            return
        if task.retries > 0 and self._broken is None:
            task.retries -= 1
            with self._lock:
                self._waiting.appendleft(task)
        else:
            task.future.set_exception(ProcessDiedError(exit_code, silent_seconds=entry.silenced))

    def _break(self, error: PoolError) -> None:
        with self._lock:
            self._broken = self._broken or error
            tasks = list(self._waiting)
            self._waiting.clear()
        for task in tasks:
            if task.future.running() or task.future.set_running_or_notify_cancel():
                task.future.set_exception(error)

    def _limit(self, entry: _Process) -> float | None:
        if not entry.ready or (entry.task is not None and not entry.ticked and self._silence_seconds is not None):
            return self._start_seconds  # a process that starts, or loads the game for its first piece
        return self._silence_seconds if entry.task is not None else None

    def _patience(self) -> float | None:
        now = time.monotonic()
        limits = [entry.heard + limit - now for entry in self._processes if (limit := self._limit(entry)) is not None]
        return max(0.0, min(limits)) if limits else None

    def _end_silent(self) -> None:
        now = time.monotonic()
        for entry in self._processes:
            limit = self._limit(entry)
            if limit is not None and now - entry.heard >= limit and entry.silenced is None:
                entry.silenced = limit
                entry.process.kill()

    def _send(self, entry: _Process, message: tuple[Any, ...]) -> None:
        # A process that died meanwhile is seen by its sentinel; its work is still its own until then.
        with contextlib.suppress(OSError):
            entry.connection.send(message)

    def _end_all(self) -> None:
        for entry in self._processes:
            self._send(entry, (_LEAVE,))
        limit = time.monotonic() + END_SECONDS
        for entry in self._processes:
            entry.process.join(max(0.0, limit - time.monotonic()))
            if entry.process.is_alive():
                entry.process.kill()
                entry.process.join(END_SECONDS)
            if entry.task is not None:
                entry.task.future.set_exception(PoolError("the pool ended while this was worked at"))
            entry.connection.close()
            entry.process.close()
        self._processes.clear()


# -- the other end of the pipe -----------------------------------------------------------------------------------------


class PipeChannel:
    """A pool process's line to its owner. Nobody there any more: the process ends, and its game with it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stop = False
        self._left = False
        self._closers: list[Callable[[], None]] = []

    def tick(self, games: int, steps: int) -> None:
        self.say((_TICK, (games, steps)))

    def stop_requested(self) -> bool:
        while not self._left and self._connection.poll():
            self._take(self._connection.recv())
        return self._stop

    def on_close(self, closer: Callable[[], None]) -> None:
        """Have `closer` called before this process ends."""
        self._closers.append(closer)

    def close(self) -> None:
        while self._closers:
            self._closers.pop()()

    def say(self, message: tuple[Any, ...]) -> None:
        self._connection.send(message)

    def next_work(self) -> tuple[Any, ...] | None:
        """The next piece of work; None when there is to be none any more."""
        while not self._left:
            message = self._connection.recv()
            if message[0] == _WORK:
                return tuple(message[1])
            self._take(message)
        return None

    def _take(self, message: tuple[Any, ...]) -> None:
        if message[0] == _STOP:
            self._stop = True
        elif message[0] == _LEAVE:
            self._left = True


_channel: PipeChannel | None = None


def current_channel() -> PipeChannel | None:
    """The line to this process's owner; None outside a pool process."""
    return _channel


def _serve(connection: Any, environment: Mapping[str, str]) -> None:
    """A pool process: takes work until it is told to leave or its owner is gone."""
    global _channel
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to judge: it ends the batch by the pipe
    _silence_output()
    channel = _channel = PipeChannel(connection)
    try:
        channel.say((_READY,))
        while (call := channel.next_work()) is not None:
            function, args, kwargs = call
            try:
                answer: tuple[Any, ...] = (_DONE, function(*args, **kwargs))
            except SimulationError as error:
                answer = (_RAISED, error)
            except Exception as error:  # noqa: BLE001 - the job boundary: its future carries the error to the owner
                # As words: an exception of the game's own class may not survive the pipe.
                answer = (_RAISED, PoolError(f"{type(error).__name__}: {error}"[:500]))
            channel.say(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the owner is gone, and nobody wants the rest
    finally:
        channel.close()


def _silence_output() -> None:
    """What a game prints goes nowhere: it must not fill the worker's log, nor be taken for its output."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
