"""`coordinate status`: what the files say."""

from __future__ import annotations

import os
import select

import click
import msgspec

from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.status import LaneStatus, Status, read_status

WATCH_SECONDS = 1.0
_MARKS = {"completed": "done", "launched": "playing", "launching": "starting", "reserved": "reserved"}


@click.command("status", epilog=example("coordinate status --watch"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the newest one).")
@click.option("--watch", is_flag=True, help="Show it again every second while the campaign runs.")
@common
def status_command(session: Session, manifest: str | None, control: str | None, watch: bool) -> None:
    """Say what a campaign is doing, what it spent, and what is uncertain. Reads files only and writes nothing."""
    console = session.console
    campaign = session.project.campaign_of(manifest)
    status = read_status(campaign, control)
    while watch and status.running and console.is_live:
        console.live(render_status(console, status))
        _wait_for_end(status.owner_pid, WATCH_SECONDS)
        status = read_status(campaign, control)
    console.clear_live()
    for line in render_status(console, status):
        console.say(line)
    console.document({**msgspec.to_builtins(status), "exit_code": 0})


def _wait_for_end(pid: int | None, seconds: float) -> None:
    """Until the coordinator has ended, at most `seconds`; where the system has no pidfd, just that long."""
    descriptor = None
    if pid is not None and hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
    try:
        select.select([descriptor] if descriptor is not None else [], [], [], seconds)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def render_status(console: Console, status: Status) -> list[str]:
    """Lines for people."""
    owner = {
        "alive": console.good(f"running (pid {status.owner_pid})"),
        "dead": console.bad("its coordinator died; look with: coordinate recover"),
        "unknown": console.uneasy("owned from another host, or by a lock that cannot be read; see: coordinate recover"),
        "none": "not running",
    }[status.owner]
    spend = "unknown" if status.spend_usd is None else f"${status.spend_usd:.2f}"
    done, playing = status.count("completed"), status.count("launching", "launched")
    lines = [
        f"{console.bold(plain(status.campaign))}  {owner}",
        f"  {done} of {len(status.lanes)} done, {playing} in lanes, spent {spend}",
    ]
    lines += [f"  {_lane(console, lane)}" for lane in status.lanes[:60]]
    if len(status.lanes) > 60:
        lines.append(console.dim(f"  and {len(status.lanes) - 60} more; all of them with --json"))
    if status.stop is not None:
        lines.append(f"  {console.uneasy('stopped')}  {plain(status.stop)}")
    if status.uncertain and status.owner != "alive":
        lines.append(f"  {console.bad('uncertain')}  {', '.join(status.uncertain)}; look with: coordinate recover")
    lines += [f"  {console.bad('failure')}  {plain(one)}" for one in status.failures]
    lines += [f"  {console.bad('problem')}  {plain(one)}" for one in status.problems]
    if status.control is not None:
        lines.append(console.dim(f"  {shown(status.control)}"))
    return lines


def _lane(console: Console, lane: LaneStatus) -> str:
    word = _MARKS.get(lane.phase, lane.phase)
    told = {"done": console.good, "playing": console.bold, "starting": console.bold}.get(word, console.dim)
    parts = [told(f"{word:<9}"), plain(lane.scenario)]
    if lane.actions_taken is not None:
        parts.append(console.dim(f"{lane.actions_taken} of {lane.of} actions"))
    if lane.findings:
        parts.append(console.uneasy(f"{lane.findings} finding{'s' * (lane.findings != 1)}"))
    if lane.outcome is not None and lane.outcome != "passed":
        parts.append(console.uneasy(lane.outcome))
    if lane.worker is not None and lane.worker != "alive":
        parts.append(console.uneasy(f"worker {lane.worker}"))
    return "  ".join(parts)
