"""Orders that are played by a model on the test server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.workers.models.server import Asked, Said
from tests.workers.play.games import graph_settings, make_order
from workers.contract import PlayOrder
from workers.models.access import ModelAccess, ModelPrice, Provider

PROVIDERS: tuple[Provider, ...] = ("anthropic", "openai")
PRICE = ModelPrice(input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000)
"""Three dollars a million tokens of input, fifteen of output."""

ROOMS: dict[str, Any] = {
    "start": "hall",
    "rooms": {
        "hall": {"text": "A hall.", "moves": {"north": {"to": "cellar"}, "east": {"to": "attic"}}},
        "cellar": {"text": "A cellar.", "moves": {"south": {"to": "hall"}, "down": {"does": "crash"}}},
        "attic": {"text": "An attic.", "moves": {"west": {"to": "hall"}}},
    },
}


def access(url: str, provider: Provider = "anthropic", **changes: Any) -> ModelAccess:
    """A model of the test server, with a price."""
    found = ModelAccess(
        provider=provider, model="test-model", base_url=url, price=PRICE, max_output_tokens=500, call_seconds=10.0,
        official=False,
    )  # fmt: skip
    return msgspec.structs.replace(found, **changes)


def order_for(
    folder: Path, url: str, provider: Provider = "anthropic", *, world: dict[str, Any] | None = None, **changes: Any
) -> PlayOrder:
    """An order on a small world; `access_changes` go into the access."""
    folder.mkdir(parents=True, exist_ok=True)
    given = access(url, provider, **changes.pop("access_changes", {}))
    return make_order(
        graph_settings(world or ROOMS, folder), brain=provider, model="test-model", model_access=given,
        **{"max_actions": 4, **changes},
    )  # fmt: skip


def first_option(asked: Asked) -> Said:
    """Plays the first move on offer."""
    move = next(label for label in asked.options if label != "(start again)")
    return Said(calls=[("choose", {"label": move, "why": "it is first"})])


def spend_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "spend.jsonl").read_text().splitlines()]


def exchanges(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "exchanges.jsonl").read_text().splitlines()]
