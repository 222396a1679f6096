"""A bridge game without an end: every step goes on and makes progress, so that a run lasts until somebody stops it.

The file named by FINISH ends it: then the next step reaches the goal.
"""

import json
import os
import sys

MODES = sys.argv[1:]
FINISH = "finish.flag"


def name_of(step: int) -> str:
    """A place that was never seen before, in letters: numbers alone would be taken for a counter."""
    letters = ""
    while step or not letters:
        step, letter = divmod(step, 20)
        letters = "bcdfghjklmnpqrstvwxz"[letter] + "aeiou"[letter % 5] + letters
    return letters.capitalize()


def turn(step: int, seed: str | None) -> dict[str, object]:
    found: dict[str, object] = {
        "state": {"step": step}, "text": f"The road passes {name_of(step)}.", "progress": step,
        "actions": [{"id": "on", "label": "go on"}, {"id": "left", "label": "bear left"}], "done": False,
    }  # fmt: skip
    if seed is not None:
        found["seed"] = seed
    return found


def main() -> None:
    steps: dict[str, int] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        parameters = asked.get("params") or {}
        session = parameters.get("session", "")
        answer: dict[str, object] = {}
        if asked["method"] == "initialize":
            answer = {"name": "endless", "version": "1", "protocol": 1}
        elif asked["method"] == "reset":
            steps[session] = 0
            answer = turn(0, parameters.get("seed"))
        elif asked["method"] == "step":
            steps[session] += 1
            answer = turn(steps[session], None)
            if os.path.exists(FINISH):
                answer |= {"done": True, "goal": True, "outcome": "arrived", "actions": []}
            if "write" in MODES:
                with open("save.dat", "w") as file:
                    file.write(str(steps[session]))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}) + "\n")
        sys.stdout.flush()


main()
