"""`coordinate serve`: the priced service for a team."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import click

from coordinator.cli.options import Session, common, example
from coordinator.coordinator import utc_now
from coordinator.errors import RefusedError
from coordinator.outcome import SUCCESS
from coordinator.service.ledger import Ledger, dollars, read_dollars
from coordinator.service.settlement import settle_stalled
from coordinator.serving import LEDGER_NAME, ServeOrder, is_loopback, read_price, read_tokens, serve

LONG_FACTOR = 3


@click.command("serve", epilog=example("coordinate serve --game cavern --price-per-run 0.25 --token-file tokens.txt"))
@click.option("--game", "games", metavar="ID", multiple=True, help="A game that is served; repeatable.")
@click.option("--price-per-run", metavar="DOLLARS", help="Of one playthrough, in whole cents.")
@click.option("--price-per-long-run", metavar="DOLLARS", help="Of one with --long (three times the other).")
@click.option("--price-per-simulation", metavar="DOLLARS", help="Of one simulation batch (that of a run).")
@click.option("--balance", metavar="DOLLARS", help="Set what may be held and spent; alone, also while another serves.")
@click.option("--token-file", metavar="FILE", help="Bearer tokens that are let in, one a line; mode 0600.")
@click.option("--token-env", metavar="NAME", help="The environment variable that holds one.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any that is free.")
@click.option("--stall-hours", type=click.IntRange(1, 24 * 90), default=24, show_default=True,
              help="A job without heartbeats is settled after it.")  # fmt: skip
@common
def serve_command(
    session: Session,
    games: tuple[str, ...],
    price_per_run: str | None,
    price_per_long_run: str | None,
    price_per_simulation: str | None,
    balance: str | None,
    token_file: str | None,
    token_env: str | None,
    host: str,
    port: int,
    stall_hours: int,
) -> int:
    """Quote, charge and settle runs of a team at a flat price."""
    console = session.console
    path = session.project.store / LEDGER_NAME
    if not games or price_per_run is None:
        if balance is None or games or price_per_run is not None:
            raise click.UsageError("serve needs --game and --price-per-run, or --balance alone.")
        _set_balance(session, path, read_dollars(balance))
        return SUCCESS
    unusable = [game for game in games if not game.isprintable() or "/" in game or game in ("", ".", "..")]
    if unusable:
        raise RefusedError(f"{unusable[0]!r} is not usable as a game's id")
    price = read_price(price_per_run, "--price-per-run")
    long_price = LONG_FACTOR * price
    if price_per_long_run is not None:
        long_price = read_price(price_per_long_run, "--price-per-long-run")
    simulation = price
    if price_per_simulation is not None:
        simulation = read_price(price_per_simulation, "--price-per-simulation")
    tokens = read_tokens(token_file, token_env)
    if balance is not None:
        _set_balance(session, path, read_dollars(balance))
    session.project.make_store()
    order = ServeOrder(
        folder=str(session.project.store),
        games=games,
        tokens=tokens,
        run_price=price,
        long_run_price=long_price,
        simulation_price=simulation,
        host=host,
        port=port,
        stall_seconds=stall_hours * 3600,
    )
    if not is_loopback(host):
        console.warn("What is served there can be reached by others, and is not encrypted: put it behind TLS.")

    def started(address: str) -> None:
        console.say(f"serving {', '.join(games)} at {console.bold(address)}")
        console.say(
            f"  {dollars(price)} a run, {dollars(long_price)} a long one, {dollars(simulation)} a simulation batch;"
            f" {len(tokens)} token{'s' * (len(tokens) != 1)}; the balance is raised with coordinate serve --balance"
        )
        console.say(console.dim("  Ctrl-C ends it; requests in flight are answered"))
        console.document({"address": address, "games": list(games), "exit_code": SUCCESS})

    asyncio.run(serve(order, started))
    console.say("ended")
    return SUCCESS


def _set_balance(session: Session, path: Path, amount: int) -> None:
    session.project.make_store()
    with contextlib.closing(Ledger(path)) as ledger:
        settle_stalled(ledger, utc_now())
        found = ledger.set_budget(amount, utc_now())
    session.console.say(
        f"{dollars(found.balance)} to be spent, {dollars(found.held)} held, {dollars(found.spent)} spent"
    )
