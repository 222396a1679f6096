"""Runs the real command in a child process, as a shell would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coordinator.cli.main", *arguments]


def coordinate(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None, stdin: str | None = None
) -> Ran:
    """Run `coordinate` with these arguments; its standard input is empty unless given."""
    found = subprocess.run(
        command_line(*arguments),
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ran(code=found.returncode, out=found.stdout, err=found.stderr)


def make_game(folder: Path, **bridge: Any) -> Path:
    """A folder with a bridge file and a game file; returns the bridge file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "game.py").write_text("print('a game')\n")
    path = folder / "bridge.json"
    path.write_text(json.dumps({"command": [sys.executable, "game.py"], **bridge}))
    return path
