"""Whatever one or two faults of the network, or a kill at any journal write, do to a purchase: one charge, no loss."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from coordinator.carrying import Carried, carry
from coordinator.files import Files
from coordinator.journal import JournalFile
from coordinator.money import verify_purchases
from coordinator.purchase import Purchase, PurchaseOpenError
from coordinator.service.audit import inconsistencies
from tests.purchase.table import PERSONAS, PRICE_CENTS, SCENARIOS, USED, MemoryCampaign, new_journal
from tests.service.faults import Fault, FaultyService, ServiceFaults, drawn_pairs, single_faults
from tests.service.stage import Stage, run

MAX_RESUMES = 8
BUDGET = 10**12


class KilledError(BaseException):
    """The process died here."""


class DyingFiles(Files):
    """Dies before or after the write with the given number (0, 1, 2); `writes` counts them."""

    def __init__(self, at: int | None = None, *, before: bool = True) -> None:
        super().__init__()
        self.writes, self._at, self._before = 0, at, before

    def replace(self, path: str, data: bytes, *, keep_mode: bool = False) -> None:
        number = self.writes
        self.writes += 1
        if number == self._at and self._before:
            raise KilledError
        super().replace(path, data, keep_mode=keep_mode)
        if number == self._at:
            raise KilledError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is one: these faults are of networks and processes, nothing here waits for a platter."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield Path(name)


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    (folder / ".playlane").mkdir(mode=0o700)
    made = Stage(folder / ".playlane", budget=BUDGET)
    yield made
    made.close()


def carried_on(
    stage: Stage, folder: Path, network: ServiceFaults, campaign: MemoryCampaign, files: Callable[[], Files] = Files
) -> Carried:
    """One purchase, resumed by a new client as often as it takes."""
    file = new_journal(folder, key=secrets.token_hex(8), now=stage.clock.now())
    path = file.path
    file.close()
    for _ in range(MAX_RESUMES):
        file = JournalFile.open(path, files=files())
        service = FaultyService(stage.service, network)
        try:
            purchase = Purchase(file, service, now=stage.clock.now, wait=stage.clock.wait)
            campaign.purchase = purchase
            found = run(carry(purchase, campaign))
            if found.is_settled:
                return found
        except (PurchaseOpenError, KilledError):
            pass
        finally:
            run(service.close())
            file.close()
    raise AssertionError(f"the purchase did not come to its end after {network.struck}")


def check(stage: Stage, campaign: MemoryCampaign, found: Carried, before: tuple[int, int], faults: object) -> None:
    """One charge, both results, nothing held, nothing launched twice."""
    assert found.exit_code == 0, faults
    assert campaign.launches == dict.fromkeys([one["id"] for one in SCENARIOS], 1), faults
    assert found.late == [], faults
    balances = stage.ledger.balances()
    jobs = stage.ledger.row_counts()["job"]
    assert (jobs, balances.held, balances.spent) == (before[0] + 1, 0, before[1] + USED * len(PERSONAS)), faults


def buy(stage: Stage, folder: Path, faults: Sequence[Fault]) -> None:
    before = (stage.ledger.row_counts()["job"], stage.ledger.balances().spent)
    network, campaign = ServiceFaults(faults, stage.clock), MemoryCampaign()
    check(stage, campaign, carried_on(stage, folder, network, campaign), before, faults)


def calls_of_a_quiet_purchase(stage: Stage, folder: Path) -> list[str]:
    network, campaign = ServiceFaults((), stage.clock), MemoryCampaign()
    carried_on(stage, folder, network, campaign)
    return network.log


def test_a_quiet_purchase_makes_these_calls_in_this_order(stage: Stage, folder: Path) -> None:
    calls = [name for name in calls_of_a_quiet_purchase(stage, folder) if name != "job"]
    assert calls == ["register", "heartbeat", "heartbeat", "complete", "complete", "send_aggregate", "finish"]
    assert stage.money() == (BUDGET - 2 * USED, 0, 2 * USED)
    assert PRICE_CENTS * 10_000 == 200_000


def test_every_single_fault_of_each_request_and_answer_ends_in_one_charge_and_both_results(
    stage: Stage, folder: Path
) -> None:
    calls = len(calls_of_a_quiet_purchase(stage, folder))
    faults = list(single_faults(calls))
    assert len(faults) == calls * 10
    for fault in faults:
        buy(stage, folder, [fault])
    assert inconsistencies(stage.ledger) == []
    assert verify_purchases(folder).problems == []


def test_a_kill_before_and_after_every_journal_write_ends_in_one_charge_and_both_results(
    stage: Stage, folder: Path
) -> None:
    counted = DyingFiles()
    carried_on(stage, folder, ServiceFaults((), stage.clock), MemoryCampaign(), lambda: counted)
    assert counted.writes >= 8
    for at in range(counted.writes):
        for before in (True, False):
            dying = iter([DyingFiles(at, before=before)])
            spent = (stage.ledger.row_counts()["job"], stage.ledger.balances().spent)
            campaign = MemoryCampaign()
            network = ServiceFaults((), stage.clock)
            found = carried_on(stage, folder, network, campaign, lambda d=dying: next(d, Files()))  # type: ignore[misc]
            check(stage, campaign, found, spent, (at, before))
    assert inconsistencies(stage.ledger) == []
    assert verify_purchases(folder).problems == []


def buy_under_pairs(stage: Stage, folder: Path, count: int) -> None:
    seed = secrets.randbits(32)
    calls = len(calls_of_a_quiet_purchase(stage, folder))
    try:
        for pair in drawn_pairs(seed, calls, count):
            buy(stage, folder, pair)
        assert inconsistencies(stage.ledger) == []
        assert verify_purchases(folder).problems == []
    except BaseException:
        print(f"seed {seed}")
        raise


def test_drawn_pairs_of_faults_end_in_one_charge_and_both_results(stage: Stage, folder: Path) -> None:
    buy_under_pairs(stage, folder, 150)


@pytest.mark.ci
def test_five_thousand_drawn_pairs_of_faults_end_in_one_charge_and_both_results(folder: Path) -> None:
    # A ledger for each two hundred: what is summed up over ten thousand purchases takes longer than they do.
    for number in range(25):
        root = folder / str(number)
        (root / ".playlane").mkdir(parents=True, mode=0o700)
        stage = Stage(root / ".playlane", budget=BUDGET)
        try:
            buy_under_pairs(stage, root, 200)
        finally:
            stage.close()
