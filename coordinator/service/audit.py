"""Does the ledger add up? Every rule that the embedded service keeps, told again from the rows alone.

Written apart from the code that posts: a fault there must not be able to hide here.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.service.ledger import ACCOUNTS, MAX_MICRODOLLARS, Ledger, dollars
from coordinator.service.wire import FINAL_RUN_STATES, RUN_STATES

# posting kind -> from which account to which
_MOVES = {
    "budget": ("external", "balance"),
    "hold": ("balance", "held"),
    "spend": ("held", "spent"),
    "release": ("held", "balance"),
}


def inconsistencies(ledger: Ledger) -> list[str]:
    """What does not fit, a sentence each; empty if everything does."""
    return [*_file(ledger), *_postings(ledger), *_accounts(ledger), *_jobs(ledger), *_runs(ledger)]


def _file(ledger: Ledger) -> Iterator[str]:
    for (answer,) in ledger.query("PRAGMA integrity_check(5)"):
        if answer != "ok":
            yield f"the file is damaged: {answer}"
    for table, row, parent, _ in ledger.query("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} belongs to no {parent}"


def _postings(ledger: Ledger) -> Iterator[str]:
    entries: dict[int, list[tuple[str, object]]] = {}
    for posting_id, account, amount in ledger.query(
        "SELECT posting_id, account, microdollars FROM entry ORDER BY rowid"
    ):
        entries.setdefault(posting_id, []).append((account, amount))
    for posting_id, kind, job_id in ledger.query("SELECT id, kind, job_id FROM posting"):
        yield from _posting(f"posting {posting_id} ({kind})", kind, job_id, entries.get(posting_id, []))


def _posting(name: str, kind: str, job_id: str | None, rows: list[tuple[str, object]]) -> Iterator[str]:
    amounts = [amount for _, amount in rows if isinstance(amount, int) and abs(amount) <= MAX_MICRODOLLARS]
    if len(amounts) != len(rows):
        yield f"{name} has an amount that is no whole number of millionths of a dollar"
        return
    if len(rows) != 2:
        yield f"{name} has {len(rows)} entries, not 2"
        return
    if sum(amounts) != 0:
        yield f"{name} does not sum to zero but to {sum(amounts)}"
    if kind not in _MOVES:
        yield f"{name} is of no known kind"
        return
    if tuple(account for account, _ in rows) != _MOVES[kind]:
        yield f"{name} moves from {rows[0][0]} to {rows[1][0]}"
    if kind != "budget" and amounts[1] <= 0:
        yield f"{name} moves {amounts[1]}"
    if (job_id is None) != (kind == "budget"):
        yield f"{name} {'names no job' if job_id is None else 'names a job'}"


def _accounts(ledger: Ledger) -> Iterator[str]:
    for account, amount in ledger.query("SELECT account, SUM(microdollars) FROM entry GROUP BY account"):
        if account not in ACCOUNTS:
            yield f"there is no account {account}"
        elif account != "external" and amount < 0:
            yield f"the account {account} is negative: {dollars(int(amount))}"


def _jobs(ledger: Ledger) -> Iterator[str]:
    rows = ledger.query("SELECT id, state, price_microdollars, hold_microdollars FROM job")
    for job_id, state, price, hold in rows:
        charges = _sums(ledger, "hold", job_id)
        if len(charges) != (1 if hold else 0):
            yield f"job {job_id} was charged {len(charges)} times"
        elif hold and charges[0] != hold:
            yield f"job {job_id} holds {dollars(hold)}, but {dollars(charges[0])} were booked"
        if price != hold:
            yield f"job {job_id} holds {dollars(hold)} at a price of {dollars(price)}"
        parts = ledger.query("SELECT COUNT(*), COALESCE(SUM(part_microdollars), 0) FROM run WHERE job_id = ?", job_id)
        if parts[0][0] == 0:
            yield f"job {job_id} has no runs"
        elif parts[0][1] != hold:
            yield f"the parts of the runs of job {job_id} are {dollars(parts[0][1])}, its hold is {dollars(hold)}"
        if state != "open":
            if state not in FINAL_RUN_STATES:
                yield f"job {job_id} has the unknown state {state}"
            if _left(ledger, job_id):
                yield f"job {job_id} is {state} but still holds {dollars(_left(ledger, job_id))}"


def _left(ledger: Ledger, job_id: str) -> int:
    found = ledger.query(
        "SELECT COALESCE(SUM(microdollars), 0) FROM entry JOIN posting ON posting.id = posting_id"
        " WHERE job_id = ? AND account = 'held'",
        job_id,
    )
    return int(found[0][0])


def _runs(ledger: Ledger) -> Iterator[str]:
    rows = ledger.query(
        "SELECT run.id, job_id, run.state, job.state, part_microdollars, spent_microdollars, result_sha256"
        " FROM run JOIN job ON job.id = job_id"
    )
    for run_id, job_id, state, job_state, part, spent, result in rows:
        booked, released = sum(_sums(ledger, "spend", job_id, run_id)), sum(_sums(ledger, "release", job_id, run_id))
        if booked != spent:
            yield f"run {run_id} spent {dollars(spent)}, the account says {dollars(booked)}"
        if state in RUN_STATES:
            if booked or released:
                yield f"run {run_id} is {state}, but {dollars(booked)} were spent and {dollars(released)} released"
            if result is not None:
                yield f"run {run_id} has a result, but is {state}"
            if job_state != "open":
                yield f"run {run_id} is {state}, but its job is {job_state}"
        elif state not in FINAL_RUN_STATES:
            yield f"run {run_id} has the unknown state {state}"
        elif booked + released != part:
            yield (
                f"run {run_id} is {state}: {dollars(booked)} spent and {dollars(released)} released are not its part"
                f" of {dollars(part)}"
            )
        if result is None and booked:
            yield f"run {run_id} has no result, but {dollars(booked)} were spent"


def _sums(ledger: Ledger, kind: str, job_id: str, run_id: str | None = None) -> list[int]:
    """What each posting of a kind moved."""
    return [
        int(amount)
        for (amount,) in ledger.query(
            "SELECT COALESCE(SUM(MAX(microdollars, 0)), 0) FROM posting LEFT JOIN entry ON posting.id = posting_id"
            " WHERE kind = ? AND job_id = ? AND (? IS NULL OR run_id = ?) GROUP BY posting.id",
            kind,
            job_id,
            run_id,
            run_id,
        )
    ]
