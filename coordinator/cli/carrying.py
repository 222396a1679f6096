"""Plays and settles a purchase before people's eyes, and says what it came to; `run` and `resume` share it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from coordinator.bought import BoughtCampaign, options_of
from coordinator.campaign import Watch
from coordinator.carrying import Carried, carry
from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session
from coordinator.cli.playing import View, describe_end, retry_line, show_end
from coordinator.client import AuthenticationError, Service
from coordinator.coordinator import utc_now
from coordinator.journal import JournalFile
from coordinator.outcome import AUTHENTICATION, CANCELED, ENVIRONMENT, Reason
from coordinator.project import Campaign
from coordinator.purchase import Purchase
from coordinator.quote import in_dollars
from coordinator.service.embedded import DEFAULT_STALL_SECONDS
from coordinator.uploads import drain, list_uploads, read_queue, write_queue


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose of a purchase: `again` are scenarios whose unknown end is decided about, `only` bounds what
    is played, `control` names the batch's directory.
    """

    again: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    control: str | None = None
    lanes: int | None = None


def carry_and_show(
    session: Session, runner: asyncio.Runner, file: JournalFile, service: Service, chosen: Chosen | None = None
) -> int:
    """Carry the purchase as far as it goes, show it, print the document of `run --json`; the exit code.

    Raises `PurchaseOpenError` and `NothingBoughtError`; after the journal is durable a Ctrl-C is one of them too.
    """
    chosen = chosen or Chosen()
    console = session.console
    purchase = Purchase(file, service, now=utc_now)
    campaign = BoughtCampaign(
        purchase,
        watch=lambda control: _watch(console, file, control),
        chosen=chosen.again,
        only=chosen.only,
        control=chosen.control,
        lanes=chosen.lanes,
    )
    try:
        carried = runner.run(carry(purchase, campaign, lambda: _upload(console, purchase, campaign)))
    except KeyboardInterrupt as error:
        raise purchase.open_error("canceled", CANCELED) from error
    finally:
        console.clear_live()
    return _conclude(session, purchase, campaign, carried)


def _watch(console: Console, file: JournalFile, control: Path) -> Watch:
    manifest = Path(file.journal.manifest_path)
    campaign = Campaign(name=manifest.parent.name, folder=manifest.parent, manifest_path=manifest)
    return View(console, {one["id"]: one for one in campaign.read_manifest()["scenarios"]}, control).watch


async def _upload(console: Console, purchase: Purchase, campaign: BoughtCampaign) -> None:
    """What the allow-list names: sent, queued, or only named, as the flags of the purchase said."""
    options = options_of(purchase.file.journal)
    if options.upload == "none" or purchase.file.journal.job_id is None:
        return
    found = list_uploads(
        purchase.file.journal,
        campaign.standings(),
        video=options.upload_video,
        transcript=options.upload_transcript,
    )
    if options.upload == "dry":
        for one in found:
            console.say(f"  would upload  {plain(shown(one.path))}  {one.bytes} bytes")
        console.say(f"{len(found)} files, {sum(one.bytes for one in found)} bytes; nothing was sent")
        return
    known = {(one.run_id, one.sha256) for one in read_queue(purchase.file.path)}
    write_queue(
        purchase.file.path,
        [*read_queue(purchase.file.path), *(one for one in found if (one.run_id, one.sha256) not in known)],
    )
    if options.upload == "offline":
        console.say(f"{len(found)} files are queued; send them with: coordinate upload {purchase.key}")
        return
    done = await drain(purchase.service, purchase.job_id, purchase.file.path)
    console.say(f"uploaded {done.sent} files; the service had {done.known} already")
    for line in done.waiting:
        console.say(console.uneasy(f"  not uploaded  {plain(line)}; try again with: coordinate upload {purchase.key}"))


def _conclude(session: Session, purchase: Purchase, campaign: BoughtCampaign, carried: Carried) -> int:
    console = session.console
    money = money_lines(purchase, campaign, carried)
    reasons = _reasons(campaign, carried)
    found = campaign.end()
    facts: dict[str, Any] = {
        "job_id": carried.job_id,
        "replayed": carried.replayed,
        "job_url": None if purchase.service.is_embedded else _job_url(purchase),
        "journal": purchase.file.path,
        "purchase": msgspec.to_builtins(carried),
    }
    if found is None:
        for line in money:
            console.say(line)
        for reason in reasons:
            console.say(f"exit {reason.exit_code}: {plain(reason.what)}")
        console.document({**facts, "reasons": msgspec.to_builtins(reasons), "exit_code": carried.exit_code})
        return carried.exit_code
    order, end = found
    end = msgspec.structs.replace(end, exit_code=carried.exit_code, reasons=[*reasons, *end.reasons])
    show_end(console, end, money)
    manifest = campaign.manifest_path
    planned = Campaign(name=manifest.parent.name, folder=manifest.parent, manifest_path=manifest)
    console.document({**describe_end(planned, order, end), **facts, "exit_code": carried.exit_code})
    return carried.exit_code


def _job_url(purchase: Purchase) -> str:
    return f"{purchase.service.address}/api/v1/games/{purchase.file.journal.game}/playtest/jobs/{purchase.job_id}"


def _reasons(campaign: BoughtCampaign, carried: Carried) -> list[Reason]:
    """What the batch's own reasons do not tell."""
    reasons = []
    if carried.was_settled_elsewhere:
        reasons.append(Reason(exit_code=carried.exit_code, what=f"the service settled the job: {carried.job_state}"))
    if campaign.mirror is not None and isinstance(campaign.mirror.refused, AuthenticationError):
        reasons.append(Reason(exit_code=AUTHENTICATION, what=str(campaign.mirror.refused)))
    if carried.unknown and not carried.is_settled:
        names = ", ".join(carried.unknown[:5])
        reasons.append(Reason(exit_code=ENVIRONMENT, what=f"nobody saw the end of {names}"))
    return reasons


def money_lines(purchase: Purchase, campaign: BoughtCampaign, carried: Carried) -> list[str]:
    """What was charged, what came back, what is held still and how to go on."""
    journal, lines = purchase.file.journal, []
    price = journal.price_cents
    word = "released" if purchase.service.is_embedded else "refunded"
    if price == 0:
        lines.append("nothing was charged")
    elif carried.is_settled:
        back = carried.released_cents
        if back is None:
            lines.append(f"job {carried.job_id} was settled at no more than {in_dollars(price)}")
        else:
            lines.append(
                f"charged {in_dollars(max(0, price - back))} of {in_dollars(price)}; {in_dollars(back)} {word}"
            )
    else:
        lines.append(f"{in_dollars(price)} at most are held by job {carried.job_id} until it is settled")
    lines += [f"the result of {plain(name)} came after its run was closed: it stays here" for name in carried.late]
    lines += [f"note: {plain(warning)}" for warning in journal.warnings]
    lines += [f"not delivered yet: {plain(line)}" for line in carried.waiting]
    if not carried.is_settled:
        lines += _how_to_go_on(purchase, campaign, carried)
    return lines


def _how_to_go_on(purchase: Purchase, campaign: BoughtCampaign, carried: Carried) -> list[str]:
    until = ""
    if purchase.service.is_embedded:
        last = datetime.fromisoformat(utc_now()) + timedelta(seconds=DEFAULT_STALL_SECONDS)
        until = f" (until {last.strftime('%Y-%m-%d %H:%M')} UTC)"
    manifest = campaign.manifest_path
    planned = Campaign(name=manifest.parent.name, folder=manifest.parent, manifest_path=manifest)
    if any(one.kind == "running" for one in campaign.standings()):
        line = "a worker ended without telling how: what it left is looked at, and the rest played, by"
        return [f"{line} coordinate resume {purchase.key}{until}"]
    if carried.unknown:
        return [
            f"nobody saw the end of: {', '.join(plain(name) for name in carried.unknown)}; what was spent there is not"
            " repeated by itself",
            f"to decide about them: {retry_line(planned)}, then coordinate run --selections FILE{until}",
        ]
    line = f"to go on with what was not played: coordinate resume {purchase.key}{until}"
    return [line, f"or review it first: {retry_line(planned)}"]


def chosen_of(selections: Collection[dict[str, Any]], *, control: str | None, lanes: int | None) -> Chosen:
    """What `coordinate retry` wrote and a person reviewed."""
    names = frozenset(str(one["scenarioId"]) for one in selections)
    return Chosen(again=names, only=names, control=control, lanes=lanes)
