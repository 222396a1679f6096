"""The suite that every driver must pass: subclass `DriverSuite`, say how a session is made, and collect its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from drivers.base import Action, Driver, Launch, Observation
from drivers.errors import DriverError, DriverStartError, UnsupportedActionError
from tests.drivers.children import children_of_this_process

Result = TypeVar("Result")

CALL_LIMIT_SECONDS = 20.0
DEADLY_ACTIONS = 5


class DriverSuite:
    """What a driver promises, whatever it drives. Subclasses give the five things below; nothing else is known."""

    def make_driver(self) -> Driver:
        raise LookupError("a subclass names its driver")

    def good_launch(self, directory: Path, seed: int | None = 7) -> Launch:
        """A game that plays."""
        raise LookupError("a subclass names its game")

    def dying_launch(self, directory: Path) -> Launch:
        """A game that starts and dies within `DEADLY_ACTIONS` of `deadly_action`."""
        raise LookupError("a subclass names its dying game")

    def deadly_action(self, observation: Observation) -> Action:
        """The next input on the way to the death of that game."""
        return self.action_with_effect(observation)

    def broken_launch(self, directory: Path) -> Launch:
        """A game that cannot be started."""
        raise LookupError("a subclass names its broken game")

    def action_with_effect(self, observation: Observation) -> Action:
        """An input that changes what is seen."""
        raise LookupError("a subclass names an action")

    def foreign_action(self) -> Action:
        """An input that this driver does not have."""
        raise LookupError("a subclass names an action it lacks")

    def play(self, launch: Launch, body: Callable[[Driver, Observation], Awaitable[Result]]) -> Result:
        """Start, run `body`, stop; every call within a limit, whatever happens."""

        async def session() -> Result:
            driver = self.make_driver()
            try:
                async with asyncio.timeout(CALL_LIMIT_SECONDS):
                    return await body(driver, await driver.start(launch))
            finally:
                async with asyncio.timeout(CALL_LIMIT_SECONDS):
                    await driver.stop("end of test")
                assert children_of_this_process() == []

        return asyncio.run(session())

    # -- the promises

    def test_start_shows_something_and_names_its_inputs(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            assert first.text or first.controls or first.screenshot
            assert first.frame_hash
            assert driver.action_kinds
            assert driver.facts["driver"] == driver.name

        self.play(self.good_launch(tmp_path), body)

    def test_observing_changes_nothing(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            for _ in range(3):
                seen = await driver.observe()
                assert (seen.frame_hash, seen.text, seen.moves) == (first.frame_hash, first.text, first.moves)

        self.play(self.good_launch(tmp_path), body)

    def test_an_action_with_an_effect_changes_the_frame_hash(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            result = await driver.act(self.action_with_effect(first))
            assert result.status == "done"
            assert result.observation.frame_hash != first.frame_hash
            assert (await driver.observe()).frame_hash == result.observation.frame_hash

        self.play(self.good_launch(tmp_path), body)

    def test_an_input_it_has_not_is_refused_and_the_game_is_untouched(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            with pytest.raises(UnsupportedActionError):
                await driver.act(self.foreign_action())
            assert (await driver.observe()).frame_hash == first.frame_hash

        self.play(self.good_launch(tmp_path), body)

    def test_the_same_seed_begins_the_same_game(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> str:
            return (await driver.act(self.action_with_effect(first))).observation.frame_hash

        assert self.play(self.good_launch(tmp_path), body) == self.play(self.good_launch(tmp_path), body)

    def test_a_screenshot_is_a_file_in_its_folder_or_none(self, tmp_path: Path) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            picture = await driver.screenshot("first")
            if picture is not None:
                assert picture.stat().st_size > 0
                assert picture.resolve().is_relative_to(tmp_path.resolve())

        self.play(self.good_launch(tmp_path), body)

    def test_a_video_that_was_not_asked_for_is_off_and_one_that_is_missing_says_why(self, tmp_path: Path) -> None:
        async def record(wanted: bool) -> None:
            driver = self.make_driver()
            launch = self.good_launch(tmp_path)
            try:
                await driver.start(
                    Launch(
                        settings=launch.settings,
                        directory=launch.directory,
                        seed=launch.seed,
                        environment=launch.environment,
                        record_video=wanted,
                    )
                )
            finally:
                recording = await driver.stop("end of test")
            if not wanted:
                assert recording.status == "off"
            elif recording.status == "complete":
                assert recording.path is not None
            else:
                assert recording.reason

        asyncio.run(record(False))
        asyncio.run(record(True))

    def test_stop_works_before_start_and_twice_and_gives_the_same(self, tmp_path: Path) -> None:
        async def body() -> None:
            driver = self.make_driver()
            await driver.stop("never started")
            driver = self.make_driver()
            await driver.start(self.good_launch(tmp_path))
            assert await driver.stop("first") == await driver.stop("second")
            assert children_of_this_process() == []

        asyncio.run(body())

    def test_after_stop_every_call_raises_a_driver_error(self, tmp_path: Path) -> None:
        async def body() -> None:
            driver = self.make_driver()
            first = await driver.start(self.good_launch(tmp_path))
            await driver.stop("end")
            with pytest.raises(DriverError):
                await driver.observe()
            with pytest.raises(DriverError):
                await driver.act(self.action_with_effect(first))

        asyncio.run(body())

    def test_a_game_that_cannot_start_is_a_start_error_and_leaves_nothing(self, tmp_path: Path) -> None:
        async def body() -> None:
            driver = self.make_driver()
            with pytest.raises(DriverStartError):
                async with asyncio.timeout(CALL_LIMIT_SECONDS):
                    await driver.start(self.broken_launch(tmp_path))
            await driver.stop("failed")
            assert children_of_this_process() == []

        asyncio.run(body())

    def test_a_game_that_dies_is_a_driver_error_within_the_limit_and_again_at_every_later_call(
        self, tmp_path: Path
    ) -> None:
        async def body(driver: Driver, first: Observation) -> None:
            action, seen = self.deadly_action(first), first
            with pytest.raises(DriverError) as died:
                for _ in range(DEADLY_ACTIONS):
                    action = self.deadly_action(seen)
                    seen = (await driver.act(action)).observation
            for call in (driver.observe(), driver.act(action)):
                with pytest.raises(type(died.value)):
                    await call

        self.play(self.dying_launch(tmp_path), body)

    def test_a_cancelled_call_leaves_a_driver_that_can_be_stopped(self, tmp_path: Path) -> None:
        async def body() -> None:
            driver = self.make_driver()
            starting = asyncio.ensure_future(driver.start(self.good_launch(tmp_path)))
            asyncio.get_running_loop().call_soon(starting.cancel)
            with pytest.raises(asyncio.CancelledError):
                await starting
            async with asyncio.timeout(CALL_LIMIT_SECONDS):
                await driver.stop("cancelled")
            assert children_of_this_process() == []

        asyncio.run(body())
