"""Poison, the crash seam, closing, and clocks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator import CoordinatorError, Permit
from coordinator.errors import ClosedError, InFlightError, PoisonedError
from tests.coordinator.calls import (
    QuickCampaign,
    answers,
    completed,
    finish,
    launched,
    refused,
    run,
    snapshot,
    state_of,
    untouched,
)
from tests.coordinator.campaign import Campaign, failing_at
from tests.coordinator.plays import Gate


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- poison and closing


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
@pytest.mark.parametrize("error", [ZeroDivisionError("x"), OSError(5, "io"), CoordinatorError("x")])
def test_what_fault_raises_reaches_the_caller_and_poisons(campaign: Campaign, stage: str, error: Exception) -> None:
    c = campaign.open(fault=failing_at(stage, error))
    with pytest.raises(type(error)) as caught:
        run(c.reserve("a"))
    assert caught.value is error
    pending = (campaign.control / "pending.json").read_bytes()
    with untouched(campaign.path, campaign.control / "state.json", campaign.lock):
        for call in (
            c.reserve("b"),
            c.stop("canceled", "x"),
            c.snapshot(),
            c.close(),
            c.run(launch_only=answers, read_completion=None, retain_failure=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(PoisonedError):
                run(call)
    assert (campaign.control / "pending.json").read_bytes() == pending
    running = sum(len(one["attempts"]) for one in campaign.read()["scenarios"])
    assert running == (0 if stage == "intent" else 1)
    assert len(state_of(campaign)["entries"]) == (1 if stage == "state" else 0)


def test_async_fault_is_awaited_at_each_stage_of_each_commit(campaign: Campaign) -> None:
    gate = Gate("never")
    c = campaign.open(fault=gate)
    permit = run(c.reserve("a"))
    assert gate.log == ["intent", "manifest", "state"]
    run(c.launch_once(permit, answers))
    run(c.stop("operator_request", "x"))
    assert len(gate.log) == 3  # changes of the state alone have no seam
    run(finish(c, permit))
    assert gate.log == ["intent", "manifest", "state"] * 2
    run(c.close())
    assert len(gate.log) == 6


def test_fault_is_called_right_after_its_file_became_durable(campaign: Campaign) -> None:
    seen: list[tuple[bool, int, int]] = []

    def fault(_: str) -> None:
        pending = (campaign.control / "pending.json").exists()
        rows = len(campaign.read()["scenarios"][0]["attempts"])
        seen.append((pending, rows, len(state_of(campaign)["entries"])))

    c = campaign.open(fault=fault)
    run(c.reserve("a"))
    assert seen == [(True, 0, 0), (True, 1, 0), (True, 1, 1)]
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


def test_every_call_after_close_raises(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    run(c.close())
    with untouched(campaign.path, campaign.control / "state.json"):
        for call in (
            c.reserve("b"),
            c.launch_once(permit, answers),
            finish(c, permit),
            c.stop("canceled", "x"),
            c.snapshot(),
            c.run(launch_only=answers, read_completion=None, retain_failure=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(ClosedError):
                run(call)


def test_second_close_does_nothing(campaign: Campaign) -> None:
    c = campaign.open()

    async def together() -> None:
        await asyncio.gather(c.close(), c.close(), c.close())

    run(together())
    other = campaign.open()
    with untouched(campaign.lock, campaign.control / "state.json"):
        run(c.close())
    run(other.close())


def test_close_is_allowed_with_reserved_and_uncertain_entries(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(launched(c, "b"))
    run(c.close())
    assert not campaign.lock.exists()
    assert state_of(campaign)["owner"] is None
    assert sorted(one["phase"] for one in state_of(campaign)["entries"].values()) == ["launched", "reserved"]


def test_close_raises_in_flight_while_a_launcher_has_not_returned(campaign: Campaign) -> None:
    c = campaign.open()

    async def closes(_: Permit) -> None:
        with refused("in flight", InFlightError):
            await c.close()

    run(c.launch_once(run(c.reserve("a")), closes))
    run(c.close())


def test_close_raises_in_flight_while_a_worker_lives(campaign: Campaign) -> None:
    class Worker:
        alive = True

    c, worker = campaign.open(), Worker()
    c.track(worker)
    with untouched(campaign.control / "state.json"), refused("in flight", InFlightError):
        run(c.close())
    run(c.reserve("a"))  # still usable
    worker.alive = False
    run(c.close())
    assert not campaign.lock.exists()


@pytest.mark.parametrize("times", ["backwards", "frozen", "a day ahead", "empty", "no time at all"])
def test_clocks_are_never_compared(campaign: Campaign, times: str) -> None:
    count = 0

    def now() -> str:
        nonlocal count
        count += 1
        return {
            "backwards": f"2026-01-01T00:00:{59 - count % 60:02d}.000Z",
            "frozen": "2026-01-01T00:00:00.000Z",
            "a day ahead": f"2099-01-{1 + count % 28:02d}T00:00:00.000Z",
            "empty": "",
            "no time at all": "half past nine",
        }[times]

    c = campaign.open(now=now)
    run(completed(c, "a"))
    run(c.close())
    c = campaign.open(now=now)
    assert snapshot(c).stop is None
    run(completed(c, "b"))
    run(c.close())


def test_times_are_utc_with_milliseconds_without_a_given_clock(campaign: Campaign) -> None:
    c = campaign.open(now=None)
    run(c.reserve("a"))
    text = campaign.row("a")["startedAt"]
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert (text[4], text[10], text[19], text[-1]) == ("-", "T", ".", "Z")
    run(c.close())
