"""What kind of game lies in a folder, and the first `playlane.toml` for it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from coordinator.files import read_users_file

MAX_FOLDERS = 400
MAX_DEPTH = 3
MAX_BRIDGE_BYTES = 64_000
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "dist", "build"})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A game that was found. `what` are words for people."""

    kind: Literal["bridge", "godot", "web"]
    path: Path
    what: str


def find_games(root: Path) -> list[Finding]:
    """Bridge files, Godot projects and web pages at most `MAX_DEPTH` folders down; bridges first, then by depth."""
    found: list[Finding] = []
    for number, (folder, folders, files) in enumerate(os.walk(root)):
        here = Path(folder)
        depth = len(here.relative_to(root).parts)
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _SKIPPED)
        if depth >= MAX_DEPTH or number >= MAX_FOLDERS:
            folders.clear()
        for name in sorted(files):
            path = here / name
            if name == "project.godot":
                found.append(Finding(kind="godot", path=path, what="a Godot project"))
            elif name == "index.html":
                found.append(Finding(kind="web", path=path, what="a web page"))
            elif name.endswith(".json") and "bridge" in name and _is_bridge(path):
                found.append(Finding(kind="bridge", path=path, what="a bridge"))
    order = {"bridge": 0, "godot": 1, "web": 2}
    return sorted(found, key=lambda game: (order[game.kind], len(game.path.parts), str(game.path)))


def _is_bridge(path: Path) -> bool:
    try:
        if path.stat().st_size > MAX_BRIDGE_BYTES:
            return False
        value = json.loads(read_users_file(path))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("command"))


def compose(*, driver_config: str, name: str, goals: Sequence[str], success: str, personas: Sequence[str]) -> str:
    """The text of a first `playlane.toml`; its reader accepts it."""
    lines = [
        "# What is played, who plays, how often. All keys: docs/examples/playlane.toml",
        "",
        "[target]",
        f"name = {_quoted(name)}",
        f"driver_config = {_quoted(driver_config)}  # the bridge file: how the game is started",
        "",
    ]
    if goals:
        lines += ["[brief]", f"goals = [{', '.join(_quoted(goal) for goal in goals)}]"]
        lines += [f"success = {_quoted(success)}"] if success else []
    else:
        lines += [
            "# [brief]",
            '# goals = ["what players should try to do"]',
            '# success = "how one sees that it was reached"',
            '# goal_when = "state.level >= 3"',
        ]
    lines += [
        "",
        "[run]",
        f"personas = [{', '.join(_quoted(one) for one in personas)}]",
        'controllers = ["standard"]  # a comparison: ["standard", "rune"]',
        "repetitions = 1",
        'fail_on = "never"  # critical, major or minor: coordinate run then exits with 1',
        "",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are all valid in it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
