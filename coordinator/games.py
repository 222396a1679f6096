"""The game that a target names: how its driver is told to start it, and which files make it up.

A bridge game is its bridge file's folder; a game on a terminal is its command, run in a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from coordinator.builds import Build, bridge_build, bridge_folder, command_build, read_bridge
from coordinator.configuration import ConfigurationError, Target, command_words, target_driver
from coordinator.documents import content_sha256, sha256
from coordinator.files import read_users_file
from coordinator.settings import bridge_path

DEFAULT_SEED_BITS = 64


class Game(msgspec.Struct, frozen=True, kw_only=True):
    """`place` is the bridge file, or the folder that a command runs in; `settings` are the driver's, without paths."""

    driver: str
    place: Path
    settings: dict[str, Any]
    build: Build
    source_sha256: str
    seed_bits: int


def read_game(project: Path, target: Target) -> Game:
    """Read and hash what a target names. Raises `ConfigurationError`."""
    driver = target_driver(target)
    if driver == "terminal":
        folder = terminal_folder(project, target)
        settings = terminal_settings(target)
        return Game(
            driver=driver,
            place=folder,
            settings=settings,
            build=command_build(settings["command"], folder, target.build_files),
            source_sha256=content_sha256(settings),
            seed_bits=DEFAULT_SEED_BITS,
        )
    path = bridge_path(project, target)
    bridge = read_bridge(path)
    return Game(
        driver=driver,
        place=path,
        settings=bridge,
        build=bridge_build(path, target.build_files),
        source_sha256=sha256(read_users_file(path)),
        seed_bits=bridge.get("seed_bits", DEFAULT_SEED_BITS),
    )


def terminal_folder(project: Path, target: Target) -> Path:
    """Where a terminal's command runs: the target's `path`, else the project's folder."""
    folder = (project / (target.path or ".")).resolve()
    if not folder.is_dir():
        raise ConfigurationError("target.path", [f"{folder} is not a folder; a terminal's command runs in one"])
    return folder


def terminal_settings(target: Target) -> dict[str, Any]:
    """What the `terminal` driver is told, the folder aside."""
    settings: dict[str, Any] = {"command": command_words(target.command or [])}
    if target.prompt is not None:
        settings["prompt"] = target.prompt
    return settings


def settings_to_play(driver: str, place: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Planned settings as the driver takes them: with the folder, absolute. Raises `ConfigurationError` if it is none.

    `place` is that of the plan: a bridge file, or the folder of a command.
    """
    if driver == "terminal":
        if not place.is_dir():
            raise ConfigurationError(str(place), ["is no folder any more; a terminal's command runs in it"])
        return {**settings, "cwd": str(place.resolve())}
    return {**settings, "cwd": str(bridge_folder(place, settings))}


def build_of(driver: str, place: Path, settings: dict[str, Any], patterns: list[str]) -> Build:
    """The build as it lies there now. Raises `ConfigurationError`."""
    if driver == "terminal":
        return command_build(settings["command"], place, patterns)
    return bridge_build(place, patterns)
