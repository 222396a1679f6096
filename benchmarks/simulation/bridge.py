"""A bridge as people write them: `json`, one answer a request, everything it has read answered in one write.

`python bridge.py STEPS SESSIONS`: games of so many steps.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main(steps: int, sessions: int) -> None:
    places: dict[str, int] = {}
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        answers = []
        for line in lines:
            message = json.loads(line)
            result = answer(message["method"], message["params"], places, steps, sessions)
            answers.append(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        os.write(1, ("\n".join(answers) + "\n").encode() if answers else b"")


def answer(method: str, params: dict[str, Any], places: dict[str, int], steps: int, sessions: int) -> dict[str, Any]:
    if method == "initialize":
        return {"name": "counter", "version": "1", "protocol": 1, "sessions": sessions}
    if method == "close":
        return {}
    session = params["session"]
    place = places[session] = 0 if method == "reset" else places[session] + 1
    turn: dict[str, Any] = {"state": {"place": place}, "done": place == steps}
    if place == steps:
        turn["outcome"] = "end"
    else:
        turn["actions"] = [{"id": "a"}, {"id": "b"}]
    if method == "reset":
        turn["seed"] = params["seed"]
    return turn


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
