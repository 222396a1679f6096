"""One run, supervised: begun once, played by a child, held to its limits, cleaned up, scanned, delivered.

The supervisor leads its own session and adopts every orphan below it. It outlives the coordinator that started it:
nothing that it needs comes from there after the secrets were read.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import stat
import subprocess
import time
import types
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from workers.contract import Begun, DeliveredStop, EndReason, Job, PlayResult
from workers.delivery import Account, decide_end, deliver, make_delivery, measure_all, read_result
from workers.descendants import (
    Ended,
    become_subreaper,
    end_descendants,
    hide_memory,
    read_process,
    signal_descendants,
)
from workers.environment import HOME_NAME, TEMPORARY_NAME, player_environment
from workers.folders import create_exclusively, make_private_directory, regular_files, remove_tree, write_new
from workers.ladder import Ladder
from workers.output import BoundedLog
from workers.redaction import Scanner

BEGUN_NAME = "begun"
STOP_NAME = "stop"
PROGRESS_NAME = "progress.json"
LOG_NAME = "player.log"
SUPERVISION_NAME = "supervision.json"
MAX_STOP_BYTES = 4096
LOOK_SECONDS = 0.25
CLEANUP_SECONDS = 20.0
READ_BYTES = 256 << 10
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class AlreadyBegunError(Exception):
    """`begun` exists: this run was begun before, here or by another worker; nothing was run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists: this run was begun before; it is never begun twice")


class Supervision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`runs/ID/supervision.json`: what the supervisor saw, for people and as evidence."""

    stopped_for: str | None
    why: str
    player_ended: str
    output_bytes: int
    processes_killed: list[str]
    processes_left: list[str]
    folders_left: list[str]
    redacted: dict[str, list[str]]


def utc_now() -> str:
    """The UTC time as ISO 8601 with milliseconds and `Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def supervise(job: Job, job_sha256: str, *, player: Sequence[str], secrets: Mapping[str, str]) -> Path:
    """Run a verified job with `player` as the command of its player; give the delivered file's path.

    The player's first line of standard input is the job without its key; each later one is `{"stop": reason}`; the
    end of input means that the supervisor is dead. Raises `AlreadyBegunError`, and OSError where not even a
    delivery of the failure could be written.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    become_subreaper()
    hide_memory()
    run = Path(job.run_directory)
    make_private_directory(run)
    _begin(run)
    scanner = Scanner({**secrets, "the reservation's key": job.key})
    session = _Session(job, run, player)
    fault = ""
    try:
        session.play()
    except Exception as error:  # noqa: BLE001 - the job boundary: whatever happened, the run is cleaned up and delivered
        fault = f"the supervisor met {type(error).__name__}: {error}"
    return _finish(job, job_sha256, session, scanner, fault)


def _begin(run: Path) -> None:
    own = read_process(os.getpid())
    begun = Begun(
        pid=os.getpid(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        process_start=own.start if own else "",
        host=socket.gethostname(),
        at=utc_now(),
    )
    try:
        create_exclusively(run / BEGUN_NAME, msgspec.json.format(msgspec.json.encode(begun), indent=2) + b"\n")
    except FileExistsError as error:
        raise AlreadyBegunError(run / BEGUN_NAME) from error


class _Session:
    """The player's life, from its start to the end of the last process below the supervisor."""

    def __init__(self, job: Job, run: Path, player: Sequence[str]) -> None:
        self.job, self.run, self.player = job, run, player
        self.ladder = Ladder(job.limits, now=time.monotonic())
        self.log: BoundedLog | None = None
        self.ended = Ended(killed=[], survivors=[])
        self.exit_words = "it was never started"
        self._popen: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._progress: tuple[int, int, int] | None = None
        self._to_player = b""
        self._signals = 0

    def play(self) -> None:
        """Start the player, hold it to its limits until it has ended, then end everything below."""
        self.log = BoundedLog(self.run / LOG_NAME)
        for name in (HOME_NAME, TEMPORARY_NAME):
            os.mkdir(self.run / name, 0o700)
        with selectors.DefaultSelector() as selector, _StopSignals() as signals:
            selector.register(signals.reader, selectors.EVENT_READ, "signal")
            try:
                self._look_for_stop()
                self._start(selector)
                self._watch(selector, signals)
            finally:
                self.end()

    def end(self) -> None:
        """Kill what is left below, take what it had printed, close everything; may be called twice."""
        self.ended = end_descendants(os.getpid(), limit_seconds=CLEANUP_SECONDS, reap=self._reap)
        if self._popen is not None:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            if not self._popen.stdout.closed:
                # Whoever still held the other end is dead now; what is in the pipe is all there is.
                self._drain(self._popen.stdout.fileno(), most=1 << 20)
                self._popen.stdout.close()
            with contextlib.suppress(OSError):
                self._popen.stdin.close()
            self.exit_words = _exit_words(self._status)
        if self.log is not None:
            self.log.close()

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
        selector.register(self._popen.stdin, selectors.EVENT_WRITE, "order")

    def _watch(self, selector: selectors.BaseSelector, signals: _StopSignals) -> None:
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
                        self._take_signals(signals)
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
            self.ended = end_descendants(os.getpid(), limit_seconds=CLEANUP_SECONDS, reap=self._reap)

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

    def _take_signals(self, signals: _StopSignals) -> None:
        for _ in range(signals.taken()):
            now = time.monotonic()
            self._look_for_stop()
            if self._signals or self.ladder.reason is not None:
                self.ladder.hurry(now=now)
            self.ladder.ask("interrupted", "the worker was asked to stop by a signal", now=now)
            self._signals += 1

    def _look_for_stop(self) -> None:
        if self.ladder.reason is None and (reason := _read_stop(self.run / STOP_NAME)) is not None:
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


class _StopSignals:
    """Turns SIGTERM, SIGINT and SIGHUP into bytes on a pipe while the player lives; after it they change nothing."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> _StopSignals:
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        # What is left to do is short, and losing it would lose a run that was paid for.
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


def _read_stop(path: Path) -> EndReason | None:
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


def _exit_words(status: int | None) -> str:
    if status is None:
        return "its end was not seen"
    return f"signal {-status}" if status < 0 else f"exit code {status}"


def _finish(job: Job, job_sha256: str, session: _Session, scanner: Scanner, fault: str) -> Path:
    run = session.run
    folders_left = [line for name in (HOME_NAME, TEMPORARY_NAME) for line in remove_tree(run / name)]
    result = read_result(run)
    left = [*session.ended.survivors, *folders_left, *(result.leftovers if result else [])]
    redacted, notes = _redact(run, scanner)
    if fault:
        notes.insert(0, fault)
    if session.ended.killed:
        notes.append(f"processes ended by the supervisor: {', '.join(session.ended.killed[:20])}")
    supervision = Supervision(
        stopped_for=session.ladder.reason,
        why=session.ladder.why,
        player_ended=session.exit_words,
        output_bytes=session.log.seen_bytes if session.log else 0,
        processes_killed=session.ended.killed[:200],
        processes_left=session.ended.survivors[:200],
        folders_left=folders_left[:200],
        redacted=redacted,
    )
    try:
        write_new(run / SUPERVISION_NAME, msgspec.json.format(msgspec.json.encode(supervision), indent=2) + b"\n")
    except OSError as error:
        notes.append(f"{SUPERVISION_NAME} could not be written: {error.strerror}")
    account = Account(
        result=result,
        reason=session.ladder.reason,
        why=session.ladder.why,
        exit_words=session.exit_words,
        log_tail=session.log.last_text(800) if session.log else "",
        cleanup_left=left,
        notes=notes,
    )
    return _deliver(job, job_sha256, account, scanner, redacted)


def _deliver(job: Job, job_sha256: str, account: Account, scanner: Scanner, redacted: dict[str, list[str]]) -> Path:
    named = account.result.artefacts if account.result else []
    artefacts, missing = measure_all(job, [*named, *_own_files(account.result, job)])
    account.notes.extend(missing)
    reason, outcome, failure = decide_end(account)
    stop = None
    if redacted:
        names = ", ".join(f"{name} ({', '.join(kinds)})" for name, kinds in list(redacted.items())[:10])
        stop = DeliveredStop(reason="secret_leak", detail=f"{len(redacted)} files held a secret, taken out: {names}")
    delivery = make_delivery(
        job,
        job_sha256,
        end=(reason, outcome, scanner.redact_text(failure) if failure else None),
        artefacts=artefacts,
        usage=account.result.usage if account.result else None,
        cleanup="failed" if account.cleanup_left else "passed",
        stop=stop,
        finished_at=utc_now(),
    )
    return deliver(delivery, job)


def _own_files(result: PlayResult | None, job: Job) -> list[str]:
    run = Path(job.run_directory)
    candidates = [SUPERVISION_NAME, LOG_NAME, PROGRESS_NAME]
    if result is None:
        # The player could not name its artefacts: what it left is evidence all the same.
        candidates += [str(path.relative_to(run)) for path in regular_files(run)[:200] if path.name != BEGUN_NAME]
    return [name for name in candidates if (run / name).is_file()]


def _redact(run: Path, scanner: Scanner) -> tuple[dict[str, list[str]], list[str]]:
    """Look through every file of the run; give name -> kinds of what was taken out, and notes."""
    redacted: dict[str, list[str]] = {}
    notes: list[str] = []
    for path in regular_files(run):
        name = str(path.relative_to(run))
        if path.name == BEGUN_NAME:
            continue
        shown = scanner.redact_text(name)
        if shown != name:
            # A name goes into deliveries and reports as well.
            path = path.rename(run / f"renamed-{len(redacted)}{path.suffix[:8]}")
            shown = path.name
            redacted.setdefault(shown, []).append("its name")
        try:
            hits = scanner.redact_file(path)
        except OSError as error:
            # A file that could not be looked through must not leave this machine as evidence.
            path.unlink(missing_ok=True)
            notes.append(f"{shown} could not be looked through for secrets and was removed: {error.strerror}")
            continue
        if hits:
            redacted.setdefault(shown, []).extend(sorted({hit.what for hit in hits}))
    return redacted, notes
