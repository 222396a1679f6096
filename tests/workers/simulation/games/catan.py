"""A short game of catanatron between its own random players; the same seed plays differently in another process."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from typing import Any

TURNS = 60


class Catan:
    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        catanatron: Any = importlib.import_module("catanatron")
        random.seed(seed)
        colour = catanatron.Color
        players = [catanatron.RandomPlayer(one) for one in (colour.RED, colour.BLUE, colour.WHITE, colour.ORANGE)]
        self.game = catanatron.Game(players, seed=seed)
        self.ticks = 0
        self.seed = seed
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        self.game.play_tick()
        self.ticks += 1
        return self.turn()

    def turn(self) -> dict[str, Any]:
        done = self.ticks >= TURNS or self.game.winning_color() is not None
        records = getattr(self.game.state, "actions", None) or getattr(self.game.state, "action_records", [])
        last = str(records[-1]) if records else "begin"
        if done:
            # The outcome is the last record, so that different games show different outcomes and all are kept.
            return {"state": last, "done": True, "outcome": f"{self.seed} {last}"}
        return {"state": last, "actions": [{"id": "tick"}], "done": False}
