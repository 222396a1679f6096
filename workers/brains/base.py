"""The interface of a brain: given the bytes of a look, it proposes one to three alternative inputs."""

from __future__ import annotations

import random
from typing import Protocol

import msgspec

from workers.look import Input

MAX_PROPOSALS = 3


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """An input that the brain would make next, the label it goes by, and in a few words why."""

    input: Input
    label: str
    why: str = ""


class Brain(Protocol):
    """Keeps nothing between two looks: what a player may remember stands in the look."""

    name: str

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        """One to `MAX_PROPOSALS` alternatives, the best first; none when there is nothing left to do."""
        ...
