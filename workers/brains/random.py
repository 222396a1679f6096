"""The control arm: uniform over what is offered."""

from __future__ import annotations

import random

from drivers.base import Action
from workers.brains.base import MAX_PROPOSALS, Proposal
from workers.brains.words import commands
from workers.look import Input, read_look


class RandomBrain:
    """Draws among the offers with equal chances; starts again only when nothing else is offered.

    At a free-text prompt it draws among the same commands that `offline` would consider.
    """

    name = "random"

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        seen = read_look(look)
        options = [Proposal(input=offer.input, label=offer.label) for offer in seen.offers if not offer.input.restart]
        if seen.free_text:
            options += [
                Proposal(input=Input(action=Action(kind="command", text=text)), label=text)
                for text in commands(seen.scenes[-1].text, seen.vocabulary)
            ]
        if not options:
            options = [Proposal(input=offer.input, label=offer.label) for offer in seen.offers]
        return tuple(rng.sample(options, min(MAX_PROPOSALS, len(options))))
