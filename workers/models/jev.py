"""The controller `jev`: a second call of the model, with a short prompt of its own, picks one of the proposals.

The selector sees the objective, the persona's name, the observation, the proposals' labels and the recent actions.
Nothing that the brain said of its reasons reaches it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from workers.brains.base import BrainEndedError, Candidate
from workers.look import Effect, Scene
from workers.models.caller import Caller
from workers.models.conversation import Ask, Reply, Tool
from workers.models.fence import Fence

MAX_OBJECTIVE_CHARACTERS = 1_000
MAX_PROPOSAL_CHARACTERS = 300
MAX_OBSERVATION_CHARACTERS = 3_000
RECENT_ACTIONS = 8
SELECT_TOOL = "select"
MAX_SELECTOR_TOKENS = 1_024
_PASSED_THROUGH = ("wait", "note")
_ENDING_SELECTION = ("budget", "interrupted", "canceled", "wall_clock")


class Jev:
    """Falls back to the brain's first proposal when the selector fails or answers outside of them, and counts it."""

    name = "jev"

    def __init__(self, caller: Caller, *, persona_name: str, objective: str, fence: Fence, max_output: int) -> None:
        self._caller, self._persona, self._fence = caller, persona_name, fence
        self._objective = objective[:MAX_OBJECTIVE_CHARACTERS]
        self._max_output = min(MAX_SELECTOR_TOKENS, max_output)
        self._recent: deque[tuple[str, Effect]] = deque(maxlen=RECENT_ACTIONS)
        self.facts: Counter[str] = Counter(proposals_read=0, selections=0, fall_backs=0, other_than_first=0)

    async def choose(self, scene: Scene, proposals: Sequence[Candidate], rng: random.Random) -> Candidate:
        """One of `proposals`. Raises `BrainEndedError` where the run itself is over (budget, time, a wish)."""
        self.facts["proposals_read"] += len(proposals)
        first = proposals[0]
        if len(proposals) == 1 or (first.input.action is not None and first.input.action.kind in _PASSED_THROUGH):
            return first
        self.facts["selections"] += 1
        index = await self._selected(scene, proposals)
        if index is None or not 0 <= index < len(proposals):
            self.facts["fall_backs"] += 1
            return first
        self.facts["other_than_first"] += index > 0
        return proposals[index]

    def learn(self, scene: Scene, label: str, effect: Effect, after: Scene) -> None:
        self._recent.append((label, effect))

    async def _selected(self, scene: Scene, proposals: Sequence[Candidate]) -> int | None:
        try:
            reply = await self._caller.ask(self.ask(scene, proposals), "select")
        except BrainEndedError as error:
            if error.reason in _ENDING_SELECTION:
                raise
            return None
        return read_selection(reply)

    def ask(self, scene: Scene, proposals: Sequence[Candidate]) -> Ask:
        """The selector's whole prompt."""
        fence = self._fence
        recent = "\n".join(f"{label[:MAX_PROPOSAL_CHARACTERS]}: {effect}" for label, effect in self._recent)
        numbered = "\n".join(
            f"{number}. {proposal.label[:MAX_PROPOSAL_CHARACTERS]}" for number, proposal in enumerate(proposals, 1)
        )
        text = "\n\n".join(
            (
                f"Objective: {self._objective or 'play the game'}",
                f"Player: {self._persona}",
                "Done last, newest last:\n" + fence.around("recent", recent or "(nothing yet)"),
                "The screen:\n" + fence.around("screen", scene.text[:MAX_OBSERVATION_CHARACTERS]),
                "The proposals:\n" + fence.around("proposals", numbered),
                f"Call {SELECT_TOOL} with the number of the one proposal to be done now.",
            )
        )
        return Ask(
            system=(
                "You choose which of a few proposed inputs a game's tester makes next, so that the objective is met"
                f" and new parts of the game are seen. {fence.rule}"
            ),
            text=text,
            tools=(
                Tool(
                    name=SELECT_TOOL,
                    description="Choose one proposal by its number.",
                    schema={
                        "type": "object",
                        "properties": {"number": {"type": "integer", "minimum": 1, "maximum": len(proposals)}},
                        "required": ["number"],
                        "additionalProperties": False,
                    },
                ),
            ),
            max_output_tokens=self._max_output,
        )


def read_selection(reply: Reply) -> int | None:
    """The position of the selected proposal, counted from 0; None for an answer that selects nothing."""
    if len(reply.calls) != 1 or reply.calls[0].name != SELECT_TOOL or reply.stop == "length":
        return None
    try:
        number = msgspec.json.decode(reply.calls[0].arguments, type=dict[str, int]).get("number")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if number is None or isinstance(number, bool) else number - 1
