"""Two processes at the same file at the same moment: one owns it, the other is told so."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from coordinator import Coordinator, CoordinatorError
from coordinator.errors import LockedError, RefusedError
from coordinator.recovery import recover
from tests.coordinator.campaign import Campaign
from tests.crash.counts import count
from tests.crash.world import ANOTHER_BOOT

RACES = 200
RECOVERY_RACES = 60
LIMIT_SECONDS = 60


def race_opening(folder: str, racer: int, barrier: Barrier, results: Any) -> None:
    """Open every campaign at the barrier; in every second one with a control directory of one's own."""
    for number in range(RACES):
        campaign = Campaign(Path(folder, str(number)), "a", fresh=False)
        own: dict[str, Any] = (
            {} if number % 2 else {"control_directory": campaign.folder / f"own-{racer}", "batch_id": f"own-{racer}"}
        )
        barrier.wait(LIMIT_SECONDS)
        coordinator: Coordinator | None = None
        try:
            coordinator = campaign.open(**own)
            found = "owner"
        except CoordinatorError as error:
            found = type(error).__name__
        barrier.wait(LIMIT_SECONDS)
        results.put((number, racer, found))
        if coordinator is not None and number % 4 < 2:
            asyncio.run(coordinator.close())


def race_recovering(folder: str, racer: int, barrier: Barrier, results: Any) -> None:
    for number in range(RECOVERY_RACES):
        campaign = Campaign(Path(folder, str(number)), "a", fresh=False)
        token = json.loads(campaign.lock.read_bytes())["token"]
        barrier.wait(LIMIT_SECONDS)
        try:
            asyncio.run(recover(campaign.path, owner_is_dead=token))
            found = "recovered"
        except CoordinatorError as error:
            found = type(error).__name__
        barrier.wait(LIMIT_SECONDS)
        results.put((number, racer, found))


def run_racers(folder: Path, racer: Callable[..., None], rounds: int) -> list[list[str]]:
    """What both found, per round."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=racer, args=(str(folder), one, barrier, results)) for one in range(2)]
    for process in racers:
        process.start()
    found: list[list[str]] = [[] for _ in range(rounds)]
    try:
        for _ in range(2 * rounds):
            number, _, what = results.get(timeout=LIMIT_SECONDS)
            found[number].append(what)
    finally:
        for process in racers:
            process.join(timeout=LIMIT_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
    assert [process.exitcode for process in racers] == [0, 0]
    return found


def prepare(folder: Path, rounds: int) -> list[Campaign]:
    campaigns = []
    for number in range(rounds):
        (folder / str(number)).mkdir()
        campaigns.append(Campaign(folder / str(number), "a"))
    return campaigns


def test_of_two_openings_at_once_exactly_one_owns(tmp_path: Path) -> None:
    campaigns = prepare(tmp_path, RACES)
    for number, found in enumerate(run_racers(tmp_path, race_opening, RACES)):
        assert sorted(found) == [LockedError.__name__, "owner"], f"round {number}"
        campaign = campaigns[number]
        assert not list(campaign.folder.glob(".*lock*")), "a temporary lock was left"
        assert campaign.lock.exists() == (number % 4 >= 2)
        if number % 2 == 0:
            assert len(list(campaign.folder.glob("own-*"))) == 1, "the loser made its control directory"
        count("races")


def test_of_two_recoveries_at_once_exactly_one_recovers(tmp_path: Path) -> None:
    for campaign in prepare(tmp_path, RECOVERY_RACES):
        asyncio.run(campaign.open().reserve("a"))
        found = json.loads(campaign.lock.read_bytes())
        campaign.lock.write_text(json.dumps({**found, "bootId": ANOTHER_BOOT}))
    for number, both in enumerate(run_racers(tmp_path, race_recovering, RECOVERY_RACES)):
        assert both.count("recovered") == 1, f"round {number}: {both}"
        assert set(both) <= {"recovered", RefusedError.__name__, LockedError.__name__}
        campaign = Campaign(tmp_path / str(number), "a", fresh=False)
        assert not campaign.lock.exists()
        assert len(list((campaign.control / "locks").iterdir())) == 1
        count("races of recoveries")
