"""Before a cent: the service, its quote, what people are shown and asked, and the journal that stands before it all."""

from __future__ import annotations

import asyncio
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from coordinator.bought import Options
from coordinator.cli.console import Console, plain, shown
from coordinator.cli.options import Session
from coordinator.client import Service
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.journal import JOURNAL_VERSION, Journal, JournalFile, new_key
from coordinator.outcome import AUTHENTICATION
from coordinator.prices import action_price, run_price
from coordinator.project import Project
from coordinator.purchase import NothingBoughtError
from coordinator.quote import (
    QuoteError,
    in_dollars,
    judge_pack,
    judge_price,
    judge_quote,
    make_registration,
    make_request,
)
from coordinator.service.embedded import EmbeddedService
from coordinator.service.ledger import Ledger, read_dollars
from coordinator.service.matrix import RunPrice
from coordinator.service.wire import Build, Estimate, EstimateRequest, RunLength
from coordinator.settings import Settings

TOKEN_VARIABLE = "PLAYLANE_SERVICE_TOKEN"
EMBEDDED_GAME = "local"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say of the purchase. Amounts are millionths of a dollar."""

    service: str | None = None
    game: str | None = None
    budget: int | None = None
    max_price: int | None = None
    upload_video: bool = False
    upload_transcript: bool = False
    dry_upload: bool = False
    offline_upload: bool = False

    @property
    def upload(self) -> str:
        if self.dry_upload:
            return "dry"
        if self.offline_upload:
            return "offline"
        return "now" if self.service is not None else "none"


def read_terms(given: dict[str, Any]) -> Terms:
    """Raises `RefusedError` and `InvalidInputError` for flags that do not go together or are no amounts."""
    amounts = {
        name: None if given[name] is None else read_dollars(str(given[name])) for name in ("budget", "max_price")
    }
    terms = Terms(**{**given, **amounts})
    if (terms.service is None) != (terms.game is None):
        raise RefusedError("--service URL and --game ID go together")
    if terms.dry_upload and terms.offline_upload:
        raise RefusedError("--dry-upload sends nothing and --offline-upload queues; use one of both")
    if terms.service is not None and terms.budget is not None:
        raise RefusedError("--budget is of the embedded service; a remote one keeps its own; --max-price bounds both")
    return terms


def open_service(
    project: Project, *, url: str | None, game: str | None, price: RunPrice, cap: int | None, wall_seconds: float
) -> Service:
    """The embedded service over the project's ledger, or a remote one with the token of the environment."""
    if url is None or url == EmbeddedService.address:
        project.make_store()
        return embedded(project.store / "ledger.sqlite", project, price, cap, wall_seconds)
    from coordinator.service.remote import RemoteService

    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise NothingBoughtError(f"{url} needs a token in the environment's {TOKEN_VARIABLE}", exit_code=AUTHENTICATION)
    return RemoteService(url, game or "", token)


def embedded(path: Path, project: Project, price: RunPrice, cap: int | None, wall_seconds: float) -> EmbeddedService:
    return EmbeddedService(
        Ledger(path),
        now=utc_now,
        game=EMBEDDED_GAME,
        run_price=price,
        cap=cap,
        wall_seconds=wall_seconds,
        store=project.store / "uploads",
    )


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One plan on its way to be bought."""

    settings: Settings
    terms: Terms
    request: EstimateRequest
    scenarios: list[dict[str, Any]]
    price: RunPrice
    cap: int | None


def make_order(
    settings: Settings,
    terms: Terms,
    scenarios: list[dict[str, Any]],
    *,
    run_length: RunLength,
    controllers_chosen: bool,
    configured_budget: float | None,
) -> Order:
    """`controllers_chosen`: a flag or the configuration named them. Raises `RefusedError` for a plan that cannot be
    priced.
    """
    most = max(one["playtest"]["limits"]["maxActions"] for one in scenarios)
    cap = terms.budget
    if cap is None and configured_budget is not None and terms.service is None:
        cap = read_dollars(f"{configured_budget:.6f}")
    return Order(
        settings=settings,
        terms=terms,
        request=make_request(scenarios, run_length=run_length, controllers_chosen=controllers_chosen),
        scenarios=scenarios,
        price=run_price(settings.brain, most),
        cap=cap,
    )


def _budget(project: Project) -> int:
    path = project.store / "ledger.sqlite"
    if not path.exists():
        return 0
    ledger = Ledger(path, read_only=True)
    try:
        return ledger.balances().budget
    finally:
        ledger.close()


async def ask_quote(service: Service, order: Order) -> Estimate:
    """The service's quote of exactly this plan. Raises `QuoteError`, `RefusedError`, `ServiceError`."""
    faults = judge_pack(await service.pack(), order.request)
    if faults:
        raise QuoteError(faults)
    return judge_quote(await service.estimate(order.request), order.request, is_embedded=service.is_embedded)


def refuse_without_budget(project: Project, order: Order) -> None:
    """A brain that costs needs a budget before it is even quoted: a cost without a bound is nobody's wish."""
    if order.terms.service is None and action_price(order.settings.brain) and not _budget(project):
        raise RefusedError(
            f"the brain {order.settings.brain} costs, and this project has no budget; set one: coordinate budget set"
            " 5.00"
        )


def quote_only(session: Session, order: Order) -> int:
    """`run --quote`: nothing is written, not even a ledger where there is none."""
    refuse_without_budget(session.project, order)
    with tempfile.TemporaryDirectory(prefix="playlane-quote-") as folder, asyncio.Runner() as runner:
        project, terms, wall = session.project, order.terms, order.settings.wall_seconds
        ledger = project.store / "ledger.sqlite"
        if terms.service is None and not ledger.exists():
            service: Service = embedded(Path(folder) / "ledger.sqlite", project, order.price, order.cap, wall)
        else:
            service = open_service(
                project, url=terms.service, game=terms.game, price=order.price, cap=order.cap, wall_seconds=wall
            )
        try:
            estimate = runner.run(ask_quote(service, order))
        finally:
            runner.run(service.close())
    show_quote(session.console, order, estimate)
    session.console.document(describe_quote(order, estimate))
    return 0


def show_quote(console: Console, order: Order, estimate: Estimate) -> None:
    """Each run, the total, the balance, what stays here and what goes up."""
    if estimate.estimate_cents == 0:
        console.say(f"{len(order.scenarios)} runs with the brain {order.settings.brain}: $0.00, nothing is charged")
    else:
        unit = max((row.unit_cents for row in estimate.breakdown), default=0)
        console.table([[plain(one["id"]), f"at most {in_dollars(unit)}"] for one in order.scenarios])
        told = ""
        if estimate.low is not None and estimate.likely is not None:
            told = f" (at least {in_dollars(estimate.low)}, likely {in_dollars(estimate.likely)})"
        console.say(
            f"{len(order.scenarios)} runs with the brain {order.settings.brain}: at most"
            f" {console.bold(in_dollars(estimate.estimate_cents))}{told}; the balance is"
            f" {in_dollars(estimate.balance_cents)}"
        )
    console.say(console.dim(_what_goes_up(order.terms)))


def _what_goes_up(terms: Terms) -> str:
    if terms.upload == "none":
        return "games, traces and reports stay on this machine; nothing is uploaded"
    also = [name for name, on in (("video", terms.upload_video), ("transcripts", terms.upload_transcript)) if on]
    up = ", ".join(["reports", "screenshots", "bookkeeping", *also])
    where = {
        "dry": "would be uploaded (--dry-upload: nothing is sent)",
        "offline": "are queued for coordinate upload (--offline-upload)",
        "now": f"are uploaded to {terms.service}",
    }[terms.upload]
    return f"{up} {where}; games, traces, commands and environment stay on this machine"


def describe_quote(order: Order, estimate: Estimate) -> dict[str, Any]:
    unit = max((row.unit_cents for row in estimate.breakdown), default=0)
    return {
        "estimate_cents": estimate.estimate_cents,
        "balance_cents": estimate.balance_cents,
        "low": estimate.low,
        "likely": estimate.likely,
        "worst": estimate.worst,
        "persona_run_count": estimate.persona_run_count,
        "runs": [{"scenario": one["id"], "cents": unit} for one in order.scenarios],
        "uploads": [] if order.terms.upload in ("none", "dry") else ["reports", "screenshots", "bookkeeping"],
        "exit_code": 0,
    }


def accept(session: Session, order: Order, estimate: Estimate, *, accepted_cents: int | None = None) -> None:
    """Refuse what may not be paid, ask about the rest; a free quote asks nothing. Raises `PriceError`, `click.Abort`.

    With `--yes` the first quote and anything lower is accepted, a higher one is not.
    """
    judge_price(
        estimate.estimate_cents,
        balance_cents=estimate.balance_cents,
        max_price=order.terms.max_price,
        accepted_cents=accepted_cents if session.yes else None,
    )
    if estimate.estimate_cents:
        session.console.ask(f"Buy this for at most {in_dollars(estimate.estimate_cents)}?", yes=session.yes)


def write_journal(
    session: Session, order: Order, service: Service, estimate: Estimate, *, manifest_path: Path, options: Options
) -> JournalFile:
    """The purchase's journal, durable before anything is sent; its path is said."""
    key = new_key()
    builds = sorted({one["playtest"]["build"]["digest"] for one in order.scenarios})
    body = make_registration(
        order.request,
        price_cents=estimate.estimate_cents,
        version=version("playlane"),
        build=Build(kind=str(order.scenarios[0]["playtest"]["targetKind"]), ref=",".join(builds)[:200]),
    )
    journal = Journal(
        version=JOURNAL_VERSION,
        kind="campaign",
        key=key,
        game=order.terms.game or EMBEDDED_GAME,
        service=service.address,
        state="registering",
        created_at=utc_now(),
        request=body.decode(),
        price_cents=estimate.estimate_cents,
        limits={"maxActions": options.max_actions, "wallSeconds": options.wall_seconds},
        options=msgspec.to_builtins(options),
        manifest_path=str(manifest_path),
    )
    file = JournalFile.create(str(session.project.campaigns_folder / key), journal)
    say = session.console.say if estimate.estimate_cents else session.console.detail
    say(f"journal  {shown(file.path)}")
    return file


def make_options(order: Order, estimate: Estimate, *, baseline: list[str] | None, control: str | None) -> Options:
    """Everything of the flags that a resume must know. A run's part is what its share of the hold covers."""
    settings, runs = order.settings, len(order.scenarios)
    hold = estimate.estimate_cents * 10_000
    if order.terms.service is None:
        total = order.price.worst * runs
        hold = total if order.cap is None else min(total, order.cap)
    return Options(
        project=str(settings.project),
        brain=settings.brain,
        max_actions=max(one["playtest"]["limits"]["maxActions"] for one in order.scenarios),
        wall_seconds=settings.wall_seconds,
        lanes=settings.lanes,
        fail_on=settings.fail_on,
        baseline=baseline,
        cap_microdollars=order.cap,
        run_microdollars=hold // runs if action_price(settings.brain) else None,
        control=control,
        upload_video=order.terms.upload_video,
        upload_transcript=order.terms.upload_transcript,
        upload=order.terms.upload,
    )
