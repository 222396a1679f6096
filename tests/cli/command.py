"""Runs the real command: in this process where only its answer matters, as a child where the process does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coordinator.cli.main import run

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


def coordinate(*arguments: str, cwd: Path) -> Ran:
    """Run `coordinate` with these arguments in this process; there is no terminal and nothing to read."""
    said, told = io.BytesIO(), io.BytesIO()
    out, err = io.TextIOWrapper(said, "utf-8"), io.TextIOWrapper(told, "utf-8")
    stdin = sys.stdin
    sys.stdin = io.StringIO("")
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(arguments))
            out.flush()
            err.flush()
    finally:
        sys.stdin = stdin
    texts = [held.getvalue().decode() for held in (said, told)]
    return Ran(code=code, out=texts[0], err=texts[1])


def coordinate_apart(*arguments: str, cwd: Path, environment: Mapping[str, str] | None = None) -> Ran:
    """Run it as a shell would, in a process of its own; its standard input is empty."""
    found = subprocess.run(
        command_line(*arguments),
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
        stdin=subprocess.DEVNULL,
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
