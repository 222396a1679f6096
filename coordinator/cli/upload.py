"""`coordinate upload`: sends what a purchase queued."""

from __future__ import annotations

import asyncio

import click

from coordinator.bought import options_of
from coordinator.cli.console import plain
from coordinator.cli.options import Session, common, example
from coordinator.errors import RefusedError
from coordinator.journal import Journal, JournalFile, list_journals
from coordinator.outcome import FAILURE, SUCCESS
from coordinator.prices import run_price
from coordinator.resume import find_journal
from coordinator.uploads import drain, read_queue


@click.command("upload", epilog=example("coordinate upload"))
@click.argument("job", required=False, metavar="[JOB]")
@common
def upload_command(session: Session, job: str | None) -> int:
    """Send the files that wait: of one purchase, or of all. What the service has already is not sent again."""
    root = session.project.root
    if job is not None:
        paths = [find_journal(root, job)]
    else:
        paths = [path for path, journal in list_journals(str(root)) if isinstance(journal, Journal)]
    sent = known = 0
    waiting: list[str] = []
    for path in paths:
        if all(one.sent for one in read_queue(path)):
            continue
        done = _drain(session, path)
        sent, known = sent + done[0], known + done[1]
        waiting += done[2]
    for line in waiting:
        session.console.say(f"not uploaded  {plain(line)}")
    session.console.say(f"uploaded {sent} files; {known} were there already; {len(waiting)} wait")
    code = FAILURE if waiting else SUCCESS
    session.console.document({"sent": sent, "known": known, "waiting": waiting, "exit_code": code})
    return code


def _drain(session: Session, path: str) -> tuple[int, int, list[str]]:
    from coordinator.cli.buying import open_service

    file = JournalFile.open(path)
    try:
        journal = file.journal
        if journal.job_id is None:
            raise RefusedError(f"{path} is of a purchase that was not registered; nothing of it can be uploaded")
        options = options_of(journal)
        with asyncio.Runner() as runner:
            service = open_service(
                session.project,
                url=journal.service,
                game=journal.game,
                price=run_price(options.brain, options.max_actions),
                cap=options.cap_microdollars,
                wall_seconds=options.wall_seconds,
            )
            try:
                done = runner.run(drain(service, journal.job_id, path))
            finally:
                runner.run(service.close())
        return done.sent, done.known, done.waiting
    finally:
        file.close()
