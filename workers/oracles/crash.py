"""The game's process ended, or stopped speaking its protocol, in mid-play."""

from __future__ import annotations

import re
from collections.abc import Iterable

from drivers.base import Observation
from drivers.errors import GameEndedError, ProtocolError
from workers.findings import Event
from workers.oracles.base import StepFacts

_PYTHON_FRAME = re.compile(r'File "([^"\n]+)", line \d+, in (\S+)')
_UNCAUGHT = re.compile(r"Traceback|\b(?:Uncaught|Unhandled)\b|panicked|Error: ")
_JAVASCRIPT_FRAME = re.compile(r"\bat (?:async )?([\w.$<>\[\] ]+) \(([^()\n]+?)(?::\d+){0,2}\)")


def top_frame(tail: str) -> str:
    """The innermost frame of a traceback, as file name and function; empty where there is none."""
    frames = _PYTHON_FRAME.findall(tail)
    if frames:
        path, function = frames[-1]
        return f"{path.rsplit('/', 1)[-1]} {function}"
    found = _JAVASCRIPT_FRAME.search(tail)
    return f"{found[2].rsplit('/', 1)[-1]} {found[1]}" if found else ""


def last_word(tail: str) -> str:
    """The line of an error output that names the error: the last one that is not a frame."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(?:Error|Exception|panic|fault)\b", line)]
    chosen = named or lines
    return chosen[-1][:200] if chosen else ""


class Crash:
    """Fires on `GameEndedError` and `ProtocolError`; a game that exits with code 0 and no error output was left."""

    name = "crash"

    def at_start(self, observation: Observation) -> Iterable[Event]:
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        error = facts.error
        if isinstance(error, GameEndedError):
            if error.exit_code == 0 and not _UNCAUGHT.search(error.tail):
                return
            word = last_word(error.tail)
            ending = "" if error.exit_code is None else f"exit code {error.exit_code}"
            yield Event(
                oracle=self.name,
                category="crash",
                severity="critical",
                title=f"The game crashed on {facts.label!r}" + (f": {word}" if word else ""),
                description=str(error),
                message=f"{word or error.what} {ending}",
                place=top_frame(error.tail),
                console=tuple(error.tail.splitlines()[-20:]),
            )
        elif isinstance(error, ProtocolError):
            yield Event(
                oracle=self.name,
                category="protocol",
                severity="critical",
                title=f"The game broke its protocol on {facts.label!r}: {error.what}",
                description=str(error),
                message=error.what,
            )
