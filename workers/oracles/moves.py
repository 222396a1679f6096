"""The list of legal moves is wrong: empty on your turn, or it lists what the game then refuses."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts, first_line


class EmptyMoves:
    """Fires when the game lists no legal move though it goes on and it is this player's turn."""

    name = "empty_moves"

    def at_start(self, observation: Observation) -> Iterable[Event]:
        yield from self._judge(observation, "at the start")

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        if facts.after is not None:
            yield from self._judge(facts.after, f"after {facts.label!r}")

    def _judge(self, observation: Observation, when: str) -> Iterable[Event]:
        if observation.moves is None or observation.moves or observation.done or not observation.your_turn:
            return
        yield Event(
            oracle=self.name,
            category="soft_lock",
            severity="critical",
            title=f"No legal move {when}, though it is the player's turn",
            description="The game has not ended, it is the player's turn, and the list of legal moves is empty.",
            message="empty list of moves",
            place=observation.scene or first_line(observation.text),
        )


class IllegalListedMove:
    """Fires when a move is refused as illegal though the game listed it. A move that was not listed is not judged."""

    name = "illegal_move"

    def at_start(self, observation: Observation) -> Iterable[Event]:
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        if facts.status == "illegal" and facts.listed:
            yield Event(
                oracle=self.name,
                category="illegal_move",
                severity="major",
                title=f"The listed move {facts.label!r} is refused as illegal",
                description=f"The game listed it as legal and answered: {facts.detail[:400] or 'illegal action'}",
                message=f"listed move {facts.label} refused",
                place=facts.before.scene or "",
            )
