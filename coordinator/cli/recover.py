"""`coordinate recover`: a person looks at what a dead coordinator left, and takes it over."""

from __future__ import annotations

import asyncio

import click
import msgspec

from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.cli.retry import newest_control
from coordinator.inspection import RecoveryReport, inspect_recovery
from coordinator.lanes import find_delivery
from coordinator.outcome import FAILURE, SUCCESS
from coordinator.recovery import Recovered, recover


@click.command("recover", epilog=example("coordinate recover --owner-is-dead 5f3c..."))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the lock's, else the newest).")
@click.option("--owner-is-dead", metavar="TOKEN", help="Take the lock of a dead owner; the token is the one shown.")
@click.option("--worker-is-dead", metavar="ID", multiple=True, help="You made sure that this run's worker is gone.")
@click.option("--accept-manifest", metavar="SHA256", help="You looked at the manifest with this SHA-256.")
@click.option("--end", metavar="ID", multiple=True, help="Close the row of an uncertain or never launched entry.")
@click.option(
    "--outcome",
    type=click.Choice(["interrupted", "failed", "canceled", "budget_exceeded"]),
    default="interrupted",
    show_default=True,
    help="What --end writes.",
)
@common
def recover_command(
    session: Session,
    manifest: str | None,
    control: str | None,
    owner_is_dead: str | None,
    worker_is_dead: tuple[str, ...],
    accept_manifest: str | None,
    end: tuple[str, ...],
    outcome: str,
) -> int:
    """Show what a dead coordinator left and what would be done; with the token or --end, do it. It never launches."""
    console = session.console
    campaign = session.project.campaign_of(manifest)
    directory = control or newest_control(campaign)
    found = inspect_recovery(campaign.manifest_path, directory)
    acts = owner_is_dead is not None or accept_manifest is not None or bool(end)
    if not acts:
        _show(console, found)
        console.document({**msgspec.to_builtins(found), "exit_code": SUCCESS})
        return SUCCESS
    done = asyncio.run(
        recover(
            campaign.manifest_path,
            owner_is_dead=owner_is_dead,
            control_directory=directory,
            worker_is_dead=worker_is_dead,
            accept_manifest=accept_manifest,
            end=end,
            outcome=outcome,
            find_delivery=find_delivery,
        )
    )
    _show_done(console, done)
    code = FAILURE if done.problems or done.left else SUCCESS
    console.document({"manifest": found.manifest, **msgspec.to_builtins(done), "exit_code": code})
    return code


def _show(console: Console, found: RecoveryReport) -> None:
    owner = {
        "alive": console.good("alive"),
        "dead": console.bad("dead"),
        "unknown": console.uneasy("not known: another host, or a lock that cannot be read"),
        "none": "nobody",
    }[found.owner_liveness]
    rows = [
        ["manifest", shown(found.manifest)],
        ["", console.dim(f"SHA-256 {found.manifest_sha256}")],
        ["batch", plain(f"{found.batch_id}  {shown(found.control_directory)}")],
        ["owner", f"{owner}  {console.dim(plain(found.lock))}"],
    ]
    if found.pending is not None:
        rows.append(["pending", plain(found.pending)])
    rows += [
        [
            "uncertain",
            f"{one.reservation_id}  {plain(one.scenario_id)} #{one.ordinal}  {one.phase}, worker {one.liveness}",
        ]
        for one in found.workers
    ]
    rows += [["reserved", one] for one in found.reserved]
    rows += [["delivery", plain(one)] for one in found.deliveries]
    if found.stop is not None:
        rows.append(["stop", plain(found.stop)])
    rows += [["problem", console.bad(plain(one))] for one in found.problems]
    console.table(rows, indent=0)
    console.say("\nwhat there is to do")
    for action in found.actions:
        console.say(f"  {plain(action)}")


def _show_done(console: Console, done: Recovered) -> None:
    for name, ids in (("adopted", done.adopted), ("ended", done.ended)):
        for one in ids:
            console.say(f"{console.good(name)}  {one}")
    for one in done.left:
        console.say(f"{console.uneasy('left')}  {one} is of unknown fate still; end it with --end {one}")
    for problem in done.problems:
        console.say(f"{console.bad('problem')}  {plain(problem)}")
    if not (done.adopted or done.ended or done.left or done.problems):
        console.say("recovered; nothing was uncertain")
    if not done.left and not done.problems:
        console.say(console.dim("go on with: coordinate retry"))
