"""Every route over real sockets: our client against our service under uvicorn."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from coordinator.client import AuthenticationError, UnknownOutcomeError, UnusableAnswerError
from coordinator.errors import InvalidInputError
from coordinator.service.app import make_app
from coordinator.service.audit import inconsistencies
from coordinator.service.ledger import Ledger
from coordinator.service.remote import RemoteService
from tests.service.servers import GAME, TOKEN, Served, served
from tests.service.stage import DOLLAR, body_of, plan, played, refused, run

BASE = f"/api/v1/games/{GAME}/playtest"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for the tests of this module; each registers under a key of its own."""
    with served(tmp_path_factory.mktemp("team"), budget=100 * DOLLAR) as found:
        yield found


def raw(team: Served, method: str, path: str, token: str | None = TOKEN, **request: Any) -> httpx.Response:
    """One request without our client."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(base_url=team.url, trust_env=False) as client:
            headers = {**request.pop("headers", {}), **({"authorization": f"Bearer {token}"} if token else {})}
            return await client.request(method, path, headers=headers, **request)

    return run(ask())


def error_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    return answer.status_code, answer.json()["error"]["code"]


def test_a_whole_purchase_goes_over_the_wire_and_the_ledger_is_balanced(tmp_path: Path) -> None:
    async def buy(service: RemoteService) -> None:
        pack = await service.pack()
        assert (pack.routing.controller_plans, pack.routing.repetitions) == (True, 100)
        quote = await service.estimate(plan())
        assert (quote.estimate_cents, quote.balance_cents, quote.persona_run_count) == (20, 100, 2)
        body = body_of(quote.estimate_cents)
        job = await service.register("key-1", body)
        assert (await service.register("key-1", body)).replayed
        looked_up = await service.find_job("key-1")
        assert looked_up is not None
        assert looked_up.runs == job.runs
        assert await service.find_job("key-2") is None
        for one in job.runs:
            ids = (job.job_id, one.run_id)
            assert (await service.heartbeat(*ids, 0, 0)).state == "queued"
            assert (await service.transition(*ids, "playing")).state == "playing"
            assert (await service.run(*ids)).state == "playing"
            data = one.run_id.encode()
            digest = hashlib.sha256(data).hexdigest()
            uploads = [await service.upload(*ids, "report ä.json", data, digest) for _ in range(2)]
            assert uploads == [True, False]
            found = await service.complete(*ids, played())
            assert (found.state, found.report_lint) == ("succeeded", [])
        await service.send_aggregate(job.job_id, {"runs": 2})
        assert (await service.job(job.job_id)).state == "open"
        assert (await service.finish(job.job_id)).state == "succeeded"
        assert (await service.finish(job.job_id, "again")).state == "succeeded"
        await service.close()

    with served(tmp_path) as team:
        run(buy(team.remote()))
    ledger = Ledger(tmp_path / "ledger.sqlite", read_only=True)
    assert inconsistencies(ledger) == []
    assert (ledger.balances().spent, ledger.balances().held) == (200_000, 0), "the flat price of both"
    assert ledger.query("SELECT DISTINCT name FROM upload") == [("report ä.json",)]
    ledger.close()


@pytest.mark.parametrize("token", ["wrong", "account-token-7f3a9", TOKEN + "x", TOKEN.upper()])
def test_a_token_that_is_not_known_is_an_authentication_error(team: Served, token: str) -> None:
    async def ask() -> None:
        service = team.remote(token=token)
        with pytest.raises(AuthenticationError) as found:
            await service.pack()
        assert (found.value.status, found.value.code) == (401, "unauthorized")
        assert token not in str(found.value)
        await service.close()

    run(ask())


def test_nothing_is_answered_without_a_token(team: Served) -> None:
    for path in ("pack", "jobs?idempotency_key=x", "jobs/job_1", "jobs/job_1/runs/run_1"):
        assert error_of(raw(team, "GET", f"{BASE}/{path}", token=None)) == (401, "unauthorized")
    basic = raw(team, "GET", f"{BASE}/pack", token=None, headers={"authorization": f"Basic {TOKEN}"})
    assert error_of(basic) == (401, "unauthorized")


def test_each_no_of_the_service_reaches_the_caller_as_it_is(team: Served) -> None:
    everything = plan(personas=["a", "b", "c", "d"], repetitions=100, controllers=["standard", "jev", "rune"])

    async def ask() -> None:
        service = team.remote()
        job = await service.register("noes", body_of())
        ids = (job.job_id, job.runs[0].run_id)
        with refused(400, "invalid_estimate"):
            await service.estimate(plan(personas=[]))
        with refused(409, "price_changed"):
            await service.register("noes-2", body_of(19))
        with refused(409, "idempotency_conflict"):
            await service.register("noes", body_of() + b"\n")
        with refused(409, "illegal_transition"):
            await service.transition(*ids, "nonsense")
        with refused(404, "no_such_job"):
            await service.job("job_none")
        with refused(404, "no_such_run"):
            await service.run(job.job_id, "run_none")
        with refused(400, "checksum_mismatch"):
            await service.upload(*ids, "a", b"data", "0" * 64)
        await service.complete(*ids, played())
        with refused(409, "result_conflict"):
            await service.complete(*ids, played(state="failed"))
        with refused(409, "run_closed"):
            await service.heartbeat(*ids, 1, 1)
        await service.finish(job.job_id, "canceled")
        with refused(409, "run_closed"):
            await service.complete(job.job_id, job.runs[1].run_id, played())
        with refused(402, "insufficient_balance"):
            await service.register("noes-3", body_of(12_000, everything))
        await service.close()

    run(ask())


def test_another_game_is_unknown_even_when_a_job_is_looked_up(team: Served) -> None:
    async def ask() -> None:
        for game, code in (("no such game", "no_such_game"), ("no/game", "no_such_route")):
            service = team.remote(game=game)
            with refused(404, code):
                await service.pack()
            with refused(404, code):
                await service.find_job("key")
            await service.close()

    run(ask())


def test_what_is_not_offered_says_so(team: Served) -> None:
    job = run(registered(team, "not-offered"))
    path = f"{BASE}/jobs/{job.job_id}/runs/{job.runs[0].run_id}"
    for route in ("select-action", "model"):
        assert error_of(raw(team, "POST", f"{path}/{route}", json={})) == (501, "not_supported")
        assert error_of(raw(team, "POST", f"{path}/{route}", token=None, json={})) == (401, "unauthorized")
    assert error_of(raw(team, "GET", f"{BASE}/nonsense")) == (404, "no_such_route")
    assert error_of(raw(team, "DELETE", f"{BASE}/pack")) == (405, "method_not_allowed")


async def registered(team: Served, key: str) -> Any:
    service = team.remote()
    try:
        return await service.register(key, body_of())
    finally:
        await service.close()


@pytest.mark.parametrize(
    "change",
    [
        b'"confirm_price_cents":20.0',
        b'"confirm_price_cents":20.5',
        b'"confirm_price_cents":-20',
        b'"confirm_price_cents":1e3',
        b'"confirm_price_cents":NaN',
        b'"confirm_price_cents":"20"',
        b'"confirm_price_cents":null',
        b'"confirm_price_cents":true',
        b'"confirm_price_cents":1' + b"0" * 30,
        b'"confirm_price_cents":100000000001',
        b'"confirm_price_cents":20,"confirm_price_cents":20',
        b'"other":20',
    ],
)
def test_a_price_that_is_no_whole_number_of_cents_is_refused(team: Served, change: bytes) -> None:
    body = body_of().replace(b'"confirm_price_cents":20', change)
    assert body != body_of()
    before = rows(team)
    answer = raw(team, "POST", f"{BASE}/jobs", content=body, headers={"idempotency-key": "amounts"})
    assert error_of(answer) == (400, "invalid_request")
    assert rows(team) == before


@pytest.mark.parametrize("amount", [0.5, -1, 10**16, 10**40, True, "1", None, [1], "NaN"])
def test_a_use_that_is_no_amount_is_refused_and_can_be_sent_right(team: Served, amount: object) -> None:
    job = run(registered(team, f"use-{amount}"[:30]))
    path = f"{BASE}/jobs/{job.job_id}/runs/{job.runs[0].run_id}/complete"
    document = msgspec.to_builtins(played())
    before = rows(team)
    for usage in ({"microdollars": amount}, {"cost_usd": amount if amount is not None else "none"}):
        body = msgspec.json.encode({**document, "usage": usage})
        if amount == 0.5 and "cost_usd" in usage:
            continue
        body = body.replace(b'"NaN"', b"NaN")
        assert error_of(raw(team, "POST", path, content=body)) == (400, "invalid_request")
    assert rows(team) == before
    assert raw(team, "POST", path, content=msgspec.json.encode(document)).status_code == 200


@pytest.mark.parametrize(
    "beat",
    [
        b'{"actions_taken":-1,"checkpoint_step":0}',
        b'{"actions_taken":1.5,"checkpoint_step":0}',
        b'{"actions_taken":1}',
        b'{"actions_taken":1,"checkpoint_step":1' + b"0" * 15 + b"}",
        b'{"actions_taken":1,"checkpoint_step":1' + b"0" * 40 + b"}",
        b"[]",
        b"",
    ],
)
def test_a_heartbeat_that_counts_nonsense_is_refused(team: Served, beat: bytes) -> None:
    job = run(registered(team, "beat"))
    path = f"{BASE}/jobs/{job.job_id}/runs/{job.runs[0].run_id}/heartbeat"
    assert error_of(raw(team, "POST", path, content=beat)) == (400, "invalid_request")


def test_a_registration_needs_one_key(team: Served) -> None:
    before = rows(team)
    assert error_of(raw(team, "POST", f"{BASE}/jobs", content=body_of())) == (400, "invalid_request")
    long = raw(team, "POST", f"{BASE}/jobs", content=body_of(), headers={"idempotency-key": "x" * 201})
    assert error_of(long) == (400, "invalid_request")
    assert rows(team) == before


def test_a_body_over_the_cap_is_refused(team: Served) -> None:
    answer = raw(team, "POST", f"{BASE}/estimate", content=b" " * ((4 << 20) + 1))
    assert error_of(answer) == (413, "too_large")


def test_a_remote_quote_of_0_is_never_accepted(tmp_path: Path) -> None:
    async def ask(service: RemoteService) -> None:
        with pytest.raises(UnusableAnswerError, match="quote of 0"):
            await service.estimate(plan(modules=["balance_sim"], personas=[], controllers=None))
        await service.close()

    with served(tmp_path) as team:
        run(ask(team.remote()))


def test_a_ledger_that_cannot_be_used_leaves_the_fate_unknown_and_names_no_file(tmp_path: Path) -> None:
    """Somebody keeps the ledger locked for longer than the service waits."""

    async def ask(service: RemoteService) -> None:
        with pytest.raises(UnknownOutcomeError, match="503"):
            await service.register("locked", body_of())
        await service.close()

    with served(tmp_path, busy_seconds=0.05) as team:
        holder = Ledger(team.ledger_path)
        with holder.transaction():
            run(ask(team.remote()))
            answer = raw(team, "POST", f"{BASE}/jobs", content=body_of(), headers={"idempotency-key": "locked"})
        assert error_of(answer) == (503, "unavailable")
        assert str(tmp_path) not in answer.text
        assert holder.row_counts()["job"] == 0
        holder.close()


def test_two_clients_at_once_get_one_job_for_one_key(team: Served) -> None:
    async def both() -> tuple[Any, Any]:
        first, second = team.remote(), team.remote()
        try:
            return await asyncio.gather(first.register("both", body_of()), second.register("both", body_of()))
        finally:
            await first.close()
            await second.close()

    jobs = run(both())
    assert jobs[0].job_id == jobs[1].job_id
    assert sorted(job.replayed for job in jobs) == [False, True]


def test_an_app_without_tokens_is_refused() -> None:
    for tokens in ([], [""], ["good", ""]):
        with pytest.raises(InvalidInputError, match="token"):
            make_app({}, tokens)


def rows(team: Served) -> dict[str, int]:
    ledger = Ledger(team.ledger_path, read_only=True)
    try:
        return ledger.row_counts()
    finally:
        ledger.close()
