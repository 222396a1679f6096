"""Games inside the pool's processes with one fault, in the games whose seed `is_faulty`."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Mapping
from typing import Any


def is_faulty(seed: int) -> bool:
    return seed % 3 == 0


class Faulty:
    """Three steps; `params.fault` happens at the second one of a faulty game."""

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        self.seed = seed
        self.fault = params["fault"] if is_faulty(seed) else ""
        self.place = 0
        return {"state": [0, seed % 1000], "actions": [{"id": "go"}], "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        self.place += 1
        if self.place == 2:
            self.misbehave()
        if self.place == 2 and self.fault == "no_turn":
            return {"done": "perhaps"}
        if self.place == 2 and self.fault == "not_json":
            return {"state": object(), "actions": [{"id": "go"}], "done": False}
        if self.place == 2 and self.fault == "nan":
            return {"state": 1, "actions": [{"id": "go"}], "done": False, "metrics": {"m": math.nan}}
        if self.place == 2 and self.fault == "stalemate":
            return {"state": 1, "actions": [], "done": False}
        if self.place == 3:
            return {"state": [3, self.seed % 1000], "done": True, "outcome": "end", "metrics": {"place": 3}}
        return {"state": [self.place, self.seed % 1000], "actions": [{"id": "go"}], "done": False}

    def misbehave(self) -> None:
        if self.fault == "raises":
            raise KeyError(f"sprite of {self!r}")
        if self.fault == "exits":
            raise SystemExit(4)
        if self.fault == "segfault":
            ctypes.string_at(0)
        if self.fault == "leaves":
            os._exit(7)
        if self.fault == "hangs":
            threading.Event().wait()


class Endless:
    """A game that never ends."""

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        self.place = 0
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        self.place += 1
        return self.turn()

    def turn(self) -> dict[str, Any]:
        return {"state": self.place, "actions": [{"id": "go"}], "done": False}
