"""Puts a player with a model together: wire, transport, budget, back-off, brain, and the controller that asks again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from workers.contract import PlayOrder
from workers.controllers import Controller
from workers.models.access import ModelAccess
from workers.models.brain import ModelBrain
from workers.models.caller import Bounds, Caller
from workers.models.conversation import Wire
from workers.models.exchanges import Exchanges
from workers.models.fence import Fence
from workers.models.jev import Jev
from workers.models.pause import PAUSE_NAME, SharedPause
from workers.models.prompt import PromptMaker
from workers.models.purse import CallPurse
from workers.models.transport import Transport
from workers.models.wire_anthropic import AnthropicWire
from workers.models.wire_openai import OpenAIWire
from workers.personas import Persona

PROPOSING = ("jev", "rune")
"""Controllers that choose among alternatives."""


class ModelPlayer(msgspec.Struct, kw_only=True):
    """A brain, and how its controller is made where that asks the model itself."""

    brain: ModelBrain
    select: Callable[[], Controller]


def wire_of(access: ModelAccess) -> Wire:
    """The spelling of the provider."""
    return AnthropicWire(access) if access.provider == "anthropic" else OpenAIWire(access)


def open_model_player(
    order: PlayOrder, persona: Persona, *, folder: Path, key: str | None, purse: CallPurse, bounds: Bounds
) -> ModelPlayer:
    """The player of an order that has a `model_access`; `folder` is the run's. Whoever opens it closes its brain."""
    access = order.model_access
    assert access is not None, "an order without a model is opened by the registry of brains"
    wire, fence = wire_of(access), Fence()
    caller = Caller(
        wire=wire,
        transport=Transport(access, wire, key),
        purse=purse,
        # Beside the folders of all runs of the batch: both lanes see it.
        pause=SharedPause(folder.parent / PAUSE_NAME),
        bounds=bounds,
        exchanges=Exchanges(folder),
        rng=random.Random(f"playlane/back-off/1/{folder.name}"),
    )
    alternatives = order.controller in PROPOSING
    brain = ModelBrain(
        access.provider,
        persona=persona,
        caller=caller,
        prompts=PromptMaker(
            persona, alternatives=alternatives, max_output_tokens=access.max_output_tokens, fence=fence
        ),
        alternatives=alternatives,
    )

    def select() -> Controller:
        told = [*order.brief.goals, order.brief.success, order.brief.controls, order.brief.start]
        return Jev(
            caller,
            persona_name=persona.name,
            objective="; ".join(part for part in told if part),
            fence=fence,
            max_output=access.max_output_tokens,
        )

    return ModelPlayer(brain=brain, select=select)
