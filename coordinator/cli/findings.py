"""`coordinate findings`: what was found, and what people said about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec

from coordinator.cli.console import plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError, RefusedError
from coordinator.marks import FINDINGS_NAME, LABELS, Label, Mark, read_marks, write_mark
from coordinator.status import read_status

if TYPE_CHECKING:
    from coordinator.reports import Aggregate

MAX_NAME_CHARACTERS = 120


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the newest batch, or one that was set aside, with its mark. `ids` name its runs' own findings."""

    signature: str
    title: str
    severity: str
    replay: str | None
    mark: str | None
    name: str | None
    ids: list[str]
    suppressed: bool = False


@click.group("findings", invoke_without_command=True, epilog=example("coordinate findings mark v1:0a1b intended"))
@click.option("--manifest", metavar="FILE", help="The campaign's manifest (default: the project's newest campaign).")
@click.option("--control", metavar="DIR", help="The batch's control directory (default: the newest one).")
@common
@click.pass_context
def findings_command(context: click.Context, session: Session, manifest: str | None, control: str | None) -> int | None:
    """List the findings of the newest campaign with what was said about them, or mark one."""
    context.obj = (session, manifest, control)
    if context.invoked_subcommand is not None:
        return None
    rows = read_rows(session, manifest, control)
    console = session.console
    if not rows:
        console.say("no findings")
    for row in rows:
        said = [row.severity, plain(row.title)[:90], f"replayed {row.replay}" if row.replay else "not replayed"]
        if row.mark is not None:
            said.append(console.uneasy(row.mark))
        if row.suppressed:
            said.append(console.dim(f"known as {plain(row.name)}"))
        console.say("  ".join([console.dim(row.signature), *said]))
        console.detail(f"    {', '.join(row.ids)}")
    console.document({"findings": msgspec.to_builtins(rows), "exit_code": 0})
    return 0


@findings_command.command("mark", epilog=example('coordinate findings mark v1:0a1b intended --name "the bell is loud"'))
@click.argument("finding", metavar="ID")
@click.argument("label", type=click.Choice(LABELS), metavar="|".join(LABELS))
@click.option("--name", metavar="TEXT", help="What it is known by (default: its title).")
@click.option("--note", metavar="TEXT", default="", help="A word for people.")
@common
@click.pass_context
def mark_command(
    context: click.Context, session: Session, finding: str, label: Label, name: str | None, note: str
) -> int:
    """Say what a finding is. ID is its signature or the beginning of it, or RUN/FINDING.

    What is intended is suppressed by its name in later runs.
    """
    _, manifest, control = context.obj
    row = find_row(read_rows(session, manifest, control), finding)
    assert label in get_args(Label), "checked by the command line"
    mark = Mark(
        signature=row.signature,
        mark=label,
        name=(name or row.name or row.title)[:MAX_NAME_CHARACTERS],
        note=note,
    )
    write_mark(session.project.root, mark)
    path = session.project.root / FINDINGS_NAME
    session.console.say(f"{session.console.good(label)}  {plain(mark.name)}  in {shown(path)}")
    session.console.document({**msgspec.to_builtins(mark), "file": str(path), "exit_code": 0})
    return 0


def read_rows(session: Session, manifest: str | None, control: str | None) -> list[Row]:
    """The findings of a batch, the set-aside ones last. Raises `CoordinatorError` where nothing was played."""
    aggregate = _aggregate(session, manifest, control)
    marks = {one.signature: one for one in read_marks(session.project.root)}
    rows = [
        Row(
            signature=one.signature,
            title=one.title,
            severity=one.severity,
            replay=one.replay,
            mark=marks[one.signature].mark if one.signature in marks else None,
            name=marks[one.signature].name if one.signature in marks else None,
            ids=[f"{place.run_id}/{place.finding_id}" for place in one.occurrences],
        )
        for one in aggregate.findings
    ]
    listed = {row.signature for row in rows}
    for aside in aggregate.suppressed:
        if aside.signature not in listed:
            listed.add(aside.signature)
            known = marks.get(aside.signature)
            rows.append(
                Row(
                    signature=aside.signature,
                    title=aside.title,
                    severity=aside.severity,
                    replay=None,
                    mark=known.mark if known is not None else None,
                    name=aside.reason,
                    ids=[f"{aside.run_id}/{aside.finding_id}"],
                    suppressed=True,
                )
            )
    return rows


def find_row(rows: list[Row], wanted: str) -> Row:
    """The one finding that is meant. Raises `InvalidInputError` for none and for several."""
    found = [row for row in rows if wanted in row.ids or wanted == row.signature]
    found = found or [row for row in rows if len(wanted) >= 4 and row.signature.removeprefix("v1:").startswith(
        wanted.removeprefix("v1:"))]  # fmt: skip
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidInputError(f"{wanted}: there is no such finding; coordinate findings lists {len(rows)}")
    raise InvalidInputError(f"{wanted}: could be any of {', '.join(row.signature for row in found)}")


def _aggregate(session: Session, manifest: str | None, control: str | None) -> Aggregate:
    from coordinator.reports import read_report

    campaign = session.project.campaign_of(manifest)
    directory = read_status(campaign, control).control
    if directory is None:
        raise RefusedError(f"findings: {campaign.manifest_path} was not played yet; play it with: coordinate run")
    return read_report(Path(directory), campaign.manifest_path, fail_on="never", now=utc_now()).aggregate
