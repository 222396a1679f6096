"""What a driver's fault means for the run, and the one verb that not every driver has."""

from __future__ import annotations

from typing import Protocol, cast

from drivers.base import Driver, Observation
from drivers.errors import (
    DriverError,
    GameEndedError,
    GameUnresponsiveError,
    ProtocolError,
    UnsupportedActionError,
)
from workers.contract import EndReason


class Reloads(Protocol):
    """A driver that can start the open session again."""

    async def reload(self) -> Observation: ...


def reloading(driver: Driver) -> Reloads:
    """The driver, if it can start again. Raises `UnsupportedActionError`."""
    if not hasattr(driver, "reload"):
        raise UnsupportedActionError(driver.name, "restart")
    return cast(Reloads, driver)


def ending_of(error: DriverError) -> tuple[EndReason, str]:
    """End reason and detail of a run whose driver met this."""
    if isinstance(error, GameUnresponsiveError):
        return "page_unresponsive", str(error)
    if isinstance(error, GameEndedError):
        gone = error.exit_code == 0
        return ("game_exited" if gone else "game_crashed"), str(error)
    if isinstance(error, ProtocolError):
        return "game_crashed", str(error)
    return "harness_fault", str(error)
