"""The Lamp Below for a person at a terminal: the same rules and planted bugs, as a text with a numbered menu.

Play it by hand with python3 terminal.py, or let it be played: coordinate run -- python3 terminal.py --seed {seed}
"""

import argparse
import os
import sys
import traceback

from rules import BUGS, WORLD, Game


class BrokenRuleError(Exception):
    """A rule of the game does not hold any more."""


def tell(game: Game) -> None:
    print(f"\n{game.text()}\n")
    for number, move in enumerate(game.moves(), start=1):
        print(f"{number:3}. {move['label']}")


def check(game: Game) -> None:
    """As a build for testers does: say loudly what is broken, and go on."""
    for violation in game.violations():
        try:
            raise BrokenRuleError(violation)
        except BrokenRuleError:
            traceback.print_exc()


def choose(game: Game, typed: str) -> str | None:
    """The move of a number or of a label that was typed; None where there is no such choice."""
    for number, move in enumerate(game.moves(), start=1):
        if typed in (str(number), move["label"]):
            return move["id"]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="which cave (one is drawn without it)")
    parser.add_argument("--bugs", default="", help=f"planted bugs, of {', '.join(BUGS)}, or all")
    parser.add_argument("--shift", type=int, default=0, help="moves two of the bugs to other gates")
    options = parser.parse_args()
    bugs = BUGS if options.bugs == "all" else tuple(filter(None, options.bugs.split(",")))
    seed = int.from_bytes(os.urandom(8), "big") if options.seed is None else options.seed
    game = Game(seed, bugs, options.shift)
    print(f"{WORLD['title']}\n{'=' * len(WORLD['title'])}")
    tell(game)
    while game.outcome is None:
        try:
            typed = input("> ").strip()
        except EOFError:
            print()
            return
        move = choose(game, typed)
        if move is None:
            print("There is no such choice.")
        else:
            game.step(move)
            check(game)
        tell(game)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()
