"""The driver suite, passed by `cli_stdio` on a small game, and on both forms of the example."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drivers import make_driver
from drivers.base import Action, Driver, Launch, Observation
from drivers.errors import DriverStartError
from tests.drivers.children import ENVIRONMENT, cavern_settings, launch
from tests.drivers.suite import DriverSuite


class TestCountingBridge(DriverSuite):
    def make_driver(self) -> Driver:
        return make_driver("cli_stdio")

    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        return launch(directory, seed=seed)

    def dying_launch(self, directory: Path) -> Launch:
        return launch(directory, "dies")

    def broken_launch(self, directory: Path) -> Launch:
        return launch(directory, "dies_at_start")

    def action_with_effect(self, observation: Observation) -> Action:
        return Action(kind="choose", move="up")

    def foreign_action(self) -> Action:
        return Action(kind="click", x=1, y=1)


class TestExampleInPython(TestCountingBridge):
    bridge_file = "bridge.json"

    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        return Launch(
            settings=cavern_settings(self.bridge_file), directory=directory, seed=seed, environment=ENVIRONMENT
        )

    def dying_launch(self, directory: Path) -> Launch:
        """The example with its planted crash: with this shift, by holding out the cup in the second place."""
        settings = cavern_settings(self.bridge_file, "--bugs", "crash", "--shift", "1")
        return Launch(settings=settings, directory=directory, seed=7, environment=ENVIRONMENT)

    def deadly_action(self, observation: Observation) -> Action:
        assert observation.moves is not None
        if any(move.id == "cup" for move in observation.moves):
            return Action(kind="choose", move="cup")
        return self.action_with_effect(observation)

    def action_with_effect(self, observation: Observation) -> Action:
        assert observation.moves is not None
        right = observation.text.rpartition("comes from ")[2].partition(".")[0]
        return Action(kind="choose", move=next(move.id for move in observation.moves if right in move.label))


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
class TestExampleInJavaScript(TestExampleInPython):
    bridge_file = "bridge-js.json"


def test_an_unknown_driver_is_refused_with_the_known_names() -> None:
    with pytest.raises(DriverStartError, match="cli_stdio"):
        make_driver("telepathy")
