"""The control arm: uniform over what is offered."""

from __future__ import annotations

import random

from workers.brains.base import MAX_PROPOSALS, Proposal
from workers.brains.menus import menu_of
from workers.brains.words import commands
from workers.look import RESTART_LABEL, read_look


class RandomBrain:
    """Draws among the offers with equal chances; starts again only when nothing else is offered.

    At a free-text prompt it draws among the numbers of the menu that the text lists, else among commands made of the
    text's words.
    """

    name = "random"

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        seen = read_look(look)
        scene = seen.scenes[-1]
        options = [Proposal(label=label) for label in scene.labels if label != RESTART_LABEL]
        if seen.free_text:
            lines = menu_of(scene.text).values() or commands(scene.text, seen.vocabulary)
            options += [Proposal(label=text, typed=True) for text in lines]
        if not options:
            options = [Proposal(label=label) for label in scene.labels]
        return tuple(rng.sample(options, min(MAX_PROPOSALS, len(options))))
