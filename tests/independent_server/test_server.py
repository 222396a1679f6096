"""What the independent server does with quotes, money and jobs, over real sockets."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import pytest

from tests.independent_server.asking import ask, asked, asked_simulation, buy, confirmed, outcome
from tests.independent_server.server import IndependentServer


def error_code(answer: Any) -> str:
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"code", "message"}
    return str(answer["error"]["code"])


# Pack and estimate.


def test_pack_names_personas_and_routing(server: IndependentServer) -> None:
    status, answer = ask(server.port, "GET", "pack")
    assert status == 200
    assert answer == {
        "personas": ["newcomer", "speedrunner", "explorer"],
        "routing": {
            "max_personas": 12,
            "action_controllers": ["random", "offline", "model"],
            "controller_plans": True,
            "repetitions": True,
        },
    }


def test_older_pack_has_no_plans_no_limit_and_no_repetitions(server: IndependentServer) -> None:
    server.terms.controller_plans = False
    server.terms.max_personas = None
    server.terms.extra_keys = False
    _, answer = ask(server.port, "GET", "pack")
    assert answer["routing"] == {"action_controllers": [], "controller_plans": False}


def test_estimate_counts_personas_times_controllers_times_repetitions(server: IndependentServer) -> None:
    order = asked("newcomer", "explorer", controllers=["model", "random"], repetitions=3)
    status, answer = ask(server.port, "POST", "estimate", order)
    assert status == 200
    assert answer["persona_run_count"] == 12
    assert answer["controllers"] == ["model", "random"]
    assert answer["breakdown"] == [{"unit": "persona_playtest", "count": 12, "unit_cents": 25}]
    assert (answer["estimate_cents"], answer["balance_cents"]) == (300, 10_000)
    assert (answer["low"], answer["likely"], answer["worst"]) == (150, 225, 300)


def test_breakdown_adds_up_to_the_estimate(server: IndependentServer) -> None:
    order = asked("newcomer", modules=["persona_playtest", "aggregate_report"], run_length="long")
    _, answer = ask(server.port, "POST", "estimate", order)
    assert sum(row["count"] * row["unit_cents"] for row in answer["breakdown"]) == answer["estimate_cents"] == 65


def test_estimate_charges_nothing(server: IndependentServer) -> None:
    ask(server.port, "POST", "estimate", asked("newcomer"))
    assert (server.charges, server.balance_cents) == ([], 10_000)


def test_older_version_ignores_controllers_and_repetitions(server: IndependentServer) -> None:
    server.terms.controller_plans = False
    server.terms.extra_keys = False
    order = asked("newcomer", controllers=["model", "random"], repetitions=3)
    _, answer = ask(server.port, "POST", "estimate", order)
    assert answer["persona_run_count"] == 1
    assert {"controllers", "low", "likely", "worst"} & set(answer) == set()


def test_server_that_ignores_long_quotes_a_standard_run(server: IndependentServer) -> None:
    server.terms.honours_long = False
    _, answer = ask(server.port, "POST", "estimate", asked("newcomer", run_length="long"))
    assert (answer["run_length"], answer["estimate_cents"]) == ("standard", 25)


def test_server_that_refuses_long_says_invalid_estimate(server: IndependentServer) -> None:
    server.terms.refuses_long = True
    status, answer = ask(server.port, "POST", "estimate", asked("newcomer", run_length="long"))
    assert (status, error_code(answer)) == (422, "invalid_estimate")
    assert ask(server.port, "POST", "estimate", asked("newcomer"))[0] == 200


@pytest.mark.parametrize(
    "order",
    [
        asked(),
        asked("nobody"),
        asked("newcomer", "newcomer"),
        asked("newcomer", modules=[]),
        asked("newcomer", modules=["other"]),
        asked("newcomer", run_length="endless"),
        asked("newcomer", controllers=["other"]),
        asked("newcomer", repetitions=0),
        asked("newcomer", repetitions=True),
        asked("newcomer", repetitions=13),
        asked("newcomer", simulation={"games": 1}),
        asked(modules=["balance_sim"]),
        asked("newcomer", modules=["persona_playtest", "balance_sim"], simulation={"games": 1}),
    ],
)
def test_order_that_cannot_be_sold_is_an_invalid_estimate(server: IndependentServer, order: dict[str, Any]) -> None:
    status, answer = ask(server.port, "POST", "estimate", order)
    assert (status, error_code(answer)) == (422, "invalid_estimate")


def test_simulation_is_quoted_as_one_unit_with_mode_and_limits(server: IndependentServer) -> None:
    _, answer = ask(server.port, "POST", "estimate", asked_simulation())
    assert answer["breakdown"] == [{"unit": "playtest_run", "count": 1, "unit_cents": 40}]
    assert (answer["estimate_cents"], answer["persona_run_count"]) == (40, 0)
    assert answer["execution_mode"] == "direct_command_batch"
    assert answer["simulation_limits"]["max_games"] == 1000


def test_simulation_quote_can_be_wrong_in_every_part(server: IndependentServer) -> None:
    server.terms.simulation_unit = "batch"
    server.terms.simulation_count = 2
    server.terms.simulation_cents = 0
    server.terms.execution_mode = None
    server.terms.simulation_limits = None
    _, answer = ask(server.port, "POST", "estimate", asked_simulation())
    assert answer["breakdown"] == [{"unit": "batch", "count": 2, "unit_cents": 0}]
    assert {"execution_mode", "simulation_limits"} & set(answer) == set()


# Registration and money.


def test_registration_is_charged_and_lists_every_run(server: IndependentServer) -> None:
    modules = ["persona_playtest", "aggregate_report"]
    answer = buy(server.port, 105, asked("newcomer", "explorer", controllers=["model", "random"], modules=modules))
    assert (answer["replayed"], answer["price"]) == (False, {"price_cents": 105})
    rows = [(row["module"], row["persona"], row["controller"], row["repetition"]) for row in answer["runs"]]
    assert rows == [
        ("persona_playtest", "newcomer", "model", 1),
        ("persona_playtest", "newcomer", "random", 1),
        ("persona_playtest", "explorer", "model", 1),
        ("persona_playtest", "explorer", "random", 1),
        ("aggregate_report", None, None, 1),
    ]
    assert len({row["playtest_token"] for row in answer["runs"]}) == 5
    assert {row["state"] for row in answer["runs"]} == {"queued"}
    assert answer["runs"][0]["limits"] == {"wall_seconds": 1800}
    assert answer["runs"][0]["budget"] == {"wall_seconds_max": 1800}
    assert [(charge.key, charge.job_id, charge.cents) for charge in server.charges] == [
        ("key-1", answer["job_id"], 105)
    ]
    assert server.balance_cents == 9_895
    assert server.imbalance_cents() == 0


def test_same_key_and_bytes_charge_once(server: IndependentServer) -> None:
    first = buy(server.port, 25, asked("newcomer"))
    second = buy(server.port, 25, asked("newcomer"))
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert (first["job_id"], first["runs"]) == (second["job_id"], second["runs"])
    assert len(server.charges) == 1


def test_same_key_from_eight_threads_charges_once(server: IndependentServer) -> None:
    answers: list[Any] = []
    together = threading.Barrier(8)

    def register() -> None:
        together.wait(30)
        answers.append(buy(server.port, 25, asked("newcomer")))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer["replayed"] for answer in answers) == [False] + [True] * 7
    assert {answer["job_id"] for answer in answers} == {server.charges[0].job_id}
    assert len(server.charges) == 1


def test_same_key_with_other_bytes_is_refused(server: IndependentServer) -> None:
    buy(server.port, 25, asked("newcomer"))
    same_meaning = json.dumps(confirmed(25, asked("newcomer")), indent=1).encode()
    status, answer = ask(server.port, "POST", "jobs", same_meaning, key="key-1")
    assert (status, error_code(answer)) == (409, "idempotency_key_reused")
    assert len(server.charges) == 1


def test_two_keys_are_two_purchases(server: IndependentServer) -> None:
    buy(server.port, 25, asked("newcomer"), key="a")
    buy(server.port, 25, asked("newcomer"), key="b")
    assert [charge.key for charge in server.charges] == ["a", "b"]
    assert server.balance_cents == 9_950


def test_forgotten_key_is_looked_up_but_charged_when_resent(server: IndependentServer) -> None:
    first = buy(server.port, 25, asked("newcomer"))
    server.forget_keys()
    status, found = ask(server.port, "GET", "jobs?idempotency_key=key-1")
    assert (status, found["job_id"], len(server.charges)) == (200, first["job_id"], 1)
    buy(server.port, 25, asked("newcomer"))
    assert [charge.key for charge in server.charges] == ["key-1", "key-1"]


def test_lookup_finds_tokens_and_states(server: IndependentServer) -> None:
    bought = buy(server.port, 25, asked("newcomer"))
    _, found = ask(server.port, "GET", "jobs?idempotency_key=key-1")
    assert found == {**bought, "replayed": True}
    assert found["job"] == {"job_id": bought["job_id"], "state": "queued", "cancel_requested": False}


def test_unknown_key_is_not_found(server: IndependentServer) -> None:
    status, answer = ask(server.port, "GET", "jobs?idempotency_key=none")
    assert (status, error_code(answer)) == (404, "not_found")


def test_moved_price_is_refused_and_a_new_key_buys(server: IndependentServer) -> None:
    server.terms.price_after_quote_cents = 30
    _, quoted = ask(server.port, "POST", "estimate", asked("newcomer"))
    assert quoted["estimate_cents"] == 25
    status, answer = ask(server.port, "POST", "jobs", confirmed(25, asked("newcomer")), key="a")
    assert (status, error_code(answer)) == (409, "price_moved")
    assert server.charges == []
    _, quoted = ask(server.port, "POST", "estimate", asked("newcomer"))
    assert buy(server.port, quoted["estimate_cents"], asked("newcomer"), key="b")["price"] == {"price_cents": 30}


def test_balance_that_is_too_low_buys_nothing(server: IndependentServer) -> None:
    server.deposit(-9_976)
    status, answer = ask(server.port, "POST", "jobs", confirmed(25, asked("newcomer")), key="a")
    assert (status, error_code(answer)) == (402, "insufficient_balance")
    assert (server.charges, server.balance_cents, server.imbalance_cents()) == ([], 24, 0)
    server.deposit(1)
    buy(server.port, 25, asked("newcomer"), key="a")
    assert server.balance_cents == 0


def test_registration_without_a_key_buys_nothing(server: IndependentServer) -> None:
    status, _ = ask(server.port, "POST", "jobs", confirmed(25, asked("newcomer")))
    assert (status, server.charges) == (400, [])


@pytest.mark.parametrize("missing", ["confirm_price_cents", "cli_version", "build", "run_length", "personas"])
def test_registration_with_a_key_missing_buys_nothing(server: IndependentServer, missing: str) -> None:
    body = confirmed(25, asked("newcomer"))
    del body[missing]
    status, _ = ask(server.port, "POST", "jobs", body, key="a")
    assert (status // 100, server.charges) == (4, [])


def test_unknown_keys_are_ignored(server: IndependentServer) -> None:
    buy(server.port, 25, asked("newcomer", driver="web", later_version={"x": 1}))
    assert len(server.charges) == 1


# Edited answers, and the log.


def test_dropped_key_is_missing_from_the_answer_and_kept_in_memory(server: IndependentServer) -> None:
    server.drop("jobs", "runs.playtest_token")
    answer = buy(server.port, 25, asked("newcomer"))
    assert "playtest_token" not in answer["runs"][0]
    assert server.runs[answer["runs"][0]["run_id"]].token
    server.answer_faithfully()
    assert "playtest_token" in buy(server.port, 25, asked("newcomer"))["runs"][0]


def test_edit_can_leave_out_a_paid_run(server: IndependentServer) -> None:
    server.edit("jobs", lambda answer: answer["runs"].pop())
    answer = buy(server.port, 50, asked("newcomer", "explorer"))
    assert [row["persona"] for row in answer["runs"]] == ["newcomer"]
    assert len(server.runs) == 2


def test_requests_are_logged_without_the_token(server: IndependentServer) -> None:
    buy(server.port, 25, asked("newcomer"))
    ask(server.port, "GET", "pack", token="wrong")
    first, second = server.requests
    assert (first.route, first.key, first.token_kind, first.status) == ("jobs", "key-1", "account", 200)
    assert hashlib.sha256(first.body).hexdigest() == server.charges[0].body_sha256
    assert (second.route, second.token_kind, second.status) == ("pack", "none", 401)
    assert "account-token" not in repr(server.requests)


def test_waiting_for_a_request_that_does_not_come_has_a_limit(server: IndependentServer) -> None:
    ask(server.port, "GET", "pack")
    assert len(server.wait_for_requests("pack", 1)) == 1
    with pytest.raises(TimeoutError, match="1 of 2 requests of pack"):
        server.wait_for_requests("pack", 2, limit_seconds=0.05)


# Who may ask what.


def test_account_token_is_needed(server: IndependentServer) -> None:
    for token in (None, "wrong"):
        status, answer = ask(server.port, "POST", "jobs", confirmed(25, asked("newcomer")), key="a", token=token)
        assert (status, error_code(answer)) == (401, "unauthorized")
    assert server.charges == []


def test_token_of_a_run_opens_that_run_only(server: IndependentServer) -> None:
    mine, other = buy(server.port, 50, asked("newcomer", "explorer"))["runs"]
    beat = {"actions_taken": 0, "checkpoint_step": 0}
    token = mine["playtest_token"]
    assert ask(server.port, "POST", f"runs/{mine['run_id']}/heartbeat", beat, token=token)[0] == 200
    assert ask(server.port, "POST", f"runs/{other['run_id']}/heartbeat", beat, token=token)[0] == 403
    assert ask(server.port, "POST", "jobs", confirmed(25, asked("newcomer")), key="b", token=token)[0] == 403
    assert server.runs[other["run_id"]].heartbeats == 0


def test_job_and_run_are_not_found_under_another_game_or_job(server: IndependentServer) -> None:
    server.terms.games.add("game-2")
    bought = buy(server.port, 25, asked("newcomer"))
    job_id, run_id = bought["job_id"], bought["runs"][0]["run_id"]
    assert ask(server.port, "GET", f"jobs/{job_id}")[0] == 200
    assert ask(server.port, "GET", f"/api/v1/games/game-2/playtest/runs/{run_id}")[0] == 404
    assert ask(server.port, "GET", f"jobs/other/runs/{run_id}")[0] == 404
    assert ask(server.port, "GET", f"/api/v1/games/game-2/playtest/jobs/{job_id}")[0] == 404
    assert ask(server.port, "GET", "/api/v1/games/game-2/playtest/jobs?idempotency_key=key-1")[0] == 404
    assert ask(server.port, "GET", "/api/v1/games/game-3/playtest/pack")[0] == 404


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "estimate", 405), ("POST", "other", 404)])
def test_unknown_path_or_method_is_refused(server: IndependentServer, method: str, path: str, status: int) -> None:
    assert ask(server.port, method, path)[0] == status


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b""])
def test_body_that_is_no_object_is_refused(server: IndependentServer, body: bytes) -> None:
    status, answer = ask(server.port, "POST", "estimate", body)
    assert (status, error_code(answer)) == (400, "invalid_json")


def test_completion_needs_its_keys(server: IndependentServer) -> None:
    run = buy(server.port, 25, asked("newcomer"))["runs"][0]["run_id"]
    for missing in ("state", "quit_reason", "actions_taken"):
        body = outcome()
        del body[missing]
        assert ask(server.port, "POST", f"runs/{run}/complete", body)[0] // 100 == 4
    assert server.runs[run].state == "queued"
