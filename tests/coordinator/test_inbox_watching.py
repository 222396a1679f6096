"""Events shorten the wait; the listing decides when they are lost, late or never come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from coordinator import inbox as inbox_module
from coordinator.watching import DirectoryWatch
from tests.coordinator.test_inbox import LIMIT_SECONDS, Box, Leaving


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.inbox.close()


def waiting(box: Box, meanwhile: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        task = asyncio.create_task(box.inbox.wait_for("r1", Leaving()))
        await meanwhile()
        assert (await asyncio.wait_for(task, LIMIT_SECONDS)).reservation_id == "r1"

    asyncio.run(run())


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_event_wakes_the_wait_long_before_the_next_listing(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SECONDS", 3600)

    async def meanwhile() -> None:
        await until(lambda: box.inbox._watch is not None and box.inbox._watch.running)
        box.put()

    waiting(box, meanwhile)


def test_without_any_event_the_listing_finds_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryWatch, "keep", lambda self: None)
    monkeypatch.setattr(inbox_module, "LISTING_SECONDS", 0.05)

    async def meanwhile() -> None:
        await until(lambda: bool(box.inbox._wakers))
        box.put()

    waiting(box, meanwhile)


def test_observer_that_died_is_started_again(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SECONDS", 0.05)

    async def meanwhile() -> None:
        await until(lambda: box.inbox._watch is not None and box.inbox._watch.running)
        watch = box.inbox._watch
        assert watch is not None
        first = watch._observer
        assert first is not None
        first.stop()
        await until(lambda: watch._observer is not first and watch.running)
        box.put()

    waiting(box, meanwhile)


def test_directory_moved_away_and_made_again_is_watched_again(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SECONDS", 0.05)

    async def meanwhile() -> None:
        await until(lambda: box.inbox._watch is not None and box.inbox._watch.running)
        watch = box.inbox._watch
        assert watch is not None
        box.directory.rename(box.run.control / "away")
        await until(lambda: not watch.running)
        box.directory.mkdir(mode=0o700)
        await until(lambda: watch.running)
        box.put()

    waiting(box, meanwhile)


def test_two_lanes_wait_at_one_inbox(tmp_path: Path) -> None:
    box = Box(tmp_path)

    async def run() -> None:
        lanes = [asyncio.create_task(box.inbox.wait_for("r1", Leaving())) for _ in range(2)]
        await until(lambda: len(box.inbox._wakers) == 2)
        box.put()
        found = await asyncio.wait_for(asyncio.gather(*lanes), LIMIT_SECONDS)
        assert found[0] == found[1]

    asyncio.run(run())
    box.inbox.close()


def test_moving_junk_away_is_no_event(box: Box, tmp_path: Path) -> None:
    """Else each listing would wake the next one for ever."""
    calls: list[float] = []
    watch = DirectoryWatch(str(box.directory), lambda: calls.append(time.monotonic()))
    watch.keep()
    try:
        box.put(name="junk-1")

        async def arrived() -> None:
            await until(lambda: bool(calls))
            seen = len(calls)
            box.inbox.collect()
            assert not (box.directory / "junk-1").exists()
            # A later arrival's event comes after any that the moving away could have made.
            box.put()
            await until(lambda: len(calls) > seen)
            await asyncio.sleep(0)
            assert len(calls) == seen + 1

        asyncio.run(arrived())
    finally:
        watch.close()
