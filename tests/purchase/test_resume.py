"""`coordinate resume`: what it continues, what it only reports, what it refuses; the ledger is what proves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.journal import Journal, JournalError, JournalFile, read_journal
from coordinator.resume import find_journal, judge_journal
from coordinator.service.wire import RunResult
from tests.cli.command import coordinate
from tests.cli.test_run import manifest, outcomes
from tests.purchase.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def attempts(shop: Shop) -> int:
    return sum(len(rows) for rows in outcomes(manifest(shop.root)))


def test_purchase_that_was_killed_after_its_registration_is_played_under_the_same_charge(shop: Shop) -> None:
    key = shop.half_bought()
    shop.finish_the_game()
    job = shop.journal.job_id
    done = shop.resume(key[:12], "--yes")
    assert done.code == 0, done.err
    assert (done.document["job_id"], done.document["replayed"]) == (job, True)
    shop.check_settled()


def test_purchase_that_was_killed_before_its_registration_is_registered_once(shop: Shop) -> None:
    key = shop.half_bought(registered=False)
    shop.finish_the_game()
    no = shop.resume(key)
    assert (no.code, shop.rows()["job"]) == (10, 0)
    done = shop.resume(key, "--yes")
    assert done.code == 0, done.err
    shop.check_settled()


def test_price_that_moved_is_not_paid_whatever_yes_says(shop: Shop) -> None:
    key = shop.half_bought(registered=False, price_cents=1)
    before = shop.rows()
    moved = shop.resume(key, "--yes")
    assert moved.code == 3
    assert "the price is 2 cents, not 1" in moved.document["error"]["message"]
    assert "Nothing was registered or charged." in moved.document["error"]["message"]
    assert shop.rows() == before
    assert shop.journal.state == "finished"
    again = shop.resume(key, "--yes")
    assert (again.code, again.document["finished"]) == (3, True)
    shop.check_money(jobs=0)


def test_key_past_its_window_is_looked_up_and_never_sent_again(shop: Shop) -> None:
    key = shop.half_bought(registered=False, created_at="2020-01-01T00:00:00.000Z")
    before = shop.rows()
    late = shop.resume(key, "--yes")
    assert late.code == 3
    assert "does not know its key" in late.document["error"]["message"]
    assert (shop.rows(), shop.journal.state) == (before, "finished")


@pytest.mark.parametrize(("state", "code"), [("canceled", 10), ("budget_exceeded", 2), ("failed", 1), ("stalled", 1)])
def test_job_that_the_service_settled_is_reported_and_nothing_restarts(shop: Shop, state: str, code: int) -> None:
    key = shop.half_bought()
    shop.at_the_service("finish", shop.journal.job_id, state)
    before = shop.balances()
    done = shop.resume(key)
    assert done.code == code, done.err
    assert done.document["purchase"]["job_state"] == state
    assert (attempts(shop), shop.balances()) == (0, before)
    again = shop.resume(key)
    assert (again.code, again.document["finished"], again.document["state"]) == (code, True, state)
    shop.check_money()


def test_cancel_that_was_requested_ends_and_settles_at_once(shop: Shop) -> None:
    key = shop.half_bought()
    shop.at_the_service("request_cancel", shop.journal.job_id)
    done = shop.resume(key)
    assert done.code == 10, done.err
    assert (attempts(shop), shop.balances().held, shop.balances().spent) == (0, 0, 0)
    assert (shop.journal.state, shop.journal.job_state) == ("finished", "canceled")
    shop.check_money()


def test_runs_that_the_service_closed_are_settled_without_bridge_or_game(shop: Shop) -> None:
    key = shop.half_bought()
    journal = shop.journal
    closed = RunResult(state="failed", quit_reason="closed by the operator", actions_taken=0)
    for run_id in journal.runs.values():
        shop.at_the_service("complete", journal.job_id, run_id, closed)
    # A job with every run closed is still open: only its end settles it.
    assert shop.at_the_service("job", journal.job_id).state == "open"
    done = shop.resume(key, "--yes")
    assert done.code == 1, done.err
    assert (attempts(shop), shop.balances().held, shop.journal.state) == (0, 0, "finished")


def test_changed_build_is_not_played_on(shop: Shop) -> None:
    key = shop.half_bought()
    content = json.loads(shop.bridge.read_text())
    shop.bridge.write_text(json.dumps({**content, "startup_timeout_ms": 9_000}))
    refused = shop.resume(key, "--yes")
    assert refused.code == 3
    assert "is not the build that was bought" in refused.document["error"]["message"]
    assert f"coordinate resume {key}" in refused.document["error"]["message"]
    shop.bridge.unlink()
    gone = shop.resume(key, "--yes")
    assert gone.code == 3
    assert "cannot be played any more" in gone.document["error"]["message"]
    assert (attempts(shop), shop.journal.state) == (0, "registered")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "x.json"), "takes no --config"),
        (("--driver-config", "x.json"), "no --driver-config"),
        (("--game", "another"), "is of the game 'local', not of 'another'"),
        (("--service", "https://play.test/"), "was bought at embedded, not at https://play.test/"),
    ],
)
def test_resume_refuses_what_is_not_its_journal_s(shop: Shop, arguments: tuple[str, ...], words: str) -> None:
    key = shop.half_bought()
    before = shop.rows()
    refused = shop.resume(key, "--yes", *arguments)
    assert refused.code == 3
    assert words in refused.document["error"]["message"]
    assert (shop.rows(), attempts(shop)) == (before, 0)


def test_journal_of_another_kind_is_refused(shop: Shop) -> None:
    key = shop.half_bought(registered=False, kind="simulation")
    refused = shop.resume(key, "--yes")
    assert refused.code == 3
    assert "coordinate simulate --resume" in refused.document["error"]["message"]


def test_trailing_slashes_of_a_service_do_not_matter(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    key = shop.half_bought(registered=False, service="https://play.test")
    path = find_journal(tmp_path, key)
    assert judge_journal(path, service="https://play.test//", game=None).key == key


def test_living_owner_of_the_journal_and_an_unreadable_lock_are_refused_by_path(shop: Shop) -> None:
    key = shop.half_bought()
    path = find_journal(shop.root, key)
    held = JournalFile.open(path)
    try:
        refused = shop.resume(key, "--yes")
        assert refused.code == 3
        assert f"{path}.lock" in refused.document["error"]["message"]
    finally:
        held.close()
    Path(f"{path}.lock").write_bytes(b"not a lock")
    refused = shop.resume(key, "--yes")
    assert refused.code == 3
    assert f"{path}.lock cannot be read" in refused.document["error"]["message"]


def test_journal_damaged_at_any_byte_is_refused_and_never_believed(shop: Shop) -> None:
    key = shop.half_bought()
    path = Path(find_journal(shop.root, key))
    whole, before = path.read_bytes(), shop.rows()
    for position in range(len(whole)):
        for damaged in (whole[:position], whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(JournalError):
                read_journal(str(path))
    path.write_bytes(whole[:100])
    refused = shop.resume(key, "--yes")
    assert refused.code == 3
    assert str(path) in refused.document["error"]["message"]
    assert shop.rows() == before
    path.write_bytes(whole)
    assert isinstance(read_journal(str(path)), Journal)


def test_list_names_every_purchase_and_its_damage(shop: Shop) -> None:
    key = shop.half_bought()
    damaged = shop.root / ".playlane" / "campaigns" / "damaged"
    damaged.mkdir(mode=0o700)
    (damaged / "journal.json").write_bytes(b"{}")
    listed: dict[str, Any] = coordinate("resume", "--json", cwd=shop.root).document
    found = {Path(one["path"]).parent.name: one for one in listed["purchases"]}
    assert set(found) == {key, "damaged"}
    assert found[key]["state"] == "registered"
    assert "journal.json" in found["damaged"]["error"]
