"""`coordinate verify`: proof from files."""

from __future__ import annotations

import click
import msgspec

from coordinator.cli.console import plain
from coordinator.cli.options import Session, common, example
from coordinator.money import verify_purchases
from coordinator.outcome import FAILURE, SUCCESS
from coordinator.verification import Verification, verify


@click.command("verify", epilog=example("coordinate verify"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="A control directory besides those that the claims name.")
@common
def verify_command(session: Session, manifest: str | None, control: str | None) -> int:
    """Prove from manifest, claims, states, receipts and deliveries that every attempt was launched at most once."""
    console = session.console
    campaign = session.project.campaign_of(manifest)
    found = verify(campaign.manifest_path, control)
    money = verify_purchases(session.project.root, campaign.manifest_path)
    found = Verification(
        problems=[*found.problems, *money.problems],
        notes=[*found.notes, *money.notes],
        checked={**found.checked, **money.checked},
    )
    for problem in found.problems:
        console.say(f"{console.bad('does not fit')}  {plain(problem.where)}: {plain(problem.what)}")
    for note in found.notes:
        console.say(console.dim(f"note  {plain(note.where)}: {plain(note.what)}"))
    checked = ", ".join(f"{count} {what}" for what, count in found.checked.items()) or "nothing to compare"
    if found.problems:
        console.say(f"{len(found.problems)} contradictions; checked {checked}")
    else:
        console.say(f"{console.good('everything fits')}: nothing was launched or charged twice; checked {checked}")
    code = FAILURE if found.problems else SUCCESS
    console.document({"manifest": str(campaign.manifest_path), **msgspec.to_builtins(found), "exit_code": code})
    return code
