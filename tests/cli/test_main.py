"""Every command: help, unknown options, refusals as one document, exit codes, quiet ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from coordinator.cli.console import Console, plain
from coordinator.cli.main import COMMANDS
from coordinator.cli.main import coordinate as group
from tests.cli.command import ROOT, SECONDS, command_line, coordinate, coordinate_apart, make_game


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_that_is_listed_has_help_with_an_example(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=name))
    assert "Example:" in text
    assert f"coordinate {name}" in text
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--project", "--json", "--yes", "-v"} <= options


def test_help_of_the_whole_lists_the_commands_and_ends_with_0(tmp_path: Path) -> None:
    ran = coordinate_apart("--help", cwd=tmp_path)
    assert ran.code == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in ran.out] == []
    assert list(tmp_path.iterdir()) == []


def test_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert coordinate("--version", cwd=tmp_path).out.startswith("playlane ")


@pytest.mark.parametrize(
    "arguments", [["plan", "--bogus"], ["bogus"], ["run", "--seed", "minus one"], ["plan", "extra"]]
)
def test_usage_error_is_exit_3_and_says_where_help_is(tmp_path: Path, arguments: list[str]) -> None:
    ran = coordinate(*arguments, cwd=tmp_path)
    assert ran.code == 3
    assert ran.out == ""
    assert "--help" in ran.err


def test_refusal_with_json_is_one_document_and_says_that_nothing_was_charged(tmp_path: Path) -> None:
    ran = coordinate_apart("run", "--json", "--controller", "jev", cwd=tmp_path)
    assert ran.code == ran.document["exit_code"] == 3
    error = ran.document["error"]
    assert set(error) == {"code", "message", "detail"}
    assert error["code"] == "configuration"
    assert "Nothing was registered or charged." in error["message"]
    assert len(error["detail"]["faults"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_usage_error_with_json_is_a_document_too(tmp_path: Path) -> None:
    ran = coordinate("status", "--json", "--bogus", cwd=tmp_path)
    assert (ran.code, ran.document["error"]["code"]) == (3, "usage")


def test_command_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    ran = coordinate("run", "--json", "--", "no-such-game", "-u", "me", cwd=tmp_path)
    assert ran.code == 3
    assert "'no-such-game' was not found" in ran.document["error"]["message"]


def test_fault_of_the_program_is_one_line_and_its_traceback_is_a_private_file(tmp_path: Path) -> None:
    program = (
        "import sys, coordinator.cli.plan, coordinator.cli.main as m\n"
        "def broken(*_, **__): raise RuntimeError('kaput')\n"
        "coordinator.cli.plan.settle = broken\n"
        "sys.exit(m.run(['plan']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 1
    assert "RuntimeError: kaput" in ran.stderr
    assert "Traceback" not in ran.stderr
    [log] = (tmp_path / ".playlane" / "faults").iterdir()
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_reader_that_went_away_is_quiet(tmp_path: Path) -> None:
    make_game(tmp_path / "game")
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(
            command_line("plan", "--driver-config", "game/bridge.json"),
            cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_start_imports_nothing_heavy() -> None:
    program = (
        "import sys, coordinator.cli.main, coordinator.cli.status, coordinator.cli.stop\n"
        "heavy = {'httpx', 'playwright', 'jinja2', 'multiprocess', 'watchdog', 'sqlite3'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.stderr == ""
    assert ran.returncode == 0


def test_text_of_a_game_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[2J\x1b]0;title\x07b\r\x00\tc\nd") == "a?[2J?]0;title?b??\tc\nd"


def test_colour_is_only_for_terminals(tmp_path: Path) -> None:
    make_game(tmp_path / "game")
    ran = coordinate_apart("plan", "--driver-config", "game/bridge.json", cwd=tmp_path, environment={"NO_COLOR": ""})
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert Console(as_json=False).bold("x") == "x"


def test_launcher_hands_over_to_the_environment_beside_it_also_through_a_link(tmp_path: Path) -> None:
    """A checkout of its own whose environment stands in for a made one: no network is needed to see the hand-over."""
    checkout = tmp_path / "a checkout"
    (checkout / "bin").mkdir(parents=True)
    for name in ("coordinate", "environment.py"):
        (checkout / "bin" / name).write_bytes((ROOT / "bin" / name).read_bytes())
    (checkout / "bin" / "coordinate").chmod(0o755)
    (checkout / "pyproject.toml").write_text("[project]\n")
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "ran $*"\n')
    python.chmod(0o755)
    (checkout / ".venv" / "playlane-made-run").write_text("[project]\n")
    link = tmp_path / "link"
    link.symlink_to(checkout / "bin" / "coordinate")
    for start in (checkout / "bin" / "coordinate", link):
        ran = subprocess.run(
            [str(start), "status", "a b"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert (ran.returncode, ran.stdout) == (0, "ran -P -m coordinator.cli.main status a b\n")
