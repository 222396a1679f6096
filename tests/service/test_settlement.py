"""How runs and jobs end: what is spent, what goes back, what is refused, and what happens when nobody answers."""

from __future__ import annotations

import pytest

from coordinator.service.embedded import RunPrice
from coordinator.service.wire import RunResult
from tests.service.conftest import MakeStage
from tests.service.stage import DOLLAR, Stage, body_of, plan, played, refused, run

HOUR = 3600.0


def test_what_was_used_is_spent_and_the_rest_released(stage: Stage) -> None:
    job = stage.register()
    stage.complete(job, 0, played(30_000))
    assert stage.money() == (870_000, 100_000, 30_000)
    stage.complete(job, 1, played(100_000))
    assert stage.money() == (870_000, 0, 130_000)
    assert run(stage.service.finish(job.job_id)).state == "succeeded"
    assert stage.money() == (870_000, 0, 130_000)


def test_complete_and_finish_are_safe_to_repeat(stage: Stage) -> None:
    job = stage.register()
    states = [stage.complete(job, 0) for _ in range(3)]
    before = stage.ledger.row_counts()
    finished = [run(stage.service.finish(job.job_id, reason)) for reason in ("failed", None, "canceled")]
    assert states == ["succeeded"] * 3
    assert [one.state for one in finished] == ["failed"] * 3
    assert stage.ledger.row_counts()["posting"] == before["posting"] + 1, "one release for the run that was open"
    assert stage.complete(job, 0) == "succeeded", "the same result is accepted after the settlement too"
    assert stage.money() == (970_000, 0, 30_000)


def test_another_result_for_a_closed_run_is_refused_and_never_paid_again(stage: Stage) -> None:
    job = stage.register()
    stage.complete(job, 0)
    before = stage.ledger.row_counts()
    with refused(409, "result_conflict"):
        stage.complete(job, 0, played(90_000, state="failed"))
    assert stage.ledger.row_counts() == before
    assert stage.money()[2] == 30_000


def test_a_late_result_for_a_settled_job_is_refused(stage: Stage) -> None:
    job = stage.register()
    run(stage.service.finish(job.job_id, "canceled"))
    before = stage.ledger.row_counts()
    with refused(409, "run_closed"):
        stage.complete(job, 0)
    assert stage.ledger.row_counts() == before
    assert stage.money() == (DOLLAR, 0, 0)


@pytest.mark.parametrize(
    ("result", "spent"),
    [
        (played(None, report=None, usage=None), 0),
        (played(None, actions_taken=0, usage=None), 0),
        (played(None, report={}, usage={}), 0),
        (played(20_000, report=None), 20_000),
        (played(usage=None), 100_000),
        (played(usage={"cost_usd": None, "tokens": None, "coverage": "unknown"}), 100_000),
        (played(usage={"cost_usd": 0.01, "coverage": "partial"}), 100_000),
        (played(usage={"cost_usd": 0.0123456, "coverage": "complete"}), 12_346),
        (played(usage={"cost_usd": 0, "tokens": 0, "coverage": "complete"}), 0),
        (played(250_000), 100_000),
        (played(30_000, state="failed", report={"partial": True}), 30_000),
    ],
    ids=[
        "no report: released",
        "no step: released",
        "empty report: released",
        "no report, but known use: sent to a provider, never refunded",
        "usable, use missing: unknown is never nothing",
        "usable, use unknown",
        "usable, use known in part",
        "dollars are rounded up",
        "free",
        "more than its part: at most the part",
        "failed with a partial report",
    ],
)
def test_a_run_costs_what_is_known_of_it(stage: Stage, result: RunResult, spent: int) -> None:
    job = stage.register()
    stage.complete(job, 0, result)
    assert stage.money() == (DOLLAR - 100_000 - spent, 100_000, spent)


@pytest.mark.parametrize(("report", "spent"), [({"summary": "x"}, 100_000), (None, 0)])
def test_at_a_flat_price_a_usable_run_costs_its_part_and_another_nothing(
    make_stage: MakeStage, report: dict[str, object] | None, spent: int
) -> None:
    stage = make_stage(is_flat=True)
    job = stage.register()
    stage.complete(job, 0, played(5, report=report))
    assert stage.money()[2] == spent


@pytest.mark.parametrize(("completed", "spent"), [(1, 50_000), (0, 0), (None, 0), (True, 0), (2.5, 0)])
def test_a_sold_batch_in_which_no_game_ended_is_given_back(
    make_stage: MakeStage, completed: object, spent: int
) -> None:
    stage = make_stage(is_flat=True, simulation_price=RunPrice(low=50_000, likely=50_000, worst=50_000))
    job = stage.register(body=body_of(5, plan(modules=["balance_sim"], personas=[], controllers=None)))
    result = RunResult(state="failed", quit_reason="", actions_taken=0, simulation={"completed_runs": completed})
    stage.complete(job, 0, result)
    assert stage.money() == (DOLLAR - spent, 0, spent)


def test_a_job_whose_heartbeats_stop_is_stalled_after_its_limit_and_settled(make_stage: MakeStage) -> None:
    stage = make_stage(stall_seconds=2 * 3600)
    job = stage.register()
    stage.complete(job, 0)
    stage.clock.advance(2 * HOUR)
    assert run(stage.service.job(job.job_id)).state == "open"
    run(stage.service.heartbeat(job.job_id, job.runs[1].run_id, 1, 1))
    stage.clock.advance(2 * HOUR + 1)
    with refused(409, "run_closed"):
        run(stage.service.heartbeat(job.job_id, job.runs[1].run_id, 2, 2))
    # The refusal did not undo the settlement.
    assert stage.ledger.query("SELECT state FROM job") == [("stalled",)]
    assert stage.money() == (970_000, 0, 30_000)
    with refused(409, "run_closed"):
        stage.complete(job, 1)


def test_an_abandoned_job_does_not_bind_the_budget_for_ever(make_stage: MakeStage) -> None:
    stage = make_stage(budget=200_000)
    stage.register("abandoned")
    with refused(402, "insufficient_balance"):
        stage.register("next")
    stage.clock.advance(25 * HOUR)
    assert run(stage.service.estimate(plan())).balance_cents == 20
    stage.register("next")
    assert stage.money() == (0, 200_000, 0)


def test_a_clock_that_goes_back_stalls_nothing(stage: Stage) -> None:
    job = stage.register()
    stage.clock.advance(-400 * 24 * HOUR)
    assert run(stage.service.job(job.job_id)).state == "open"


def test_a_simulation_without_anything_to_run_can_be_finished_as_failed(make_stage: MakeStage) -> None:
    stage = make_stage(budget=0)
    job = stage.register(body=body_of(0, plan(modules=["balance_sim"], personas=[], controllers=None)))
    assert run(stage.service.finish(job.job_id, "failed")).state == "failed"
