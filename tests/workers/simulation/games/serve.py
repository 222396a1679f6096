"""A bridge around a game of `known.py`: `python serve.py GAME`. Answers everything it has read in one write."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
known: Any = importlib.import_module("known")


def main(game: str, sessions: int) -> None:
    open_sessions: dict[str, Any] = {}
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        answers = []
        for line in lines:
            message = json.loads(line)
            answers.append(
                {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, game, sessions, open_sessions)}
            )
        out = "".join(json.dumps(item) + "\n" for item in answers).encode()
        while out:
            out = out[os.write(1, out) :]


def answer(message: dict[str, Any], game: str, sessions: int, open_sessions: dict[str, Any]) -> dict[str, Any]:
    params = message["params"]
    if message["method"] == "initialize":
        return {"name": game, "version": "1", "protocol": 1, "sessions": sessions}
    if message["method"] == "reset":
        played = open_sessions[params["session"]] = known.GAMES[game]()
        turn: dict[str, Any] = played.reset(
            seed=int(params["seed"]), params=params.get("params", {}), strategy=params["strategy"]
        )
        return {**turn, "seed": params["seed"]}
    if message["method"] == "step":
        stepped: dict[str, Any] = open_sessions[params["session"]].step(params["action"])
        return stepped
    open_sessions.pop(params["session"], None)
    return {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
