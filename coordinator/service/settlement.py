"""How a job and its runs end: what was used is spent, the rest of each run's part goes back. Never both, never twice.

Everything here works inside a transaction that the caller has begun.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any

import msgspec

from coordinator.errors import InvalidInputError
from coordinator.service.ledger import Ledger, check_amount, post
from coordinator.service.wire import FINAL_RUN_STATES, RUN_STATES, RunResult

OPEN_STATES = "(" + ", ".join(f"'{state}'" for state in RUN_STATES) + ")"
# A job is what is worst among its runs; a run that was left out weighs less than one that was played.
_WORST_FIRST = ("stalled", "canceled", "budget_exceeded", "failed", "succeeded", "skipped")


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """`spent` and `released` make up the run's part; `used` is what the result says, None where it does not tell."""

    spent: int
    released: int
    used: int | None


def charge_of(result: RunResult, module: str, part: int, *, flat: bool) -> Charge:
    """What a run costs of its part (millionths of a dollar).

    `flat`: the whole part for a usable result, nothing for another. Else the use that is told, at most the part; a use
    that is not told, or not wholly, is never taken for nothing: a usable result then costs the whole part. Raises
    `InvalidInputError` for an amount that is none.
    """
    used, is_complete = _use(result.usage)
    known = min(used or 0, part)
    if not is_usable(result, module):
        spent = 0 if flat else known
    elif flat or not is_complete:
        spent = part
    else:
        spent = known
    return Charge(spent=spent, released=part - spent, used=used)


def is_usable(result: RunResult, module: str) -> bool:
    """At least one step and a report, partial or whole; of a simulation, at least one game that reached an end."""
    if module == "balance_sim":
        completed = (result.simulation or {}).get("completed_runs")
        return type(completed) is int and completed >= 1
    return result.actions_taken >= 1 and bool(result.report)


def _use(usage: Mapping[str, Any] | None) -> tuple[int | None, bool]:
    """Millionths of a dollar, and whether that is all. `cost_usd` is rounded up."""
    if not usage:
        return None, False
    is_complete = usage.get("coverage", "complete") == "complete"
    if "microdollars" in usage:
        return check_amount(usage["microdollars"], "usage"), is_complete
    cost = usage.get("cost_usd")
    if cost is None:
        return None, False
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost):
        raise InvalidInputError(f"usage: cost_usd {cost!r} is not an amount of dollars")
    exact = (Decimal(repr(cost)) * 1_000_000).to_integral_value(rounding=ROUND_CEILING)
    return check_amount(int(exact), "usage"), is_complete


def settle_run(connection: sqlite3.Connection, job_id: str, run_id: str, charge: Charge, now: str) -> None:
    """Move the run's part out of what is held."""
    if charge.spent:
        post(connection, now, "spend", "held", "spent", charge.spent, job_id=job_id, run_id=run_id)
    if charge.released:
        post(connection, now, "release", "held", "balance", charge.released, job_id=job_id, run_id=run_id)


def settle_job(connection: sqlite3.Connection, job_id: str, open_runs_become: str, reason: str, now: str) -> None:
    """Close a job: runs that are still open get the state given and give their part back."""
    rows = connection.execute(
        f"SELECT id, part_microdollars FROM run WHERE job_id = ? AND state IN {OPEN_STATES} ORDER BY position",
        (job_id,),
    ).fetchall()
    for run_id, part in rows:
        if part:
            post(connection, now, "release", "held", "balance", part, job_id=job_id, run_id=run_id, note=reason)
        connection.execute("UPDATE run SET state = ? WHERE id = ?", (open_runs_become, run_id))
    states = {state for (state,) in connection.execute("SELECT state FROM run WHERE job_id = ?", (job_id,))}
    state = next(one for one in _WORST_FIRST if one in states)
    connection.execute("UPDATE job SET state = ? WHERE id = ?", (state, job_id))


def end_state(reason: str | None, *, cancel_requested: bool) -> str:
    """What open runs become when their job is finished: the reason where it is a final state, else `skipped`."""
    if reason in FINAL_RUN_STATES:
        return str(reason)
    return "canceled" if cancel_requested else "skipped"


def settle_stalled(ledger: Ledger, now: str) -> list[str]:
    """Close every job whose open runs have all been silent for longer than their limit; return their ids.

    In a transaction of its own: a refusal that follows must not undo it, and what an abandoned job holds must not
    bind the budget for ever.
    """
    if not _stalled(ledger.query(_BEATS), now):
        return []
    with ledger.transaction() as connection:
        found = _stalled(connection.execute(_BEATS).fetchall(), now)
        for job_id in found:
            settle_job(connection, job_id, "stalled", "no heartbeat within the limit", now)
    return found


_BEATS = (
    "SELECT job_id, beaten_at, stall_seconds FROM run JOIN job ON job.id = job_id"
    f" WHERE job.state = 'open' AND run.state IN {OPEN_STATES}"
)


def _stalled(rows: list[tuple[Any, ...]], now: str) -> list[str]:
    moment = datetime.fromisoformat(now)
    silent: dict[str, bool] = {}
    for job_id, beaten_at, limit in rows:
        over = moment - datetime.fromisoformat(beaten_at) > timedelta(seconds=limit)
        silent[job_id] = silent.get(job_id, True) and over
    return sorted(job_id for job_id, is_silent in silent.items() if is_silent)


def released_cents(connection: sqlite3.Connection, job_id: str) -> int:
    """Whole cents that went back so far, rounded down."""
    total = connection.execute(
        "SELECT COALESCE(SUM(microdollars), 0) FROM entry JOIN posting ON posting.id = posting_id"
        " WHERE job_id = ? AND kind = 'release' AND account = 'balance'",
        (job_id,),
    ).fetchone()[0]
    return int(total) // 10_000
