"""What an oracle is shown, and the interface of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from drivers.base import Observation
from drivers.errors import DriverError
from workers.findings import Event
from workers.look import Input
from workers.situation import Situations


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One step, unfiltered. `after` is None when the driver raised `error`; `listed` says whether the input was a move
    that the game listed at the moment it was sent."""

    step: int
    given: Input
    label: str
    before: Observation
    after: Observation | None
    status: str = "done"
    detail: str = ""
    listed: bool = False
    error: DriverError | None = None
    situations: Situations
    goal: Callable[[Observation], bool | None]


class Oracle(Protocol):
    """Judges a run step by step; keeps what it needs to remember, touches nothing."""

    name: str

    def at_start(self, observation: Observation) -> Iterable[Event]:
        """Judge the first observation of a session."""
        ...

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        """Judge a step."""
        ...


def first_line(text: str, limit: int = 120) -> str:
    """The first line of a text that says anything, cut."""
    for line in text.splitlines():
        if line.strip():
            return line.strip()[:limit]
    return ""
