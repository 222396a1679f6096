"""A bridge process, spoken to without an event loop: many sessions in flight on one pipe, written and read in batches.

One write carries everything that is to be asked, one read takes everything that was answered: that is where the speed
of several sessions comes from. The framing is `drivers.jsonrpc`, the ending of the process `drivers.processes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from drivers.bridge import Greeting, read_greeting
from drivers.bridge_file import BridgeConfiguration
from drivers.connection import PROTOCOL
from drivers.errors import DriverStartError, ProtocolError
from drivers.jsonrpc import Answer, Conversation, Fault, Noise, Refusal
from drivers.logs import ErrorOutput, LogFolder
from drivers.processes import MARK_NAME, GameProcess, StopReport
from workers.simulation.errors import GameStartError

READ_BYTES = 1 << 18
EXIT_SECONDS = 1.0
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class BridgeGoneError(Exception):
    """The bridge died, fell silent or broke the protocol: `reason` in words that are the same for the same fault."""

    def __init__(self, reason: str, tail: str) -> None:
        self.reason, self.tail = reason, tail
        super().__init__(reason)


class BridgeClient:
    """One bridge process. `start`, then `send` and `receive`; `stop` always, after any failure too.

    `unanswered` maps the id of each open request to the time at which it was sent, oldest first.
    """

    def __init__(self, configuration: BridgeConfiguration, environment: Mapping[str, str]) -> None:
        self._configuration = configuration
        self._environment = {**environment, **configuration.env}
        self._conversation = Conversation()
        self._out = bytearray()
        self._poll = select.poll()
        self._log = LogFolder()
        self._errors = ErrorOutput(self._log)
        self._mark = token_hex(16)
        self._child: subprocess.Popen[bytes] | None = None
        self._stdin = self._stdout = self._stderr = self._exit_watch = -1
        self._report: StopReport | None = None
        self._blocked = False
        self.unanswered: dict[int, float] = {}
        self.noise_lines = 0
        self.greeting: Greeting | None = None

    def take_noise(self) -> int:
        """How many lines outside the protocol came on standard output since the last call."""
        count, self.noise_lines = self.noise_lines, 0
        return count

    @property
    def tail(self) -> str:
        """The end of the bridge's error output."""
        return self._errors.tail

    def start(self) -> Greeting:
        """Start the process and greet it. `GameStartError` when it cannot be executed or does not greet in time."""
        try:
            self._spawn()
            self.send("initialize", {"protocol": PROTOCOL})
            answer = self.receive(self._configuration.startup_timeout_ms / 1000, time.monotonic() + 3600)
            if not answer:
                raise GameStartError("the bridge gave no answer to initialize", tail=self.tail)
            if isinstance(answer[0], Refusal):
                raise GameStartError(f"the bridge refused initialize: {answer[0].code} {answer[0].message}")
            self.greeting = read_greeting(answer[0].result)
        except (GameStartError, BridgeGoneError, DriverStartError, ProtocolError, OSError, ValueError) as error:
            self.stop(seconds=0.5)
            if isinstance(error, GameStartError):
                raise
            reason = error.reason if isinstance(error, BridgeGoneError) else str(error)
            raise GameStartError(f"the bridge did not start: {reason}", tail=self.tail) from error
        return self.greeting

    def send(self, method: str, params: object) -> int:
        """Queue a request, to be written by the next `receive`; give its id."""
        request_id, line = self._conversation.request(method, params)
        self._out += line
        self.unanswered[request_id] = time.monotonic()
        return request_id

    def receive(self, limit_seconds: float, until: float) -> list[Answer | Refusal]:
        """Write what is queued and wait for answers, at most until the monotonic time `until` (then: no answers).

        Raises `BridgeGoneError` when the process ends, closes its output, breaks the protocol, or leaves a request
        without an answer for `limit_seconds`.
        """
        answers: list[Answer | Refusal] = []
        while not answers:
            if self._out:
                self._write()
            now = time.monotonic()
            oldest = next(iter(self.unanswered.values()), now) + limit_seconds
            if now >= oldest:
                raise BridgeGoneError(f"silent: no answer within {limit_seconds:g} s", self.tail)
            if now >= until:
                break
            ended = False
            for descriptor, event in self._poll.poll((min(oldest, until) - now) * 1000 + 1):
                if descriptor == self._stdout:
                    ended |= not self._read(answers)
                elif descriptor == self._stderr:
                    self._read_errors()
                elif descriptor == self._exit_watch:
                    ended = True
                elif event & (select.POLLERR | select.POLLHUP):
                    self._poll.unregister(self._stdin)  # its death is about to be seen; do not spin meanwhile
                    self._blocked = False
            if ended and not answers:
                self._raise_ended(answers)
        for answer in answers:
            self.unanswered.pop(answer.id, None)
        return answers

    def stop(self, *, seconds: float = 2.0) -> StopReport:
        """End the bridge and everything it started (end of input, SIGTERM, SIGKILL); safe to call again."""
        if self._report is None:
            if self._child is None:
                self._report = StopReport(how="never started", exit_code=None, leftovers=())
            else:
                self._report = asyncio.run(_end(self._child, self._mark, self._errors, seconds))
            if self._exit_watch >= 0:
                os.close(self._exit_watch)
                self._exit_watch = -1
        return self._report

    def _spawn(self) -> None:
        configuration = self._configuration
        arguments = configuration.arguments(None)
        directory = Path(configuration.cwd or ".")
        command = shlex.join(arguments)
        if not directory.is_dir():
            raise GameStartError(f"the bridge's folder {directory} does not exist; command: {command}")
        program = shutil.which(arguments[0], path=self._environment.get("PATH", DEFAULT_PATH))
        if os.sep in arguments[0]:
            program = shutil.which(directory / arguments[0])
        if program is None:
            raise GameStartError(f"the bridge's program {arguments[0]!r} was not found; install it or correct command")
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        # Inherited by the child: a crash must not write its memory to disk.
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        try:
            child = subprocess.Popen(
                [program, *arguments[1:]],
                cwd=directory,
                env={**self._environment, MARK_NAME: self._mark},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                umask=0o077,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        self._child = child
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._stdin, self._stdout, self._stderr = child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno()
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        for descriptor in (self._stdout, self._stderr):
            self._poll.register(descriptor, select.POLLIN)
        if hasattr(os, "pidfd_open"):
            self._exit_watch = os.pidfd_open(child.pid)
            self._poll.register(self._exit_watch, select.POLLIN)

    def _write(self) -> None:
        try:
            written = os.write(self._stdin, self._out)
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            self._out.clear()  # the reader is gone; its end is seen on the other descriptors
            if self._blocked:
                self._poll.unregister(self._stdin)
                self._blocked = False
            return
        if written == len(self._out):
            self._out.clear()
            if self._blocked:
                self._poll.unregister(self._stdin)
                self._blocked = False
        else:
            del self._out[:written]
            self._poll.register(self._stdin, select.POLLOUT)
            self._blocked = True

    def _read(self, answers: list[Answer | Refusal]) -> bool:
        try:
            data = os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return True
        for event in self._conversation.feed(data) if data else self._conversation.end():
            if isinstance(event, (Answer, Refusal)):
                answers.append(event)
            elif isinstance(event, Noise) or not data:
                self.noise_lines += 1
                self._log.add("info", getattr(event, "text", ""), "stdout")
            elif isinstance(event, Fault):
                raise BridgeGoneError(f"protocol: {event.what}", self.tail)
        return bool(data)

    def _read_errors(self) -> None:
        try:
            data = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._errors.feed(data)
        else:
            self._poll.unregister(self._stderr)

    def _raise_ended(self, answers: list[Answer | Refusal]) -> None:
        """The end was seen: take what still lies in the pipes, then say how the process ended."""
        exit_code = self._wait_exit()
        for _ in range(64):
            before = len(answers)
            if not self._read(answers) or len(answers) == before:
                break
        with contextlib.suppress(KeyError, OSError):
            for _ in range(16):
                self._read_errors()
        if answers:
            return
        if exit_code is None:
            raise BridgeGoneError("crash: the bridge closed its standard output and still runs", self.tail)
        ending = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        raise BridgeGoneError(f"crash: the bridge ended ({ending})", self.tail)

    def _wait_exit(self) -> int | None:
        """The exit code, None while it runs. It is not waited for yet: its number must stay its own until `stop`."""
        assert self._child is not None, "only asked of a started bridge"
        if self._exit_watch < 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._child.wait(EXIT_SECONDS)
            return None
        watch = select.poll()
        watch.register(self._exit_watch, select.POLLIN)
        watch.poll(EXIT_SECONDS * 1000)
        state = os.waitid(os.P_PIDFD, self._exit_watch, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status


async def _end(child: subprocess.Popen[bytes], mark: str, errors: ErrorOutput, seconds: float) -> StopReport:
    process = GameProcess(child, mark, _ignore, errors.feed)
    return await process.stop(grace_seconds=seconds, terminate_seconds=seconds)


def _ignore(data: bytes) -> None:
    """What a game still says after its last answer is of no use to anybody."""
