"""How a game on a terminal is started: the command, where, and how its answers end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from drivers.bridge_file import SEED_PLACE
from drivers.errors import DriverStartError


class TerminalConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the `terminal` driver. `command` is a list of arguments (one text is split like a shell would).

    `{seed}` in the command becomes the session's seed. `cwd` is the command's folder (default: a fresh one for each
    session, which is also HOME). `env` is added to the game's environment. `prompt` is a regular expression looked for
    in the line of the cursor, up to the cursor: where it matches, the game has answered. Times are milliseconds;
    `silence_ms` is how long a game says nothing when it has answered.
    """

    driver: Literal["terminal"] = "terminal"
    command: list[str] | str
    cwd: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    prompt: str | None = None
    silence_ms: int = 150
    startup_timeout_ms: int = 10_000
    step_timeout_ms: int = 15_000

    def arguments(self, seed: int | None) -> list[str]:
        """The command as a list, `{seed}` replaced. `DriverStartError` when it wants a seed and there is none."""
        words = self.words
        if seed is None and self.takes_seed:
            raise DriverStartError(
                "the game's command wants a seed and this session has none",
                command=shlex.join(words),
                todo="take {seed} out of the command, or play with a seed",
            )
        return [word.replace(SEED_PLACE, str(seed)) for word in words]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command)

    @property
    def takes_seed(self) -> bool:
        return any(SEED_PLACE in word for word in self.words)


def read_terminal_settings(settings: Mapping[str, Any]) -> TerminalConfiguration:
    """Check decoded settings. `DriverStartError` names each key that is unknown, missing or out of its range."""
    try:
        configuration = msgspec.convert(dict(settings), TerminalConfiguration)
    except msgspec.ValidationError as error:
        raise _refuse(str(error)) from error
    faults = [
        f"{name} = {value}, allowed are {low} to {high}"
        for name, value, low, high in (
            ("silence_ms", configuration.silence_ms, 10, 10_000),
            ("startup_timeout_ms", configuration.startup_timeout_ms, 1, 600_000),
            ("step_timeout_ms", configuration.step_timeout_ms, 1, 600_000),
        )
        if not low <= value <= high
    ]
    faults += [f"env: {name!r} is no name" for name in configuration.env if not name or "=" in name or "\0" in name]
    try:
        if not configuration.words:
            faults.append("command is empty")
    except ValueError as error:
        faults.append(f"command: {error}")
    if configuration.prompt is not None:
        try:
            re.compile(configuration.prompt)
        except re.error as error:
            faults.append(f"prompt: {configuration.prompt!r} is no regular expression: {error}")
    if faults:
        raise _refuse("; ".join(faults))
    return configuration


def _refuse(found: str) -> DriverStartError:
    return DriverStartError(
        "the terminal's settings cannot be used",
        found=found,
        todo="give command, and where needed cwd, env, prompt and times (docs/terminal-games.md)",
    )
