"""A bridge whose game is a JSON file: rooms with texts, and moves that lead somewhere or go wrong.

{"start": name, "echo": bool, "rooms": {name: {"text", "moves": {id: {"label", "to", "does"}}, "progress", "goal",
"done", "outcome", "violations", "free": {command: room}, "state"}}}. `does` is one of crash, hang, exit, refuse, print,
shout, save, load, forget (a load that loses progress). A text may hold {turn}, the number of steps taken.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any


class Game:
    """The state of the one session."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.world = world
        self.begin("1")

    def begin(self, seed: str) -> None:
        self.room: str = self.world["start"]
        self.turns = 0
        self.saved: str | None = None
        self.seed = seed

    def turn(self) -> dict[str, Any]:
        room = self.world["rooms"][self.room]
        told: dict[str, Any] = {
            "state": room.get("state", {"room": self.room}),
            "text": room["text"].replace("{turn}", str(self.turns)),
            "done": bool(room.get("done")),
        }
        if self.world.get("counts"):
            told["state"] = {**told["state"], "turn": self.turns}
        if "free" not in room:
            moves = room.get("moves", {})
            told["actions"] = [{"id": key, "label": move.get("label", "")} for key, move in moves.items()]
        for key in ("progress", "goal", "outcome", "violations", "player"):
            if key in room:
                told[key] = room[key]
        if self.world.get("echo", True):
            told["seed"] = self.seed
        return told

    def step(self, action: str) -> bool:
        """Whether the action was legal."""
        room = self.world["rooms"][self.room]
        self.turns += 1
        if "free" in room:
            self.room = room["free"].get(action, self.room)
            return True
        move = room.get("moves", {}).get(action)
        if move is None or move.get("does") == "refuse":
            return False
        self.act(move)
        self.room = move.get("to", self.room)
        return True

    def act(self, move: dict[str, Any]) -> None:
        does = move.get("does")
        if does == "crash":
            raise RuntimeError(f"no such {move.get('label', 'thing')} at 0x7f{self.turns:04x}")
        if does == "hang":
            threading.Event().wait()
        if does == "exit":
            sys.exit(0)
        if does == "print":
            print("Traceback (most recent call last):", file=sys.stderr)
            print("ValueError: the map is upside down", file=sys.stderr, flush=True)
        if does == "shout":
            print("loading the next room", file=sys.stderr, flush=True)
        if does == "save":
            self.saved = self.room
        if does == "load" and self.saved is not None:
            move["to"] = self.saved
        if does == "forget":
            move["to"] = self.world["start"]


def main() -> None:
    """Serve until the end of input."""
    game = Game(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        reply: dict[str, Any] = {"result": {}}
        if method == "initialize":
            reply = {"result": {"name": "graph", "version": "1", "protocol": 1}}
        elif method == "reset":
            game.begin(str(params.get("seed", "1")))
            reply = {"result": game.turn()}
        elif method == "step":
            legal = game.step(params["action"])
            reply = {"result": game.turn()} if legal else {"error": {"code": -32010, "message": "that is not allowed"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
