"""A bridge process and the conversation with it: requests with a limit each, answers, log lines, and how it died."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivers.bridge_file import BridgeConfiguration
from drivers.errors import DriverError, DriverStartError, GameEndedError, GameUnresponsiveError, ProtocolError
from drivers.jsonrpc import Answer, Conversation, Fault, Noise, Refusal
from drivers.logs import ErrorOutput, LogFolder
from drivers.processes import GameProcess, StopReport

PROTOCOL = 1
EXIT_AFTER_OUTPUT_SECONDS = 1.0
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class BridgeConnection:
    """One running bridge. After the first failure every further call raises that failure again.

    `log` collects what the game prints outside the protocol; `noise_lines` counts such lines on standard output.
    """

    def __init__(self, process_arguments: list[str]) -> None:
        self.arguments = process_arguments
        self.log = LogFolder()
        self.noise_lines = 0
        self._errors = ErrorOutput(self.log)
        self._conversation = Conversation()
        self._waiting: dict[int, asyncio.Future[Answer | Refusal]] = {}
        self._failure: DriverError | None = None
        self._output_ended = asyncio.Event()
        self._process: GameProcess | None = None

    @classmethod
    def open(
        cls, configuration: BridgeConfiguration, *, seed: int | None, directory: Path, environment: Mapping[str, str]
    ) -> BridgeConnection:
        """Start the bridge's process (nothing is said to it yet). `DriverStartError` when it cannot be executed.

        `directory` is where it runs when the configuration names no `cwd`.
        """
        if configuration.python or configuration.gymnasium:
            form = "python" if configuration.python else "gymnasium"
            raise DriverStartError(
                f'a {{"{form}": ...}} bridge is a game for simulations, inside their own processes',
                todo="a playthrough over cli_stdio needs a bridge file with a command",
            )
        arguments = configuration.arguments(seed)
        cwd = Path(configuration.cwd) if configuration.cwd else directory
        full_environment = {**environment, **configuration.env}
        command = shlex.join(arguments)
        if not cwd.is_dir():
            raise DriverStartError("the bridge's folder does not exist", command=command, found=str(cwd))
        program = find_program(arguments[0], cwd, full_environment)
        if program is None:
            raise DriverStartError(
                f"the bridge's program {arguments[0]!r} was not found",
                command=command,
                todo="install it, or correct the command in the bridge file",
            )
        connection = cls(arguments)
        try:
            connection._process = GameProcess.spawn(
                [program, *arguments[1:]],
                directory=cwd,
                environment=full_environment,
                on_output=connection._take_output,
                on_error=connection._errors.feed,
            )
        except (OSError, ValueError) as error:
            raise DriverStartError("the bridge could not be executed", command=command, found=str(error)) from error
        return connection

    @property
    def process(self) -> GameProcess:
        assert self._process is not None, "the process exists from `open` on"
        return self._process

    @property
    def error_tail(self) -> str:
        return self._errors.tail

    @property
    def failure(self) -> DriverError | None:
        """What ended this connection, None while it is sound."""
        return self._failure

    async def call(self, method: str, params: object, limit_seconds: float) -> Answer | Refusal:
        """Send a request and wait for its answer, both within `limit_seconds`.

        Raises `GameEndedError` when the process ends or closes its output first, `GameUnresponsiveError` when it says
        nothing, `ProtocolError` when it says something that breaks a rule.
        """
        self._raise_failure()
        try:
            request_id, line = self._conversation.request(method, params)
        except ValueError as error:
            raise ProtocolError(str(error)) from error
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._exchange(line, answer)
        except TimeoutError:
            self._fail(GameUnresponsiveError(method, limit_seconds, tail=self.error_tail))
        finally:
            self._waiting.pop(request_id, None)
        raise self._failed()

    async def close_input_and_wait(self, limit_seconds: float) -> bool:
        """Close the game's input and wait for its exit; tell whether it exited within the limit."""
        self.process.close_input()
        return await self.process.wait_exit(limit_seconds)

    async def stop(self, *, grace_seconds: float = 2.0, terminate_seconds: float = 2.0) -> StopReport:
        """End the process and all it started."""
        report = await self.process.stop(grace_seconds=grace_seconds, terminate_seconds=terminate_seconds)
        self._errors.end()
        return report

    async def _exchange(self, line: bytes, answer: asyncio.Future[Answer | Refusal]) -> Answer | Refusal:
        watches = [asyncio.ensure_future(event.wait()) for event in (self.process.exited, self._output_ended)]
        writing = asyncio.ensure_future(self.process.write(line))
        try:
            # A game may answer before it has read everything, and die before it answers: all are watched at once.
            ends: list[asyncio.Future[Any]] = [answer, *watches]
            await asyncio.wait([*ends, writing], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and writing.done() and writing.exception() is None:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await self._judge_silence(answer)
            return await answer
        finally:
            for task in (*watches, writing):
                task.cancel()
            await asyncio.gather(*watches, writing, return_exceptions=True)

    async def _judge_silence(self, answer: asyncio.Future[Answer | Refusal]) -> None:
        """The game's end was seen before an answer: take the last of its output, then say how it ended."""
        if not self.process.exited.is_set():
            # Output or input was closed; as a rule the exit follows at once, and its code says more.
            await self.process.wait_exit(EXIT_AFTER_OUTPUT_SECONDS)
        self.process.drain()
        self._finish_output()
        if self._failure is not None:
            raise self._failure
        if not answer.done():
            self._fail(self._ended())

    def _ended(self) -> GameEndedError:
        if self.process.exited.is_set():
            return GameEndedError("the game's process ended", exit_code=self.process.exit_code, tail=self.error_tail)
        return GameEndedError("the game closed its standard output or input and still runs", tail=self.error_tail)

    def _take_output(self, data: bytes) -> None:
        if not data:
            self._finish_output()
            self._output_ended.set()
            return
        for event in self._conversation.feed(data):
            self._take_event(event)

    def _finish_output(self) -> None:
        for event in self._conversation.end():
            if isinstance(event, Fault):
                # A line cut off by the game's death: the death is the news, and is told with its exit code.
                event = Noise(text=f"unfinished last line: {event.line}", cut=True)
            self._take_event(event)

    def _take_event(self, event: Answer | Refusal | Noise | Fault) -> None:
        if isinstance(event, Noise):
            self.noise_lines += 1
            self.log.add("info", event.text + (" [cut]" if event.cut else ""), "stdout")
        elif isinstance(event, Fault):
            self._fail(ProtocolError(event.what, line=event.line, tail=self.error_tail))
        else:
            future = self._waiting.get(event.id)
            if future is not None and not future.done():
                future.set_result(event)

    def _fail(self, failure: DriverError) -> None:
        if self._failure is None:
            self._failure = failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._failure)
                future.exception()  # seen: its caller may have gone by a time-out

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.process.exited.is_set():
            self.process.drain()
            self._fail(self._ended())
            raise self._failed()

    def _failed(self) -> DriverError:
        assert self._failure is not None, "only asked after a failure"
        return self._failure


def find_program(name: str, cwd: Path, environment: Mapping[str, str]) -> str | None:
    """The program's path: relative ones from the bridge's folder, plain names by the game's own PATH."""
    if "/" in name:
        return shutil.which(str(cwd / name))
    return shutil.which(name, path=environment.get("PATH", DEFAULT_PATH))
