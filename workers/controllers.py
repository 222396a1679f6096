"""Controllers: which of a brain's proposals is done."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from workers.brains.base import Candidate
from workers.look import Effect, Scene

CONTROLLERS = ("standard", "jev", "rune")
MAX_FALL_BACK_SHARE = 0.2
"""Above this share of fall-backs among selections the run is partial."""

_WEIGHT: dict[Effect, float] = {"changed": 1.0, "ended": 1.0, "restarted": 0.0, "nothing": 0.0, "refused": -0.5}


class ControllerError(ValueError):
    """`name` cannot steer `brain`; `why` says the reason and what to do."""

    def __init__(self, name: str, brain: str, why: str) -> None:
        self.name, self.brain, self.why = name, brain, why
        super().__init__(f"controller {name!r} with brain {brain!r}: {why}")


class Controller(Protocol):
    """Chooses among proposals and learns what came of it."""

    name: str
    facts: Counter[str]

    async def choose(self, scene: Scene, proposals: Sequence[Candidate], rng: random.Random) -> Candidate: ...

    def learn(self, scene: Scene, label: str, effect: Effect, after: Scene) -> None: ...


class Standard:
    """Does what the brain would do first."""

    name = "standard"

    def __init__(self) -> None:
        self.facts: Counter[str] = Counter(proposals_read=0, selections=0, fall_backs=0)

    async def choose(self, scene: Scene, proposals: Sequence[Candidate], rng: random.Random) -> Candidate:
        self.facts["proposals_read"] += len(proposals)
        return proposals[0]

    def learn(self, scene: Scene, label: str, effect: Effect, after: Scene) -> None:
        """Nothing to learn: the brain's first choice stands."""


class Rune:
    """Takes the proposal least tried in this state, then the one with the largest effect so far; ties by seed."""

    name = "rune"

    def __init__(self) -> None:
        self.facts: Counter[str] = Counter(proposals_read=0, selections=0, fall_backs=0)
        self._tried: Counter[tuple[Scene, str]] = Counter()
        self._effects: dict[str, list[float]] = {}
        self._seen: set[str] = set()

    async def choose(self, scene: Scene, proposals: Sequence[Candidate], rng: random.Random) -> Candidate:
        self.facts["proposals_read"] += len(proposals)
        first = proposals[0]
        if len(proposals) == 1 or (first.input.action is not None and first.input.action.kind in ("wait", "note")):
            return first
        self.facts["selections"] += 1
        index = self.select(scene, [proposal.label for proposal in proposals], rng)
        if not 0 <= index < len(proposals):
            # A selector that answers outside the proposals must not stop the run, and must not pass unseen.
            self.facts["fall_backs"] += 1
            return first
        return proposals[index]

    def select(self, scene: Scene, labels: Sequence[str], rng: random.Random) -> int:
        """The position of the chosen label."""
        ranked = [(self._tried[(scene, label)], -self._mean(label), rng.random(), i) for i, label in enumerate(labels)]
        return min(ranked)[3]

    def learn(self, scene: Scene, label: str, effect: Effect, after: Scene) -> None:
        self._tried[(scene, label)] += 1
        lines = {line for line in after.text.splitlines() if line.strip()}
        new = len(lines - self._seen)
        self._seen |= lines
        self._effects.setdefault(label, []).append(_WEIGHT[effect] + min(new, 10) / 10)

    def _mean(self, label: str) -> float:
        past = self._effects.get(label)
        return sum(past) / len(past) if past else 0.0


def make_controller(name: str, brain: str, select: Callable[[], Controller] | None = None) -> Controller:
    """A controller by name; `select` makes the one that asks the brain's model.

    Raises `ControllerError` for an unknown one, and for `jev` with a brain without a model.
    """
    if name == "standard":
        return Standard()
    if name == "rune":
        return Rune()
    if name == "jev" and select is not None:
        return select()
    if name == "jev":
        raise ControllerError(
            name, brain, "jev is a second model call, and this brain has no model; use standard or rune"
        )
    raise ControllerError(name, brain, f"there is no such controller; use one of {', '.join(CONTROLLERS)}")
