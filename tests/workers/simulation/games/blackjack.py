"""Gymnasium's blackjack with a dealer who stands on 16, and the policy that sticks on 20."""

from __future__ import annotations

import importlib
import random
from typing import Any


def stick_on_20(turn: Any, generator: random.Random) -> str:
    return "0" if int(turn.state[0]) >= 20 else "1"


class LenientBlackjack:
    """The registered environment, but for the end of the dealer's hand."""

    def __init__(self) -> None:
        self.rules: Any = importlib.import_module("gymnasium.envs.toy_text.blackjack")
        self.table: Any = self.rules.BlackjackEnv(sab=True)

    def reset(self, seed: int, params: Any, strategy: str) -> dict[str, Any]:
        observation, _ = self.table.reset(seed=seed)
        return {"state": list(observation), "actions": [{"id": "0"}, {"id": "1"}], "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        if action == "1":
            observation, reward, done, _, _ = self.table.step(1)
        else:
            observation, reward, done = None, self.judge(), True
        if done:
            return {"state": observation, "done": True, "outcome": "end", "metrics": {"return": float(reward)}}
        return {"state": list(observation), "actions": [{"id": "0"}, {"id": "1"}], "done": False}

    def judge(self) -> float:
        rules, table = self.rules, self.table
        while rules.sum_hand(table.dealer) < 16:
            table.dealer.append(rules.draw_card(table.np_random))
        if rules.is_natural(table.player) and not rules.is_natural(table.dealer):
            return 1.0
        return float(rules.cmp(rules.score(table.player), rules.score(table.dealer)))
