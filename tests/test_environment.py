"""The environment beside a checkout is made once, however often it is asked for, and again when it was interrupted.

The script is the real one, in a small checkout of its own; only the installer is a stand-in, which notes what it is
asked and waits at `pip` for the gate to be shut down, so that each moment can be met.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "bin" / "environment.py"
LIMIT_SECONDS = 60
INSTALLER = """#!/bin/sh
echo "$1" >> '{folder}/asked'
case "$1" in
venv) for last; do :; done; exec '{python}' -m venv --without-pip "$last" ;;
pip) exec cat '{folder}/gate' ;;
esac
"""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        shutil.copy(SCRIPT, folder / "bin")
        (folder / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1"\n')
        (folder / "path").mkdir()
        installer = folder / "path" / "uv"
        installer.write_text(INSTALLER.format(folder=folder, python=sys.executable))
        installer.chmod(0o755)
        os.mkfifo(folder / "gate")
        self.gate = os.open(folder / "gate", os.O_RDWR | os.O_CLOEXEC)
        self.started: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["timeout", str(LIMIT_SECONDS), sys.executable, str(self.folder / "bin" / "environment.py")],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={"PATH": f"{self.folder / 'path'}:/usr/bin:/bin"},
        )
        self.started.append(process)
        return process

    def open_gate(self) -> None:
        """From here on the installer does not wait."""
        (self.folder / "open").touch()
        (self.folder / "open").replace(self.folder / "gate")
        os.close(self.gate)
        self.gate = -1

    def kill(self, process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_SECONDS)

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().split()

    @property
    def marker(self) -> Path:
        return self.folder / ".venv" / "playlane-made-run"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    yield made
    for process in made.started:
        if process.returncode is None:
            made.kill(process)
    if made.gate >= 0:
        os.close(made.gate)


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended without saying {words!r}")


def test_two_starts_at_once_make_one_environment(checkout: Checkout) -> None:
    first = checkout.start()
    wait_for_line(first, "installing")
    second = checkout.start()
    wait_for_line(second, "another process is making it, waiting")
    checkout.open_gate()
    for process in (first, second):
        process.communicate(timeout=LIMIT_SECONDS)
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.asked() == ["venv", "pip"]
    assert checkout.marker.read_bytes() == (checkout.folder / "pyproject.toml").read_bytes()


def test_a_making_that_was_killed_is_not_believed_and_made_again(checkout: Checkout) -> None:
    first = checkout.start()
    wait_for_line(first, "installing")
    checkout.kill(first)
    assert not checkout.marker.exists()
    asked = checkout.asked()
    checkout.open_gate()
    again = checkout.start()
    again.communicate(timeout=LIMIT_SECONDS)
    assert again.returncode == 0
    assert checkout.asked() == [*asked, "pip"]
    assert checkout.marker.exists()
