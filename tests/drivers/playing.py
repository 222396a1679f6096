"""One session of a bridge from start to stop, as the tests of `cli_stdio` play it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from drivers.base import Action, Launch, Observation, Recording
from drivers.bridge import BridgeDriver
from drivers.errors import DriverStartError

Result = TypeVar("Result")

UP = Action(kind="choose", move="up")


def play(
    order: Launch, body: Callable[[BridgeDriver, Observation], Awaitable[Result]]
) -> tuple[Result, BridgeDriver, Recording]:
    """One session from start to stop; gives what `body` gave, the driver with its facts, and the recording."""

    async def session() -> tuple[Result, BridgeDriver, Recording]:
        driver = BridgeDriver()
        try:
            result = await body(driver, await driver.start(order))
        finally:
            recording = await driver.stop("end of test")
        return result, driver, recording

    return asyncio.run(session())


def start_error(order: Launch) -> DriverStartError:
    async def nothing(driver: BridgeDriver, first: Observation) -> None:
        return None

    with pytest.raises(DriverStartError) as refused:
        play(order, nothing)
    return refused.value


async def step(driver: BridgeDriver, first: Observation) -> Observation:
    return (await driver.act(UP)).observation
