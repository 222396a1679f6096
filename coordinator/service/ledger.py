"""Money in double entry: every posting moves an amount between accounts and sums to zero.

SQLite in WAL mode with synchronous FULL: what was answered survives a power cut. Several coordinators may use one
ledger at once; each change is one `BEGIN IMMEDIATE` transaction. Amounts are integers of millionths of a dollar.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from coordinator.errors import CoordinatorError, InvalidInputError

LEDGER_VERSION = 1
MAX_MICRODOLLARS = 10**15
BUSY_SECONDS = 20.0

Account = Literal["external", "balance", "held", "spent"]
ACCOUNTS: tuple[Account, ...] = ("external", "balance", "held", "spent")

_SCHEMA = """
CREATE TABLE secret (value TEXT NOT NULL);
CREATE TABLE posting (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, job_id TEXT, run_id TEXT, note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE entry (
  posting_id INTEGER NOT NULL REFERENCES posting(id), account TEXT NOT NULL, microdollars INTEGER NOT NULL
);
CREATE INDEX entry_account ON entry(account, microdollars);
CREATE INDEX entry_posting ON entry(posting_id);
CREATE INDEX posting_job ON posting(job_id);
CREATE TABLE job (
  id TEXT PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, request_sha256 TEXT NOT NULL, game TEXT NOT NULL,
  price_microdollars INTEGER NOT NULL, hold_microdollars INTEGER NOT NULL, state TEXT NOT NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL, aggregate TEXT
);
CREATE TABLE run (
  id TEXT PRIMARY KEY, job_id TEXT NOT NULL REFERENCES job(id), position INTEGER NOT NULL, module TEXT NOT NULL,
  persona TEXT, controller TEXT, repetition INTEGER, token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
  part_microdollars INTEGER NOT NULL, spent_microdollars INTEGER NOT NULL DEFAULT 0, used_microdollars INTEGER,
  actions_taken INTEGER NOT NULL DEFAULT 0, beaten_at TEXT, stall_seconds INTEGER NOT NULL, result_sha256 TEXT,
  warned INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX run_job ON run(job_id);
CREATE INDEX job_state ON job(state);
CREATE TABLE upload (run_id TEXT NOT NULL REFERENCES run(id), name TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER,
  PRIMARY KEY (run_id, sha256));
"""


class LedgerError(CoordinatorError):
    """The ledger cannot be used, or a posting breaks a rule. Nothing was changed."""


class LedgerCommitError(LedgerError):
    """The last step of a change failed: the disk decides whether it happened."""


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
    """One SQLite file. Use `transaction` for every change; what is raised inside rolls back.

    It belongs to the thread that made it. With `read_only` nothing is created and every change is refused. A change
    waits at most `busy_seconds` for another process's.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.path = os.path.abspath(path)
        _check_private(self.path, create=not read_only)
        try:
            where = f"{Path(self.path).as_uri()}?mode={'ro' if read_only else 'rw'}"
            self._connection = sqlite3.connect(where, uri=True, timeout=busy_seconds, isolation_level=None)
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path} cannot be used as a ledger: {error}") from error
        try:
            if not read_only:
                self._use_wal()
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._check_version() if read_only else self._prepare()
        except (sqlite3.Error, LedgerError) as error:
            self._connection.close()
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(f"{self.path} cannot be used as a ledger: {error}") from error

    def _use_wal(self) -> None:
        """The change to WAL needs the file alone, and SQLite does not wait for that: a first use at the same time as
        another process's would fail. A write lock waits; whoever comes second finds WAL in place.
        """
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            return
        for last in (False, True):
            try:
                if self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                    return
            except sqlite3.OperationalError:
                if last:
                    raise
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        raise LedgerError(f"{self.path}: its file system does not allow WAL; keep the project on a local disk")

    def _check_version(self) -> int:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, LEDGER_VERSION):
            raise LedgerError(f"{self.path} has version {version}; this program reads {LEDGER_VERSION}")
        return version

    def _prepare(self) -> None:
        if self._check_version() == LEDGER_VERSION:
            return
        with self.transaction() as connection:
            if self._check_version() == LEDGER_VERSION:
                return
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO secret (value) VALUES (?)", (secrets.token_hex(32),))
            connection.execute(f"PRAGMA user_version={LEDGER_VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One change, whole or not at all. Raises `LedgerError` for what SQLite refuses (nothing was changed), and
        `LedgerCommitError` when the commit itself failed.
        """
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                self._roll_back()
                raise
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {error}; nothing was changed") from error
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise LedgerCommitError(f"{self.path}: {error}; whether the change was made is not known") from error

    def _roll_back(self) -> None:
        # After some errors SQLite has rolled back already, and another try would hide the first cause.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def secret(self) -> bytes:
        """Random, made with the ledger: run tokens are derived from it. Never shown."""
        return bytes.fromhex(str(self.query("SELECT value FROM secret")[0][0]))

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a reading statement."""
        try:
            return list(self._connection.execute(statement, values))
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    # -- money

    def balances(self) -> Balances:
        found = dict(self.query("SELECT account, SUM(microdollars) FROM entry GROUP BY account"))
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
        return {table: int(self.query(f"SELECT COUNT(*) FROM {table}")[0][0]) for table in tables}


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
    """Move an amount from one account to another. Raises `LedgerError` unless it is a positive whole number, or the
    external account gives (negative: takes back) a budget.
    """
    if type(microdollars) is not int or (microdollars <= 0 and source != "external"):
        raise LedgerError(f"a posting moves a positive amount, not {microdollars!r}")
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
    whole, point, part = plain.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= 9) or (
        point and not (part.isascii() and part.isdigit())
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


def _check_private(path: str, *, create: bool) -> None:
    """The file is private from its first byte; SQLite gives its WAL the same mode.

    A file that exists is only looked at: to open and close it here would drop the locks that another connection of
    this process holds on it (POSIX locks belong to the process), and two writers could meet.
    """
    try:
        if create:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        found = os.lstat(path)
    except FileNotFoundError as error:
        raise LedgerError(f"there is no ledger at {path}; coordinate budget set makes one") from error
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise LedgerError(f"{path} is not a regular file of its own; a ledger must not be a link")
    if found.st_uid != os.geteuid():
        raise LedgerError(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise LedgerError(f"{path} has mode {stat.S_IMODE(found.st_mode):04o}; others must not read it (chmod 600)")
