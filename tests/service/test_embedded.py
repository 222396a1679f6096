"""The embedded service: quote, register once, run states, cancel, uploads."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from coordinator.client import NotSentError
from coordinator.service.embedded import EmbeddedService, RunPrice
from coordinator.service.wire import RunResult
from tests.service.conftest import MakeStage
from tests.service.stage import DOLLAR, PRICE, Stage, body_of, plan, played, refused, run

# -- quote


def test_a_quote_carries_low_likely_and_worst_and_repeats_the_plan(stage: Stage) -> None:
    found = run(stage.service.estimate(plan(controllers=["standard", "rune"], repetitions=3)))
    assert (found.persona_run_count, found.controllers, found.run_length) == (12, ["standard", "rune"], "standard")
    assert (found.low, found.likely, found.worst, found.estimate_cents, found.balance_cents) == (48, 72, 120, 120, 100)
    assert [(row.unit, row.count, row.unit_cents) for row in found.breakdown] == [("persona_run", 12, 10)]


def test_a_long_run_has_its_own_price(make_stage: MakeStage) -> None:
    stage = make_stage(long_run_price=RunPrice(low=1, likely=2, worst=400_000))
    found = run(stage.service.estimate(plan(run_length="long")))
    assert (found.estimate_cents, found.run_length) == (80, "long")


def test_the_hold_is_the_smaller_of_worst_and_cap_and_each_run_has_a_fixed_part(make_stage: MakeStage) -> None:
    stage = make_stage(cap=100_001)
    found = run(stage.service.estimate(plan()))
    assert (found.low, found.likely, found.worst, found.estimate_cents) == (8, 11, 11, 11)
    stage.register(body=body_of(11))
    assert stage.money() == (DOLLAR - 100_001, 100_001, 0)
    assert stage.ledger.query("SELECT part_microdollars FROM run ORDER BY position") == [(50_001,), (50_000,)]


def test_a_simulation_is_registered_at_price_0_and_holds_nothing(make_stage: MakeStage) -> None:
    stage = make_stage(budget=0)
    request = plan(modules=["balance_sim"], personas=[], controllers=None, simulation={"runs": 100})
    found = run(stage.service.estimate(request))
    assert (found.estimate_cents, found.execution_mode) == (0, "direct_command_batch")
    assert found.simulation_limits == {"wall_seconds": 900.0}
    assert [(row.unit, row.count, row.unit_cents) for row in found.breakdown] == [("playtest_run", 1, 0)]
    job = stage.register(body=body_of(0, request))
    assert [(one.module, one.persona, one.limits.wall_seconds) for one in job.runs] == [("balance_sim", None, 900.0)]
    result = RunResult(state="succeeded", quit_reason="", actions_taken=0, simulation={"completed_runs": 3})
    assert stage.complete(job, 0, result) == "succeeded"
    assert stage.money() == (0, 0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"modules": []},
        {"modules": ["unknown"]},
        {"modules": ["persona_playtest", "persona_playtest"]},
        {"modules": ["aggregate_report"]},
        {"personas": []},
        {"personas": ["newcomer", "newcomer"]},
        {"personas": ["stranger"]},
        {"personas": ["x" * 201]},
        {"controllers": []},
        {"controllers": ["standard", "standard"]},
        {"controllers": ["unknown"]},
        {"repetitions": 0},
        {"repetitions": -1},
        {"repetitions": 101},
        {"run_length": "endless"},
    ],
)
def test_a_plan_that_cannot_be_sold_is_refused_and_changes_nothing(make_stage: MakeStage, changes: object) -> None:
    assert isinstance(changes, dict)
    stage = make_stage(personas=("newcomer", "explorer"))
    before = stage.ledger.row_counts()
    with refused(400, "invalid_estimate"):
        run(stage.service.estimate(plan(**changes)))
    with refused(400, "invalid_estimate"):
        stage.register(body=body_of(20, plan(**changes)))
    assert stage.ledger.row_counts() == before


# -- register


def test_the_same_key_and_bytes_are_charged_once(stage: Stage) -> None:
    first = stage.register()
    before = stage.ledger.row_counts()
    again = stage.register()
    assert (first.replayed, again.replayed, first.price.price_cents) == (False, True, 20)
    assert msgspec.structs.replace(again, replayed=False) == first
    assert stage.ledger.row_counts() == before
    assert stage.money() == (800_000, 200_000, 0)
    assert run(stage.service.find_job("key-1")) == again
    assert run(stage.service.find_job("key-2")) is None


def test_the_same_key_with_other_bytes_is_a_conflict_that_changes_nothing(stage: Stage) -> None:
    stage.register()
    before = stage.ledger.row_counts()
    with refused(409, "idempotency_conflict"):
        stage.register(body=body_of() + b" ")
    other_game = EmbeddedService(stage.ledger, now=stage.clock.now, game="other", run_price=PRICE)
    with refused(409, "idempotency_conflict"):
        run(other_game.register("key-1", body_of()))
    assert run(other_game.find_job("key-1")) is None
    assert stage.ledger.row_counts() == before


def test_a_game_does_not_see_another_games_job(stage: Stage) -> None:
    job = stage.register()
    other = EmbeddedService(stage.ledger, now=stage.clock.now, game="other", run_price=PRICE)
    for call in (other.job(job.job_id), other.finish(job.job_id), other.request_cancel(job.job_id)):
        with refused(404, "no_such_job"):
            run(call)
    with refused(404, "no_such_run"):
        run(other.complete(job.job_id, job.runs[0].run_id, played()))
    assert stage.money() == (800_000, 200_000, 0)


@pytest.mark.parametrize("cents", [19, 21, 0])
def test_a_price_that_moved_is_409_and_nothing_is_registered(stage: Stage, cents: int) -> None:
    before = stage.ledger.row_counts()
    with refused(409, "price_changed") as found:
        stage.register(body=body_of(cents))
    assert "20 cents" in str(found.value)
    assert stage.ledger.row_counts() == before


def test_a_balance_that_is_one_millionth_short_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage(budget=199_999)
    before = stage.ledger.row_counts()
    with refused(402, "insufficient_balance") as found:
        stage.register()
    assert "$0.20 are needed, the balance is $0.199999" in str(found.value)
    assert stage.ledger.row_counts() == before
    stage.ledger.set_budget(200_000, stage.clock.now())
    stage.register()
    assert stage.money() == (0, 200_000, 0)


FULL_DISK = """
    import asyncio, resource, sys
    from coordinator.client import UnknownOutcomeError
    from coordinator.service.embedded import EmbeddedService
    from coordinator.service.ledger import Ledger
    from tests.service.stage import PRICE, body_of

    service = EmbeddedService(Ledger(sys.argv[1]), now=lambda: "2030-01-01T00:00:00.000Z", run_price=PRICE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        asyncio.run(service.register("key-1", body_of()))
    except UnknownOutcomeError as error:
        print(error)
"""


def test_a_commit_that_fails_on_a_full_disk_is_an_unknown_outcome_and_charges_once(stage: Stage) -> None:
    """Every file of the process may grow by a few pages only: the registration's commit does not fit."""
    room = max(one.stat().st_size for one in stage.path.parent.iterdir()) + 8_192
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(stage.path), str(room)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "whether the change was made is not known" in found.stdout
    stage.money()
    job = stage.register()
    assert stage.money() == (800_000, 200_000, 0)
    assert [one.job_id for one in (stage.register(),)] == [job.job_id]
    assert stage.ledger.row_counts()["job"] == 1


@pytest.mark.parametrize("key", ["", " ", "a b ", "x" * 201, "ü", "a\nb"])
def test_a_key_that_no_header_carries_is_refused(stage: Stage, key: str) -> None:
    with refused(400, "invalid_request"):
        stage.register(key=key)


def test_run_tokens_are_unpredictable_and_stay_the_same_for_a_repeat(make_stage: MakeStage, tmp_path: Path) -> None:
    stage, twin = make_stage(tmp_path / "one"), make_stage(tmp_path / "two")
    job = stage.register()
    tokens = [one.playtest_token for one in job.runs]
    assert len(set(tokens)) == 2
    assert all(token is not None and len(token) == 32 for token in tokens)
    assert tokens == [one.playtest_token for one in stage.register().runs]
    # Everything but the ledger's secret copied: the tokens come out different.
    assert twin.service._token(job.job_id, 0) != tokens[0]
    stored = "".join(str(row) for row in stage.ledger.query("SELECT * FROM run"))
    assert all(str(token) not in stored for token in tokens), "a copy of the rows gives no token away"


# -- run states


def test_transitions_go_forward_and_may_be_repeated(stage: Stage) -> None:
    job = stage.register()
    run_id = job.runs[0].run_id
    for state in ("launching", "playing", "playing", "uploading"):
        assert run(stage.service.transition(job.job_id, run_id, state)).state == state


@pytest.mark.parametrize("state", ["queued", "launching", "succeeded", "interrupted", "stalled", "", "nonsense"])
def test_an_illegal_transition_is_409_and_changes_nothing(stage: Stage, state: str) -> None:
    job = stage.register()
    run_id = job.runs[0].run_id
    run(stage.service.transition(job.job_id, run_id, "playing"))
    rows = stage.ledger.query("SELECT * FROM run ORDER BY position")
    stage.clock.advance(5)
    with refused(409, "illegal_transition"):
        run(stage.service.transition(job.job_id, run_id, state))
    assert stage.ledger.query("SELECT * FROM run ORDER BY position") == rows


def test_a_closed_run_takes_no_transition_and_no_heartbeat(stage: Stage) -> None:
    job = stage.register()
    stage.complete(job, 0)
    run_id = job.runs[0].run_id
    with refused(409, "illegal_transition"):
        run(stage.service.transition(job.job_id, run_id, "playing"))
    with refused(409, "run_closed"):
        run(stage.service.heartbeat(job.job_id, run_id, 13, 13))


def test_a_cancel_is_seen_with_the_next_heartbeat_and_ends_open_runs_as_canceled(stage: Stage) -> None:
    job = stage.register()
    assert not run(stage.service.heartbeat(job.job_id, job.runs[0].run_id, 1, 1)).cancel_requested
    run(stage.service.request_cancel(job.job_id))
    assert run(stage.service.heartbeat(job.job_id, job.runs[0].run_id, 2, 2)).cancel_requested
    found = run(stage.service.finish(job.job_id))
    assert (found.state, found.cancel_requested, found.refunded_cents) == ("canceled", True, 20)
    assert stage.money() == (DOLLAR, 0, 0)


def test_a_budget_warning_comes_once_for_each_run_when_little_is_left(make_stage: MakeStage) -> None:
    stage = make_stage(budget=251_000)
    job = stage.register()
    beat = [run(stage.service.heartbeat(job.job_id, job.runs[0].run_id, n, n)).budget_warning for n in (1, 2)]
    assert beat == [None, None], "80 percent are not reached by 200 of 251"
    stage.ledger.set_budget(250_000, stage.clock.now())
    found = [
        run(stage.service.heartbeat(job.job_id, one.run_id, 3, 3)).budget_warning for one in (*job.runs, *job.runs)
    ]
    assert [one is not None for one in found] == [True, True, False, False]
    assert "$0.20 held and $0.00 spent of a budget of $0.25" in str(found[0])


# -- uploads, aggregate


def test_an_upload_is_kept_once_by_its_checksum_and_privately(make_stage: MakeStage, tmp_path: Path) -> None:
    stage = make_stage(store=tmp_path / "uploads")
    job = stage.register()
    data, ids = b"picture", (job.job_id, job.runs[0].run_id)
    digest = hashlib.sha256(data).hexdigest()
    assert run(stage.service.upload(*ids, "shot.png", data, digest)) is True
    assert run(stage.service.upload(*ids, "../../shot.png", data, digest)) is False
    kept = tmp_path / "uploads" / digest
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (data, 0o600)
    assert os.listdir(tmp_path / "uploads") == [digest]
    assert stage.ledger.query("SELECT name, bytes FROM upload") == [("shot.png", 7)]


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "line\nend"])
def test_an_upload_with_an_unusable_name_is_refused(stage: Stage, name: str) -> None:
    job = stage.register()
    with refused(400, "invalid_request"):
        run(stage.service.upload(job.job_id, job.runs[0].run_id, name, b"", hashlib.sha256().hexdigest()))


def test_an_upload_whose_checksum_differs_is_refused(stage: Stage) -> None:
    job = stage.register()
    with refused(400, "checksum_mismatch"):
        run(stage.service.upload(job.job_id, job.runs[0].run_id, "a", b"data", "0" * 64))


def test_an_upload_that_cannot_be_kept_is_not_booked(make_stage: MakeStage, tmp_path: Path) -> None:
    (tmp_path / "uploads").write_text("in the way")
    stage = make_stage(store=tmp_path / "uploads")
    job = stage.register()
    with pytest.raises(NotSentError):
        run(stage.service.upload(job.job_id, job.runs[0].run_id, "a", b"", hashlib.sha256().hexdigest()))
    assert stage.ledger.row_counts()["upload"] == 0


def test_an_aggregate_goes_to_its_job_and_may_be_repeated(stage: Stage) -> None:
    job = stage.register()
    for _ in range(2):
        run(stage.service.send_aggregate(job.job_id, {"runs": 2}))
    assert stage.ledger.query("SELECT aggregate FROM job") == [('{"runs":2}',)]
    with refused(404, "no_such_job"):
        run(stage.service.send_aggregate("job_none", {}))
