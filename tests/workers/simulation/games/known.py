"""Games of chance and choice whose right answers are known exactly; `serve.py` puts one on a pipe."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def listed(*names: object) -> list[dict[str, str]]:
    return [{"id": str(name)} for name in names]


class Seeded:
    """A game that draws from its seed, and from nothing else."""

    def __init__(self) -> None:
        self.dice = random.Random(0)
        self.params: Mapping[str, Any] = {}

    def reset(self, seed: int, params: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        self.dice = random.Random(seed)
        self.params = params
        return self.begin()

    def begin(self) -> dict[str, Any]:
        raise AssertionError("each game has its own beginning")

    def roll(self) -> int:
        return self.dice.randint(1, 6)


class TicTacToe(Seeded):
    def begin(self) -> dict[str, Any]:
        self.board = ["."] * 9
        self.mover = "x"
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        assert action is not None
        self.board[int(action)] = self.mover
        if any(all(self.board[place] == self.mover for place in line) for line in LINES):
            return {"state": "".join(self.board), "done": True, "outcome": "first" if self.mover == "x" else "second"}
        if "." not in self.board:
            return {"state": "".join(self.board), "done": True, "outcome": "draw"}
        self.mover = "o" if self.mover == "x" else "x"
        return self.turn()

    def turn(self) -> dict[str, Any]:
        free = [place for place in range(9) if self.board[place] == "."]
        return {"state": "".join(self.board), "player": self.mover, "actions": listed(*free), "done": False}


class Pig(Seeded):
    """Two players to 100. Each `step` is one decision; a roll of one loses the turn's points."""

    def begin(self) -> dict[str, Any]:
        self.scores = [0, 0]
        self.turn_points = 0
        self.mover = 0
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        if action == "roll":
            rolled = self.roll()
            if rolled == 1:
                self.turn_points = 0
                self.mover = 1 - self.mover
            else:
                self.turn_points += rolled
        else:
            self.scores[self.mover] += self.turn_points
            self.turn_points = 0
            if self.scores[self.mover] >= 100:
                outcome = ("first", "second")[self.mover]
                return {"state": self.scores, "done": True, "outcome": outcome, "metrics": {"margin": self.margin()}}
            self.mover = 1 - self.mover
        return self.turn()

    def margin(self) -> int:
        return abs(self.scores[0] - self.scores[1])

    def turn(self) -> dict[str, Any]:
        state = {"scores": list(self.scores), "points": self.turn_points, "mover": self.mover}
        player = ("first", "second")[self.mover]
        return {"state": state, "player": player, "actions": listed("roll", "hold"), "done": False}


class Craps(Seeded):
    def begin(self) -> dict[str, Any]:
        self.point = 0
        return {"state": 0, "actions": listed("roll"), "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        total = self.roll() + self.roll()
        outcome = None
        if self.point == 0:
            if total in (7, 11):
                outcome = "win"
            elif total in (2, 3, 12):
                outcome = "loss"
            else:
                self.point = total
        elif total == self.point:
            outcome = "win"
        elif total == 7:
            outcome = "loss"
        if outcome is not None:
            return {"state": [self.point, total], "done": True, "outcome": outcome}
        return {"state": [self.point, total], "actions": listed("roll"), "done": False}


class Risk(Seeded):
    """One battle of three dice against two."""

    def begin(self) -> dict[str, Any]:
        return {"state": None, "actions": listed("attack"), "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        attack = sorted((self.roll() for _ in range(3)), reverse=True)
        defence = sorted((self.roll() for _ in range(2)), reverse=True)
        lost = sum(ours <= theirs for ours, theirs in zip(attack, defence, strict=False))
        return {"state": [attack, defence], "done": True, "outcome": f"loses {lost}", "metrics": {"lost": lost}}


class FirstSix(Seeded):
    def begin(self) -> dict[str, Any]:
        self.mover = 0
        return {"state": 0, "actions": listed("roll"), "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        rolled = self.roll()
        if rolled == 6:
            return {"state": rolled, "done": True, "outcome": ("first", "second")[self.mover]}
        self.mover = 1 - self.mover
        return {"state": rolled, "actions": listed("roll"), "done": False}


class Ruin(Seeded):
    """From 10 to 0 or 20 at 18/38 a bet."""

    def begin(self) -> dict[str, Any]:
        self.money = 10
        return {"state": 10, "actions": listed("bet"), "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        self.money += 1 if self.dice.randrange(38) < 18 else -1
        if self.money in (0, 20):
            return {"state": self.money, "done": True, "outcome": "rich" if self.money else "ruined"}
        return {"state": self.money, "actions": listed("bet"), "done": False}


class Coin(Seeded):
    """One toss. Params: `bias`, the chance of heads, out of 1000. Metric `toss` 1 or 0."""

    def begin(self) -> dict[str, Any]:
        return {"state": "edge", "actions": listed("toss", "throw"), "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        bias = int(self.params.get("bias", 500))
        if action == "throw":
            bias += int(self.params.get("throw_bonus", 0))
        heads = self.dice.randrange(1000) < bias
        outcome = "heads" if heads else "tails"
        return {"state": [action, outcome], "done": True, "outcome": outcome, "metrics": {"toss": int(heads)}}


class Deaf(Seeded):
    """A walk with choices that has no chance in it and ignores its seed."""

    def begin(self) -> dict[str, Any]:
        self.place = 0
        self.moves = 0
        return self.turn()

    def step(self, action: str | None) -> dict[str, Any]:
        self.place += 1 if action == "right" else -1
        self.moves += 1
        return self.turn()

    def turn(self) -> dict[str, Any]:
        if self.moves == 6:
            return {"state": self.place, "done": True, "outcome": "right" if self.place > 0 else "left"}
        return {"state": self.place, "actions": listed("left", "right"), "done": False}


class Long(Seeded):
    """`params.steps` steps of a small state, for measuring."""

    def begin(self) -> dict[str, Any]:
        self.left = int(self.params.get("steps", 200))
        return {"state": self.left, "actions": ACTIONS, "done": False}

    def step(self, action: str | None) -> dict[str, Any]:
        self.left -= 1
        if self.left == 0:
            return {"state": 0, "done": True, "outcome": "end"}
        return {"state": self.left, "actions": ACTIONS, "done": False}


ACTIONS = listed("a", "b")

GAMES: dict[str, Callable[[], Any]] = {
    "tictactoe": TicTacToe,
    "pig": Pig,
    "craps": Craps,
    "risk": Risk,
    "first_six": FirstSix,
    "ruin": Ruin,
    "coin": Coin,
    "deaf": Deaf,
    "long": Long,
}


def hold_at_20(turn: Any, generator: random.Random) -> str:
    """Pig: hold with 20 points of this turn, or with enough to win."""
    state = turn.state
    enough = state["points"] >= 20 or state["scores"][state["mover"]] + state["points"] >= 100
    return "hold" if enough else "roll"
