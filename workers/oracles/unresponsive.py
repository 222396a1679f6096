"""The game gave no answer within the driver's limit."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from drivers.errors import GameUnresponsiveError
from workers.findings import Event
from workers.oracles.base import StepFacts, first_line


class Unresponsive:
    """Fires on `GameUnresponsiveError`."""

    name = "unresponsive"

    def at_start(self, observation: Observation) -> Iterable[Event]:
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        error = facts.error
        if isinstance(error, GameUnresponsiveError):
            yield Event(
                oracle=self.name,
                category="unresponsive",
                severity="critical",
                title=f"The game stopped answering on {facts.label!r}",
                description=str(error),
                message=f"{error.call} {facts.label}",
                place=facts.before.scene or first_line(facts.before.text),
                console=tuple(error.tail.splitlines()[-20:]),
            )
