"""`coordinate plan`: configuration to manifest."""

from __future__ import annotations

import click
import msgspec

from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session, common, example, play_options
from coordinator.coordinator import utc_now
from coordinator.plan import PlanDiff
from coordinator.planning import look_at_plan, write_plan
from coordinator.settings import Overrides, settle


@click.command("plan", epilog=example("coordinate plan --diff"))
@click.option("--diff", "diff_only", is_flag=True, help="Only show what would change and what stops qualifying.")
@play_options
@common
def plan_command(session: Session, flags: Overrides, diff_only: bool) -> None:
    """Turn playlane.toml (or flags) into a reviewed list of runs, the manifest of a campaign.

    A plan with the same runs as the newest campaign updates it and keeps its attempts; results whose persona, brief,
    limits, build, oracles or anything else that was measured changed no longer qualify, and --diff names them.
    """
    console = session.console
    settings = settle(session.project.root, session.project.read_configuration(), flags)
    make = look_at_plan if diff_only else write_plan
    planned = make(session.project, settings, utc_now())
    runs = planned.document["scenarios"]
    console.say(f"{console.bold(str(len(runs)))} run{'s' * (len(runs) != 1)} planned, nothing is charged")
    console.table(
        [
            [
                plain(run["playtest"]["target"]),
                run["playtest"]["persona"],
                run["playtest"]["controller"],
                run["playtest"]["brain"],
                f"seed {run['playtest']['seed']}" if run["playtest"]["seed"] is not None else "seed not controlled",
                console.dim(f"at most {run['playtest']['limits']['maxActions']} actions"),
            ]
            for run in runs[:40]
        ]
    )
    if len(runs) > 40:
        console.say(console.dim(f"  and {len(runs) - 40} more"))
    if planned.diff is not None:
        _show_diff(console, planned.diff)
    if planned.campaign is not None:
        console.say(f"\n{'new' if planned.is_new else 'same'} campaign  {shown(planned.campaign.manifest_path)}")
        console.say(console.dim("play it with: coordinate run"))
    console.document(
        {
            "campaign": str(planned.campaign.folder) if planned.campaign is not None else None,
            "manifest": str(planned.campaign.manifest_path) if planned.campaign is not None else None,
            "new": planned.is_new,
            "runs": [{"scenario": run["id"], **run["playtest"]} for run in runs],
            "diff": msgspec.to_builtins(planned.diff) if planned.diff is not None else None,
            "exit_code": 0,
        }
    )


def _show_diff(console: Console, diff: PlanDiff) -> None:
    if diff.empty:
        console.say(console.dim(f"\nno difference to the newest campaign ({diff.unchanged} runs the same)"))
        return
    console.say("\nagainst the newest campaign")
    for name in diff.added:
        console.say(f"  {console.good('+')} {name}")
    for name in diff.removed:
        console.say(f"  {console.bad('-')} {name}")
    for change in diff.changed:
        lost = f"  {change.unqualified} result{'s' * (change.unqualified != 1)} no longer qualifying"
        told = console.uneasy(lost) if change.unqualified else ""
        console.say(f"  {console.uneasy('~')} {change.id}  {', '.join(change.parts)}{told}")
    if diff.unchanged:
        console.say(console.dim(f"    {diff.unchanged} the same"))
