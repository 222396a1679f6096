"""The goal cannot be reached: everything that could be tried was tried, and it was never true."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts
from workers.situation import Situations


class UnreachableGoal:
    """Fires when the goal is known and never was true, and every listed move of every reached situation was tried.

    Games that take free text are never judged: their inputs cannot be exhausted. Nor are runs in which a situation
    ended by a crash, since what lies behind it stays unknown.
    """

    name = "unreachable_goal"

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}
        self._tried: dict[str, set[str]] = {}
        self._open = 0
        self._history: list[tuple[Observation, str | None]] = []
        self._ticking: frozenset[str] = frozenset()
        self._known = self._reached = self._told = self._spoilt = False

    def at_start(self, observation: Observation) -> Iterable[Event]:
        self._history.append((observation, None))
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        after = facts.after
        action = facts.given.action
        if after is None:
            self._spoilt = True
            return
        for observation in (facts.before, after):
            reached = facts.goal(observation)
            self._known = self._known or reached is not None
            self._reached = self._reached or reached is True
            self._spoilt = self._spoilt or observation.moves is None
        if self._reached or self._spoilt or self._told:
            return
        entry = (facts.before, action.move if action is not None and facts.listed else None)
        self._history += [entry, (after, None)]
        if facts.situations.volatile() != self._ticking:
            # Situations are named anew once a counter is recognised: counts under the old names would never fill.
            self._ticking = facts.situations.volatile()
            self._listed, self._tried, self._open = {}, {}, 0
            for observation, move in self._history:
                self._note(facts.situations, observation, move)
        else:
            self._note(facts.situations, *entry)
            self._note(facts.situations, after, None)
        if self._known and self._open == 0 and len(self._listed) > 1:
            self._told = True
            yield Event(
                oracle=self.name,
                category="unreachable_goal",
                severity="major",
                title="The goal cannot be reached",
                description=f"Every listed move of all {len(self._listed)} situations that can be reached was tried,"
                " and the goal was never true.",
                message="goal never true, everything tried",
            )

    def _note(self, situations: Situations, observation: Observation, move: str | None) -> None:
        place = situations.place(observation)
        if place not in self._listed:
            moves = frozenset() if observation.done else frozenset(m.id for m in observation.moves or ())
            self._listed[place], self._tried[place] = moves, set()
            self._open += len(moves)
        if move is not None and move in self._listed[place] and move not in self._tried[place]:
            self._tried[place].add(move)
            self._open -= 1
