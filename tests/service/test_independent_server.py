"""Our client against a server that somebody else wrote from the same table, over real sockets."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.client import (
    AnsweredNoError,
    AuthenticationError,
)
from coordinator.service.remote import RemoteService
from coordinator.service.wire import RunResult
from tests.independent_server.server import IndependentServer, serving
from tests.service.stage import body_of, plan, played, run

PLAN = plan(controllers=None)
PRICE_CENTS = 50
"""Two runs at 25 cents."""


def client(server: IndependentServer, token: str = "account-token", **settings: Any) -> RemoteService:
    return RemoteService(server.url, "game-1", token, **settings)


def using(server: IndependentServer, use: Callable[[RemoteService], Awaitable[Any]], **settings: Any) -> Any:
    async def call() -> Any:
        service = client(server, **settings)
        try:
            return await use(service)
        finally:
            await service.close()

    return run(call())


async def buy(service: RemoteService) -> None:
    pack = await service.pack()
    assert pack.personas == ["newcomer", "speedrunner", "explorer"]
    assert pack.routing.repetitions in (100, None), "it only says that there can be some, or nothing"
    quote = await service.estimate(PLAN)
    assert (quote.estimate_cents, quote.persona_run_count, quote.run_length) == (PRICE_CENTS, 2, "standard")
    body = body_of(PRICE_CENTS, PLAN)
    job = await service.register("key-1", body)
    again = await service.register("key-1", body)
    assert (job.replayed, again.replayed, again.job_id) == (False, True, job.job_id)
    looked_up = await service.find_job("key-1")
    assert looked_up is not None
    assert [one.run_id for one in looked_up.runs] == [one.run_id for one in job.runs]
    assert await service.find_job("key-2") is None
    played_runs = [one for one in job.runs if one.module == "persona_playtest"]
    for position, one in enumerate(played_runs):
        ids = (job.job_id, one.run_id)
        assert (await service.heartbeat(*ids, 0, 0)).cancel_requested is False
        for state in ("launching", "playing", "reporting", "uploading"):
            assert (await service.transition(*ids, state)).state == state
        data = one.run_id.encode()
        sent = [await service.upload(*ids, "report.json", data, hashlib.sha256(data).hexdigest()) for _ in range(2)]
        assert sent == [True, False]
        result = played() if position == 0 else played(report=None, actions_taken=0)
        assert (await service.complete(*ids, result)).state == "succeeded"
        assert (await service.complete(*ids, result)).state == "succeeded"
    await service.send_aggregate(job.job_id, {"runs": 2})
    await service.finish(job.job_id)
    await service.finish(job.job_id)
    with pytest.raises(AnsweredNoError) as late:
        await service.heartbeat(job.job_id, played_runs[0].run_id, 1, 1)
    assert late.value.status == 409


@pytest.mark.parametrize("is_old", [False, True], ids=["newer version", "older version"])
def test_a_whole_purchase_passes_against_either_version(is_old: bool) -> None:
    with serving() as server:
        if is_old:
            server.terms.controller_plans, server.terms.max_personas, server.terms.extra_keys = False, None, False
        using(server, buy)
        assert len(server.charges) == 1
        assert server.imbalance_cents() == 0
        assert len(server.files) == 2


def test_a_simulation_is_quoted_with_its_unit_mode_and_limits() -> None:
    request = plan(modules=["balance_sim"], personas=[], controllers=None, simulation={"runs": 10})

    async def sell(service: RemoteService) -> None:
        quote = await service.estimate(request)
        assert [(row.unit, row.count, row.unit_cents) for row in quote.breakdown] == [("playtest_run", 1, 40)]
        assert (quote.estimate_cents, quote.execution_mode) == (40, "direct_command_batch")
        assert quote.simulation_limits is not None
        job = await service.register("key-1", body_of(40, request))
        [one] = job.runs
        assert one.playtest_token
        result = RunResult(state="succeeded", quit_reason="", actions_taken=0, simulation={"completed_runs": 10})
        await service.complete(job.job_id, one.run_id, result)
        await service.finish(job.job_id)

    with serving() as server:
        using(server, sell)
        assert server.imbalance_cents() == 0


def test_what_the_server_refuses_arrives_as_a_no_and_charges_nothing() -> None:
    async def refused(call: Awaitable[Any]) -> tuple[int, str]:
        with pytest.raises(AnsweredNoError) as found:
            await call
        return found.value.status, found.value.code

    async def ask(service: RemoteService) -> None:
        assert (await refused(service.estimate(plan(personas=["stranger"]))))[1] == "invalid_estimate"
        assert (await refused(service.register("moved", body_of(1, PLAN))))[0] == 409
        assert (await refused(service.register("poor", body_of(PRICE_CENTS, PLAN))))[0] == 402
        assert (await refused(service.job("job-none")))[0] == 404

    with serving() as server:
        server.deposit(-server.balance_cents + PRICE_CENTS - 1)
        using(server, ask)
        assert server.charges == []


def test_a_wrong_token_is_an_authentication_error_and_never_shown() -> None:
    with serving() as server, pytest.raises(AuthenticationError) as found:
        using(server, lambda service: service.pack(), token="not-the-account-token")
    assert "not-the-account-token" not in str(found.value)


def test_a_cancel_of_the_server_is_seen_with_the_next_heartbeat() -> None:
    async def play(service: RemoteService) -> None:
        job = await service.register("key-1", body_of(PRICE_CENTS, PLAN))
        ids = (job.job_id, job.runs[0].run_id)
        server.request_cancel(job.job_id)
        assert (await service.heartbeat(*ids, 1, 1)).cancel_requested
        assert (await service.job(job.job_id)).cancel_requested
        server.settle_job(job.job_id, "canceled")
        assert (await service.job(job.job_id)).state == "canceled"
        assert (await service.run(*ids)).state == "canceled"

    with serving() as server:
        using(server, play)
        assert server.imbalance_cents() == 0
