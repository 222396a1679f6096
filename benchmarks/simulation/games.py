"""The games that are measured: long ones for the cost of a step, short ones for the cost of a game."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

ACTIONS = [{"id": "a"}, {"id": "b"}]


class Counter:
    """`params.steps` steps of a small state."""

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        self.left = params["steps"]
        return {"state": self.left, "actions": ACTIONS, "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        self.left -= 1
        if self.left:
            return {"state": self.left, "actions": ACTIONS, "done": False}
        return {"state": 0, "done": True, "outcome": "end"}


def bare_counter(games: int, steps: int) -> float:
    """Seconds of processor time for the bare loop over `Counter`."""
    game, generator, params = Counter(), random.Random(1), {"steps": steps}
    began = time.process_time()
    for seed in range(games):
        turn = game.reset(seed, params, "")
        while not turn["done"]:
            turn = game.step(turn["actions"][generator.getrandbits(1)]["id"])
    return time.process_time() - began


def bare_blackjack(games: int) -> tuple[float, int]:
    """Seconds of processor time, and steps, of the bare loop over Blackjack-v1 with a seed for each game."""
    import importlib

    gymnasium: Any = importlib.import_module("gymnasium")
    environment = gymnasium.make("Blackjack-v1", disable_env_checker=True)
    generator = random.Random(1)
    steps = 0
    began = time.process_time()
    for seed in range(games):
        environment.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = environment.step(generator.getrandbits(1))
            done = terminated or truncated
            steps += 1
    return time.process_time() - began, steps


def bare_wall(games: int, steps: int) -> float:
    """Wall seconds of the bare loop, as a piece of work for a pool."""
    began = time.monotonic()
    bare_counter(games, steps)
    return time.monotonic() - began
