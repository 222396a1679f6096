"""A rule of the game's own that its state hook reports as broken."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts


class Violations:
    """Fires once for each violation when it appears; one that stays listed is not repeated at every step."""

    name = "violation"

    def __init__(self) -> None:
        self._standing: frozenset[str] = frozenset()

    def at_start(self, observation: Observation) -> Iterable[Event]:
        self._standing = frozenset()
        yield from self._judge(observation, "at the start")

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        if facts.given.restart:
            self._standing = frozenset()
        if facts.after is not None:
            yield from self._judge(facts.after, f"after {facts.label!r}")

    def _judge(self, observation: Observation, when: str) -> Iterable[Event]:
        for violation in observation.violations:
            if violation in self._standing:
                continue
            yield Event(
                oracle=self.name,
                category="invariant",
                severity="major",
                title=f"A rule of the game is broken {when}: {violation[:100]}",
                description=f"The state hook lists: {violation[:1_000]}",
                message=violation,
                place=observation.scene or "",
            )
        self._standing = frozenset(observation.violations)
