"""`coordinate resume`: lists purchases, or goes on with one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from coordinator.bought import BoughtCampaign, Options, options_of
from coordinator.cli.carrying import Chosen, carry_and_show
from coordinator.cli.console import plain, shown
from coordinator.cli.options import Session, common, example
from coordinator.client import Service
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.journal import Journal, JournalError, JournalFile, list_journals
from coordinator.outcome import CANCELED, ENVIRONMENT
from coordinator.prices import run_price
from coordinator.purchase import PriceMovedError, Purchase
from coordinator.quote import in_dollars
from coordinator.results import Standing
from coordinator.resume import Found, find_journal, judge_journal, look_at, mend
from coordinator.service.wire import JobState
from coordinator.steps import is_settled, playable, unknown


@click.command("resume", epilog=example("coordinate resume\n  coordinate resume job_4f1c2a90b7d3e655"))
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--service", metavar="URL", help="Where it was bought, as a check.")
@click.option("--game", metavar="ID", help="Which game it was bought for, as a check.")
@click.option("--owner-is-dead", metavar="TOKEN", help="Take the lock of a dead owner; the token is the one shown.")
@click.option("--worker-is-dead", metavar="ID", multiple=True, help="You made sure that this run's worker is gone.")
@click.option("--config", metavar="FILE", hidden=True)
@click.option("--driver-config", metavar="FILE", hidden=True)
@common
def resume_command(
    session: Session,
    job: str | None,
    service: str | None,
    game: str | None,
    owner_is_dead: str | None,
    worker_is_dead: tuple[str, ...],
    config: str | None,
    driver_config: str | None,
) -> int:
    """Go on with a purchase under its own key: what was played is delivered, what is left is played in a new batch.

    JOB is a job's id, a purchase's key or the beginning of one. Without it: what there is. Nothing is charged again.
    """
    if config is not None or driver_config is not None:
        raise RefusedError("resume goes on with what the journal says; it takes no --config and no --driver-config")
    if job is None:
        return _list(session)
    path = find_journal(session.project.root, job)
    judge_journal(path, service=service, game=game)
    question = Question(session, owner_is_dead, worker_is_dead)
    return go_on(session, path, Chosen(), question=question)


def _list(session: Session) -> int:
    console = session.console
    rows: list[list[str]] = []
    documents: list[dict[str, Any]] = []
    for path, journal in list_journals(str(session.project.root)):
        if isinstance(journal, JournalError):
            rows.append([console.bad("damaged"), "", "", plain(str(journal))])
            documents.append({"path": path, "error": str(journal)})
            continue
        rows.append(
            [
                journal.state if journal.state != "registered" else console.uneasy("open"),
                journal.key[:12],
                journal.job_id or "not registered",
                f"{in_dollars(journal.price_cents)}  {journal.created_at}  {shown(journal.manifest_path)}",
            ]
        )
        documents.append(
            {
                "path": path,
                "key": journal.key,
                "job_id": journal.job_id,
                "state": journal.state,
                "price_cents": journal.price_cents,
                "exit_code": journal.exit_code,
            }
        )
    if rows:
        console.table(rows)
        console.say("go on with one: coordinate resume JOB")
    else:
        console.say("there are no purchases here")
    console.document({"purchases": documents, "exit_code": 0})
    return 0


class Question:
    """The one question of a resume, which `--yes` answers, but not for a lock that is left over."""

    def __init__(self, session: Session, owner_is_dead: str | None, worker_is_dead: Sequence[str]) -> None:
        self._session, self._token, self.worker_is_dead = session, owner_is_dead, worker_is_dead

    def ask(self, found: Found, told: str) -> bool:
        """Whether the left-over lock may be taken. Raises `click.Abort` at a no, `RefusedError` for a wrong token."""
        report = found.report
        if report is None or not found.has_dead_lock:
            self._session.console.ask(f"{told} Go on?", yes=self._session.yes)
            return False
        if self._token is not None:
            if self._token != report.token:
                raise RefusedError(
                    f"--owner-is-dead {self._token} is not the lock's token; it is held by {report.lock}"
                )
            self._session.console.ask(f"{told} Go on?", yes=self._session.yes)
            return True
        if self._session.yes:
            raise RefusedError(
                f"the campaign's lock is left over ({report.lock}); --yes does not answer for it: if you know that this"
                f" owner is dead, say --owner-is-dead {report.token}"
            )
        self._session.console.ask(f"{told} Its lock is left over ({report.lock}). Take it and go on?", yes=False)
        return True


def go_on(session: Session, path: str, chosen: Chosen, *, question: Question | None) -> int:
    """Go on with the purchase of a journal. `question` None: what is to be played was reviewed by a person already."""
    file = JournalFile.open(path)
    try:
        journal = file.journal
        if journal.state == "finished":
            return _show_finished(session, path, journal)
        options = options_of(journal)
        with asyncio.Runner() as runner:
            service = _open_service(session, journal, options)
            try:
                return _go_on(session, runner, file, service, chosen, question)
            except PriceMovedError as error:
                raise RefusedError(
                    f"the price of this purchase moved before it was registered: {error}; it is closed, and nothing was"
                    " charged. Buy it at the new price with: coordinate run"
                ) from error
            finally:
                runner.run(service.close())
    finally:
        file.close()


def _open_service(session: Session, journal: Journal, options: Options) -> Service:
    from coordinator.cli.buying import open_service

    return open_service(
        session.project,
        url=journal.service,
        game=journal.game,
        price=run_price(options.brain, options.max_actions),
        cap=options.cap_microdollars,
        wall_seconds=options.wall_seconds,
    )


def _show_finished(session: Session, path: str, journal: Journal) -> int:
    code = journal.exit_code or 0
    session.console.say(f"purchase {journal.key} is finished: {journal.job_state}; exit {code}")
    session.console.document(
        {"job_id": journal.job_id, "finished": True, "state": journal.job_state, "journal": path, "exit_code": code}
    )
    return code


def _go_on(
    session: Session,
    runner: asyncio.Runner,
    file: JournalFile,
    service: Service,
    chosen: Chosen,
    question: Question | None,
) -> int:
    purchase = Purchase(file, service, now=utc_now)
    campaign = BoughtCampaign(purchase, watch=lambda _: lambda _: None, chosen=chosen.again, only=chosen.only)
    job = runner.run(purchase.look()) if file.journal.state == "registered" else None
    try:
        found = look_at(file.journal)
        if question is not None:
            _ask_and_mend(session, runner, purchase, campaign, found, job, question)
        elif found.needs_mending:
            raise RefusedError(f"the last batch was not closed; first: coordinate resume {file.journal.key}")
        _refuse_changed(purchase, campaign, job)
    except RefusedError as error:
        raise purchase.open_error(str(error), ENVIRONMENT) from error
    except click.Abort as error:
        raise purchase.open_error("canceled: nothing was played or changed", CANCELED) from error
    return carry_and_show(session, runner, file, service, chosen)


def _ask_and_mend(
    session: Session,
    runner: asyncio.Runner,
    purchase: Purchase,
    campaign: BoughtCampaign,
    found: Found,
    job: JobState | None,
    question: Question,
) -> None:
    told = _tell(purchase.file.journal, campaign.standings(), found, job)
    session.console.say(told)
    if not _may_play(job):
        return
    # Nothing to be played, taken or closed: what is here is only delivered, and a question would be for nothing.
    if found.needs_mending or playable(purchase.file.journal, campaign.standings()):
        take_lock = question.ask(found, "")
        runner.run(mend(purchase.file.journal, found, take_lock=take_lock, worker_is_dead=question.worker_is_dead))
    elif purchase.file.journal.state == "registering":
        question.ask(found, "")


def _may_play(job: JobState | None) -> bool:
    return job is None or (not is_settled(job.state) and not job.cancel_requested)


def _tell(journal: Journal, standings: Sequence[Standing], found: Found, job: JobState | None) -> str:
    """What was found, in a few lines."""
    state = "not registered yet" if job is None else f"{job.state}{', to be canceled' if job.cancel_requested else ''}"
    kinds = [one.kind for one in standings]
    lines = [
        f"purchase {journal.key}, job {journal.job_id or 'none'} ({state}), {in_dollars(journal.price_cents)}",
        f"  {kinds.count('final')} runs have their end, {kinds.count('interrupted')} were interrupted,"
        f" {kinds.count('unplayed')} were not played",
    ]
    report = found.report
    if report is not None:
        lines += [
            f"  {plain(one.scenario_id)} is of unknown fate: its worker is {one.liveness}" for one in report.workers
        ]
        if report.deliveries:
            lines.append(f"  {len(report.deliveries)} deliveries wait to be taken up")
    lines += [f"  nobody saw the end of {plain(one.scenario_id)}" for one in unknown(journal, standings)]
    return "\n".join(lines)


def _refuse_changed(purchase: Purchase, campaign: BoughtCampaign, job: JobState | None) -> None:
    """Before anything is played on: the games are there and are the builds that were bought, and they play."""
    journal = purchase.file.journal
    standings = campaign.standings()
    if not _may_play(job):
        return
    names = {one.scenario_id for one in standings if one.kind in ("unplayed", "interrupted")}
    if journal.state == "registered":
        names = {one.scenario_id for one in playable(journal, standings)}
    faults = campaign.changed_bridges(names)
    if faults:
        raise RefusedError("; ".join(faults))
