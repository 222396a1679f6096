"""`coordinate demo`: the bundled game, free and offline."""

from __future__ import annotations

from pathlib import Path

import click

import coordinator
from coordinator.cli.options import Session, common, example
from coordinator.configuration import BriefTable, Configuration, Run, Target
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.plan import first_attempts
from coordinator.planning import campaign_to_play
from coordinator.settings import Overrides, settle

EXAMPLE = Path("examples", "cavern", "bridge-demo.json")
SECONDS_OF_A_RUN = 40.0


@click.command("demo", epilog=example("coordinate demo"))
@common
def demo_command(session: Session) -> int:
    """Play the bundled text game with two personas and two controllers: offline, free, within two minutes.

    The game has planted bugs, so that there is something to see in the report.
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
    console.say(console.dim("your own game: coordinate init, or coordinate run --driver-config FILE"))
    console.document(document)
    return code


def demo_configuration() -> Configuration:
    """The bundled game, as a project's file would name it. Raises `RefusedError` where it is missing."""
    bridge = Path(coordinator.__file__).resolve().parent.parent / EXAMPLE
    if not bridge.is_file():
        raise RefusedError(
            f"demo: the bundled game is not at {bridge}; it comes with a checkout of the source, not with an installed"
            " package"
        )
    return Configuration(
        target=Target(name="demo", driver_config=str(bridge)),
        brief=BriefTable(
            goals=["Light the lamp and get out alive."],
            success="The game says that you made it.",
            controls="Choose one of the listed moves.",
        ),
        run=Run(personas=["newcomer", "explorer"], controllers=["standard", "rune"]),
    )
