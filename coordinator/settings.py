"""What one campaign plays: the configuration with the command line's flags laid over it, and everything checkable
about it before anything is registered, charged or started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator.builds import read_bridge
from coordinator.configuration import (
    CONTROLLERS,
    DRIVERS,
    FREE_BRAINS,
    BriefTable,
    Configuration,
    ConfigurationError,
    LimitsTable,
    Run,
    Target,
    check_target,
    default_max_actions,
    target_driver,
    target_name,
)
from coordinator.marks import known_findings, read_marks
from coordinator.prices import action_price
from coordinator.tables import TableFaults
from workers.contract import load_persona, persona_names

COMPARING_DRIVERS = ("playwright_web", "godot_driver", "cli_stdio", "terminal")
MAX_CONTROLLERS = 3
MAX_SCENARIOS = 2_000
FAIL_ON = ("critical", "major", "minor", "new:critical", "new:major", "new:minor", "never")
DEFAULT_BRIEF = BriefTable(
    goals=["Play the game as its player would and get as far as you can."],
    success="You reach an ending that the game calls a success.",
)
# Keys that say something to other kinds of drivers: silently ignoring them would let a user believe they work.
_MEANINGLESS = {
    "cli_stdio": ("url", "device", "allow_hosts", "auth", "setup", "prompt"),
    "terminal": ("url", "device", "allow_hosts", "auth", "setup", "driver_config"),
}


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What flags said; None and empty where a flag was not given."""

    driver: str | None = None
    driver_config: str | None = None
    terminal_command: tuple[str, ...] = ()
    command_folder: str | None = None
    build_url: str | None = None
    build_dir: str | None = None
    godot_project: str | None = None
    personas: str | None = None
    controller: str | None = None
    compare_with: str | None = None
    brain: str | None = None
    model: str | None = None
    repetitions: int | None = None
    seed: int | None = None
    no_seed: bool = False
    lanes: int | None = None
    max_actions: int | None = None
    time_limit_seconds: float | None = None
    long: bool = False
    fail_on: str | None = None
    baseline: str | None = None
    realtime: bool = False
    no_control: bool = False
    record_video: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign's play, checked. `personas` are decoded persona files; `project` is absolute."""

    project: Path
    targets: list[Target]
    brief: BriefTable
    personas: list[dict[str, Any]]
    controllers: list[str]
    repetitions: int
    brain: str
    model: str | None
    seed: int | None
    no_seed: bool
    lanes: int
    max_actions: int | None
    wall_seconds: float
    limits: LimitsTable
    fail_on: str
    baseline: Path | None
    control_run: bool
    realtime: bool
    record_video: bool
    known_findings: dict[str, str] = msgspec.field(default_factory=dict)
    """Signature -> name of what a person marked as intended."""

    def max_actions_for(self, driver: str) -> int:
        """The limit that was set, else the default of the driver's kind, times the factor of a long run."""
        return self.max_actions if self.max_actions is not None else default_max_actions(driver)


def settle(project: Path, configuration: Configuration | None, flags: Overrides) -> Settings:
    """Lay the flags over the configuration and check all that can be checked without starting anything.

    Raises `ConfigurationError` listing every fault: flags that exclude each other, unknown or repeated personas and
    controllers, more than three controllers, controllers that need a model, brains, drivers and targets that cannot be
    played, an incomplete brief, numbers out of range.
    """
    faults = TableFaults()
    run = configuration.run if configuration is not None else Run()
    targets = _choose_targets(project, configuration, flags, faults)
    controllers = _choose_controllers(run, flags, faults)
    brain = flags.brain or run.brain
    _check_brain(brain, flags.model or run.model, controllers, faults)
    fail_on = flags.fail_on or run.fail_on
    if fail_on not in FAIL_ON:
        faults.add("--fail-on", f"{fail_on!r} is not known; known: {', '.join(FAIL_ON)}")
    _check_baseline(fail_on, flags.baseline, faults)
    personas = _choose_personas(project, run, flags, faults)
    brief = configuration.brief if configuration is not None else BriefTable()
    for target in targets:
        _check_playable(project, target, controllers, flags, faults)
        _check_brief_complete(target, target.brief if target.brief is not None else brief, faults)
    repetitions = flags.repetitions if flags.repetitions is not None else run.repetitions
    count = len(targets) * len(personas) * len(controllers) * repetitions
    if count > MAX_SCENARIOS:
        faults.add("run", f"asks for {count} runs, at most {MAX_SCENARIOS} fit one campaign; plan several")
    if flags.no_seed and flags.seed is not None:
        faults.add("--no-seed", "stands beside --seed; use one of both")
    if faults.faults:
        raise ConfigurationError("this run", faults.faults)
    factor = run.limits.long_run_factor if flags.long else 1
    wall = flags.time_limit_seconds if flags.time_limit_seconds is not None else run.limits.wall_seconds
    actions = flags.max_actions if flags.max_actions is not None else run.limits.max_actions
    if flags.long and actions is None:
        actions = default_max_actions(target_driver(targets[0]))
    return Settings(
        project=project,
        targets=targets,
        brief=brief,
        personas=personas,
        controllers=controllers,
        repetitions=repetitions,
        brain=brain,
        model=flags.model or run.model,
        seed=flags.seed,
        no_seed=flags.no_seed,
        lanes=flags.lanes if flags.lanes is not None else run.lanes,
        max_actions=actions * factor if actions is not None else None,
        wall_seconds=(wall if wall is not None else 600.0) * factor,
        limits=run.limits,
        fail_on=fail_on,
        baseline=Path(flags.baseline).absolute() if flags.baseline is not None else None,
        control_run=run.control_run and not flags.no_control and brain != "random",
        realtime=run.realtime or flags.realtime,
        record_video=flags.record_video,
        known_findings=known_findings(read_marks(project)),
    )


def _choose_targets(
    project: Path, configuration: Configuration | None, flags: Overrides, faults: TableFaults
) -> list[Target]:
    named: dict[str, object] = {
        "-- COMMAND": flags.terminal_command or None,
        "--build-url": flags.build_url,
        "--build-dir": flags.build_dir,
        "--godot-project": flags.godot_project,
        "--driver-config": flags.driver_config,
    }
    given = {flag: value for flag, value in named.items() if value is not None}
    if len(given) > 1:
        faults.add(", ".join(given), "name several targets; give one")
    for flag in ("--build-url", "--build-dir", "--godot-project"):
        if flag in given:
            faults.add(flag, _not_here("web pages and Godot projects"))
    if flags.driver is not None and flags.driver not in DRIVERS:
        faults.add("--driver", f"{flags.driver}: {_not_here('this driver')}")
    if flags.terminal_command and len(given) == 1:
        return [Target(driver="terminal", command=list(flags.terminal_command), path=flags.command_folder)]
    if given:
        if flags.driver_config is None:
            return []
        target = Target(driver="cli_stdio", driver_config=str(Path(flags.driver_config).absolute()))
        return [target]
    targets = configuration.all_targets() if configuration is not None else []
    if not targets and not faults.faults:
        where = project / "playlane.toml"
        faults.add(
            "target",
            f"is missing: {where} {'names none' if configuration is not None else 'is not there'}; name a game with"
            " --driver-config FILE, or write the file with: coordinate init",
        )
    return targets


def _not_here(what: str) -> str:
    return (
        f"{what} cannot be played by this version, which plays {', '.join(DRIVERS)}: a game that speaks the bridge"
        " protocol (docs/bridge-protocol.md), named with --driver-config FILE, or a text game: run -- COMMAND"
    )


def _choose_controllers(run: Run, flags: Overrides, faults: TableFaults) -> list[str]:
    allowed = f"allowed: {', '.join(CONTROLLERS)}"
    if flags.controller is not None and flags.compare_with is not None:
        faults.add(
            "--controller",
            "stands beside --compare-with; --controller NAME plays with one, --compare-with jev,rune plays standard"
            f" and those; {allowed}",
        )
        return ["standard"]
    if flags.controller is not None:
        key, names = "--controller", [flags.controller]
    elif flags.compare_with is not None:
        key, names = "--compare-with", ["standard", *_split(flags.compare_with)]
    else:
        key, names = "run.controllers", list(run.controllers)
    good = True
    for name in dict.fromkeys(names):
        if name not in CONTROLLERS:
            faults.add(key, f"{name!r} is not a controller; {allowed}")
            good = False
        elif names.count(name) > 1:
            why = " (it is always played in a comparison)" if key == "--compare-with" and name == "standard" else ""
            faults.add(key, f"{name} is named twice{why}; name each once; {allowed}")
            good = False
    if len(names) > MAX_CONTROLLERS:
        faults.add(key, f"names {len(names)} controllers, at most {MAX_CONTROLLERS} can be compared; {allowed}")
        good = False
    if not names:
        faults.add(key, f"names no controller; {allowed}")
    return names if good and names else ["standard"]


def _check_brain(brain: str, model: str | None, controllers: Sequence[str], faults: TableFaults) -> None:
    if action_price(brain) is None:
        faults.add(
            "--brain",
            f"{brain!r} cannot play in this version; {' and '.join(FREE_BRAINS)} can, and cost nothing; scripted:PRICE"
            " rehearses a paid campaign (PRICE: millionths of a dollar for each action, from 1 to 10000000)",
        )
        return
    if model is not None:
        faults.add("--model", f"{model!r}: the brain {brain} uses no model; leave it out")
    if "jev" in controllers:
        faults.add("controller jev", f"needs a brain with a model, and {brain} has none; use standard or rune")


def _check_baseline(fail_on: str, baseline: str | None, faults: TableFaults) -> None:
    if fail_on.startswith("new:") and baseline is None:
        faults.add("--fail-on", f"{fail_on} needs --baseline FILE: the aggregate.json of the campaign to compare with")
    if baseline is not None and not fail_on.startswith("new:"):
        faults.add("--baseline", f"has no meaning with --fail-on {fail_on}; use new:critical, new:major or new:minor")
    if baseline is not None and not Path(baseline).is_file():
        faults.add("--baseline", f"{baseline} is not a file")


def _choose_personas(project: Path, run: Run, flags: Overrides, faults: TableFaults) -> list[dict[str, Any]]:
    key = "--personas" if flags.personas is not None else "run.personas"
    asked = _split(flags.personas) if flags.personas is not None else list(run.personas)
    if asked == ["all"]:
        asked = list(persona_names())
    if not asked:
        faults.add(key, f"names nobody; known: {', '.join(persona_names())}, all")
    found: dict[str, dict[str, Any]] = {}
    for one in asked:
        try:
            # A name is a shipped persona; a file named in playlane.toml is relative to it, one in a flag to the shell.
            own_file = one.endswith(".toml") and flags.personas is None
            persona = load_persona(str(project / one) if own_file else one)
        except ValueError as error:
            faults.add(key, str(error))
            continue
        if persona["name"] in found:
            faults.add(key, f"{persona['name']} is named twice; more runs of one persona are --repetitions")
        found[persona["name"]] = persona
    return list(found.values())


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_playable(
    project: Path, target: Target, controllers: Sequence[str], flags: Overrides, faults: TableFaults
) -> None:
    key = f"target {target_name(target)}"
    driver = target_driver(target)
    check_target(key, target, faults)
    if driver not in DRIVERS:
        faults.add(key, f"{driver}: {_not_here('this driver')}")
        return
    if len(controllers) > 1 and driver not in COMPARING_DRIVERS:
        faults.add(key, f"controllers cannot be compared with {driver}, only with {', '.join(COMPARING_DRIVERS)}")
    for name in _MEANINGLESS[driver]:
        if getattr(target, name):
            faults.add(f"{key}.{name}", f"has no meaning for the driver {driver}; take it out")
    if flags.driver is not None and flags.driver != driver:
        faults.add("--driver", f"{flags.driver}: {key} is played by {driver}; leave the flag out, or name another game")
    if driver == "terminal":
        return
    try:
        bridge = read_bridge(bridge_path(project, target))
    except ConfigurationError as error:
        faults.faults.append(str(error))
        return
    seed = flags.seed if flags.seed is not None else target.seed
    bits = bridge.get("seed_bits", 64)
    if seed is not None and not flags.no_seed and not 0 <= seed < 1 << bits:
        faults.add(f"{key}.seed", f"is {seed}; this game takes seeds from 0 to {(1 << bits) - 1} (seed_bits {bits})")


def _check_brief_complete(target: Target, brief: BriefTable, faults: TableFaults) -> None:
    if brief != BriefTable() and not any(goal.strip() for goal in brief.goals):
        faults.add(
            f"brief of {target_name(target)}",
            'is incomplete: goals is empty; write at least one, as in goals = ["leave the cave alive"], or leave the'
            " whole brief out",
        )


def bridge_path(project: Path, target: Target) -> Path:
    """Where the bridge file of a `cli_stdio` target lies; relative names are relative to the project."""
    return project / (target.driver_config or target.path or "bridge.json")


def brief_of(settings: Settings, target: Target) -> BriefTable:
    """The target's own brief, else the common one, else a plain order to play."""
    brief = target.brief if target.brief is not None else settings.brief
    return brief if brief != BriefTable() else DEFAULT_BRIEF
