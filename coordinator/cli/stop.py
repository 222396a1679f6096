"""`coordinate stop`: a wish, by file."""

from __future__ import annotations

import os

import click

from coordinator.cli.options import Session, common, example
from coordinator.documents import encode
from coordinator.errors import RefusedError
from coordinator.files import Files
from coordinator.paths import ControlPaths
from coordinator.records import STOP_REASONS
from coordinator.status import read_status


@click.command("stop", epilog=example("coordinate stop --detail 'the build is wrong'"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the newest one).")
@click.option(
    "--reason",
    type=click.Choice(STOP_REASONS),
    default="operator_request",
    show_default=True,
    help="Kept with the stop.",
)
@click.option("--detail", default="asked with coordinate stop", metavar="TEXT", help="Kept with the stop.")
@common
def stop_command(session: Session, manifest: str | None, control: str | None, reason: str, detail: str) -> None:
    """Ask a running campaign to stop: nothing more is started, runs in flight go on to their end."""
    campaign = session.project.campaign_of(manifest)
    status = read_status(campaign, control)
    if status.owner in ("none", "dead") or status.control is None:
        todo = "; look with: coordinate recover" if status.owner == "dead" else ""
        raise RefusedError(f"stop: no coordinator runs {campaign.manifest_path}{todo}")
    path = ControlPaths(status.control).stop_request
    already = os.path.lexists(path)
    if not already:
        Files().replace(path, encode({"reason": reason, "detail": detail}))
    session.console.say(
        "asked already, not yet taken"
        if already
        else "asked; nothing more is started, runs in flight go on to their end"
    )
    session.console.say(session.console.dim("watch it with: coordinate status --watch"))
    session.console.document({"control": status.control, "request": path, "already": already, "exit_code": 0})
