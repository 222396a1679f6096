"""A bridge over TextWorld (PyPI `textworld`): generated quests, admissible commands as moves, the score as progress.

Arguments: the folder that keeps generated games (a game is made once for each seed). 5 rooms, 10 objects, quest of 5.
Reads JSON-RPC lines from standard input; text shown is the answer, then the room and what is carried.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

textworld: Any = importlib.import_module("textworld")
ROOMS, OBJECTS, QUEST_LENGTH = 5, 10, 5
_PROMPT = re.compile(r"\s*>\s*-= .*$", re.DOTALL)
_BANNER = re.compile(r"^[\s$|\\_/-]+$")


class Session:
    """One game in one interpreter of the z-machine."""

    def __init__(self, folder: Path, seed: int) -> None:
        path = folder / f"quest-{seed}.z8"
        if not path.exists():
            options = textworld.GameOptions()
            options.nb_rooms, options.nb_objects, options.quest_length = ROOMS, OBJECTS, QUEST_LENGTH
            options.seeds = seed
            options.path = str(path)
            textworld.make(options)
        wanted = textworld.EnvInfos(
            admissible_commands=True, description=True, inventory=True, score=True, max_score=True, won=True, lost=True
        )
        self.environment = textworld.start(str(path), wanted)
        self.seed = seed
        self.now: Any = self.environment.reset()
        self.done = False

    def step(self, command: str) -> None:
        self.now, _, self.done = self.environment.step(command)

    def turn(self) -> dict[str, Any]:
        now = self.now
        lines = [line for line in _PROMPT.sub("", now.feedback).splitlines() if not _BANNER.match(line)]
        answer = " ".join(" ".join(lines).split())
        room = _PROMPT.sub("", now.description or "").strip()
        text = "\n".join(part for part in (room, now.inventory or "", answer) if part)
        share = (now.score or 0) / max(now.max_score or 1, 1)
        turn: dict[str, Any] = {
            "state": {"score": now.score, "won": bool(now.won)},
            "text": text,
            "actions": [] if self.done else [{"id": c, "label": c} for c in sorted(now.admissible_commands)],
            "progress": share,
            "goal": bool(now.won),
            "done": bool(self.done),
            "seed": str(self.seed),
        }
        if self.done:
            turn["outcome"] = "won" if now.won else "lost"
        return turn


def answer(session: Session | None, folder: Path, request: dict[str, Any]) -> tuple[Session | None, dict[str, Any]]:
    """The session after a request, and the result or error."""
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return session, {"result": {"name": "TextWorld", "version": textworld.__version__, "protocol": 1}}
    if method == "reset":
        if session is not None:
            session.environment.close()
        session = Session(folder, int(params.get("seed", 1)))
        return session, {"result": session.turn()}
    if session is None:
        return None, {"error": {"code": -32011, "message": "unknown session"}}
    if method == "step":
        if session.done or params["action"] not in session.now.admissible_commands:
            return session, {"error": {"code": -32010, "message": "illegal action"}}
        session.step(params["action"])
        return session, {"result": session.turn()}
    session.environment.close()
    return None, {"result": {}}


def main() -> None:
    """Serve until the end of input. What the library prints must not reach the protocol's pipe."""
    pipe, sys.stdout = sys.stdout, sys.stderr
    folder = Path(sys.argv[1])
    session: Session | None = None
    for line in sys.stdin:
        request = json.loads(line)
        session, reply = answer(session, folder, request)
        pipe.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
        pipe.flush()


if __name__ == "__main__":
    main()
