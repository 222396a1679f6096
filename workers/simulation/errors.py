"""What can go wrong with a simulation batch, as facts; the sentence is built here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class SimulationError(Exception):
    """Base of every error that leaves this package. The facts cross process boundaries with it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[SimulationError], args: tuple[Any, ...], facts: dict[str, Any]) -> SimulationError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a configuration that cannot be used: where it stands, what was found, what is allowed."""

    key: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.key}: found {self.found}; {self.allowed}"


class ConfigurationError(SimulationError):
    """A configuration, bridge file or order that cannot be used; `refused` lists every fault at once."""

    def __init__(self, origin: str, refused: Sequence[Refused]) -> None:
        self.origin, self.refused = origin, tuple(refused)
        super().__init__(f"{origin} cannot be used: " + " | ".join(str(fault) for fault in refused))


class GameStartError(SimulationError):
    """The game could not be started, or did not greet, reset and step as it must; `tail` is its last error output."""

    def __init__(self, what: str, *, tail: str = "") -> None:
        self.what, self.tail = what, tail
        super().__init__(what + (f"; last lines of its error output: {tail}" if tail else ""))


class TraceError(SimulationError):
    """A trace file that cannot be read: which one, which line, what is wrong."""

    def __init__(self, path: str, line: int, found: str) -> None:
        self.path, self.line, self.found = path, line, found
        super().__init__(f"the trace {path} cannot be read: line {line}: {found}")


class PoolError(SimulationError):
    """The pool cannot go on: its processes do not start."""


class ProcessDiedError(SimulationError):
    """A pool process died, as often as allowed, while it played this piece of work.

    `exit_code` is negative when a signal ended it. `silent_seconds` is set when the pool ended it because it showed no
    sign of life for so long.
    """

    def __init__(self, exit_code: int | None, *, silent_seconds: float | None = None) -> None:
        self.exit_code, self.silent_seconds = exit_code, silent_seconds
        super().__init__(self.reason)

    @property
    def reason(self) -> str:
        """The same words for the same death, whatever process it was: they go into results."""
        if self.silent_seconds is not None:
            return f"silent: no step ended within {self.silent_seconds:g} s, and the process was ended"
        if self.exit_code is not None and self.exit_code < 0:
            return f"crash: the game ended its process (signal {-self.exit_code})"
        return f"crash: the game ended its process (exit code {self.exit_code})"
