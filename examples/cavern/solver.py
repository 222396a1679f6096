"""Shortest paths through The Lamp Below by breadth-first search over its own rules; makes planted.json.

python3 solver.py prints, for seeds 1 to 5 and some shifts, the shortest inputs at which each planted bug begins: the
first turn, refusal or crash that differs from the game without it, or the move that locks the game; and the shortest
way to the goal.
"""

import copy
import json
import sys
from collections import deque
from collections.abc import Callable

from rules import BUGS, Game, IllegalMoveError, choose_gates

SEEDS = (1, 2, 3, 4, 5)
SHIFTS = (0, 1, 2, 4, 8)


def tell(game: Game, move: str) -> str:
    """Play a move; what can be seen of it: the turn, or that the game refused or broke."""
    try:
        game.step(move)
    except IllegalMoveError:
        return "illegal"
    except RuntimeError as error:
        return f"crash: {error}"
    told = game.turn()
    told.pop("metrics", None)  # counts turns, which would make every situation a new one
    return json.dumps(told, sort_keys=True)


def search(seed: int, bugs: tuple, shift: int, found: Callable) -> list | None:
    """The shortest list of moves after which `found(seen, seen_without_bugs, game)` holds; None when nothing does."""
    start = (Game(seed, bugs, shift), Game(seed, (), shift), [])
    queue, known = deque([start]), set()
    while queue:
        game, plain, moves = queue.popleft()
        for move in [listed["id"] for listed in game.moves()]:
            next_game, next_plain = copy.copy(game), copy.copy(plain)
            seen, seen_plain = tell(next_game, move), tell(next_plain, move)
            if found(seen, seen_plain, next_game):
                return [*moves, move]
            key = (seen, json.dumps(next_game.saved), next_game.best)
            if key not in known:
                known.add(key)
                queue.append((next_game, next_plain, [*moves, move]))
    return None


def first_difference(seed: int, bug: str, shift: int) -> list | None:
    """The soft-lock shows a move later than it begins: its gate is the move that begins it."""
    return search(seed, (bug,), shift, lambda seen, plain, game: seen != plain or game.stuck)


def way_to_goal(seed: int, bugs: tuple = ()) -> list | None:
    return search(seed, bugs, 0, lambda seen, plain, game: game.outcome == "lamp")


def main() -> None:
    planted: dict = {"about": "shortest inputs that show each planted bug; made by solver.py", "shifts": {}}
    for shift in SHIFTS:
        rows: dict = {}
        for bug in BUGS:
            inputs = {str(seed): first_difference(seed, bug, shift) for seed in SEEDS}
            rows[bug] = {"gate": choose_gates(shift)[bug], "depth": len(inputs["1"] or []), "inputs": inputs}
        planted["shifts"][str(shift)] = rows
    planted["goal"] = {str(seed): way_to_goal(seed) for seed in SEEDS}
    json.dump(planted, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
