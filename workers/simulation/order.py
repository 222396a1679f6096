"""What a worker is ordered to simulate or to replay, and how an order is made ready: paths, environment, hashes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from drivers.bridge_file import BridgeConfiguration, read_settings
from drivers.errors import DriverStartError
from workers.simulation.chunk import Setup
from workers.simulation.configuration import Configuration, load
from workers.simulation.errors import ConfigurationError, Refused

MAX_HASHED_BYTES = 1 << 30
LOCAL_ENVIRONMENT = ("HOME", "LANG", "LANGUAGE", "PATH", "TMPDIR", "TZ", "DISPLAY", "XDG_RUNTIME_DIR")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class SimulateOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One batch. `configuration` and `bridge` are the decoded files; `bridge["cwd"]` is absolute.

    `configuration_directory` is where Python policies are looked for. `wall_seconds` is the batch's limit. `workers`
    goes before the configuration's. `earlier` are directories of earlier runs of the same batch, whose finished games
    are taken over. Without `plots` the report has its tables only, and is written sooner.
    """

    configuration: dict[str, Any]
    bridge: dict[str, Any]
    configuration_directory: str
    wall_seconds: float = 900.0
    workers: int | None = None
    csv: bool = False
    plots: bool = True
    earlier: list[str] = msgspec.field(default_factory=list)


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One trace to be played again against a game. `configuration`, where given, is compared with the recorded one;
    `configuration_directory` is where its policies are looked for."""

    trace: str
    bridge: dict[str, Any]
    configuration: dict[str, Any] | None = None
    configuration_directory: str | None = None


def local_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What games see of an environment when nobody says otherwise: a short allow-list and every `LC_*`."""
    return {name: value for name, value in environment.items() if name in LOCAL_ENVIRONMENT or name.startswith("LC_")}


def read_bridge(settings: Mapping[str, Any]) -> BridgeConfiguration:
    """Check a decoded bridge file. `ConfigurationError` names what is wrong with it."""
    try:
        return read_settings(settings)
    except DriverStartError as error:
        refused = Refused(key="(bridge file)", found=error.found or error.what, allowed=error.todo or "see the docs")
        raise ConfigurationError("the bridge file", [refused]) from error


def make_setup(
    order: SimulateOrder, *, environment: Mapping[str, str], deadline: float | None
) -> tuple[Configuration, Setup]:
    """Check an order and make it ready. `ConfigurationError` lists what cannot be used."""
    configuration = load(order.configuration)
    bridge = read_bridge(order.bridge)
    paths = search_paths(bridge, Path(order.configuration_directory))
    setup = Setup(
        batch_id=token_hex(8),
        configuration=configuration,
        bridge=bridge,
        search_paths=paths,
        environment=dict(environment),
        deadline=deadline,
        configuration_sha256=hash_configuration(configuration, paths),
        bridge_sha256=hash_bridge(bridge),
    )
    return configuration, setup


def search_paths(bridge: BridgeConfiguration, configuration_directory: Path | None) -> tuple[str, ...]:
    """Where Python games and policies are looked for first: the bridge's folder, then the configuration's."""
    paths = [str(Path(bridge.cwd or ".").absolute())]
    if configuration_directory is not None:
        paths.append(str(configuration_directory.absolute()))
    return tuple(dict.fromkeys(paths))


def hash_configuration(configuration: Configuration, paths: Iterable[str] = ()) -> str:
    """64 hex digits over what decides how games go; not workers, paths or the number of runs' way of being played.

    The files of Python policies count with their content.
    """
    plain = msgspec.to_builtins(configuration)
    for name in ("workers", "driver_config"):
        plain.pop(name)
    entries = sorted(
        {policy.entry for strategy in configuration.strategies for policy in strategy.seats.values() if policy.entry}
    )
    plain["policy_files"] = [hash_module(entry, paths) for entry in entries]
    return _hash(plain)


def hash_bridge(bridge: BridgeConfiguration) -> str:
    """64 hex digits over what is played: command with the content of its files, environment, module, environment id.

    Not sessions, paths or time-outs.
    """
    plain: dict[str, Any] = {"seed_bits": bridge.seed_bits}
    if bridge.command:
        directory = Path(bridge.cwd or ".")
        plain["command"] = [_hash_word(word, directory) for word in bridge.arguments(None)]
        plain["env"] = {name: value for name, value in sorted(bridge.env.items()) if os.sep not in value}
    elif bridge.python:
        plain["python"] = [bridge.python, hash_module(bridge.python, [bridge.cwd or "."])]
    else:
        plain["gymnasium"] = [bridge.gymnasium, _version_of("gymnasium")]
    return _hash(plain)


def hash_module(entry: str, paths: Iterable[str]) -> str:
    """The hash of the file (or of all Python files of the package) that `module:name` is found in; no code is run."""
    name = entry.partition(":")[0]
    if not _MODULE.fullmatch(name):
        return "no module"
    for path in paths:
        place = Path(path, *name.split("."))
        if place.with_suffix(".py").is_file():
            return hash_file(place.with_suffix(".py"))
        if (place / "__init__.py").is_file():
            files = sorted(place.rglob("*.py"))
            return _hash([[str(file.relative_to(place)), hash_file(file)] for file in files])
    return f"installed: {_version_of(name.partition('.')[0])}"


def hash_file(path: Path) -> str:
    """64 hex digits of a file's content; of its name and size where it is larger than 1 GiB."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_HASHED_BYTES:
            return _hash([path.name, path.stat().st_size])
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_word(word: str, directory: Path) -> str:
    place = directory / word
    try:
        inside = place.is_file() and (not Path(word).is_absolute() or place.resolve().is_relative_to(directory))
    except (OSError, ValueError):
        inside = False
    if inside:
        return f"sha256:{hash_file(place)}"
    return Path(word).name if os.sep in word else word


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _hash(plain: object) -> str:
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
