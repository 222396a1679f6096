"""Every single fault of each request and each response over real sockets: our client, a proxy, our service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.service.audit import inconsistencies
from coordinator.service.ledger import Ledger
from tests.service.faults import KINDS, SIDES, Fault, Kind, Side
from tests.service.proxy import proxied
from tests.service.servers import Served, served
from tests.service.stage import DOLLAR, PRICE, run
from tests.service.test_faults import SMALLEST, buy

DEADLINE_SECONDS = 1.0


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("team"), budget=1_000 * DOLLAR, run_price=PRICE, is_flat=False) as found:
        yield found


MONEY_MOVES = (1, 4, 7)
"""The registration, the first result, the settlement."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_a_fault_where_money_moves_ends_in_one_charge_and_both_results(team: Served, side: Side, kind: Kind) -> None:
    assert [SMALLEST[call] for call in MONEY_MOVES] == ["register", "complete", "finish"]
    for call in MONEY_MOVES:
        one_charge_and_both_results(team, Fault(call=call, side=side, kind=kind))


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_a_fault_at_any_call_ends_in_one_charge_and_both_results(team: Served, side: Side, kind: Kind) -> None:
    for call in range(len(SMALLEST)):
        if call not in MONEY_MOVES:
            one_charge_and_both_results(team, Fault(call=call, side=side, kind=kind))


def one_charge_and_both_results(team: Served, fault: Fault) -> None:
    ledger = Ledger(team.ledger_path, read_only=True)
    key, before = f"{fault.side}-{fault.kind}-{fault.call}", ledger.balances()
    with proxied(team.url, fault) as proxy:
        service = team.remote_at(proxy.url, total_seconds=DEADLINE_SECONDS)
        assert run(buy(service, key)) == "succeeded"
        assert proxy.struck == [fault]
    after = ledger.balances()
    assert (after.held, after.spent - before.spent) == (before.held, 30_000)
    rows = ledger.query(
        "SELECT COUNT(DISTINCT job_id), COUNT(result_sha256) FROM run JOIN job ON job.id = job_id"
        " WHERE idempotency_key = ?",
        key,
    )
    assert rows == [(1, 2)]
    assert inconsistencies(ledger) == []
    ledger.close()


def test_an_undisturbed_purchase_makes_a_connection_for_each_call(team: Served) -> None:
    with proxied(team.url) as proxy:
        assert run(buy(team.remote_at(proxy.url), "undisturbed")) == "succeeded"
        assert proxy.calls == len(SMALLEST)
