"""Money in double entry: every posting moves an amount between accounts and sums to zero.

SQLite in WAL mode with synchronous FULL: what was answered survives a power cut. Several coordinators may use one
ledger at once; each change is one `BEGIN IMMEDIATE` transaction. Amounts are integers of millionths of a dollar.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Literal

import msgspec

from coordinator.errors import CoordinatorError, InvalidInputError

LEDGER_VERSION = 1
MAX_MICRODOLLARS = 10**15
BUSY_SECONDS = 20.0

Account = Literal["external", "balance", "held", "spent"]
ACCOUNTS: tuple[Account, ...] = ("external", "balance", "held", "spent")

_SCHEMA = """
CREATE TABLE posting (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT, run_id TEXT, note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE entry (
  posting_id INTEGER NOT NULL REFERENCES posting(id), account TEXT NOT NULL, microdollars INTEGER NOT NULL
);
CREATE INDEX entry_account ON entry(account);
CREATE TABLE job (
  id TEXT PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, request_sha256 TEXT NOT NULL, game TEXT NOT NULL,
  price_microdollars INTEGER NOT NULL, hold_microdollars INTEGER NOT NULL, state TEXT NOT NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL, aggregate TEXT
);
CREATE TABLE run (
  id TEXT PRIMARY KEY, job_id TEXT NOT NULL REFERENCES job(id), position INTEGER NOT NULL, module TEXT NOT NULL,
  persona TEXT, controller TEXT, repetition INTEGER, token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
  part_microdollars INTEGER NOT NULL, spent_microdollars INTEGER NOT NULL DEFAULT 0,
  actions_taken INTEGER NOT NULL DEFAULT 0, beaten_at TEXT, stall_seconds INTEGER NOT NULL, result_sha256 TEXT,
  warned INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE upload (run_id TEXT NOT NULL REFERENCES run(id), name TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER,
  PRIMARY KEY (run_id, sha256));
"""


class LedgerError(CoordinatorError):
    """The ledger cannot be used, or a posting breaks a rule."""


class BudgetExceededError(LedgerError):
    """The balance does not cover what is asked for."""

    def __init__(self, wanted: int, balance: int) -> None:
        self.wanted, self.balance = wanted, balance
        super().__init__(
            f"the balance of {dollars(balance)} does not cover {dollars(wanted)}; raise it with coordinate budget set"
        )


class Balances(msgspec.Struct, frozen=True, kw_only=True):
    """Millionths of a dollar. `budget` is the sum of the other three."""

    budget: int
    balance: int
    held: int
    spent: int


class Ledger:
    """One SQLite file. Use `transaction` for every change; what is raised inside rolls back."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        _make_private(self.path)
        try:
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._prepare()
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path} cannot be used as a ledger: {error}") from error

    def _prepare(self) -> None:
        with self.transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={LEDGER_VERSION}")
            elif version != LEDGER_VERSION:
                raise LedgerError(f"{self.path} has version {version}; this program reads {LEDGER_VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One change, whole or not at all. Raises `LedgerError` for what SQLite refuses."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {error}") from error

    def query(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        try:
            return list(self._connection.execute(statement, values))
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    # -- money

    def balances(self) -> Balances:
        found = dict(self._connection.execute("SELECT account, SUM(microdollars) FROM entry GROUP BY account"))
        balance, held, spent = (int(found.get(account, 0)) for account in ACCOUNTS[1:])
        return Balances(budget=balance + held + spent, balance=balance, held=held, spent=spent)

    def set_budget(self, microdollars: int, now: str) -> Balances:
        """Make `microdollars` the sum of balance, held and spent. It cannot be less than what is held and spent."""
        check_amount(microdollars, "budget")
        with self.transaction() as connection:
            found = self.balances()
            bound = found.held + found.spent
            if microdollars < bound:
                raise LedgerError(
                    f"the budget cannot be {dollars(microdollars)}: {dollars(found.held)} are held and"
                    f" {dollars(found.spent)} spent already"
                )
            if microdollars != found.budget:
                post(connection, now, "budget", "external", "balance", microdollars - found.budget)
        return self.balances()

    def row_counts(self) -> dict[str, int]:
        """Rows of each table: what a refusal must leave as it was."""
        tables = ("posting", "entry", "job", "run", "upload")
        return {table: self._connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables}

    def inconsistencies(self) -> list[str]:
        """What does not add up: the proof that `coordinate verify` runs over the money."""
        problems = [
            f"posting {posting_id} does not sum to zero ({total})"
            for posting_id, total in self._connection.execute(
                "SELECT posting_id, SUM(microdollars) FROM entry GROUP BY posting_id HAVING SUM(microdollars) != 0"
            )
        ]
        problems.extend(
            f"posting {posting_id} has no entries"
            for (posting_id,) in self._connection.execute(
                "SELECT id FROM posting WHERE id NOT IN (SELECT posting_id FROM entry)"
            )
        )
        found = self.balances()
        problems.extend(
            f"the account {name} is negative: {amount}"
            for name, amount in (("balance", found.balance), ("held", found.held), ("spent", found.spent))
            if amount < 0
        )
        problems.extend(self._job_inconsistencies())
        return problems

    def _job_inconsistencies(self) -> Iterator[str]:
        rows = self._connection.execute("SELECT id, state, hold_microdollars FROM job").fetchall()
        for job_id, state, hold in rows:
            charges = self._connection.execute(
                "SELECT COUNT(*) FROM posting WHERE job_id = ? AND kind = 'hold'", (job_id,)
            ).fetchone()[0]
            if charges != (1 if hold else 0):
                yield f"job {job_id} was charged {charges} times"
            held = self._connection.execute(
                "SELECT COALESCE(SUM(microdollars), 0) FROM entry JOIN posting ON posting.id = posting_id"
                " WHERE job_id = ? AND account = 'held'",
                (job_id,),
            ).fetchone()[0]
            if state == "open" and held < 0:
                yield f"job {job_id} holds {held}"
            if state != "open" and held != 0:
                yield f"job {job_id} is {state} but still holds {held}"
            spent, booked = self._connection.execute(
                "SELECT COALESCE(SUM(spent_microdollars), 0), (SELECT COALESCE(SUM(microdollars), 0) FROM entry"
                " JOIN posting ON posting.id = posting_id WHERE job_id = ?1 AND account = 'spent')"
                " FROM run WHERE job_id = ?1",
                (job_id,),
            ).fetchone()
            if spent != booked:
                yield f"job {job_id}: its runs spent {spent}, the account says {booked}"


def post(
    connection: sqlite3.Connection,
    at: str,
    kind: str,
    source: Account,
    target: Account,
    microdollars: int,
    *,
    job_id: str | None = None,
    run_id: str | None = None,
    note: str = "",
) -> None:
    """Move an amount from one account to another."""
    cursor = connection.execute(
        "INSERT INTO posting (at, kind, job_id, run_id, note) VALUES (?, ?, ?, ?, ?)", (at, kind, job_id, run_id, note)
    )
    entries = [(cursor.lastrowid, source, -microdollars), (cursor.lastrowid, target, microdollars)]
    connection.executemany("INSERT INTO entry (posting_id, account, microdollars) VALUES (?, ?, ?)", entries)


def check_amount(microdollars: object, what: str) -> int:
    """A whole, not negative, not absurd amount. Raises `InvalidInputError`."""
    if not isinstance(microdollars, int) or isinstance(microdollars, bool):
        raise InvalidInputError(f"{what}: {microdollars!r} is not a whole number of millionths of a dollar")
    if not 0 <= microdollars <= MAX_MICRODOLLARS:
        raise InvalidInputError(
            f"{what}: {microdollars} is not between 0 and {MAX_MICRODOLLARS} millionths of a dollar"
        )
    return microdollars


def read_dollars(text: str) -> int:
    """Millionths of a dollar from `5`, `5.00` or `$5.00`. Raises `InvalidInputError` for anything else."""
    plain = text.strip().removeprefix("$")
    whole, _, part = plain.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= 9) or not (
        part == "" or (part.isascii() and part.isdigit())
    ):
        raise InvalidInputError(f"{text!r} is not an amount of dollars such as 5.00")
    if len(part) > 6:
        raise InvalidInputError(f"{text!r} is finer than a millionth of a dollar")
    return check_amount(int(whole) * 1_000_000 + int(part.ljust(6, "0") or "0"), "amount")


def dollars(microdollars: int) -> str:
    """For people: `$5.00`, with more digits only where they matter."""
    sign = "-" if microdollars < 0 else ""
    whole, part = divmod(abs(microdollars), 1_000_000)
    digits = f"{part:06d}"
    shown = digits[:2] if digits.endswith("0000") else digits.rstrip("0")
    return f"{sign}${whole}.{shown}"


def _make_private(path: str) -> None:
    """The file is private from its first byte; SQLite gives its WAL the same mode."""
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened: {error.strerror}") from error
