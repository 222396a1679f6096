"""The ledger's file and its double entry."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from coordinator.errors import InvalidInputError
from coordinator.service.audit import inconsistencies
from coordinator.service.ledger import Ledger, LedgerError, dollars, post, read_dollars
from coordinator.service.wire import cents
from tests.service.stage import DOLLAR, Stage

NOW = "2030-01-01T00:00:00.000Z"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_ledger_and_its_log_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "store" / "ledger.sqlite")
        ledger.set_budget(DOLLAR, NOW)
        assert {one.name: mode_of(one) for one in (tmp_path / "store").iterdir()} == {
            "ledger.sqlite": 0o600,
            "ledger.sqlite-wal": 0o600,
            "ledger.sqlite-shm": 0o600,
        }
        assert mode_of(tmp_path / "store") == 0o700
    finally:
        os.umask(before)
    ledger.close()


def test_the_ledger_writes_ahead_and_synchronises_every_commit(stage: Stage) -> None:
    assert stage.ledger.query("PRAGMA journal_mode") == [("wal",)]
    assert stage.ledger.query("PRAGMA synchronous") == [(2,)], "2 is FULL"


@pytest.mark.parametrize("what", ["readable", "symbolic link", "hard link", "directory", "pipe"])
def test_a_ledger_that_others_could_reach_is_refused(tmp_path: Path, what: str) -> None:
    path, other = tmp_path / "ledger.sqlite", tmp_path / "other"
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path, 0o600)
    else:
        Ledger(other).close()
    if what == "readable":
        other.rename(path)
        path.chmod(0o640)
    elif what == "symbolic link":
        path.symlink_to(other)
    elif what == "hard link":
        path.hardlink_to(other)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        Ledger(path)


def read_in_another_process(path: Path) -> int:
    """The budget as another process sees it that opens the ledger and closes it again."""
    script = "import sys; from coordinator.service.ledger import Ledger; ledger = Ledger(sys.argv[1]);"
    script += "print(ledger.balances().budget); ledger.close()"
    found = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    return int(found.stdout)


def test_opening_a_ledger_twice_keeps_the_locks_of_the_first(stage: Stage) -> None:
    """POSIX locks fall with any descriptor of the file: another process would then take itself for the only user,
    remove the log at its end, and what is committed here afterwards would be lost.
    """
    Ledger(stage.path).close()
    assert read_in_another_process(stage.path) == DOLLAR
    stage.ledger.set_budget(7 * DOLLAR, NOW)
    assert read_in_another_process(stage.path) == 7 * DOLLAR


def test_a_foreign_file_and_a_newer_version_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite"
    foreign.write_bytes(b"not a database at all " * 100)
    foreign.chmod(0o600)
    with pytest.raises(LedgerError, match="cannot be used as a ledger"):
        Ledger(foreign)
    newer = tmp_path / "newer.sqlite"
    Ledger(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(LedgerError, match="version 99"):
        Ledger(newer)


def test_reading_makes_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "ledger.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_ledger_refuses_changes(stage: Stage) -> None:
    reader = Ledger(stage.path, read_only=True)
    with pytest.raises(LedgerError, match="readonly"):
        reader.set_budget(2 * DOLLAR, NOW)
    assert reader.balances().budget == DOLLAR
    reader.close()


def test_what_is_raised_inside_a_change_undoes_it(stage: Stage) -> None:
    before = stage.ledger.row_counts()
    with pytest.raises(ZeroDivisionError), stage.ledger.transaction() as connection:
        post(connection, NOW, "hold", "balance", "held", 5, job_id="j")
        raise ZeroDivisionError
    assert stage.ledger.row_counts() == before
    with pytest.raises(LedgerError, match="nothing was changed"), stage.ledger.transaction() as connection:
        post(connection, NOW, "hold", "balance", "held", 5, job_id="j")
        connection.execute("INSERT INTO no_such_table VALUES (1)")
    assert stage.ledger.row_counts() == before
    assert stage.ledger.set_budget(2 * DOLLAR, NOW).budget == 2 * DOLLAR, "the connection goes on"


def test_every_posting_sums_to_zero(stage: Stage) -> None:
    job = stage.register()
    stage.complete(job, 0)
    stage.complete(job, 1)
    totals = stage.ledger.query("SELECT posting_id, SUM(microdollars), COUNT(*) FROM entry GROUP BY posting_id")
    assert len(totals) == 6, "budget, hold, and a spend and a release for each run"
    assert {(total, count) for _, total, count in totals} == {(0, 2)}
    assert stage.ledger.query("SELECT SUM(microdollars) FROM entry") == [(0,)]


def test_a_budget_is_raised_and_lowered_down_to_what_is_bound(stage: Stage) -> None:
    job = stage.register()
    assert stage.ledger.set_budget(5 * DOLLAR, NOW).balance == 5 * DOLLAR - 200_000
    stage.complete(job, 0)
    found = stage.ledger.set_budget(130_000, NOW)
    assert (found.budget, found.balance, found.held, found.spent) == (130_000, 0, 100_000, 30_000)
    before = stage.ledger.row_counts()
    with pytest.raises(LedgerError, match=r"cannot be \$0\.129999: \$0\.10 are held and \$0\.03 spent"):
        stage.ledger.set_budget(129_999, NOW)
    stage.ledger.set_budget(130_000, NOW)
    assert stage.ledger.row_counts() == before
    assert inconsistencies(stage.ledger) == []


@pytest.mark.parametrize("amount", [-1, 0.5, 5.0, float("nan"), float("inf"), 10**15 + 1, 10**40, True, "5", None])
def test_a_budget_that_is_no_amount_is_refused(stage: Stage, amount: object) -> None:
    before = stage.ledger.row_counts()
    with pytest.raises(InvalidInputError, match="budget"):
        stage.ledger.set_budget(amount, NOW)  # type: ignore[arg-type]
    assert stage.ledger.row_counts() == before


@pytest.mark.parametrize("amount", [0, -1, 1.5])
def test_a_posting_of_no_positive_whole_amount_is_refused(stage: Stage, amount: int) -> None:
    with pytest.raises(LedgerError, match="positive"), stage.ledger.transaction() as connection:
        post(connection, NOW, "hold", "balance", "held", amount)


@pytest.mark.parametrize(
    ("text", "microdollars"),
    [("5", 5_000_000), ("5.00", 5_000_000), ("$0.05", 50_000), ("0.000001", 1), ("0", 0), (" 12.5 ", 12_500_000)],
)
def test_dollars_are_read_exactly(text: str, microdollars: int) -> None:
    assert read_dollars(text) == microdollars


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", "nan", "inf", "1,50", "0.0000001", "9999999999", "$", "1.2.3", "٣", "5 €", "5."]
)
def test_what_is_no_amount_of_dollars_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        read_dollars(text)


def test_amounts_are_shown_with_the_digits_that_matter() -> None:
    assert [dollars(one) for one in (0, 5_000_000, 50_000, 1, -1_250_000)] == [
        "$0.00", "$5.00", "$0.05", "$0.000001", "-$1.25",
    ]  # fmt: skip


def test_cents_are_rounded_up() -> None:
    assert [cents(one) for one in (0, 1, 9_999, 10_000, 10_001)] == [0, 1, 1, 1, 2]


FIRST_USE = """
    import sys
    from coordinator.service.ledger import Ledger
    sys.stdin.readline()
    for _ in range(20):
        ledger = Ledger(sys.argv[1])
        ledger.set_budget(ledger.balances().budget + 1, "2030-01-01T00:00:00.000Z")
        ledger.close()
"""


def test_four_processes_that_use_a_new_ledger_at_once_all_get_in(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(FIRST_USE), str(path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    ends = [(child.communicate(timeout=60)[1], child.returncode) for child in children]
    assert ends == [("", 0)] * 4
    ledger = Ledger(path)
    assert 1 <= ledger.balances().budget <= 80  # each sets what it read plus one: some steps are overwritten
    assert inconsistencies(ledger) == []
    ledger.close()
