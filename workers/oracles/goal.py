"""The goal cannot be reached any more: from here everything was tried, and it was never true."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts
from workers.situation import Situations


class UnreachableGoal:
    """Fires when the goal is known and never was true in the run, and from the present situation every listed move of
    every situation that can still be reached was tried.

    What can still be reached is what the moves seen so far lead to, without starting the session again. Situations
    differ by state, moves and text (numbers folded): telling two apart that are one only keeps this oracle silent.
    It is silent as well where it cannot be sure: when a move led to different situations (chance, or a state that is
    not told), at a place short of the best progress, at another player's turn, where a list of moves was cut, and in a
    single situation, which the soft-lock judges. Games that take free text are never judged: their inputs cannot be
    exhausted. A finished game is not judged either: an ending is no dead end.
    """

    name = "unreachable_goal"

    def __init__(self) -> None:
        self._untried: dict[str, set[str]] = {}
        self._ways: dict[str, dict[str, set[str]]] = {}
        self._history: list[tuple[Observation, str | None, Observation]] = []
        self._ticking: frozenset[str] = frozenset()
        self._best: float | None = None
        self._known = self._reached = self._told = self._spoilt = False

    def at_start(self, observation: Observation) -> Iterable[Event]:
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        before, after, action = facts.before, facts.after, facts.given.action
        if after is None:
            self._spoilt = True
            return
        for observation in (before, after):
            reached = facts.goal(observation)
            self._known = self._known or reached is not None
            self._reached = self._reached or reached is True
            self._spoilt = self._spoilt or observation.moves is None or any("moves" in part for part in observation.cut)
            if observation.progress is not None and (self._best is None or observation.progress > self._best):
                self._best = observation.progress
        if self._reached or self._spoilt or self._told:
            return
        move = action.move if action is not None and facts.listed else None
        self._history.append((before, move, after))
        if facts.situations.volatile() != self._ticking:
            # Situations are named anew once a counter is recognised: ways between the old names would never close.
            self._ticking = facts.situations.volatile()
            self._untried, self._ways = {}, {}
            for step in self._history:
                self._note(facts.situations, *step)
        else:
            self._note(facts.situations, before, move, after)
        if not self._known or after.done or (self._best is not None and (after.progress or 0.0) < self._best):
            return
        closed = self._closed(facts.situations.key(after))
        if len(closed) > 1:
            self._told = True
            yield Event(
                oracle=self.name,
                category="unreachable_goal",
                severity="major",
                title="The goal cannot be reached any more",
                description=f"From here {len(closed)} situations can be reached. Every listed move of each of them was"
                " tried, and the goal was never true.",
                message="goal never true, everything tried",
            )

    def _note(self, situations: Situations, before: Observation, move: str | None, after: Observation) -> None:
        here, there = situations.key(before), situations.key(after)
        for place, observation in ((here, before), (there, after)):
            if place not in self._untried:
                self._untried[place] = set() if observation.done else {m.id for m in observation.moves or ()}
                if not observation.done and not (observation.moves and observation.your_turn):
                    # Nothing that this player does decides what comes next: never exhausted.
                    self._untried[place].add("")
        if move is not None:
            self._untried[here].discard(move)
            self._ways.setdefault(here, {}).setdefault(move, set()).add(there)

    def _closed(self, here: str) -> set[str]:
        """The situations reachable from here when all of them are exhausted and predictable; else none."""
        seen, queue = {here}, [here]
        while queue:
            place = queue.pop()
            if self._untried[place]:
                return set()
            for places in self._ways.get(place, {}).values():
                if len(places) > 1:
                    return set()
                queue += places - seen
                seen |= places
        return seen
