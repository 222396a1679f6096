"""The interface of a brain: given the bytes of a look, it proposes one to three alternative inputs."""

from __future__ import annotations

import random
from typing import Protocol, runtime_checkable

import msgspec

from workers.contract import EndReason, Severity
from workers.look import Input

MAX_PROPOSALS = 3


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What the brain would do next: a label on offer, or with `typed` a line of its own; and why, in words."""

    label: str
    typed: bool = False
    why: str = ""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that the harness has found to be possible, with the input that it stands for."""

    label: str
    input: Input
    why: str = ""


class Brain(Protocol):
    """Keeps nothing between two looks: what a player may remember stands in the look."""

    name: str

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        """One to `MAX_PROPOSALS` alternatives, the best first; none when there is nothing left to do."""
        ...


class BrainEndedError(Exception):
    """The brain cannot or may not go on: the run ends with `reason`."""

    def __init__(self, reason: EndReason, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as a player words it; whether its evidence exists is judged by who issued it."""

    title: str
    category: str
    severity: Severity
    description: str
    evidence: tuple[str, ...] = ()


@runtime_checkable
class Reports(Protocol):
    """A brain that reports findings of its own."""

    def take_claims(self) -> list[Claim]:
        """Those since the last call."""
        ...
