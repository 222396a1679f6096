"""Drivers talk to a game: four verbs, plain data, nothing left behind. `make_driver` knows them by name."""

from __future__ import annotations

from drivers.base import Driver
from drivers.errors import DriverStartError

KNOWN_DRIVERS = ("cli_stdio", "terminal")


def make_driver(name: str) -> Driver:
    """A driver that has not started anything. `DriverStartError` lists the known names when `name` is none of them."""
    if name == "cli_stdio":
        from drivers.bridge import BridgeDriver

        return BridgeDriver()
    if name == "terminal":
        from drivers.terminal import TerminalDriver

        return TerminalDriver()
    raise DriverStartError(
        f"there is no driver {name!r}", found=f"known are: {', '.join(KNOWN_DRIVERS)}", todo="choose one of these"
    )
