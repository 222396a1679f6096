"""Pig, a dice game for two, as a Python game for simulations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

PLAYERS = ("first", "second")
CHOICES = [{"id": "roll", "label": "roll the die"}, {"id": "hold", "label": "keep the points"}]


class Pig:
    """One game at a time. All randomness comes from the seed that `reset` is given."""

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        self.die = random.Random(seed)
        self.goal = params.get("goal", 100)
        self.scores = [0, 0]
        self.points = 0
        self.mover = 0
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        if action == "roll":
            rolled = self.die.randint(1, 6)
            self.points = 0 if rolled == 1 else self.points + rolled
            if rolled == 1:
                self.mover = 1 - self.mover
        else:
            self.scores[self.mover] += self.points
            self.points = 0
            if self.scores[self.mover] >= self.goal:
                return self.end()
            self.mover = 1 - self.mover
        return self.turn()

    def turn(self) -> dict[str, Any]:
        state = {"scores": list(self.scores), "points": self.points, "mover": self.mover, "goal": self.goal}
        return {"state": state, "player": PLAYERS[self.mover], "actions": CHOICES, "done": False}

    def end(self) -> dict[str, Any]:
        margin = abs(self.scores[0] - self.scores[1])
        state = {"scores": list(self.scores), "points": 0, "mover": self.mover, "goal": self.goal}
        return {"state": state, "done": True, "outcome": PLAYERS[self.mover], "metrics": {"margin": margin}}


def hold_at_20(turn: Any, generator: random.Random) -> str:
    return _hold_at(turn.state, 20)


def hold_at_10(turn: Any, generator: random.Random) -> str:
    return _hold_at(turn.state, 10)


def _hold_at(state: Mapping[str, Any], points: int) -> str:
    wins = state["scores"][state["mover"]] + state["points"] >= state["goal"]
    return "hold" if wins or state["points"] >= points else "roll"
