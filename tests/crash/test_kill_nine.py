"""A coordinator is killed at random moments, its campaign recovered and gone on with, until every scenario is done."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import secrets
import select
import time
from collections import Counter
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from coordinator import State
from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.errors import DamagedError
from coordinator.inspection import inspect_recovery
from coordinator.recovery import recover, retry
from coordinator.verification import verify
from tests.coordinator.campaign import Campaign
from tests.crash.counts import SEEDS, count
from tests.crash.playing import WORKER_LIMIT_SECONDS, find_delivery, play

KILLS = 200
NAMES = "abcd"
MAX_BATCHES = 60
PLAY_LIMIT_SECONDS = 30
SEED = secrets.randbits(32)


class Killing:
    """One campaign on which coordinator after coordinator is killed."""

    def __init__(
        self, folder: Path, context: ForkServerContext, draw: random.Random, span_seconds: float | None
    ) -> None:
        """Kills come within `span_seconds` (None: never), later where a loaded machine lets nothing happen within."""
        folder.mkdir()
        self.span_seconds = span_seconds
        self.campaign = Campaign(folder, NAMES)
        self.folder, self.context, self.draw = folder, context, draw
        self.selections: list[Any] = list(self.campaign.selections)
        self.batches = 0
        self.kills = 0

    @property
    def control(self) -> Path:
        return self.folder / f"control-{self.batches}"

    def state(self) -> State | None:
        found = read_sealed(str(self.control / "state.json"), State, MAX_STATE_BYTES)
        return None if found is None else found[0]

    def run_and_kill(self) -> bool:
        """True if the batch came to its end before its moment."""
        self.batches += 1
        reader, writer = self.context.Pipe(duplex=False)
        arguments = (str(self.folder), NAMES, str(self.control), f"batch-{self.batches}", self.selections, writer)
        process = self.context.Process(target=play, args=arguments)
        process.start()
        writer.close()
        if self.span_seconds is None:
            process.join(timeout=PLAY_LIMIT_SECONDS)
        else:  # early moments twice: the commits of opening and reserving are there
            process.join(timeout=self.span_seconds * self.draw.choice((0.3, 1.0)) * self.draw.random())
        process.kill()
        process.join()
        # Whoever holds the other end lives: the coordinator is dead, so this waits for its workers.
        assert reader.poll(WORKER_LIMIT_SECONDS), "a worker outlived its limit"
        reader.close()
        ended = process.exitcode == 0
        self.kills += not ended
        if self.span_seconds is not None and self.state() is None:
            self.span_seconds *= 1.5
        assert process.exitcode in (0, -9), process.exitcode
        return ended

    def recover(self) -> None:
        """As a person would: look, say who is dead, adopt what was delivered, end the rest, plan the next batch."""
        if not self.campaign.lock.exists() and not (self.control / "state.json").exists():
            return
        for worker in inspect_recovery(self.campaign.path, self.control).workers:
            if worker.liveness == "alive" and worker.pid is not None:
                wait_for_exit(worker.pid)  # its files are closed, its last instructions may still run
        report = inspect_recovery(self.campaign.path, self.control)
        assert report.owner_liveness in ("dead", "none"), report.lock
        assert not any(one.liveness == "alive" for one in report.workers)
        # Every worker is gone, as the closed lifeline proves; one that was killed in its first moments left no mark.
        doubtful = [one.reservation_id for one in report.workers if one.liveness == "may be alive"]
        asyncio.run(self._recover(report.token, doubtful))
        after = self.state()
        if after is not None:
            asyncio.run(self._end([one for one, entry in after.entries.items() if entry.phase != "completed"]))
            self.selections = list(retry(self.campaign.path, self.control))

    async def _recover(self, token: str | None, doubtful: list[str]) -> None:
        found = await recover(
            self.campaign.path,
            owner_is_dead=token,
            control_directory=self.control,
            worker_is_dead=doubtful,
            find_delivery=find_delivery,
        )
        assert found.problems == []

    async def _end(self, ids: list[str]) -> None:
        state = self.state()
        assert state is not None
        doubtful = [one for one, entry in state.entries.items() if entry.phase in ("launching", "launched")]
        found = await recover(self.campaign.path, control_directory=self.control, worker_is_dead=doubtful, end=ids)
        assert (found.ended, found.problems, found.left) == (ids, [], [])

    def check(self) -> None:
        """At most one launch of an attempt, by the workers' own log; nothing delivered is lost; everything fits."""
        assert not self.campaign.lock.exists()
        log = self.folder / "launches.log"
        launches = Counter(log.read_text().splitlines() if log.exists() else [])
        assert all(times == 1 for times in launches.values()), launches
        outcomes = {
            (scenario["id"], row["ordinal"]): row["outcome"]
            for scenario in self.campaign.read()["scenarios"]
            for row in scenario["attempts"]
        }
        assert {tuple(line.split()) for line in launches} <= {(name, str(ordinal)) for name, ordinal in outcomes}
        state = self.state()
        for entry in state.entries.values() if state is not None else ():
            inbox = self.control / "inbox" / f"{entry.permit.reservation_id}.worker.json"
            outcome = outcomes[entry.permit.scenario_id, entry.permit.ordinal]
            assert (outcome == "passed") == inbox.exists(), f"{entry.permit}: {outcome}"
        problems = verify(self.campaign.path, self.control).problems
        assert problems == [], problems

    def finished(self) -> bool:
        return all(
            scenario["attempts"] and scenario["attempts"][-1]["outcome"] == "passed"
            for scenario in self.campaign.read()["scenarios"]
        )


def undisturbed_seconds(killing: Killing) -> float:
    begin = time.monotonic()
    assert killing.run_and_kill() and killing.finished()
    return time.monotonic() - begin


def wait_for_exit(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ready, _, _ = select.select([descriptor], [], [], WORKER_LIMIT_SECONDS)
    os.close(descriptor)
    assert ready, f"worker {pid} outlived its limit"


def test_two_hundred_kills_launch_nothing_twice_and_lose_no_delivery(
    memory_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fork server looks for its preload here only, and would import everything after each fork without it.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    SEEDS["kills of a live coordinator"] = SEED
    draw = random.Random(SEED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash.playing"])
    span_seconds = min(
        undisturbed_seconds(Killing(memory_root / name, context, draw, None)) for name in ("cold", "warm")
    )
    kills = campaigns = 0
    while kills < KILLS:
        killing = Killing(memory_root / str(campaigns), context, draw, span_seconds)
        campaigns += 1
        while not killing.finished():
            assert killing.batches < MAX_BATCHES, f"seed {SEED}: campaign {campaigns} never ends"
            try:
                killing.run_and_kill()
                killing.recover()
                killing.check()
            except (AssertionError, DamagedError) as error:
                error.add_note(f"seed {SEED}, campaign {campaigns}, batch {killing.batches}, in {killing.folder}")
                raise
        kills += killing.kills
        count("campaigns finished under kills")
    count("kills of a live coordinator", kills)
