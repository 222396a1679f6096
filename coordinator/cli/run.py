"""`coordinate run`: plan if needed, play, report."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from coordinator.cli.console import shown
from coordinator.cli.options import Session, common, example, play_options
from coordinator.configuration import ConfigurationError, target_name
from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.files import read_document
from coordinator.plan import make_manifest
from coordinator.planning import campaign_to_play
from coordinator.project import Campaign
from coordinator.settings import Overrides, Settings, settle

if TYPE_CHECKING:
    from coordinator.cli.buying import Order


MAX_PRICINGS = 3
"""How often a price that moves is shown and asked about in one command."""


@click.command(
    "run", epilog=example("coordinate run --driver-config my-game/bridge.json --personas all --fail-on major")
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
@click.option("--quote", is_flag=True, help="Say what it would cost and play nothing.")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: in the campaign's folder).")
@click.option("--selections", metavar="FILE", help="Play what coordinate retry wrote, in a new batch of its campaign.")
@click.option("--manifest", metavar="FILE", help="With --selections: the campaign's manifest (default: the newest).")
@click.option("--max-price", metavar="DOLLARS", help="Refuse a higher price, whatever is answered to questions.")
@click.option("--budget", metavar="DOLLARS", help="Hold at most this much of the project's budget for the campaign.")
@click.option("--service", metavar="URL", help="Buy at a remote service (token in PLAYLANE_SERVICE_TOKEN).")
@click.option("--game", metavar="ID", help="With --service: the game there.")
@click.option("--upload-video", is_flag=True, help="Record and also upload videos.")
@click.option("--upload-transcript", is_flag=True, help="Also upload transcripts.")
@click.option("--dry-upload", is_flag=True, help="Say each file and its bytes, and send nothing.")
@click.option("--offline-upload", is_flag=True, help="Queue uploads; coordinate upload sends them.")
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
    **terms: Any,
) -> int:
    """Play, and report: personas play the build in two lanes of supervised processes, findings are replayed.

    The brains offline and random are free. A price is shown and asked about before anything is registered. Ctrl-C once:
    nothing more is started and runs finish their turn; twice: they are ended. What was bought goes on with resume.
    """
    from coordinator.cli.buying import make_order, quote_only, read_terms, refuse_without_budget
    from coordinator.cli.playing import show_plan
    from coordinator.cli.report import read_baseline

    console, project = session.console, session.project
    if command:
        # Run where it was typed, which the project's folder may be above.
        flags = msgspec.structs.replace(flags, terminal_command=command, command_folder=str(Path.cwd()))
    if selections is not None:
        if any(terms.values()):
            raise ConfigurationError("--selections", ["plays within what was bought; it takes no flags of a purchase"])
        return _play_selections(session, flags, selections, manifest, control)
    if manifest is not None:
        raise ConfigurationError("--manifest", ["goes with --selections; run plans its own campaign otherwise"])
    agreed, configuration = read_terms(terms), project.read_configuration()
    if agreed.upload_video:
        flags = msgspec.structs.replace(flags, record_video=True)
    settings = settle(project.root, configuration, flags)
    named = flags.controller is not None or flags.compare_with is not None
    order = make_order(
        settings,
        agreed,
        make_manifest(settings, campaign_id="quote", now=utc_now())["scenarios"],
        run_length="long" if flags.long else "standard",
        controllers_chosen=named or settings.controllers != ["standard"],
        configured_budget=configuration.run.budget if configuration is not None else None,
    )
    if quote:
        return quote_only(session, order)
    baseline = read_baseline(settings.baseline)
    refuse_without_budget(project, order)
    probe_targets(session, settings)
    show_plan(console, order.scenarios, settings.lanes, "free" if order.price.worst == 0 else "at a price")
    return _buy(session, order, baseline, control)


def _buy(session: Session, order: Order, baseline: list[str] | None, control: str | None) -> int:
    """Quote, ask, journal, register, play, settle. A price that moved is shown and asked again under a new key."""
    from coordinator.cli.buying import accept, ask_quote, make_options, open_service, show_quote, write_journal
    from coordinator.cli.carrying import carry_and_show
    from coordinator.purchase import PriceMovedError

    project, terms, settings = session.project, order.terms, order.settings
    with asyncio.Runner() as runner:
        service = open_service(
            project,
            url=terms.service,
            game=terms.game,
            price=order.price,
            cap=order.cap,
            wall_seconds=settings.wall_seconds,
        )
        try:
            accepted: int | None = None
            for tries in range(1, MAX_PRICINGS + 1):
                estimate = runner.run(ask_quote(service, order))
                if estimate.estimate_cents:
                    show_quote(session.console, order, estimate)
                accept(session, order, estimate, accepted_cents=accepted)
                accepted = estimate.estimate_cents if accepted is None else min(accepted, estimate.estimate_cents)
                campaign = campaign_to_play(project, settings, utc_now()).campaign
                if campaign is None:
                    raise RefusedError("run: the plan was not written")
                options = make_options(
                    order, estimate, baseline=baseline, control=str(control_directory(campaign, control))
                )
                file = write_journal(
                    session, order, service, estimate, manifest_path=campaign.manifest_path, options=options
                )
                try:
                    return carry_and_show(session, runner, file, service)
                except PriceMovedError as error:
                    if tries == MAX_PRICINGS:
                        raise
                    session.console.say(f"the price moved: {error}")
                finally:
                    file.close()
            raise RefusedError("run: no price stood long enough to be paid")
        finally:
            runner.run(service.close())


def _play_selections(
    session: Session, flags: Overrides, selections: str, manifest: str | None, control: str | None
) -> int:
    from coordinator.campaign import BatchOrder
    from coordinator.cli.carrying import chosen_of
    from coordinator.cli.playing import play_and_show, show_plan
    from coordinator.cli.report import planned_level, read_baseline
    from coordinator.cli.resume import go_on
    from coordinator.prices import action_price
    from coordinator.resume import open_journal_of

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
    bought = open_journal_of(session.project.root, campaign.manifest_path)
    if bought is not None:
        return go_on(session, bought, chosen_of(rows, control=control, lanes=flags.lanes), question=None)
    brains = sorted({one["playtest"]["brain"] for one in known.values() if action_price(one["playtest"]["brain"])})
    if brains:
        raise RefusedError(
            f"the purchase of {campaign.manifest_path} is settled, and the brain {', '.join(brains)} costs; buy another"
            " campaign with: coordinate run"
        )
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
