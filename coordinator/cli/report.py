"""`coordinate report`: everything again from the files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from coordinator.cli.console import shown
from coordinator.cli.options import Session, common, example
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.project import Campaign
from coordinator.settings import FAIL_ON
from coordinator.status import read_status

if TYPE_CHECKING:
    from coordinator.reports import Aggregate, CampaignDifference


@click.command("report", epilog=example("coordinate report --format github --fail-on major"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the newest one).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json", "junit", "github"]),
    help="Print this form; without it, all files are built again.",
)
@click.option("--bundle", metavar="FILE", help="A zip of the report and all evidence.")
@click.option(
    "--against", metavar="OTHER", help="Another campaign (name, folder or aggregate.json): new, fixed, still."
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), metavar="LEVEL", help="Level of the verdict (default: the plan's)."
)
@click.option("--baseline", metavar="FILE", help="For new:LEVEL: the aggregate.json to compare with.")
@common
def report_command(
    session: Session,
    manifest: str | None,
    control: str | None,
    form: str | None,
    bundle: str | None,
    against: str | None,
    fail_on: str | None,
    baseline: str | None,
) -> None:
    """Build aggregate, HTML and JUnit again from a campaign's files, print one form, pack all, or compare two."""
    from coordinator import reports

    console = session.console
    campaign = session.project.campaign_of(manifest)
    directory = read_status(campaign, control).control
    if directory is None:
        raise RefusedError(f"report: {campaign.manifest_path} was not played yet; play it with: coordinate run")
    folder = Path(directory)
    level = fail_on or planned_level(campaign)
    known = read_baseline(baseline)
    now = utc_now()
    document: dict[str, object] = {"campaign": campaign.name, "control": directory}
    if form is not None:
        read = reports.read_report(folder, campaign.manifest_path, fail_on=level, now=now, baseline=known)
        content = reports.render(read, form)
        if console.as_json:
            document["content"] = content.decode()
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
    else:
        paths = reports.build_reports(folder, campaign.manifest_path, fail_on=level, now=now, baseline=known)
        document |= {name: str(path) for name, path in msgspec.structs.asdict(paths).items()}
        console.table([["report", shown(paths.html)], ["aggregate", shown(paths.aggregate_json)]], indent=0)
        console.table([["junit", shown(paths.junit_xml)]], indent=0)
    if bundle is not None:
        packed = reports.bundle(folder, Path(bundle).absolute())
        document["bundle"] = str(packed.path)
        console.say(f"bundle  {shown(packed.path)}  ({len(packed.files)} files, {packed.bytes:,} bytes)")
    if against is not None:
        this = reports.read_report(folder, campaign.manifest_path, fail_on=level, now=now, baseline=known).aggregate
        difference = reports.against(this, _other(session, against, now))
        document["against"] = msgspec.to_builtins(difference)
        _show_difference(session, difference)
    console.document({**document, "exit_code": 0})


def planned_level(campaign: Campaign) -> str:
    """The fail_on level that the campaign was planned with."""
    levels = {
        scenario["playtest"]["failOn"]
        for scenario in campaign.read_manifest()["scenarios"]
        if isinstance(scenario.get("playtest"), dict) and "failOn" in scenario["playtest"]
    }
    # new:LEVEL needs the baseline that only the flag names; without it the findings are listed and judge nothing.
    found: str = levels.pop() if len(levels) == 1 else "never"
    return "never" if found.startswith("new:") else found


def read_baseline(path: str | Path | None) -> list[str] | None:
    """The signatures of an earlier campaign's aggregate.json. Raises `CoordinatorError` when it is none."""
    if path is None:
        return None
    from coordinator.reports import read_aggregate

    aggregate = read_aggregate(Path(path))
    return sorted(
        {finding.signature for finding in aggregate.findings} | {one.signature for one in aggregate.suppressed}
    )


def _other(session: Session, name: str, now: str) -> Aggregate:
    """Another campaign's aggregate: an aggregate.json, a campaign's folder, or its name in this project."""
    from coordinator.reports import read_aggregate, read_report

    path = Path(name)
    if path.is_file():
        return read_aggregate(path)
    for folder in (path, session.project.campaigns_folder / name):
        if (folder / "manifest.json").is_file():
            campaign = Campaign(name=folder.name, folder=folder, manifest_path=folder / "manifest.json")
            control = read_status(campaign).control
            if control is None:
                raise RefusedError(f"--against: {folder} was not played yet")
            level = planned_level(campaign)
            return read_report(Path(control), campaign.manifest_path, fail_on=level, now=now).aggregate
    raise RefusedError(
        f"--against: {name} is neither a campaign of {session.project.root}, nor a folder of one, nor a file"
    )


def _show_difference(session: Session, difference: CampaignDifference) -> None:
    from coordinator.reports import render_difference

    session.console.say(render_difference(difference).rstrip())
