"""The player's process: started with its order, watched, asked to stop, and ended with everything below it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import stat
import subprocess
import time
import types
from collections.abc import Sequence
from pathlib import Path

import msgspec

from workers.contract import EndReason, Job
from workers.descendants import end_descendants, signal_descendants
from workers.environment import HOME_NAME, TEMPORARY_NAME, player_environment
from workers.jobs import key_name_of
from workers.ladder import Ladder
from workers.output import BoundedLog

STOP_NAME = "stop"
PROGRESS_NAME = "progress.json"
LOG_NAME = "player.log"
MAX_STOP_BYTES = 4096
LOOK_SECONDS = 0.25
CLEANUP_SECONDS = 20.0
READ_BYTES = 256 << 10
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class PlayerProcess:
    """The player's life, from its start to the end of the last process below the supervisor."""

    def __init__(self, job: Job, player: Sequence[str], signals: StopSignals, *, model_key: str | None = None) -> None:
        self.job, self.run, self.player, self._signals = job, Path(job.run_directory), player, signals
        self._model_key = model_key
        self.ladder = Ladder(job.limits, now=time.monotonic())
        self.log: BoundedLog | None = None
        self.killed: list[str] = []
        self.survivors: list[str] = []
        self.exit_words = "it was never started"
        self._popen: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._progress: tuple[int, int, int] | None = None
        self._to_player = b""
        self._signals_taken = 0

    def play(self) -> None:
        """Start the player, hold it to its limits until it has ended, then end everything below."""
        self.log = BoundedLog(self.run / LOG_NAME)
        for name in (HOME_NAME, TEMPORARY_NAME):
            os.mkdir(self.run / name, 0o700)
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals.reader, selectors.EVENT_READ, "signal")
            try:
                self._look_for_stop()
                self._start(selector)
                self._watch(selector)
            finally:
                self.end()

    def end(self) -> None:
        """Kill what is left below, take what it had printed, close everything; may be called twice."""
        self._end_descendants()
        if self._popen is not None:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            if not self._popen.stdout.closed:
                # Whoever still held the other end is dead now; what is in the pipe is all there is.
                self._drain(self._popen.stdout.fileno(), most=1 << 20)
                self._popen.stdout.close()
            with contextlib.suppress(OSError):
                self._popen.stdin.close()
            self.exit_words = exit_words(self._status)
        if self.log is not None:
            self.log.close()

    def _end_descendants(self) -> None:
        ended = end_descendants(os.getpid(), limit_seconds=CLEANUP_SECONDS, reap=self._reap)
        self.killed += ended.killed
        self.survivors = ended.survivors

    def _start(self, selector: selectors.BaseSelector) -> None:
        self._popen = subprocess.Popen(
            list(self.player),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=self.run,
            env=player_environment(os.environ, self.run),
            start_new_session=True,
            umask=0o077,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        for pipe in (self._popen.stdin, self._popen.stdout):
            os.set_blocking(pipe.fileno(), False)
        selector.register(self._popen.stdout, selectors.EVENT_READ, "output")
        self._to_player = msgspec.json.encode(msgspec.structs.replace(self.job, key="")) + b"\n"
        if key_name_of(self.job) is not None:
            self._to_player += msgspec.json.encode({"model_key": self._model_key}) + b"\n"
            self._model_key = None
        selector.register(self._popen.stdin, selectors.EVENT_WRITE, "order")

    def _watch(self, selector: selectors.BaseSelector) -> None:
        popen = self._popen
        assert popen is not None
        assert popen.stdout is not None
        pidfd = os.pidfd_open(popen.pid)
        try:
            selector.register(pidfd, selectors.EVENT_READ, "ended")
            while self._status is None:
                wait_seconds = self.ladder.wait_seconds(now=time.monotonic(), most=LOOK_SECONDS)
                for key, _ in selector.select(wait_seconds):
                    if key.data == "output" and not self._drain(popen.stdout.fileno(), most=4 << 20):
                        selector.unregister(popen.stdout)
                    elif key.data == "order":
                        self._feed_player(selector)
                    elif key.data == "signal":
                        self._take_signals()
                self._reap()
                self._look_for_stop()
                self._look_for_progress()
                self._climb(selector)
        finally:
            os.close(pidfd)

    def _climb(self, selector: selectors.BaseSelector) -> None:
        assert self.log is not None
        now = time.monotonic()
        self.ladder.printed(self.log.seen_bytes, now=now)
        step = self.ladder.due(now=now)
        if step == "request":
            self._to_player += msgspec.json.encode({"stop": self.ladder.reason}) + b"\n"
            self._feed_player(selector)
        elif step == "terminate":
            # A stopped process takes SIGTERM only once it goes on.
            signal_descendants(os.getpid(), signal.SIGTERM, signal.SIGCONT)
        elif step == "kill":
            self._end_descendants()

    def _feed_player(self, selector: selectors.BaseSelector) -> None:
        assert self._popen is not None
        pipe = self._popen.stdin
        assert pipe is not None
        try:
            while self._to_player:
                self._to_player = self._to_player[os.write(pipe.fileno(), self._to_player) :]
        except BlockingIOError:
            if pipe not in selector.get_map():
                selector.register(pipe, selectors.EVENT_WRITE, "order")
            return
        except OSError:  # it closed its input; its end is an event of its own
            self._to_player = b""
        if pipe in selector.get_map():
            selector.unregister(pipe)

    def _drain(self, descriptor: int, *, most: int) -> bool:
        """Read what is there, at most `most` bytes; False at the end of the output."""
        assert self.log is not None
        taken = 0
        while taken < most:
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.log.feed(data)
            taken += len(data)
        return True

    def _reap(self) -> None:
        # One place waits for all children, adopted ones included; the player's status is kept when it passes by.
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._popen is not None and pid == self._popen.pid:
                self._status = self._popen.returncode = os.waitstatus_to_exitcode(status)

    def _take_signals(self) -> None:
        for _ in range(self._signals.taken()):
            now = time.monotonic()
            self._look_for_stop()
            if self._signals_taken or self.ladder.reason is not None:
                self.ladder.hurry(now=now)
            self.ladder.ask("interrupted", "the worker was asked to stop by a signal", now=now)
            self._signals_taken += 1

    def _look_for_stop(self) -> None:
        if self.ladder.reason is None and (reason := read_stop(self.run / STOP_NAME)) is not None:
            self.ladder.ask(reason, f"the run was asked to stop ({reason})", now=time.monotonic())

    def _look_for_progress(self) -> None:
        try:
            facts = os.lstat(self.run / PROGRESS_NAME)
        except OSError:
            return
        seen = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if seen != self._progress:
            self._progress = seen
            self.ladder.progressed(now=time.monotonic())


class StopSignals:
    """Turns SIGTERM, SIGINT and SIGHUP into bytes on a pipe, from before a run is begun until it is delivered.

    After the player's end they change nothing, until the process has ended: what is left to do is short, and losing
    it would lose a run that was paid for.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> StopSignals:
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.close(self.reader)
        os.close(self._writer)

    def taken(self) -> int:
        """How many signals came since the last call."""
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self.reader, 64))
        return 0

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"s")


def read_stop(path: Path) -> EndReason | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        wish = msgspec.json.decode(os.read(descriptor, MAX_STOP_BYTES))
    except (OSError, ValueError, RecursionError):
        return "interrupted"  # somebody asked, however badly: a half-written wish still means stop
    finally:
        os.close(descriptor)
    return "canceled" if isinstance(wish, dict) and wish.get("reason") == "canceled" else "interrupted"


def exit_words(status: int | None) -> str:
    if status is None:
        return "its end was not seen"
    return f"signal {-status}" if status < 0 else f"exit code {status}"
