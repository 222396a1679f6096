"""Leduc hold'em of rlcard as a Python game; its two seats are the players."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


class Leduc:
    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        rlcard: Any = importlib.import_module("rlcard")
        self.environment = rlcard.make("leduc-holdem", config={"seed": seed % 2**32})
        state, player = self.environment.reset()
        return self.turn(state, player)

    def step(self, action: str | None) -> dict[str, Any]:
        names = self.environment.actions
        state, player = self.environment.step(names.index(action))
        if self.environment.is_over():
            chips = float(self.environment.get_payoffs()[0])
            outcome = "first" if chips > 0 else "second" if chips < 0 else "draw"
            return {
                "state": self.environment.get_perfect_information(),
                "done": True,
                "outcome": outcome,
                "metrics": {"chips": chips},
            }
        return self.turn(state, player)

    def turn(self, state: Any, player: int) -> dict[str, Any]:
        actions = [{"id": str(name)} for name in state["raw_legal_actions"]]
        return {
            "state": self.environment.get_perfect_information(),
            "player": str(player),
            "actions": actions,
            "done": False,
        }
