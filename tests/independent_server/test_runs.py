"""How the independent server's runs live, end and are settled, over real sockets."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from tests.independent_server.asking import ask, asked, asked_simulation, buy, outcome
from tests.independent_server.books import CLOSED_STATES, OPEN_STATES
from tests.independent_server.server import IndependentServer


def bought_run(server: IndependentServer) -> str:
    """Buys one standard run for 25 cents; the path of the run below its job."""
    answer = buy(server.port, 25, asked("newcomer"))
    return f"jobs/{answer['job_id']}/runs/{answer['runs'][0]['run_id']}"


def post(server: IndependentServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    return ask(server.port, "POST", path, {} if body is None else body)


# Transitions and heartbeats.


def test_run_goes_through_its_states_in_order(server: IndependentServer) -> None:
    run = bought_run(server)
    for state in OPEN_STATES[1:]:
        status, answer = post(server, f"{run}/transition", {"state": state})
        assert (status, answer["run"]["state"], answer["cancel_requested"]) == (200, state, False)


def test_run_is_found_below_its_job_and_by_itself(server: IndependentServer) -> None:
    run = bought_run(server)
    _, below = ask(server.port, "GET", run)
    _, alone = ask(server.port, "GET", run[run.index("runs/") :])
    assert below == alone
    assert below["run"]["persona"] == "newcomer"
    assert "playtest_token" not in below["run"]


def test_repeated_transition_is_harmless(server: IndependentServer) -> None:
    run = bought_run(server)
    assert post(server, f"{run}/transition", {"state": "playing"})[0] == 200
    assert post(server, f"{run}/transition", {"state": "playing"})[0] == 200


@pytest.mark.parametrize("state", ["queued", "launching", *CLOSED_STATES, "interrupted", "", None, 3])
def test_illegal_transition_changes_nothing(server: IndependentServer, state: object) -> None:
    run = bought_run(server)
    post(server, f"{run}/transition", {"state": "playing"})
    before = server.runs
    status, answer = post(server, f"{run}/transition", {"state": state})
    assert (status, answer["error"]["code"]) == (409, "illegal_transition")
    assert server.runs == before


def test_strict_server_takes_one_state_at_a_time(server: IndependentServer) -> None:
    server.terms.one_state_at_a_time = True
    run = bought_run(server)
    assert post(server, f"{run}/transition", {"state": "playing"})[0] == 409
    assert post(server, f"{run}/transition", {"state": "launching"})[0] == 200
    assert post(server, f"{run}/transition", {"state": "playing"})[0] == 200


def test_late_heartbeat_never_turns_the_counts_back(server: IndependentServer) -> None:
    run = bought_run(server)
    post(server, f"{run}/heartbeat", {"actions_taken": 9, "checkpoint_step": 5})
    assert post(server, f"{run}/heartbeat", {"actions_taken": 4, "checkpoint_step": 2})[0] == 200
    (row,) = server.runs.values()
    assert (row.heartbeats, row.actions_taken, row.checkpoint_step) == (2, 9, 5)


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_refused_heartbeat_is_not_counted(server: IndependentServer, status: int) -> None:
    run = bought_run(server)
    server.refuse_heartbeats(status)
    beat = {"actions_taken": 1, "checkpoint_step": 1}
    assert post(server, f"{run}/heartbeat", beat)[0] == status
    server.refuse_heartbeats(None)
    assert post(server, f"{run}/heartbeat", beat)[0] == 200
    assert [row.heartbeats for row in server.runs.values()] == [1]


def test_cancel_is_told_with_every_answer_about_the_job(server: IndependentServer) -> None:
    run = bought_run(server)
    job_id = server.charges[0].job_id
    server.request_cancel(job_id)
    beat = {"actions_taken": 1, "checkpoint_step": 1}
    assert post(server, f"{run}/heartbeat", beat)[1]["cancel_requested"] is True
    assert post(server, f"{run}/transition", {"state": "launching"})[1]["cancel_requested"] is True
    assert ask(server.port, "GET", run)[1]["cancel_requested"] is True
    assert ask(server.port, "GET", f"jobs/{job_id}")[1]["job"]["cancel_requested"] is True
    post(server, f"{run}/complete", outcome("canceled"))
    assert post(server, f"jobs/{job_id}/finish", {"reason": "canceled"})[1]["job"]["state"] == "canceled"


# Completion and refunds.


def test_usable_report_is_paid_for(server: IndependentServer) -> None:
    run = bought_run(server)
    status, answer = post(server, f"{run}/complete", outcome())
    assert (status, answer["run"]["state"], answer["report_lint"]) == (200, "succeeded", [])
    assert (server.refunds, server.balance_cents) == ([], 9_975)


def test_partial_report_of_a_failed_run_is_paid_for(server: IndependentServer) -> None:
    run = bought_run(server)
    post(server, f"{run}/complete", outcome("failed", actions_taken=1, report=None, report_md="# Partial"))
    assert server.refunds == []


@pytest.mark.parametrize("lack", [{"actions_taken": 0}, {"report": None}, {"report": {}}])
def test_run_without_a_usable_report_is_refunded(server: IndependentServer, lack: dict[str, Any]) -> None:
    run = bought_run(server)
    assert post(server, f"{run}/complete", outcome("failed", **lack))[0] == 200
    assert [refund.cents for refund in server.refunds] == [25]
    assert (server.balance_cents, server.imbalance_cents()) == (10_000, 0)


def test_repeated_completion_settles_once(server: IndependentServer) -> None:
    run = bought_run(server)
    first = post(server, f"{run}/complete", outcome("failed", report=None))
    assert post(server, f"{run}/complete", outcome("failed", report=None)) == first
    assert len(server.refunds) == 1


def test_result_is_never_overwritten(server: IndependentServer) -> None:
    run = bought_run(server)
    post(server, f"{run}/complete", outcome())
    status, answer = post(server, f"{run}/complete", outcome("failed", report=None))
    assert (status, answer["error"]["code"]) == (409, "run_settled")
    assert [row.state for row in server.runs.values()] == ["succeeded"]
    assert server.refunds == []


@pytest.mark.parametrize("state", ["interrupted", "playing", "done"])
def test_completion_with_a_state_that_closes_nothing_is_refused(server: IndependentServer, state: str) -> None:
    run = bought_run(server)
    assert post(server, f"{run}/complete", outcome(state))[0] == 422
    assert [row.state for row in server.runs.values()] == ["queued"]


def test_closed_run_takes_no_heartbeat_and_no_transition(server: IndependentServer) -> None:
    run = bought_run(server)
    post(server, f"{run}/complete", outcome())
    assert post(server, f"{run}/heartbeat", {"actions_taken": 1, "checkpoint_step": 1})[0] == 409
    assert post(server, f"{run}/transition", {"state": "uploading"})[0] == 409


@pytest.mark.parametrize(("simulation", "refunds"), [({"ended": 3}, 0), ({"ended": 0}, 1), (None, 1)])
def test_simulation_without_an_ended_game_is_refunded(
    server: IndependentServer, simulation: dict[str, int] | None, refunds: int
) -> None:
    server.terms.simulation_is_usable = lambda result: result["ended"] > 0
    row = buy(server.port, 40, asked_simulation())["runs"][0]
    assert (row["module"], row["persona"]) == ("balance_sim", None)
    body = {"state": "succeeded", "quit_reason": "done", "actions_taken": 0, "simulation": simulation}
    assert post(server, f"runs/{row['run_id']}/complete", body)[0] == 200
    assert len(server.refunds) == refunds
    assert server.balance_cents == 9_960 + 40 * refunds


# Finish, aggregate, and what the server ends by itself.


def test_finish_refunds_what_was_not_completed_and_again_changes_nothing(server: IndependentServer) -> None:
    answer = buy(server.port, 75, asked("newcomer", "explorer", "speedrunner"))
    first, second, _ = (row["run_id"] for row in answer["runs"])
    post(server, f"runs/{first}/complete", outcome())
    post(server, f"runs/{second}/transition", {"state": "playing"})
    finished = post(server, f"jobs/{answer['job_id']}/finish", {"reason": "stopped"})
    assert finished[1] == {"job": {"job_id": answer["job_id"], "state": "failed", "cancel_requested": False}}
    assert [row.state for row in server.runs.values()] == ["succeeded", "failed", "skipped"]
    assert post(server, f"jobs/{answer['job_id']}/finish", {"reason": "stopped"}) == finished
    assert [refund.cents for refund in server.refunds] == [25, 25]
    assert server.imbalance_cents() == 0


def test_finish_needs_no_body(server: IndependentServer) -> None:
    run = bought_run(server)
    post(server, f"{run}/complete", outcome())
    status, answer = ask(server.port, "POST", f"jobs/{server.charges[0].job_id}/finish")
    assert (status, answer["job"]["state"]) == (200, "succeeded")


def test_aggregate_is_kept_once_and_its_row_is_paid_for(server: IndependentServer) -> None:
    order = asked("newcomer", modules=["persona_playtest", "aggregate_report"])
    answer = buy(server.port, 30, order)
    post(server, f"runs/{answer['runs'][0]['run_id']}/complete", outcome())
    path = f"jobs/{answer['job_id']}/aggregate"
    assert post(server, path, {"runs": 1})[0] == 200
    assert post(server, path, {"runs": 1})[0] == 200
    assert post(server, path, {"runs": 2})[0] == 409
    assert post(server, f"jobs/{answer['job_id']}/finish")[1]["job"]["state"] == "succeeded"
    assert server.jobs[answer["job_id"]].aggregate == {"runs": 1}
    assert server.refunds == []


def test_stalled_job_is_settled_and_takes_no_late_result(server: IndependentServer) -> None:
    run = bought_run(server)
    job_id = server.charges[0].job_id
    server.settle_job(job_id, "stalled")
    assert ask(server.port, "GET", f"jobs/{job_id}")[1]["job"]["state"] == "stalled"
    assert post(server, f"{run}/complete", outcome())[0] == 409
    assert post(server, f"jobs/{job_id}/aggregate", {"runs": 1})[0] == 409
    assert post(server, f"jobs/{job_id}/finish")[1]["job"]["state"] == "stalled"
    assert (server.balance_cents, len(server.refunds)) == (10_000, 1)


def test_run_that_the_server_closed_is_refunded_once(server: IndependentServer) -> None:
    run = bought_run(server)
    server.close_run(run.rpartition("/")[2], "budget_exceeded")
    server.close_run(run.rpartition("/")[2], "canceled")
    assert ask(server.port, "GET", run)[1]["run"]["state"] == "budget_exceeded"
    assert post(server, f"jobs/{server.charges[0].job_id}/finish")[1]["job"]["state"] == "budget_exceeded"
    assert len(server.refunds) == 1


# Files, model, action choice.


def test_file_is_taken_once_by_its_checksum(server: IndependentServer) -> None:
    run = bought_run(server)
    content = b"a screenshot"
    checksum = hashlib.sha256(content).hexdigest()
    assert ask(server.port, "GET", f"{run}/uploads/{checksum}")[1]["present"] is False
    assert ask(server.port, "PUT", f"{run}/uploads/{checksum}", content)[1]["present"] is True
    assert post(server, f"{run}/uploads", {"sha256": checksum})[1]["present"] is True
    assert server.files == {checksum: content}
    assert [row.uploads for row in server.runs.values()] == [{checksum}]


def test_file_may_come_inside_json(server: IndependentServer) -> None:
    run = bought_run(server)
    content = b"\x00\xff"
    body = {"sha256": hashlib.sha256(content).hexdigest(), "content_base64": base64.b64encode(content).decode()}
    assert post(server, f"{run}/uploads", body)[1]["present"] is True
    assert list(server.files.values()) == [content]


def test_file_with_another_checksum_is_refused(server: IndependentServer) -> None:
    run = bought_run(server)
    checksum = hashlib.sha256(b"something else").hexdigest()
    assert ask(server.port, "PUT", f"{run}/uploads/{checksum}", b"a screenshot")[0] == 422
    assert server.files == {}


@pytest.mark.parametrize("route", ["select-action", "model"])
def test_service_beside_the_run_is_offered_only_with_a_handler(server: IndependentServer, route: str) -> None:
    run = bought_run(server)
    assert post(server, f"{run}/{route}", {"proposals": ["a", "b"]})[0] == 404
    server.terms.select_action = server.terms.model = lambda sent: {"chosen": sent["proposals"][-1]}
    assert post(server, f"{run}/{route}", {"proposals": ["a", "b"]}) == (200, {"chosen": "b"})
    post(server, f"{run}/complete", outcome())
    assert post(server, f"{run}/{route}", {"proposals": ["a", "b"]})[0] == 409
