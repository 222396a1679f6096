"""`coordinate budget`: what this project may spend, and what became of it."""

from __future__ import annotations

import click
import msgspec

from coordinator.cli.options import Session, common, example
from coordinator.coordinator import utc_now
from coordinator.errors import InvalidInputError
from coordinator.service.ledger import Balances, Ledger, dollars, read_dollars


@click.command("budget", epilog=example("coordinate budget set 5.00"))
@click.argument("action", required=False, type=click.Choice(["set"]))
@click.argument("amount", required=False, metavar="[DOLLARS]")
@common
def budget_command(session: Session, action: str | None, amount: str | None) -> int:
    """Show the budget of the embedded service, or set it. It can be raised while a campaign runs."""
    if (action is None) != (amount is None):
        raise InvalidInputError("budget set needs an amount of dollars, such as 5.00")
    path = session.project.store / "ledger.sqlite"
    if amount is None and not path.exists():
        found = Balances(budget=0, balance=0, held=0, spent=0)
    else:
        # Before the project gets a store for it.
        wanted = None if amount is None else read_dollars(amount)
        if wanted is not None:
            session.project.make_store()
        ledger = Ledger(path, read_only=wanted is None)
        try:
            found = ledger.balances() if wanted is None else ledger.set_budget(wanted, utc_now())
        finally:
            ledger.close()
    console = session.console
    console.table([[name, dollars(getattr(found, name))] for name in ("budget", "balance", "held", "spent")])
    console.document({**{f"{key}_usd": value / 1_000_000 for key, value in msgspec.structs.asdict(found).items()},
                      "exit_code": 0})  # fmt: skip
    return 0
