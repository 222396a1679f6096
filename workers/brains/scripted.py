"""A brain with a price: plays as `random` does, and every input it proposes uses up the run's budget.

For tests and rehearsals of what a paid campaign does (quote, hold, interrupt, resume, settle) without any provider:
nobody is paid, but the price is booked as if somebody were.
"""

from __future__ import annotations

import random

from workers.brains.base import Proposal
from workers.brains.random import RandomBrain
from workers.contract import SCRIPTED_PREFIX
from workers.purse import Purse


class ScriptedBrain:
    """`scripted:PRICE`, PRICE in millionths of a dollar for each input."""

    def __init__(self, name: str, purse: Purse) -> None:
        self.name, self._purse, self._player = name, purse, RandomBrain()

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        # Booked before the call, as with a provider: whoever dies in between has spent it.
        self._purse.spend()
        return await self._player.propose(look, rng)


def is_scripted(name: str) -> bool:
    """Whether a brain's name is of this kind."""
    return name.startswith(SCRIPTED_PREFIX)
