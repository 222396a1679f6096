"""The failing network itself, and what every single fault does to the smallest purchase."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import pytest

from coordinator.client import NotSentError, Service, ServiceError, UnknownOutcomeError
from tests.service.conftest import MakeStage
from tests.service.faults import (
    DEADLINE_SECONDS,
    DELAY_SECONDS,
    Fault,
    FaultyService,
    ServiceFaults,
    VirtualClock,
    drawn_pairs,
    single_faults,
)
from tests.service.stage import Stage, body_of, plan, played, run

SMALLEST = ["estimate", "register", "heartbeat", "transition", "complete", "heartbeat", "complete", "finish"]
TRIES = 6

T = TypeVar("T")


def over(stage: Stage, *faults: Fault) -> tuple[FaultyService, ServiceFaults]:
    network = ServiceFaults(faults, stage.clock)
    return FaultyService(stage.service, network), network


@pytest.mark.parametrize(
    ("fault", "error", "carried_out", "seconds"),
    [
        (Fault(call=0, side="request", kind="drop"), UnknownOutcomeError, 0, DEADLINE_SECONDS),
        (Fault(call=0, side="request", kind="delay"), UnknownOutcomeError, 0, DEADLINE_SECONDS),
        (Fault(call=0, side="request", kind="repeat"), None, 1, 0),
        (Fault(call=0, side="request", kind="truncate"), UnknownOutcomeError, 0, 0),
        (Fault(call=0, side="request", kind="reset"), NotSentError, 0, 0),
        (Fault(call=0, side="response", kind="drop"), UnknownOutcomeError, 1, DEADLINE_SECONDS),
        (Fault(call=0, side="response", kind="delay"), None, 1, DELAY_SECONDS),
        (Fault(call=0, side="response", kind="repeat"), None, 1, 0),
        (Fault(call=0, side="response", kind="truncate"), UnknownOutcomeError, 1, 0),
        (Fault(call=0, side="response", kind="reset"), UnknownOutcomeError, 1, 0),
    ],
)
def test_each_fault_does_what_the_table_says(
    stage: Stage, fault: Fault, error: type[ServiceError] | None, carried_out: int, seconds: float
) -> None:
    service, network = over(stage, fault)
    before = stage.clock.now()
    if error is None:
        run(service.register("key-1", body_of()))
    else:
        with pytest.raises(error):
            run(service.register("key-1", body_of()))
    assert stage.ledger.row_counts()["job"] == carried_out
    passed = VirtualClock(before)
    passed.advance(seconds)
    assert stage.clock.now() == passed.now()
    assert network.log == ["register"]
    assert network.struck == [fault]


def test_a_delayed_request_arrives_after_the_next_call(stage: Stage) -> None:
    service, _ = over(stage, Fault(call=0, side="request", kind="delay"))
    with pytest.raises(UnknownOutcomeError):
        run(service.register("key-1", body_of()))
    assert run(service.find_job("key-1")) is None, "looked up too early"
    assert stage.ledger.row_counts()["job"] == 1
    assert run(service.register("key-1", body_of())).replayed


def test_pairs_are_the_same_for_the_same_seed_and_strike_two_calls() -> None:
    first, again, other = (list(drawn_pairs(seed, 8, 200)) for seed in (7, 7, 8))
    assert first == again != other
    assert all(one.call < two.call < 12 for one, two in first)
    assert len({(fault.side, fault.kind) for pair in first for fault in pair}) == 10


async def tried(call: Callable[[], Awaitable[T]]) -> T:
    """The same request again while its fate is not known; never another one."""
    for _ in range(TRIES - 1):
        try:
            return await call()
        except (NotSentError, UnknownOutcomeError):
            continue
    return await call()


async def buy(service: Service, key: str) -> str:
    """The least that a client does; how the job ended."""
    quote = await tried(lambda: service.estimate(plan()))
    job = await tried(lambda: service.register(key, body_of(quote.estimate_cents)))
    first, second = ((job.job_id, one.run_id) for one in job.runs)
    await tried(lambda: service.heartbeat(*first, 1, 1))
    await tried(lambda: service.transition(*first, "playing"))
    await tried(lambda: service.complete(*first, played(30_000)))
    await tried(lambda: service.heartbeat(*second, 1, 1))
    await tried(lambda: service.complete(*second, played(report=None, usage=None)))
    state = await tried(lambda: service.finish(job.job_id))
    await service.close()
    return state.state


def purchases(stage: Stage, faults: Iterable[tuple[Fault, ...]]) -> int:
    """One purchase after another, each with its faults; how many there were.

    Each finds exactly its own price in the balance: a second charge would be refused, or seen in what is left.
    """
    count = 0
    for count, drawn in enumerate(faults, 1):
        spent = stage.ledger.balances().spent
        stage.ledger.set_budget(spent + 200_000, stage.clock.now())
        service, network = over(stage, *drawn)
        assert run(buy(service, f"key-{count}")) == "succeeded", drawn
        assert set(network.struck) <= set(drawn)
        found = stage.ledger.balances()
        assert (found.balance, found.held, found.spent - spent) == (170_000, 0, 30_000), drawn
        results = stage.ledger.query(
            "SELECT COUNT(result_sha256) FROM run JOIN job ON job.id = job_id WHERE idempotency_key = ?", f"key-{count}"
        )
        assert results == [(2,)], drawn
    stage.money()
    rows = stage.ledger.query("SELECT COUNT(*), COUNT(DISTINCT idempotency_key), MIN(state), MAX(state) FROM job")
    assert rows == [(count, count, "succeeded", "succeeded")]
    return count


def test_an_undisturbed_purchase_makes_the_calls_that_faults_are_counted_by(stage: Stage) -> None:
    service, network = over(stage)
    assert run(buy(service, "undisturbed")) == "succeeded"
    assert network.log == SMALLEST


def test_every_single_fault_ends_in_one_charge_and_both_results(make_stage: MakeStage) -> None:
    assert purchases(make_stage(budget=0), ((fault,) for fault in single_faults(len(SMALLEST)))) == 80


def test_drawn_pairs_of_faults_end_in_one_charge_and_both_results(make_stage: MakeStage) -> None:
    seed = int(os.environ.get("PLAYLANE_SEED", "20260"))
    print("seed", seed)
    stage = make_stage(budget=0)
    stage.ledger.query("PRAGMA synchronous=OFF")
    assert purchases(stage, drawn_pairs(seed, len(SMALLEST), 300)) == 300
