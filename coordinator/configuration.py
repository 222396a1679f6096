"""What users write in `playlane.toml`, and the numbers that stand for what they leave out.

Read strictly: an unknown key is refused by name, several faults are listed at once, and nothing is guessed. The
annotated example is docs/examples/playlane.toml, the schema coordinator/schemas/playlane.schema.json.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.files import read_users_file
from coordinator.tables import TableFaults, read_table
from workers.contract import Brief

MAX_CONFIGURATION_BYTES = 1 << 20
CONFIGURATION_NAME = "playlane.toml"

# -- defaults (the table of docs/operators.md) -----------------------------------------------------------------------

DEFAULT_PERSONAS = ("newcomer", "explorer")
DEFAULT_LANES = 2
DEFAULT_WALL_SECONDS = 600.0
DEFAULT_MAX_ACTIONS_TEXT = 200
DEFAULT_MAX_ACTIONS_SCREEN = 120
DEFAULT_SEED = 1
LONG_RUN_FACTOR = 3
CONTROLLERS = ("standard", "jev", "rune")
FREE_BRAINS = ("offline", "random")
TEXT_DRIVERS = ("cli_stdio", "terminal")
DRIVERS = ("cli_stdio", "terminal")
"""Drivers of this version; the configuration knows all names, a plan refuses those that are not here."""

DriverName = Literal["playwright_web", "godot_driver", "webdriver", "cli_stdio", "terminal"]
TargetKind = Literal["bridge", "url", "directory", "godot", "terminal"]
FailOn = Annotated[str, msgspec.Meta(pattern=r"^(critical|major|minor|never|new:(critical|major|minor))$")]
Seed = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f]+$")]
MAX_SEED = (1 << 64) - 1

KIND_OF_DRIVER: dict[str, TargetKind] = {
    "cli_stdio": "bridge", "playwright_web": "url", "webdriver": "url", "godot_driver": "godot", "terminal": "terminal",
}  # fmt: skip
DRIVER_OF_KIND: dict[str, DriverName] = {
    "bridge": "cli_stdio", "url": "playwright_web", "directory": "playwright_web", "godot": "godot_driver",
    "terminal": "terminal",
}  # fmt: skip


class ConfigurationError(CoordinatorError):
    """A file or flag does not have its form; every fault is listed. Nothing was registered or charged."""

    def __init__(self, where: str, faults: list[str]) -> None:
        self.where, self.faults = where, faults
        listed = faults[0] if len(faults) == 1 else f"{len(faults)} faults" + "".join(f"\n  {f}" for f in faults)
        super().__init__(f"{where}: {listed}")


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table that people write: unknown keys are faults."""


class Basic(_Written, frozen=True, kw_only=True):
    """HTTP basic authentication; each is the *name* of an environment variable."""

    user: str
    password: str


class Auth(_Written, frozen=True, kw_only=True):
    """How the target lets a tester in. Every value is the name of an environment variable, never the secret itself."""

    storage_state: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    basic: Basic | None = None

    def variables(self) -> list[str]:
        """The names of the environment variables that hold secrets."""
        names = [self.storage_state, *self.headers.values()]
        if self.basic:
            names += [self.basic.user, self.basic.password]
        return [name for name in names if name]


class BriefTable(_Written, frozen=True, kw_only=True):
    """What players are told. `goal_when` compares one path of the game's state with a literal: `state.level >= 3`."""

    goals: list[Text] = msgspec.field(default_factory=list)
    success: Text = ""
    controls: Text = ""
    start: Text = ""
    goal_when: str | None = None

    def to_brief(self) -> Brief:
        return Brief(
            goals=list(self.goals), success=self.success, controls=self.controls, start=self.start,
            goal_when=self.goal_when,
        )  # fmt: skip


class Target(_Written, frozen=True, kw_only=True):
    """One build to play. Paths are relative to the project's folder.

    `command` is for games on a terminal, which run in `path`; `{seed}` in it becomes the run's seed.
    """

    name: Name | None = None
    kind: TargetKind | None = None
    path: str | None = None
    url: str | None = None
    driver: DriverName | None = None
    driver_config: str | None = None
    command: list[str] | str | None = None
    build_files: list[str] = msgspec.field(default_factory=list)
    seed: Seed | None = None
    device: str | None = None
    allow_hosts: list[str] = msgspec.field(default_factory=list)
    auth: Auth | None = None
    setup: str | None = None
    vocabulary: list[str] = msgspec.field(default_factory=list)
    prompt: str | None = None
    brief: BriefTable | None = None


class LimitsTable(_Written, frozen=True, kw_only=True):
    """How long a run may get; what is absent has the default of its kind of driver."""

    max_actions: Count | None = None
    wall_seconds: Seconds | None = None
    silence_seconds: Seconds = 120.0
    output_bytes: Count = 64 << 20
    long_run_factor: Count = LONG_RUN_FACTOR


class Run(_Written, frozen=True, kw_only=True):
    """Who plays, how, how often. `budget` is in dollars and only means something to brains that cost."""

    personas: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_PERSONAS))
    controllers: list[str] = msgspec.field(default_factory=lambda: ["standard"])
    repetitions: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    brain: str = "offline"
    model: str | None = None
    lanes: Annotated[int, msgspec.Meta(ge=1, le=2)] = DEFAULT_LANES
    limits: LimitsTable = LimitsTable()
    fail_on: FailOn = "never"
    budget: Annotated[float, msgspec.Meta(ge=0)] | None = None
    control_run: bool = True
    realtime: bool = False


class Configuration(_Written, frozen=True, kw_only=True):
    """The whole file: `[target]` or several `[[targets]]`, `[brief]`, `[run]`."""

    target: Target | None = None
    targets: list[Target] = msgspec.field(default_factory=list)
    brief: BriefTable = BriefTable()
    run: Run = Run()

    def all_targets(self) -> list[Target]:
        return [self.target] if self.target is not None else list(self.targets)


def read_configuration(path: Path) -> Configuration:
    """Read a project's `playlane.toml`.

    Raises `ConfigurationError` with every fault found: not a file, too large, no TOML, unknown keys (with the nearest
    known one), values out of their range, targets missing or named twice, a `goal_when` that does not parse.
    """
    try:
        size = path.stat().st_size
        if size > MAX_CONFIGURATION_BYTES:
            raise ConfigurationError(str(path), [f"is {size} bytes long, more than {MAX_CONFIGURATION_BYTES}"])
        text = read_users_file(path).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(path), [f"is not UTF-8 at byte {error.start}"]) from error
    return parse_configuration(text, str(path))


def parse_configuration(text: str, where: str) -> Configuration:
    """Read the text of a `playlane.toml`; `where` names it in the error. Raises `ConfigurationError`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(where, [f"is not TOML: {error}"]) from error
    faults = TableFaults()
    found = read_table(Configuration, table, "", faults)
    if isinstance(brief := table.get("brief"), dict):
        _check_goal("brief", brief.get("goal_when"), faults)
    if found is not None:
        _check_targets(found, faults)
    if faults.faults or found is None:
        raise ConfigurationError(where, faults.faults)
    return found


def _check_targets(found: Configuration, faults: TableFaults) -> None:
    if found.target is not None and found.targets:
        faults.add("targets", "stands beside [target]; use one [target], or [[targets]] for all")
    names: set[str] = set()
    for index, target in enumerate(found.all_targets()):
        key = "target" if found.target is not None else f"targets[{index}]"
        check_target(key, target, faults)
        name = target_name(target)
        if name in names:
            faults.add(f"{key}.name", f"{name!r} is used twice; give each target a name of its own")
        names.add(name)


def check_target(key: str, target: Target, faults: TableFaults) -> None:
    """Add what is wrong with one target: seed out of range, kind and driver that do not fit, nothing to play."""
    if target.seed is not None and target.seed > MAX_SEED:
        faults.add(f"{key}.seed", f"is {target.seed}; seeds go from 0 to {MAX_SEED}")
    driver, kind = target_driver(target), target_kind(target)
    fits = kind == KIND_OF_DRIVER[driver] or (kind == "directory" and driver in ("playwright_web", "webdriver"))
    if not fits:
        faults.add(f"{key}.kind", f"{kind} is not played by the driver {driver}; leave one of both out")
    if driver == "cli_stdio" and not (target.driver_config or target.path):
        faults.add(f"{key}.driver_config", "is missing: name the bridge file of the game")
    if driver == "terminal":
        _check_terminal(key, target, faults)
    elif target.command is not None:
        faults.add(f"{key}.command", f"has no meaning for the driver {driver}; take it out")
    if target.driver_config and target.path and kind == "bridge":
        faults.add(f"{key}.path", "stands beside driver_config; a bridge has one file, name it once")
    if target.brief is not None:
        _check_goal(f"{key}.brief", target.brief.goal_when, faults)


def command_words(command: list[str] | str) -> list[str]:
    """A command as words; a text is split like a shell would, and one that cannot be stays whole (it is refused)."""
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _check_terminal(key: str, target: Target, faults: TableFaults) -> None:
    if not target.command:
        faults.add(f"{key}.command", 'is missing: the words that start the game, as in ["python3", "game.py"]')
    if isinstance(target.command, str):
        try:
            shlex.split(target.command)
        except ValueError as error:
            faults.add(f"{key}.command", f"cannot be split into words: {error}")
    if target.prompt is not None:
        try:
            re.compile(target.prompt)
        except re.error as error:
            faults.add(f"{key}.prompt", f"{target.prompt!r} is no regular expression: {error}")


def target_driver(target: Target) -> DriverName:
    """The driver named, else the one of the kind, else what the given keys point to."""
    if target.driver is not None:
        return target.driver
    if target.kind is not None:
        return DRIVER_OF_KIND[target.kind]
    if target.command is not None:
        return "terminal"
    return "cli_stdio" if target.driver_config else "playwright_web"


def target_kind(target: Target) -> TargetKind:
    return target.kind if target.kind is not None else KIND_OF_DRIVER[target_driver(target)]


def target_name(target: Target) -> str:
    """The name given, else the last folder or file name of what is played."""
    if target.name:
        return target.name
    if target.command:
        return _name_of_command(command_words(target.command))
    place = target.driver_config or target.path or target.url or "target"
    path = Path(place)
    return path.parent.name or path.stem if target_kind(target) == "bridge" else path.stem or "target"


def _name_of_command(words: list[str]) -> str:
    """The program's name; of an interpreter's, the script or module that it runs."""
    program, *rest = (Path(word).stem for word in words)
    if _INTERPRETER.fullmatch(program):
        return next((name for name, word in zip(rest, words[1:], strict=True) if not word.startswith("-")), program)
    return program or "game"


def default_max_actions(driver: str) -> int:
    return DEFAULT_MAX_ACTIONS_TEXT if driver in TEXT_DRIVERS else DEFAULT_MAX_ACTIONS_SCREEN


_INTERPRETER = re.compile(r"python[\d.]*|node|ruby|perl|lua[\d.]*|java|sh|bash|frotz|dfrotz")

# -- the brief -------------------------------------------------------------------------------------------------------

_GOAL_WHEN = re.compile(
    r"\s*(state|progress|scene|url|outcome|metrics|goal)(\.[A-Za-z_][\w-]*|\[\d+\])*\s*"
    r"((==|!=|>=|<=|>|<)\s*(?P<value>.+?))?\s*"
)


def _is_goal_test(text: str) -> bool:
    match = _GOAL_WHEN.fullmatch(text)
    if match is None or match["value"] is None:
        return match is not None
    try:
        json.loads(match["value"])
    except ValueError:
        return False
    return True


def _check_goal(key: str, goal_when: object, faults: TableFaults) -> None:
    if isinstance(goal_when, str) and not _is_goal_test(goal_when):
        faults.add(
            f"{key}.goal_when",
            f"{goal_when!r} does not compare one path with a literal, as in: state.level >= 3 (paths begin with state,"
            " progress, scene, url, outcome, metrics or goal; texts stand in double quotes)",
        )
