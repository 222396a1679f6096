"""What can go wrong between a driver and a game, as facts; the sentence is built here."""

from __future__ import annotations


class DriverError(Exception):
    """Base of every error that leaves this package."""


class DriverStartError(DriverError):
    """The game could not be started or did not greet; nothing was played."""

    def __init__(self, what: str, *, command: str = "", found: str = "", todo: str = "", tail: str = "") -> None:
        self.what, self.command, self.found, self.todo, self.tail = what, command, found, todo, tail
        parts = [what]
        if command:
            parts.append(f"command: {command}")
        if found:
            parts.append(f"found: {found}")
        if todo:
            parts.append(todo)
        if tail:
            parts.append(f"last lines of its error output: {tail}")
        super().__init__("; ".join(parts))


class GameEndedError(DriverError):
    """The game's process ended, or its protocol broke, in mid-play: a crash of the game.

    `exit_code` is the process's exit code (negative: ended by that signal), None while it is still alive.
    `tail` is the end of its error output, bounded.
    """

    def __init__(self, what: str, *, exit_code: int | None = None, tail: str = "") -> None:
        self.what, self.exit_code, self.tail = what, exit_code, tail
        ending = ""
        if exit_code is not None:
            ending = f" (signal {-exit_code})" if exit_code < 0 else f" (exit code {exit_code})"
        super().__init__(f"{what}{ending}" + (f"; last lines of its error output: {tail}" if tail else ""))


class GameUnresponsiveError(DriverError):
    """The game gave no answer within `limit_seconds`."""

    def __init__(self, call: str, limit_seconds: float, *, tail: str = "") -> None:
        self.call, self.limit_seconds, self.tail = call, limit_seconds, tail
        super().__init__(
            f"{call}: no answer within {limit_seconds:g} s"
            + (f"; last lines of its error output: {tail}" if tail else "")
        )


class ProtocolError(DriverError):
    """The game answered, but not in the protocol's form: `what` says which rule, `line` is the start of the answer.

    `tail` is the end of the game's error output, bounded.
    """

    def __init__(self, what: str, *, line: str = "", tail: str = "") -> None:
        self.what, self.line, self.tail = what, line, tail
        super().__init__(
            what
            + (f"; the line begins: {line[:200]!r}" if line else "")
            + (f"; last lines of its error output: {tail}" if tail else "")
        )


class UnsupportedActionError(DriverError):
    """This driver has no such input (a bridge game has no pointer); the game was not touched."""

    def __init__(self, driver: str, kind: str) -> None:
        self.driver, self.kind = driver, kind
        super().__init__(f"{driver} has no input for the action {kind!r}")
