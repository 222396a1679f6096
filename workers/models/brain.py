"""A language model as a brain: it is shown a look, and what it calls becomes proposals, findings and notes."""

from __future__ import annotations

import random
from typing import NoReturn

from workers.brains.base import BrainEndedError, Claim, Proposal
from workers.look import Look, read_look
from workers.models.access import Provider
from workers.models.answers import Answer, read_answer
from workers.models.caller import Caller
from workers.models.conversation import Ask, Picture, Reply
from workers.models.prompt import MAX_NOTES, PromptMaker
from workers.personas import Persona


class ModelBrain:
    """Plays as `persona`. What it may remember stands in the look; its own notes fade with the persona's memory.

    `propose` raises `BrainEndedError`: `model_fault` after one repair, `model_refused`, `budget`, `gave_up`.
    """

    def __init__(
        self, provider: Provider, *, persona: Persona, caller: Caller, prompts: PromptMaker, alternatives: bool
    ) -> None:
        self.name: str = provider
        self.caller = caller
        self._persona, self._prompts, self._alternatives = persona, prompts, alternatives
        self._notes: list[tuple[int, str]] = []
        self._claims: list[Claim] = []
        self._picture: Picture | None = None

    def see(self, picture: Picture | None) -> None:
        """The picture of the next look, already as this player's senses take it in; None where there is none."""
        self._picture = picture

    def take_claims(self) -> list[Claim]:
        """The findings that were reported since the last call; whether their evidence exists is not checked here."""
        claims, self._claims = self._claims, []
        return claims

    async def close(self) -> None:
        await self.caller.close()

    async def propose(self, look: bytes, rng: random.Random) -> tuple[Proposal, ...]:
        seen = read_look(look)
        self.caller.step = seen.step + 1
        answer = await self._answered(seen, "play", "")
        if answer.complaint:
            self.caller.facts["repairs"] += 1
            complaint = answer.complaint
            answer = await self._answered(seen, "repair", complaint)
            if answer.complaint:
                raise BrainEndedError("model_fault", f"two answers could not be used: {complaint} {answer.complaint}")
        self._notes = (self._notes + [(seen.step, note) for note in answer.notes])[-MAX_NOTES:]
        if answer.given_up is not None:
            raise BrainEndedError("gave_up", f"the player stopped: {answer.given_up}")
        self.caller.facts["proposals_told"] += answer.read
        return answer.proposals

    async def _answered(self, seen: Look, purpose: str, complaint: str) -> Answer:
        ask = self._prompts.ask(seen, notes=self._kept_notes(seen), complaint=complaint, picture=self._picture)
        reply = await self.caller.ask(ask, purpose)
        if reply.stop == "refusal":
            _refused(reply)
        answer = read_answer(reply, seen, alternatives=self._alternatives, tools=_names(ask))
        known = {claim.title.casefold() for claim in self._claims}
        self._claims += [claim for claim in answer.claims if claim.title.casefold() not in known]
        return answer

    def _kept_notes(self, seen: Look) -> list[str]:
        memory = self._persona.limits.memory_steps
        self._notes = [(step, note) for step, note in self._notes if seen.step - step <= memory]
        return [note for _, note in self._notes]


def _refused(reply: Reply) -> NoReturn:
    raise BrainEndedError("model_refused", reply.refusal or "the model refused")


def _names(ask: Ask) -> tuple[str, ...]:
    return tuple(tool.name for tool in ask.tools)
