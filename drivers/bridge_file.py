"""The bridge file: how a game that speaks the bridge protocol is started (`bridge.json`, what users write)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from drivers.errors import DriverStartError

MAX_BRIDGE_FILE_BYTES = 64_000
SEED_PLACE = "{seed}"


class BridgeConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoded bridge file. `command` is a list of arguments (one text is split like a shell would, without a shell).

    `cwd` is the command's folder (default: the bridge file's own). `env` is added to the game's environment. Times are
    milliseconds. `sessions` is how many games may be in flight on one process, `seed_bits` how large a seed the game
    takes. `python` and `gymnasium` name a game inside the simulation's own processes, instead of a command.
    """

    driver: Literal["cli_stdio"] = "cli_stdio"
    command: list[str] | str | None = None
    cwd: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    startup_timeout_ms: int = 10_000
    step_timeout_ms: int = 5_000
    sessions: int = 1
    seed_bits: Literal[32, 53, 64] = 64
    python: str | None = None
    gymnasium: str | None = None

    def arguments(self, seed: int | None) -> list[str]:
        """The command as a list, `{seed}` replaced. `DriverStartError` when it wants a seed and there is none."""
        words = shlex.split(self.command) if isinstance(self.command, str) else list(self.command or [])
        if seed is None and any(SEED_PLACE in word for word in words):
            raise DriverStartError(
                "the bridge's command wants a seed and this session has none",
                command=shlex.join(words),
                todo="take {seed} out of the command, or play with a seed",
            )
        return [word.replace(SEED_PLACE, str(seed)) for word in words]


def read_settings(settings: Mapping[str, Any], *, origin: str = "the bridge settings") -> BridgeConfiguration:
    """Check decoded settings. `DriverStartError` names the key that is unknown, missing or out of its range."""

    def refuse(found: str, todo: str = "see docs/bridge-protocol.md") -> DriverStartError:
        return DriverStartError(f"{origin} cannot be used", found=found, todo=todo)

    try:
        configuration = msgspec.convert(dict(settings), BridgeConfiguration)
    except msgspec.ValidationError as error:
        raise refuse(str(error)) from error
    forms = [name for name in ("command", "python", "gymnasium") if getattr(configuration, name)]
    if len(forms) != 1:
        raise refuse(f"{' and '.join(forms) or 'none'} of command, python, gymnasium", "give exactly one of them")
    faults = [
        f"{name} = {value}, allowed are {low} to {high}"
        for name, value, low, high in (
            ("startup_timeout_ms", configuration.startup_timeout_ms, 1, 600_000),
            ("step_timeout_ms", configuration.step_timeout_ms, 1, 600_000),
            ("sessions", configuration.sessions, 1, 1_024),
        )
        if not low <= value <= high
    ]
    faults += [f"env: {name!r} is no name" for name in configuration.env if not name or "=" in name or "\0" in name]
    if isinstance(configuration.command, str):
        try:
            shlex.split(configuration.command)
        except ValueError as error:
            faults.append(f"command: {error}")
    if faults:
        raise refuse("; ".join(faults))
    return configuration


def load_bridge(path: str | Path) -> dict[str, Any]:
    """Read a bridge file; give its settings as plain data with `cwd` absolute, as `Launch.settings` takes them.

    Raises `DriverStartError` for a file that is missing, too large, no JSON object, or has a wrong or unknown key.
    """
    path = Path(path)
    origin = f"the bridge file {path}"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BRIDGE_FILE_BYTES + 1)
    except OSError as error:
        raise DriverStartError(f"{origin} cannot be read", found=error.strerror or str(error)) from error
    if len(data) > MAX_BRIDGE_FILE_BYTES:
        raise DriverStartError(f"{origin} is too large", found=f"more than {MAX_BRIDGE_FILE_BYTES} bytes")
    try:
        decoded = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DriverStartError(f"{origin} is no JSON", found=str(error)) from error
    if not isinstance(decoded, dict):
        raise DriverStartError(f"{origin} is no JSON object", found=type(decoded).__name__)
    configuration = read_settings(decoded, origin=origin)
    folder = path.resolve().parent
    cwd = (folder / configuration.cwd).resolve() if configuration.cwd else folder
    settings: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(configuration, cwd=str(cwd)))
    return {name: value for name, value in settings.items() if value is not None}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return decoded
