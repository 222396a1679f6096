"""A soft-lock: the game goes on and lists moves, but none of them has any effect."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts, first_line
from workers.situation import folded

MIN_TRIES = 4


class SoftLock:
    """Fires when, without any effect in between, each listed move was tried and answered with nothing new.

    An effect is a changed state (values that tick at every step aside), other moves, or a changed text. A move that is
    answered with a text of its own has to be tried again and be answered alike: a refusal in words is no effect. Games that ended, and turns of another
    player, are never judged; nor are fewer than `MIN_TRIES` inputs, so that one press of the only key is no soft-lock.
    """

    name = "soft_lock"

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, observation: Observation | None) -> None:
        self._entry = observation
        self._quiet: set[str] = set()
        self._answers: dict[str, str] = {}
        self._tries = 0
        self._told = False

    def at_start(self, observation: Observation) -> Iterable[Event]:
        self._begin(observation)
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        after, action = facts.after, facts.given.action
        if after is None or facts.given.restart:
            self._begin(after)
            return
        if (
            after.done
            or not after.your_turn
            or not after.moves
            or self._entry is None
            or facts.status != "done"
            or not facts.situations.same(facts.before, after)
        ):
            self._begin(after)
            return
        if action is None or action.move is None or not facts.listed:
            return
        self._tries += 1
        text = folded(after.text)
        if text in (folded(facts.before.text), self._answers.get(action.move)):
            self._quiet.add(action.move)
        else:
            self._quiet.discard(action.move)
        self._answers[action.move] = text
        if self._told or self._tries < MIN_TRIES or not {move.id for move in after.moves} <= self._quiet:
            return
        self._told = True
        labels = sorted(move.label or move.id for move in after.moves)
        yield Event(
            oracle=self.name,
            category="soft_lock",
            severity="critical",
            title=f"Stuck: none of the {len(labels)} listed moves has any effect",
            description="Each listed move was tried here and changed neither the state nor the text: "
            + ", ".join(labels)[:1_000],
            message="no listed move has an effect: " + ", ".join(labels),
            place=after.scene or first_line(folded(self._entry.text)),
        )
