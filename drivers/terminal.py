"""`terminal`: plays an unmodified game on a pseudo-terminal, by what stands on its screen.

An answer ends when the game has been silent for a while (`silence_ms`), or when its prompt stands at the cursor, and
at the step limit at the latest. Silence counts only while the game sleeps: a machine under load, or a game that
computes, is not silent.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from drivers.base import (
    MAX_TEXT_CHARACTERS,
    Action,
    ActionKind,
    ActResult,
    Control,
    Launch,
    LogLine,
    Observation,
    Recording,
)
from drivers.connection import find_program
from drivers.errors import (
    DriverError,
    DriverStartError,
    GameEndedError,
    GameUnresponsiveError,
    UnsupportedActionError,
)
from drivers.keys import KEYBOARD, key_bytes
from drivers.logs import LogFolder
from drivers.pseudo_terminal import COLUMNS, EXIT_NOT_EXECUTED, LINES, TERMINAL_TYPE, TerminalProcess
from drivers.screen import GameScreen, without_echo
from drivers.terminal_settings import TerminalConfiguration, read_terminal_settings

MAX_COMMAND_CHARACTERS = 1_000
MAX_ANSWER_BYTES = 1 << 20
MAX_WAIT_MILLISECONDS = 10_000
TAIL_CHARACTERS = 4_000
EXIT_SECONDS = 2.0
_UNCAUGHT = re.compile(
    r"^Traceback \(most recent call last\):|\bpanicked at\b|^Segmentation fault|^Uncaught |^Unhandled ", re.MULTILINE
)
_KEYS = tuple(Control(ref=f"k{index}", role="key", name=key) for index, key in enumerate(KEYBOARD))


class TerminalDriver:
    """One session of a game on a terminal; see `drivers.base.Driver` for the verbs.

    A game that reads lines shows no controls and takes `command`; one that reads single keys shows the keyboard as
    controls of the role `key` and takes `press`. Which of both is observed at each answer. `reload` ends the game and
    starts it again with the same seed (an extra of this driver).
    """

    name = "terminal"

    def __init__(self) -> None:
        self._launch: Launch | None = None
        self._configuration: TerminalConfiguration | None = None
        self._process: TerminalProcess | None = None
        self._screen = GameScreen(COLUMNS, LINES)
        self._log = LogFolder()
        self._news = asyncio.Event()
        self._bytes = 0
        self._echo = ""
        self._seen: Observation | None = None
        self._failure: DriverError | None = None
        self._over: str | None = None
        self._silence_is_answer = False
        self._sessions = 0
        self._stopped = False
        self._leftovers: list[str] = []
        self._counts = {"steps": 0, "refused_by_driver": 0, "answers_cut_by_limit": 0, "misread_sequences": 0}

    @property
    def action_kinds(self) -> Sequence[ActionKind]:
        """Lines, keys and waiting: a terminal can always be typed at."""
        return ("command", "press", "wait")

    @property
    def facts(self) -> Mapping[str, Any]:
        """Launch line, screen, how it is played, seed control, counts."""
        facts: dict[str, Any] = {"driver": self.name, "screen": f"{COLUMNS}x{LINES} {TERMINAL_TYPE}", **self._counts}
        if self._configuration is not None:
            facts["launch_line"] = shlex.join(self._configuration.words)
            given = self._launch is not None and self._launch.seed is not None and self._configuration.takes_seed
            # None: nobody knows whether the game plays by a seed. False: it was given one and says nothing about it.
            facts["seed_confirmed"] = False if given else None
            facts["seed_control"] = "seed given in the command" if given else "seed not controlled"
        return facts

    async def start(self, launch: Launch) -> Observation:
        """Start the game and wait for its first words. Raises `DriverStartError`; nothing is left running then."""
        if self._launch is not None:
            raise DriverStartError("this driver has started a game already", todo="make a new driver for each session")
        self._configuration = read_terminal_settings(launch.settings)
        self._launch = launch
        try:
            return await self._begin()
        except DriverError:
            await self._end_process()
            self._stopped = True
            raise

    async def observe(self) -> Observation:
        """The screen as it stands; what a game has printed of its own accord since the last look is on it."""
        self._check_playing()
        if self._over is None:
            self._the_process.drain()
            if self._the_process.exited.is_set():
                await self._note_end()
            else:
                self._look()
        return self._last_seen()

    async def act(self, action: Action) -> ActResult:
        """Type a line and Enter, press a key, or wait. Raises `GameEndedError`, `GameUnresponsiveError`."""
        if action.kind not in self.action_kinds:
            raise UnsupportedActionError(self.name, action.kind)
        self._check_playing()
        if self._over is not None:
            return self._refuse("the game is over")
        if action.kind == "wait":
            return await self._wait(action.milliseconds or 0)
        if action.kind == "press":
            data = key_bytes(action.key or "")
            if data is None:
                return self._refuse(f"{action.key!r} is no key of a terminal")
            return await self._send(data, "press", echo="")
        text = action.text or ""
        if len(text) > MAX_COMMAND_CHARACTERS:
            return self._refuse(f"a line of {len(text)} characters; at most {MAX_COMMAND_CHARACTERS} are typed")
        # Control codes would be keys (end of file, interrupt), not text.
        text = "".join(one if one.isprintable() else " " for one in text)
        end = "\n" if self._the_process.is_canonical else "\r"
        return await self._send((text + end).encode(), "command", echo=text)

    async def reload(self) -> Observation:
        """End the game and start it again in a fresh folder with the same seed. Raises `DriverStartError`."""
        if self._stopped or self._launch is None:
            self._check_playing()
        await self._end_process()
        self._failure, self._over = None, None
        try:
            return await self._begin()
        except DriverError as error:
            self._failure = error
            raise

    async def screenshot(self, name: str) -> Path | None:
        """None: a terminal's screen is text, and the observation has it."""
        return None

    async def stop(self, reason: str) -> Recording:
        """Hang up, then end the game and everything it started; what it says meanwhile is not waited for."""
        self._stopped = True
        await self._end_process()
        leftovers = tuple(self._leftovers)
        if self._launch is not None and self._launch.record_video:
            return Recording(status="unsupported", reason="a terminal has no picture to record", leftovers=leftovers)
        return Recording(status="off", leftovers=leftovers)

    # -- one process -------------------------------------------------------------------------------------------------

    async def _begin(self) -> Observation:
        launch, configuration = self._launch, self._configuration
        assert launch is not None and configuration is not None, "set by start"
        self._sessions += 1
        home = launch.directory / f"terminal-{self._sessions}"
        home.mkdir(mode=0o700)
        cwd = Path(configuration.cwd) if configuration.cwd else home
        environment = {
            **launch.environment, "HOME": str(home), "TERM": TERMINAL_TYPE, **configuration.env,
        }  # fmt: skip
        arguments = configuration.arguments(launch.seed)
        command = shlex.join(arguments)
        if not cwd.is_dir():
            raise DriverStartError("the game's folder does not exist", command=command, found=str(cwd))
        program = find_program(arguments[0], cwd, environment)
        if program is None:
            raise DriverStartError(
                f"the game's program {arguments[0]!r} was not found",
                command=command,
                todo="install it, or correct the command",
            )
        self._screen, self._bytes, self._echo = GameScreen(COLUMNS, LINES), 0, ""
        try:
            self._process = TerminalProcess.spawn_on_terminal(
                [program, *arguments[1:]], directory=cwd, environment=environment, on_output=self._take_output
            )
        except OSError as error:
            raise DriverStartError("the game could not be executed", command=command, found=str(error)) from error
        seconds = configuration.startup_timeout_ms / 1000
        await self._answer(seconds, wait_for_first=True)
        if self._process.exited.is_set():
            self._finish_output()
            code = self._process.exit_code
            if code or not self._text().strip():
                found = "it could not be executed" if code == EXIT_NOT_EXECUTED else f"exit code {code}"
                raise DriverStartError(
                    "the game ended before it could be played", command=command, found=found, tail=self._tail()
                )
            await self._note_end()
        elif not self._bytes:
            raise DriverStartError(
                f"the game printed nothing within {seconds:g} s", command=command, todo="raise startup_timeout_ms"
            )
        else:
            self._look()
        return self._last_seen()

    async def _end_process(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            # One that has failed or ended gets less time: it has nothing to save.
            seconds = 2.0 if self._failure is None and self._over is None else 0.5
            report = await process.stop(grace_seconds=seconds, terminate_seconds=seconds)
            self._leftovers += report.leftovers

    # -- input and answer --------------------------------------------------------------------------------------------

    async def _send(self, data: bytes, call: str, echo: str) -> ActResult:
        process, limit = self._the_process, self._step_seconds
        process.drain()
        self._screen.mark()
        self._bytes, self._echo = 0, echo
        try:
            taken = await process.send(data, limit)
        except OSError:
            # It has ended; how, is seen below.
            taken = True
        self._counts["steps"] += 1
        await self._answer(limit)
        # The terminal's own echo is no word of the game.
        silent = self._bytes <= 2 * len(data) + 2
        if process.exited.is_set():
            await self._note_end()
        elif not taken or (silent and process.unread_bytes):
            self._failure = GameUnresponsiveError(call, limit, tail=self._tail())
            raise self._failure
        else:
            self._look()
        return ActResult(status="done", observation=self._last_seen())

    async def _wait(self, milliseconds: int) -> ActResult:
        self._screen.mark()
        self._bytes, self._echo = 0, ""
        self._counts["steps"] += 1
        if await self._the_process.wait_exit(max(0, min(milliseconds, MAX_WAIT_MILLISECONDS)) / 1000):
            await self._note_end()
        else:
            self._the_process.drain()
            self._look()
        return ActResult(status="done", observation=self._last_seen())

    async def _answer(self, limit_seconds: float, *, wait_for_first: bool = False) -> None:
        """Take output until the answer has ended: silence, the prompt, the game's end, or the limit."""
        assert self._configuration is not None, "set by start"
        process, silence = self._the_process, self._configuration.silence_ms / 1000
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_seconds
        while not process.exited.is_set() and not self._at_prompt():
            left = deadline - clock()
            if left <= 0:
                if process.is_busy and not process.unread_bytes:
                    # It reads its keys and computes all the while (a loop that polls): its silence must do.
                    self._silence_is_answer = True
                self._counts["answers_cut_by_limit"] += bool(self._bytes)
                return
            self._news.clear()
            try:
                async with asyncio.timeout(min(silence, left)):
                    await self._news.wait()
            except TimeoutError:
                # This loop may have been the slow one: what already lies there is no silence.
                process.drain()
                quiet = not self._news.is_set() and (self._bytes or not wait_for_first)
                if quiet and (self._silence_is_answer or not (process.is_busy or process.unread_bytes)):
                    return
            if process.output_has_ended and await process.wait_exit(EXIT_SECONDS):
                return

    def _take_output(self, data: bytes) -> None:
        self._news.set()
        if not data:
            return
        self._bytes += len(data)
        if self._bytes <= MAX_ANSWER_BYTES:
            self._screen.feed(data)
            self._counts["misread_sequences"] += self._screen.misread
            self._screen.misread = 0
        elif self._bytes - len(data) <= MAX_ANSWER_BYTES:
            self._log.add(
                "warning", f"more than {MAX_ANSWER_BYTES} bytes in one answer; the rest is left out", "driver"
            )
        replies = self._screen.take_replies()
        if replies and self._process is not None:
            self._process.reply(replies)

    def _at_prompt(self) -> bool:
        assert self._configuration is not None, "set by start"
        prompt = self._configuration.prompt
        if prompt is None or not self._bytes or (self._echo and not self._screen.has_moved_on):
            return False
        return re.search(prompt, self._screen.cursor_line) is not None

    # -- what is seen ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        text = self._text()
        errors = _UNCAUGHT.search(text)
        if errors is not None and self._bytes:
            for line in text[errors.start() :].splitlines():
                self._log.add("error", line, "terminal")
        keys = _KEYS if self._over is None and self._takes_keys else ()
        self._seen = Observation(
            text=text[:MAX_TEXT_CHARACTERS],
            controls=keys,
            done=self._over is not None,
            outcome=self._over,
            frame_hash=hashlib.sha256(f"{bool(keys)}{self._over}\n{text}".encode()).hexdigest()[:32],
            cut=()
            if len(text) <= MAX_TEXT_CHARACTERS
            else (f"text: {len(text)} characters, the first {MAX_TEXT_CHARACTERS} shown",),
        )

    def _last_seen(self) -> Observation:
        """What was seen last, with the log lines that nobody has been given yet."""
        assert self._seen is not None, "seen at the start"
        log: tuple[LogLine, ...] = self._log.take()
        return msgspec.structs.replace(self._seen, log=log) if log else self._seen

    @property
    def _takes_keys(self) -> bool:
        """Single keys, unless the terminal reads whole lines or a line editor (readline, libedit) reads them for it.

        Line editors switch ICANON off as games of single keys do. They give themselves away by bracketed paste, or by
        switching off the literal-next character without ever placing the cursor.
        """
        process = self._the_process
        if process.is_canonical or self._screen.edits_lines:
            return False
        return process.has_literal_next or self._screen.is_addressed

    def _text(self) -> str:
        if self._screen.was_drawn or (self._screen.is_addressed and self._takes_keys):
            return self._screen.picture()
        return without_echo(self._screen.text_since_mark(), self._echo)

    def _tail(self) -> str:
        return self._screen.text_since_mark()[-TAIL_CHARACTERS:].strip()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _note_end(self) -> None:
        """The process has ended: a game that came to its end, or a crash (by a signal, or with an uncaught error)."""
        self._finish_output()
        code, tail = self._the_process.exit_code, self._tail()
        if code is not None and (code < 0 or (code and _UNCAUGHT.search(tail))):
            self._failure = GameEndedError("the game's process ended", exit_code=code, tail=tail)
            raise self._failure
        # Text games leave with whatever code they please: without another sign it is the end of the game.
        self._over = "the program ended" + (f" (exit code {code})" if code else "")
        self._look()

    def _finish_output(self) -> None:
        self._the_process.drain()

    def _refuse(self, detail: str) -> ActResult:
        self._counts["refused_by_driver"] += 1
        return ActResult(status="illegal", observation=self._last_seen(), detail=detail)

    def _check_playing(self) -> None:
        if self._stopped:
            raise GameEndedError("the session was stopped")
        if self._failure is not None:
            raise self._failure
        if self._process is None:
            raise DriverStartError("no game has begun", todo="call start first")

    @property
    def _the_process(self) -> TerminalProcess:
        assert self._process is not None, "checked by _check_playing"
        return self._process

    @property
    def _step_seconds(self) -> float:
        assert self._configuration is not None, "set by start"
        return self._configuration.step_timeout_ms / 1000
