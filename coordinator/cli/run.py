"""`coordinate run`: plan if needed, play, report."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click
import msgspec

from coordinator.cli.console import shown
from coordinator.cli.options import Session, common, example, play_options
from coordinator.configuration import ConfigurationError, target_name
from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import read_document
from coordinator.plan import first_attempts, make_manifest
from coordinator.planning import campaign_to_play
from coordinator.project import Campaign
from coordinator.settings import Overrides, Settings, settle


@click.command(
    "run", epilog=example("coordinate run --driver-config my-game/bridge.json --personas all --fail-on major")
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
@click.option("--quote", is_flag=True, help="Say what it would cost and play nothing.")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: in the campaign's folder).")
@click.option("--selections", metavar="FILE", help="Play what coordinate retry wrote, in a new batch of its campaign.")
@click.option("--manifest", metavar="FILE", help="With --selections: the campaign's manifest (default: the newest).")
@play_options
@common
def run_command(
    session: Session,
    flags: Overrides,
    command: tuple[str, ...],
    quote: bool,
    control: str | None,
    selections: str | None,
    manifest: str | None,
) -> int:
    """Play, and report: personas play the build in two lanes of supervised processes, findings are replayed.

    Everything here is free. Ctrl-C once: nothing more is started and runs finish their turn; twice: they are ended.
    """
    from coordinator.campaign import BatchOrder
    from coordinator.cli.playing import play_and_show, show_plan
    from coordinator.cli.report import read_baseline

    console, project = session.console, session.project
    if command:
        # Run where it was typed, which the project's folder may be above.
        flags = msgspec.structs.replace(flags, terminal_command=command, command_folder=str(Path.cwd()))
    if selections is not None:
        return _play_selections(session, flags, selections, manifest, control)
    if manifest is not None:
        raise ConfigurationError("--manifest", ["goes with --selections; run plans its own campaign otherwise"])
    settings = settle(project.root, project.read_configuration(), flags)
    if quote:
        return _quote(session, settings)
    baseline = read_baseline(settings.baseline)
    probe_targets(session, settings)
    planned = campaign_to_play(project, settings, utc_now())
    campaign = planned.campaign
    if campaign is None:
        raise RefusedError("run: the plan was not written")
    show_plan(console, planned.document["scenarios"], settings.lanes)
    console.detail(f"  {shown(campaign.manifest_path)}")
    order = BatchOrder(
        manifest_path=campaign.manifest_path,
        control_directory=control_directory(campaign, control),
        batch_id=new_batch_id(campaign),
        selections=first_attempts(planned.document, now=utc_now()),
        project=project.root,
        lanes=settings.lanes,
        fail_on=settings.fail_on,
        baseline=baseline,
    )
    code, document = play_and_show(console, campaign, order)
    console.document(document)
    return code


def _play_selections(
    session: Session, flags: Overrides, selections: str, manifest: str | None, control: str | None
) -> int:
    from coordinator.campaign import BatchOrder
    from coordinator.cli.playing import play_and_show, show_plan
    from coordinator.cli.report import planned_level, read_baseline

    if flags != Overrides(lanes=flags.lanes, fail_on=flags.fail_on, baseline=flags.baseline):
        raise ConfigurationError(
            "--selections",
            ["plays what was planned; only --concurrency, --fail-on and --baseline can be given with it"],
        )
    campaign = session.project.campaign_of(manifest)
    rows = _read_selections(selections)
    known = {scenario["id"]: scenario for scenario in campaign.read_manifest()["scenarios"]}
    missing = [one["scenarioId"] for one in rows if one["scenarioId"] not in known]
    if missing:
        raise ConfigurationError(selections, [f"{name} is not in {campaign.manifest_path}" for name in missing])
    lanes = flags.lanes or 2
    show_plan(session.console, [known[one["scenarioId"]] for one in rows], lanes)
    order = BatchOrder(
        manifest_path=campaign.manifest_path,
        control_directory=control_directory(campaign, control),
        batch_id=new_batch_id(campaign),
        selections=rows,
        project=session.project.root,
        lanes=lanes,
        fail_on=flags.fail_on or planned_level(campaign),
        baseline=read_baseline(flags.baseline),
    )
    code, document = play_and_show(session.console, campaign, order)
    session.console.document(document)
    return code


def _read_selections(path: str) -> list[dict[str, Any]]:
    try:
        document, _ = read_document(str(Path(path).absolute()))
    except FileNotFoundError as error:
        raise InvalidInputError(f"{path}: there is no such file; coordinate retry writes one") from error
    rows = document.get("selections")
    if not isinstance(rows, list) or not all(isinstance(one, dict) and "scenarioId" in one for one in rows):
        raise InvalidInputError(
            f"{path}: selections is not a list of scenarios and attempts, as coordinate retry writes"
        )
    return rows


def _quote(session: Session, settings: Settings) -> int:
    runs = make_manifest(settings, campaign_id="quote", now=utc_now())["scenarios"]
    console = session.console
    console.say(f"{len(runs)} runs with the brain {settings.brain}: $0.00, nothing is charged")
    console.say(console.dim("games, traces and reports stay on this machine; nothing is uploaded"))
    console.document(
        {
            "estimate_cents": 0,
            "persona_run_count": len(runs),
            "runs": [{"scenario": run["id"], "cents": 0} for run in runs],
            "uploads": [],
            "exit_code": 0,
        }
    )
    return 0


def probe_targets(session: Session, settings: Settings) -> None:
    """Start, one reset, one step, close of each game, before anything is planned or registered."""
    from coordinator.asking import probe_game
    from coordinator.games import read_game

    seen: set[tuple[str, str]] = set()
    for target in settings.targets:
        game = read_game(settings.project, target)
        if (str(game.place), game.source_sha256) in seen:
            continue
        seen.add((str(game.place), game.source_sha256))
        seed = None if settings.no_seed else settings.seed if settings.seed is not None else target.seed
        seed = 1 if seed is None and not settings.no_seed else seed
        answer = probe_game(session.project, game.driver, game.place, game.settings, seed=seed)
        if answer.fault is not None:
            what = "the bridge" if game.driver == "cli_stdio" else "the game"
            raise ConfigurationError(f"target {target_name(target)}", [f"{what} does not play: {answer.fault}"])
        session.console.detail(f"  probed {shown(game.place)}")


def control_directory(campaign: Campaign, named: str | None) -> Path:
    return Path(named).absolute() if named is not None else campaign.next_batch()


def new_batch_id(campaign: Campaign) -> str:
    """Random, so that no batch is ever taken for another one of the same campaign."""
    return f"{campaign.name}-{secrets.token_hex(4)}"
