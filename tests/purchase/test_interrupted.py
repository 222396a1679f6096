"""People and signals that end a bought campaign, and the one command that brings it to its end: one charge."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import coordinate
from tests.cli.test_run import SECONDS, Running, manifest, outcomes, wait_until_gone
from tests.purchase.shop import ENDLESS_RUN, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def started() -> Iterator[list[Running]]:
    """Commands that a test started; whatever still lives is ended and waited for."""
    running: list[Running] = []
    yield running
    for one in running:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGCONT)
            one.process.kill()
            one.process.communicate(timeout=SECONDS)


def playing(shop: Shop, started: list[Running], *arguments: str, runs: int = 2) -> Running:
    running = Running(shop.root, *ENDLESS_RUN, *arguments)
    started.append(running)
    running.wait_until_playing(runs)
    return running


def worker_pids(shop: Shop) -> list[int]:
    found = shop.root.glob(".playlane/campaigns/*/batch-*/runs/*/begun")
    return [json.loads(path.read_bytes())["pid"] for path in sorted(found)]


def token_in(text: str) -> str:
    found = re.search(r"--owner-is-dead (\S+)", text)
    assert found is not None, text
    return found.group(1)


@pytest.mark.parametrize(
    ("number", "times"),
    [
        pytest.param(signal.SIGINT, 1, id="ctrl-c"),
        pytest.param(signal.SIGINT, 4, id="ctrl-c again and again", marks=pytest.mark.ci),
        pytest.param(signal.SIGTERM, 1, id="sigterm", marks=pytest.mark.ci),
        pytest.param(signal.SIGHUP, 1, id="sighup", marks=pytest.mark.ci),
    ],
)
def test_interrupted_campaign_goes_on_with_one_command_and_one_question_within_its_charge(
    shop: Shop, started: list[Running], number: signal.Signals, times: int
) -> None:
    running = playing(shop, started)
    for _ in range(times):
        running.process.send_signal(number)
    ran = running.end()
    assert ran.code == 10, ran.err
    job = ran.document["job_id"]
    assert job == shop.journal.job_id
    assert shop.balances().held > 0
    assert f"coordinate resume {shop.journal.key} (until " in ran.err
    shop.finish_the_game()
    before = shop.rows()
    no = shop.resume(job)
    assert no.code == 10, no.err
    assert "There is no terminal to ask, which counts as no" in no.err
    assert f"coordinate resume {shop.journal.key}" in no.document["error"]["message"]
    assert shop.rows() == before
    done = shop.resume(job, "--yes")
    if times > 1 and done.code == 3:
        # A worker that was ended before it could deliver: only a person decides about what it spent.
        assert done.document["purchase"]["unknown"]
        shop.check_money()
        return
    assert done.code == 0, done.err
    assert [one[-1] for one in outcomes(manifest(shop.root))] == ["passed", "passed"]
    assert (done.document["job_id"], done.document["replayed"]) == (job, True)
    shop.check_settled()
    again = shop.resume(job)
    assert (again.code, again.document["finished"], again.document["state"]) == (0, True, "succeeded")


def test_killed_coordinator_with_two_workers_busy_is_resumed_from_what_they_delivered(
    shop: Shop, started: list[Running]
) -> None:
    running = playing(shop, started)
    running.process.kill()
    running.end()
    job = shop.journal.key
    living = shop.resume(job, "--yes")
    assert living.code == 3
    assert "workers of this purchase live" in living.document["error"]["message"]
    shop.finish_the_game()
    wait_until_gone(worker_pids(shop))
    # The game is gone, and the results are there: nothing needs to be played.
    (shop.root / "road" / "bridge.json").rename(shop.root / "bridge.json.away")
    refused = shop.resume(job, "--yes")
    assert refused.code == 3
    assert "--yes does not answer for it" in refused.document["error"]["message"]
    wrong = shop.resume(job, "--yes", "--owner-is-dead", "1234")
    assert wrong.code == 3
    done = shop.resume(job, "--yes", "--owner-is-dead", token_in(refused.document["error"]["message"]))
    assert done.code == 0, done.err
    assert outcomes(manifest(shop.root)) == [["passed"], ["passed"]]
    shop.check_settled()


def test_killed_worker_is_of_unknown_end_and_only_a_person_has_it_played_again(
    shop: Shop, started: list[Running]
) -> None:
    running = playing(shop, started)
    [first, second] = worker_pids(shop)
    kill(first)
    shop.finish_the_game()
    ran = running.end()
    assert ran.code == 3, ran.err
    assert f"coordinate resume {shop.journal.key}" in ran.err
    wait_until_gone([first, second])
    done = shop.resume(shop.journal.key, "--yes")
    assert done.code == 3, done.err
    [unknown] = done.document["purchase"]["unknown"]
    assert "coordinate retry" in done.err
    assert shop.balances().held > 0
    written = coordinate("retry", "--json", cwd=shop.root)
    assert [one["scenarioId"] for one in written.document["selections"]] == [unknown], written.err
    ended = coordinate("run", "--json", "--selections", written.document["path"], cwd=shop.root)
    assert ended.code == 0, ended.err
    assert sorted(len(rows) for rows in outcomes(manifest(shop.root))) == [1, 2]
    shop.check_settled()


def test_killed_coordinator_and_worker_leave_one_result_and_one_unknown(shop: Shop, started: list[Running]) -> None:
    running = playing(shop, started)
    [first, second] = worker_pids(shop)
    running.process.kill()
    kill(first)
    running.end()
    shop.finish_the_game()
    wait_until_gone([first, second])
    refused = shop.resume(shop.journal.key, "--yes")
    token = token_in(refused.document["error"]["message"])
    done = shop.resume(shop.journal.key, "--yes", "--owner-is-dead", token)
    assert done.code == 3, done.err
    assert len(done.document["purchase"]["unknown"]) == 1
    assert sorted(outcomes(manifest(shop.root))) == [["interrupted"], ["passed"]]
    assert "running" not in str(outcomes(manifest(shop.root)))
    shop.check_money()


def test_stopped_coordinator_takes_the_results_up_when_it_goes_on(shop: Shop, started: list[Running]) -> None:
    running = playing(shop, started)
    running.process.send_signal(signal.SIGSTOP)
    shop.finish_the_game()
    # Its children become zombies that it will wait for: their deliveries tell that they ended.
    deadline = time.monotonic() + SECONDS
    while len(list(shop.root.glob(".playlane/campaigns/*/batch-*/inbox/*.json"))) < 2:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.05)
    running.process.send_signal(signal.SIGCONT)
    ran = running.end()
    assert ran.code == 0, ran.err
    shop.check_settled()


def kill(pid: int) -> None:
    """End a worker of this test's own campaign, by a descriptor that names it alone."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
