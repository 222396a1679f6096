"""`coordinate demo`: the bundled game, free and offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import coordinator
from coordinator.cli.options import Session, common, example
from coordinator.configuration import BriefTable, Configuration, Run, Target
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.outcome import CANCELED
from coordinator.plan import first_attempts
from coordinator.planning import campaign_to_play
from coordinator.settings import Overrides, settle

EXAMPLE = Path("examples", "cavern", "bridge-demo.json")
DICE_EXAMPLE = Path("examples", "pig", "simulation.json")
SECONDS_OF_A_RUN = 40.0


@click.command("demo", epilog=example("coordinate demo"))
@common
def demo_command(session: Session) -> int:
    """Play the bundled games: a text game with two personas and two controllers, a dice game by the thousand.

    Offline, free, within two minutes. The text game has planted bugs, so that there is something to see in the report.
    """
    from coordinator.campaign import BatchOrder
    from coordinator.cli.playing import play_and_show, show_plan
    from coordinator.cli.run import new_batch_id, probe_targets

    project, console = session.project, session.console
    settings = settle(project.root, demo_configuration(), Overrides(time_limit_seconds=SECONDS_OF_A_RUN))
    probe_targets(session, settings)
    planned = campaign_to_play(project, settings, utc_now())
    campaign = planned.campaign
    if campaign is None:
        raise RefusedError("demo: the plan was not written")
    show_plan(console, planned.document["scenarios"], settings.lanes)
    order = BatchOrder(
        manifest_path=campaign.manifest_path,
        control_directory=campaign.next_batch(),
        batch_id=new_batch_id(campaign),
        selections=first_attempts(planned.document, now=utc_now()),
        project=project.root,
        lanes=settings.lanes,
        fail_on=settings.fail_on,
    )
    code, document = play_and_show(console, campaign, order)
    if code != CANCELED:
        dice_code, document["simulation"] = _play_dice(session)
        code = code or dice_code
        document["exit_code"] = code
    console.say(console.dim("your own game: coordinate init, or coordinate run --driver-config FILE"))
    console.document(document)
    return code


def _play_dice(session: Session) -> tuple[int, dict[str, Any]]:
    """Where should the first player of Pig hold? Three answers, a thousand games each."""
    from coordinator.cli.simulate import play_and_show_batch
    from coordinator.simulation import new_simulation, read_order

    order, checked = read_order(
        session.project.root,
        _bundled(DICE_EXAMPLE),
        driver_config=None,
        wall_seconds=SECONDS_OF_A_RUN,
        workers=None,
        csv=False,
    )
    session.console.say(
        f"\n{session.console.bold('simulation')}  {checked.runs} games of Pig by fixed strategies, free"
    )
    return play_and_show_batch(session.console, new_simulation(session.project, order, now=utc_now()))


def _bundled(example_file: Path) -> Path:
    """A file of the examples. Raises `RefusedError` where it is missing."""
    found = Path(coordinator.__file__).resolve().parent.parent / example_file
    if not found.is_file():
        raise RefusedError(
            f"demo: the bundled game is not at {found}; it comes with a checkout of the source, not with an installed"
            " package"
        )
    return found


def demo_configuration() -> Configuration:
    """The bundled game, as a project's file would name it. Raises `RefusedError` where it is missing."""
    bridge = _bundled(EXAMPLE)
    return Configuration(
        target=Target(name="demo", driver_config=str(bridge)),
        brief=BriefTable(
            goals=["Light the lamp and get out alive."],
            success="The game says that you made it.",
            controls="Choose one of the listed moves.",
        ),
        run=Run(personas=["newcomer", "explorer"], controllers=["standard", "rune"]),
    )
