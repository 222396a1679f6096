"""The Lamp Below as a bridge: one JSON-RPC message a line on standard input and output. Standard library only.

Run by the driver (bridge.json), or by hand: python3 bridge.py [--bugs crash,softlock,...|all] [--shift N]
"""

import argparse
import json
import os
import sys

from rules import BUGS, WORLD, Game, IllegalMoveError

MAX_SESSIONS = 8


class RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message


def read_seed(value: object) -> int:
    """A seed as decimal digits or an integer; without one the game draws its own."""
    if value is None:
        return int.from_bytes(os.urandom(8), "big")
    digits = str(value)
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**64:
        raise RefusedError(-32012, f"a seed is a whole number from 0 to 2^64-1, not {digits[:40]}")
    return int(digits)


class Bridge:
    def __init__(self, bugs: tuple, shift: int) -> None:
        self.bugs, self.shift = bugs, shift
        self.games: dict = {}

    def initialize(self, params: dict) -> dict:
        return {"name": WORLD["title"], "version": WORLD["version"], "protocol": 1, "sessions": MAX_SESSIONS}

    def reset(self, params: dict) -> dict:
        session = params.get("session")
        if session not in self.games and len(self.games) >= MAX_SESSIONS:
            raise RefusedError(-32000, f"at most {MAX_SESSIONS} sessions at once")
        seed = read_seed(params.get("seed"))
        wishes = params.get("params") or {}
        bugs = wishes.get("bugs", self.bugs)
        game = self.games[session] = Game(seed, bugs, wishes.get("shift", self.shift))
        return {**game.turn(), "seed": str(seed)}

    def step(self, params: dict) -> dict:
        game = self.games.get(params.get("session"))
        if game is None:
            raise RefusedError(-32011, f"there is no session {params.get('session')!r}")
        try:
            game.step(params.get("action"))
        except IllegalMoveError as refusal:
            raise RefusedError(-32010, f"not a move here: {refusal}") from refusal
        return game.turn()

    def close(self, params: dict) -> dict:
        if self.games.pop(params.get("session"), None) is None:
            raise RefusedError(-32011, f"there is no session {params.get('session')!r}")
        return {}

    def answer(self, request: dict) -> dict:
        methods = {"initialize": self.initialize, "reset": self.reset, "step": self.step, "close": self.close}
        try:
            if request.get("method") not in methods:
                raise RefusedError(-32601, f"unknown method {request.get('method')!r}")
            return {"result": methods[request["method"]](request.get("params") or {})}
        except RefusedError as refused:
            return {"error": {"code": refused.code, "message": refused.message}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bugs", default="", help=f"planted bugs, of {', '.join(BUGS)}, or all")
    parser.add_argument("--shift", type=int, default=0, help="moves two of the bugs to other gates")
    options = parser.parse_args()
    bugs = BUGS if options.bugs == "all" else tuple(filter(None, options.bugs.split(",")))
    unknown = [bug for bug in bugs if bug not in BUGS]
    if unknown:
        parser.error(f"no such bug: {', '.join(unknown)}; there are {', '.join(BUGS)}")
    bridge = Bridge(bugs, options.shift)
    for line in sys.stdin:
        request = json.loads(line)
        message = {"jsonrpc": "2.0", "id": request.get("id"), **bridge.answer(request)}
        sys.stdout.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    main()
