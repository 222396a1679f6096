"""Campaigns bought over real sockets from a server that was written without knowledge of this client."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Ran
from tests.cli.test_run import ENDLESS, SECONDS, Running
from tests.independent_server.server import IndependentServer, serving
from tests.independent_server.terms import Terms
from tests.purchase.shop import Shop

TOKEN = "account-token"
PERSONAS = ("--personas", "newcomer,explorer")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("PLAYLANE_SERVICE_TOKEN", TOKEN)
    return Shop(tmp_path, budget=0)


@pytest.fixture
def server() -> Iterator[IndependentServer]:
    with serving() as running:
        yield running


@pytest.fixture
def started() -> Iterator[list[Running]]:
    running: list[Running] = []
    yield running
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate(timeout=SECONDS)


def remote(server: IndependentServer) -> tuple[str, ...]:
    return ("--service", server.url + "/", "--game", "game-1")


def buy(shop: Shop, server: IndependentServer, *arguments: str) -> Ran:
    return shop.run(*remote(server), "--max-actions", "5", *arguments)


def test_campaign_is_bought_played_delivered_and_settled(shop: Shop, server: IndependentServer) -> None:
    shop.finish_the_game()
    ran = buy(shop, server, "--yes", *PERSONAS)
    assert ran.code == 0, ran.err
    [job] = server.jobs.values()
    assert ran.document["job_id"] == shop.journal.job_id
    assert str(ran.document["job_url"]).startswith(server.url)
    assert len(server.charges) == 1
    assert server.refunds == []
    assert {run.state for run in server.runs.values()} == {"succeeded"}
    assert job.state == "succeeded"
    assert server.imbalance_cents() == 0
    assert shop.journal.state == "finished"
    assert all(TOKEN not in path.read_text(errors="replace") for path in files_of(shop))
    assert not any(b"bridge.json" in one.body or b"runpy" in one.body for one in server.requests)


def files_of(shop: Shop) -> list[Path]:
    return [path for path in (shop.root / ".playlane").rglob("*") if path.is_file()]


def test_an_older_server_without_plans_limits_and_later_keys_sells_a_campaign(shop: Shop) -> None:
    shop.finish_the_game()
    with serving(terms=Terms(controller_plans=False, max_personas=None, extra_keys=False)) as older:
        ran = buy(shop, older, "--yes", *PERSONAS)
        assert ran.code == 0, ran.err
        assert len(older.charges) == 1
        refused = buy(shop, older, "--yes", *PERSONAS, "--controller", "rune")
        assert refused.code == 3
        assert "takes no plan of controllers" in refused.document["error"]["message"]
        assert len(older.charges) == 1


@pytest.mark.parametrize(
    ("terms", "arguments", "words"),
    [
        (Terms(max_personas=1), PERSONAS, "plays at most 1 at once"),
        (Terms(), ("--personas", "cautious"), "does not know the personas cautious"),
        (Terms(honours_long=False), (*PERSONAS, "--long"), "it is for a 'standard' run, not a 'long' one"),
        (Terms(prices_cents={"standard": 0, "long": 0}, aggregate_cents=0), PERSONAS, "a quote of 0"),
        (Terms(prices_cents={"standard": 900_000, "long": 0}), PERSONAS, "the balance is $100.00"),
    ],
)
def test_what_a_server_cannot_sell_is_refused_before_anything_is_registered(
    shop: Shop, terms: Terms, arguments: tuple[str, ...], words: str
) -> None:
    with serving(terms=terms) as server:
        ran = buy(shop, server, "--yes", *arguments)
        assert ran.code == 3, ran.err
        assert words in ran.document["error"]["message"]
        assert "Nothing was registered or charged." in ran.document["error"]["message"]
        assert (server.charges, server.jobs) == ([], {})


def test_price_that_rose_after_the_quote_is_not_paid_with_yes_and_a_lower_one_is(shop: Shop) -> None:
    shop.finish_the_game()
    with serving(terms=Terms(price_after_quote_cents=30)) as server:
        ran = buy(shop, server, "--yes", *PERSONAS)
        assert ran.code == 3, ran.err
        assert "the price has risen" in ran.document["error"]["message"]
        assert server.charges == []
    for folder in (shop.root / ".playlane" / "campaigns").iterdir():
        assert "registered" not in folder.name
    with serving(terms=Terms(price_after_quote_cents=20)) as cheaper:
        ran = buy(shop, cheaper, "--yes", *PERSONAS)
        assert ran.code == 0, ran.err
        assert len(cheaper.charges) == 1


def test_runs_that_are_not_the_plan_s_are_launched_by_nobody_and_resume_checks_again(
    shop: Shop, server: IndependentServer
) -> None:
    shop.finish_the_game()

    def swap(answer: dict[str, object]) -> None:
        rows = answer["runs"]
        assert isinstance(rows, list)
        rows[0]["persona"] = "speedrunner"

    server.edit("jobs", swap)
    ran = buy(shop, server, "--yes", *PERSONAS)
    assert ran.code == 1, ran.err
    assert "are not the plan's" in ran.document["error"]["message"]
    assert "nothing was launched" in ran.document["error"]["message"]
    assert f"coordinate resume {shop.journal.key}" in ran.document["error"]["message"]
    assert not list(shop.root.glob(".playlane/campaigns/*/batch-*"))
    server.answer_faithfully()
    done = shop.resume(shop.journal.key, "--yes")
    assert done.code == 0, done.err
    assert len(server.charges) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_first_heartbeat_that_is_refused_launches_nothing(shop: Shop, server: IndependentServer, status: int) -> None:
    server.refuse_heartbeats(status)
    ran = buy(shop, server, "--yes", *PERSONAS)
    assert ran.code == (4 if status in (401, 403) else 1), ran.err
    assert "nothing was launched" in ran.document["error"]["message"]
    assert not list(shop.root.glob(".playlane/campaigns/*/batch-*"))


def test_cancel_from_the_server_ends_the_runs_and_settles(
    shop: Shop, server: IndependentServer, started: list[Running]
) -> None:
    running = Running(shop.root, *remote(server), "--yes", "--max-actions", ENDLESS, *PERSONAS)
    started.append(running)
    running.wait_until_playing(1)
    server.request_cancel(str(shop.journal.job_id))
    ran = running.end()
    assert ran.code == 10, ran.err
    assert (shop.journal.state, shop.journal.job_state) == ("finished", "canceled")
    assert ran.document["stop"]["reason"] == "canceled"


def test_token_that_is_taken_back_while_it_plays_ends_the_run_and_keeps_the_purchase(
    shop: Shop, server: IndependentServer, started: list[Running]
) -> None:
    running = Running(shop.root, *remote(server), "--yes", "--max-actions", ENDLESS, *PERSONAS)
    started.append(running)
    running.wait_until_playing(1)
    server.refuse_heartbeats(401)
    ran = running.end()
    assert ran.code == 10, ran.err
    assert 4 in {one["exit_code"] for one in ran.document["reasons"]}
    assert shop.journal.state == "registered"
    server.refuse_heartbeats(None)
    shop.finish_the_game()
    done = shop.resume(shop.journal.key, "--yes")
    assert done.code == 0, done.err
    assert len(server.charges) == 1


def test_network_that_is_lost_ends_nothing_and_results_wait_for_it(shop: Shop, started: list[Running]) -> None:
    with serving() as server:
        running = Running(shop.root, *remote(server), "--yes", "--max-actions", ENDLESS, *PERSONAS)
        started.append(running)
        running.wait_until_playing(1)
        running.process.send_signal(signal.SIGINT)
        ran = running.end()
        assert ran.code == 10, ran.err
        assert (len(server.charges), shop.journal.state) == (1, "registered")
    shop.finish_the_game()
    away = shop.resume(shop.journal.key, "--yes")
    assert away.code == 1, away.err
    assert f"coordinate resume {shop.journal.key}" in away.document["error"]["message"]
