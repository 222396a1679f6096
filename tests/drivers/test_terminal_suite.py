"""The driver suite, passed by `terminal` on a game of lines, on the example, and on a game of keys."""

from __future__ import annotations

import sys
from pathlib import Path

from drivers import make_driver
from drivers.base import Action, Driver, Launch, Observation
from tests.drivers.children import ENVIRONMENT, EXAMPLES
from tests.drivers.suite import DriverSuite

GAMES = Path(__file__).parent / "terminals"


def launch(directory: Path, *command: str, seed: int | None = 7) -> Launch:
    # A driver is started twice in one folder by some promises; each has its own.
    folder = directory / f"launch-{len(list(directory.iterdir()))}"
    folder.mkdir()
    settings = {"command": [sys.executable, *command], "startup_timeout_ms": 60_000}
    return Launch(settings=settings, directory=folder, seed=seed, environment=ENVIRONMENT)


class TestGameOfLines(DriverSuite):
    def make_driver(self) -> Driver:
        return make_driver("terminal")

    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        return launch(directory, str(GAMES / "lines.py"), "{seed}", seed=seed)

    def dying_launch(self, directory: Path) -> Launch:
        return self.good_launch(directory)

    def deadly_action(self, observation: Observation) -> Action:
        return Action(kind="command", text="raise")

    def broken_launch(self, directory: Path) -> Launch:
        return launch(directory, "-c", "raise SystemExit(3)")

    def action_with_effect(self, observation: Observation) -> Action:
        return Action(kind="command", text="up")

    def foreign_action(self) -> Action:
        return Action(kind="click", x=1, y=1)


class TestExampleOnATerminal(TestGameOfLines):
    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        return launch(directory, str(EXAMPLES / "cavern" / "terminal.py"), "--seed", "{seed}", seed=seed)

    def dying_launch(self, directory: Path) -> Launch:
        """With this shift the planted crash waits in the second place, behind the cup."""
        game = str(EXAMPLES / "cavern" / "terminal.py")
        return launch(directory, game, "--seed", "{seed}", "--bugs", "crash", "--shift", "1")

    def deadly_action(self, observation: Observation) -> Action:
        if "hold out your cup" in observation.text:
            return Action(kind="command", text="hold out your cup")
        return self.action_with_effect(observation)

    def action_with_effect(self, observation: Observation) -> Action:
        right = observation.text.rpartition("comes from ")[2].partition(".")[0]
        return Action(kind="command", text=f"take {right}")


class TestGameOfKeys(TestGameOfLines):
    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        return launch(directory, str(GAMES / "keys.py"), seed=seed)

    def action_with_effect(self, observation: Observation) -> Action:
        return Action(kind="press", key="l")

    def dying_launch(self, directory: Path) -> Launch:
        return launch(directory, str(GAMES / "lines.py"))
