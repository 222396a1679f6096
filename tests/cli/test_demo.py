"""The first thing a newcomer does."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command import command_line, coordinate

SECONDS = 120.0


@pytest.mark.measured
def test_demo_ends_with_0_finds_planted_bugs_and_stays_in_its_folder(tmp_path: Path) -> None:
    begun = time.monotonic()
    ran = coordinate("demo", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert time.monotonic() - begun < SECONDS
    document = ran.document
    assert {(one["persona"], one["controller"]) for one in document["runs"]} == {
        (persona, controller) for persona in ("newcomer", "explorer") for controller in ("standard", "rune")
    }
    findings = json.loads(Path(document["aggregate"]).read_bytes())["findings"]
    assert len(findings) >= 2
    assert any(finding["replay"] == "3/3" for finding in findings)
    assert Path(document["report"]).read_bytes().startswith(b"<!doctype html>")
    assert "nothing was charged" in ran.err
    assert [one.name for one in tmp_path.iterdir()] == [".playlane"]
    assert coordinate("verify", cwd=tmp_path).code == 0


def test_on_a_terminal_the_lanes_are_redrawn_and_removed_at_the_end(tmp_path: Path) -> None:
    game = Path(__file__).with_name("endless_game.py")
    (tmp_path / "bridge.json").write_text(json.dumps({"command": ["python3", str(game)]}))
    near, far = pty.openpty()
    flags = ("--driver-config", "bridge.json", "--personas", "newcomer", "--max-actions", "20", "--no-control")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    try:
        process = subprocess.Popen(
            command_line("run", *flags), cwd=tmp_path, env=environment, stdin=far, stdout=far, stderr=far
        )
        os.close(far)
        said = b""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and select.select([near], [], [], SECONDS)[0]:
            try:
                said += os.read(near, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
        assert process.wait(timeout=SECONDS) == 0
    finally:
        os.close(near)
    text = said.decode()
    assert "\x1b[J" in text
    assert "newcomer / standard" in text
    last = text.rsplit("\x1b[J", 1)[1]
    assert "of 1 done" not in last
    assert "No problem found" in last
