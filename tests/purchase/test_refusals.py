"""Before a cent: every refusal leaves the ledger's rows as they were, says so, and has its exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import coordinate
from tests.cli.test_run import PATIENT_PERSONAS
from tests.purchase.shop import BRAIN, Shop

NOTHING = "Nothing was registered or charged."


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, budget=1_000_000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--controller", "rune", "--compare-with", "rune"), "stands beside --compare-with"),
        (("--controller", "nobody"), "is not a controller"),
        (("--personas", "nobody"), "nobody"),
        (("--personas", "newcomer,newcomer"), "named twice"),
        (("--brain", "scripted:0"), "cannot play in this version"),
        (("--brain", "scripted:1.5"), "cannot play in this version"),
        (("--brain", "scripted:NaN"), "cannot play in this version"),
        (("--max-price", "NaN"), "is not an amount of dollars"),
        (("--max-price", "-1"), "is not an amount of dollars"),
        (("--budget", "1e400"), "is not an amount of dollars"),
        (("--budget", "0.0000001"), "finer than a millionth"),
        (("--max-price", "0.03"), "above --max-price 0.03"),
        (("--max-actions", "10000"), "the balance is $1.00"),
        (("--dry-upload", "--offline-upload"), "use one of both"),
        (("--service", "https://play.test"), "go together"),
        (("--service", "https://play.test", "--game", "g", "--budget", "1"), "keeps its own"),
        (("--selections", "none.json"), "plays what was planned"),
    ],
)
def test_refusal_registers_and_charges_nothing(shop: Shop, arguments: tuple[str, ...], words: str) -> None:
    before = shop.rows()
    limits = ("--max-actions", "200") if "--max-actions" not in arguments else ()
    brain = () if "--brain" in arguments else BRAIN
    ran = shop.run("--yes", *limits, *brain, *arguments)
    assert ran.code == 3, ran.err
    assert words in ran.document["error"]["message"]
    assert NOTHING in ran.document["error"]["message"]
    assert ran.document["exit_code"] == 3
    assert shop.rows() == before
    assert not list(shop.root.glob(".playlane/campaigns/*/journal.json"))


def test_no_at_the_question_is_exit_10_and_registers_nothing(shop: Shop) -> None:
    before = shop.rows()
    ran = shop.run(*BRAIN, "--max-actions", "200")
    assert ran.code == 10
    assert "road.newcomer.standard.1  at most $0.02" in ran.err
    assert "at most $0.04" in ran.err
    assert "the balance is $1.00" in ran.err
    assert "stay on this machine; nothing is uploaded" in ran.err
    assert "Buy this for at most $0.04? There is no terminal to ask, which counts as no" in ran.err
    assert shop.rows() == before
    assert not list(shop.root.glob(".playlane/campaigns/*/journal.json"))


def test_bridge_that_does_not_play_is_refused_before_the_quote(shop: Shop) -> None:
    shop.bridge.write_text(json.dumps({"command": [sys.executable, "-c", "print('hi')"]}))
    before = shop.rows()
    ran = shop.run("--yes", *BRAIN)
    assert ran.code == 3
    assert "the bridge does not play" in ran.document["error"]["message"]
    assert NOTHING in ran.document["error"]["message"]
    assert shop.rows() == before


def test_brain_that_costs_without_a_budget_is_refused_before_it_is_quoted(tmp_path: Path) -> None:
    shop = Shop(tmp_path, budget=0)
    for flag in ("--quote", "--yes"):
        ran = shop.run(flag, *BRAIN)
        assert ran.code == 3
        assert "coordinate budget set" in ran.document["error"]["message"]
        assert "at most" not in ran.err
    assert not shop.path.exists()


def test_remote_service_without_a_token_is_exit_4(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAYLANE_SERVICE_TOKEN", raising=False)
    ran = shop.run("--yes", "--service", "https://play.test", "--game", "g")
    assert ran.code == 4
    assert "PLAYLANE_SERVICE_TOKEN" in ran.document["error"]["message"]
    assert NOTHING in ran.document["error"]["message"]


def test_quote_has_low_likely_and_worst_and_registers_nothing(shop: Shop) -> None:
    before = shop.rows()
    ran = shop.run("--quote", *BRAIN, "--max-actions", "200", "--repetitions", "2")
    assert ran.code == 0, ran.err
    found = ran.document
    assert (found["low"], found["likely"], found["worst"], found["estimate_cents"]) == (1, 4, 8, 8)
    assert (found["balance_cents"], found["persona_run_count"], len(found["runs"])) == (100, 4, 4)
    assert shop.rows() == before


def test_long_runs_are_quoted_as_long(shop: Shop) -> None:
    standard = shop.run("--quote", *BRAIN, "--max-actions", "200").document
    long = shop.run("--quote", *BRAIN, "--max-actions", "200", "--long").document
    assert (standard["worst"], long["worst"]) == (4, 12)


def test_spent_is_what_was_used_and_the_rest_is_released(shop: Shop) -> None:
    shop.finish_the_game()
    ran = shop.run("--yes", *BRAIN, "--max-actions", "200")
    assert ran.code == 0, ran.err
    found = ran.document
    assert (found["job_id"], found["replayed"], found["job_url"]) == (shop.journal.job_id, False, None)
    shop.check_settled()
    assert "released" in ran.err
    assert shop.balances().spent < 40_000


def test_cap_of_the_campaign_ends_its_runs_with_partial_results(shop: Shop) -> None:
    ran = shop.run("--yes", *BRAIN, "--max-actions", "200", "--budget", "0.002", *PATIENT_PERSONAS)
    assert ran.code == 2, ran.err
    assert {one["end_reason"] for one in ran.document["runs"]} == {"budget"}
    assert [one["actions_taken"] for one in ran.document["runs"]] == [10, 10]
    shop.check_settled()
    assert shop.balances().spent == 2_000


def test_free_campaign_asks_nothing_charges_nothing_and_has_a_job(shop: Shop) -> None:
    shop.finish_the_game()
    ran = shop.run("--max-actions", "5")
    assert ran.code == 0, ran.err
    assert "nothing was charged" in ran.err
    assert ran.document["job_id"] == shop.journal.job_id
    assert (shop.journal.price_cents, shop.balances().held, shop.balances().spent) == (0, 0, 0)
    shop.check_money()


def test_dry_upload_names_each_file_and_sends_nothing_and_queued_ones_are_sent_once(shop: Shop) -> None:
    shop.finish_the_game()
    dry = shop.run("--max-actions", "5", "--personas", "newcomer", "--dry-upload")
    assert dry.code == 0, dry.err
    assert "would upload" in dry.err
    assert "report.md" in dry.err
    assert "transcript.jsonl" not in dry.err
    assert shop.rows()["upload"] == 0
    queued = shop.run("--max-actions", "5", "--personas", "newcomer", "--offline-upload", "--upload-transcript")
    assert queued.code == 0, queued.err
    assert shop.rows()["upload"] == 0
    sent = coordinate("upload", "--json", cwd=shop.root)
    assert (sent.code, sent.document["sent"], sent.document["waiting"]) == (0, 3, [])
    assert shop.rows()["upload"] == 3
    again = coordinate("upload", "--json", cwd=shop.root)
    assert (again.document["sent"], shop.rows()["upload"]) == (0, 3)
