"""`coordinate retry`: the selections of the next batch, for review."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.console import shown
from coordinator.cli.options import Session, common, example
from coordinator.documents import encode
from coordinator.files import Files
from coordinator.project import Campaign
from coordinator.recovery import retry


@click.command("retry", epilog=example("coordinate retry && coordinate run --selections retry.json"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the newest one).")
@click.option("--out", metavar="FILE", help="Where to write the selections (default: retry.json in the campaign).")
@common
def retry_command(session: Session, manifest: str | None, control: str | None, out: str | None) -> None:
    """Write the next attempt of everything that was not completed, for review. Uncertain rows must be ended first."""
    console = session.console
    campaign = session.project.campaign_of(manifest)
    selections = retry(campaign.manifest_path, control or newest_control(campaign))
    path = Path(out).absolute() if out is not None else campaign.folder / "retry.json"
    if selections:
        Files().replace(str(path), encode({"version": 1, "selections": selections}))
        console.say(f"{len(selections)} attempts to review in {shown(path)}")
        console.table([[str(one["scenarioId"])] for one in selections])
        console.say(f"play them with: coordinate run --selections {shown(path)}")
    else:
        console.say("nothing to retry: everything was completed")
    console.document(
        {
            "manifest": str(campaign.manifest_path),
            "selections": selections,
            "path": str(path) if selections else None,
            "exit_code": 0,
        }
    )


def newest_control(campaign: Campaign) -> str | None:
    """The newest batch in the campaign's folder, or None to let the lock or the claims say."""
    batches = campaign.batches()
    return str(batches[-1]) if batches and not campaign.is_owned else None
