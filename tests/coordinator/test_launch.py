"""`launch_once`: judged permit, stop, row; durable before it is called; called at most once, ever."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import CoordinatorError, Permit
from coordinator.documents import sha256
from coordinator.errors import LockLostError, NotAdmissibleError, ReservedAttemptChangedError, StoppedError
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    abandon,
    answers,
    completed,
    finish,
    launched,
    phases,
    raises,
    refused,
    returns,
    run,
    snapshot,
    state_of,
    untouched,
)
from tests.coordinator.campaign import Campaign
from tests.coordinator.plays import ROW_EDITS, changed_permits


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


class Counted:
    """A launcher that counts its calls."""

    def __init__(self) -> None:
        self.permits: list[Permit] = []

    async def __call__(self, permit: Permit) -> str:
        self.permits.append(permit)
        return "result"


def test_launcher_gets_the_permit_and_its_result_comes_back(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    assert run(c.launch_once(permit, launcher)) == "result"
    assert launcher.permits == [permit]
    assert phases(snapshot(c)) == {"a": "launched"}
    run(c.close())


@pytest.mark.parametrize("result", [None, 0, "", b"x", object(), [1]])
def test_launcher_may_return_anything(campaign: Campaign, result: object) -> None:
    c = campaign.open()
    assert run(c.launch_once(run(c.reserve("a")), returns(result))) is result
    run(c.close())


def test_launching_and_claim_are_durable_before_the_launcher_is_called(campaign: Campaign) -> None:
    seen: dict[str, Any] = {}

    async def look(permit: Permit) -> None:
        claim = campaign.claims / permit.reservation_id
        seen["phase"] = state_of(campaign)["entries"][permit.reservation_id]["phase"]
        seen["claim"] = msgspec.json.decode(claim.read_bytes())
        seen["mode"] = stat.S_IMODE(claim.stat().st_mode)

    c = campaign.open()
    permit = run(c.reserve("a"))
    assert list(campaign.claims.iterdir()) == []
    run(c.launch_once(permit, look))
    assert (seen["phase"], seen["mode"]) == ("launching", 0o600)
    assert seen["claim"]["reservationId"] == permit.reservation_id
    assert seen["claim"]["controlDirectory"] == str(campaign.control)
    assert (seen["claim"]["batchId"], seen["claim"]["executionId"]) == ("batch-1", "run-a")
    run(c.close())


def test_job_file_is_durable_before_launching_and_its_hash_is_in_the_entry(campaign: Campaign) -> None:
    order: list[str] = []

    def job(permit: Permit) -> bytes:
        order.append(state_of(campaign)["entries"][permit.reservation_id]["phase"])
        return b'{"key": "secret"}\n'

    async def look(permit: Permit) -> None:
        path = campaign.control / "jobs" / f"{permit.reservation_id}.json"
        order.append(state_of(campaign)["entries"][permit.reservation_id]["jobSha256"])
        order.append(sha256(path.read_bytes()))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    c = campaign.open()
    run(c.launch_once(run(c.reserve("a")), look, job=job))
    wanted = sha256(b'{"key": "secret"}\n')
    assert order == ["reserved", wanted, wanted]
    run(c.close())


def test_job_that_cannot_be_made_leaves_the_reservation(campaign: Campaign) -> None:
    def job(_: Permit) -> bytes:
        raise ZeroDivisionError

    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    with untouched(campaign.control / "state.json"), pytest.raises(ZeroDivisionError):
        run(c.launch_once(permit, launcher, job=job))
    assert run(c.launch_once(permit, launcher)) == "result"
    run(c.close())


def test_permit_that_differs_in_any_field_is_not_admissible(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    changed = changed_permits(permit)
    assert len(changed) > 40

    async def try_all() -> None:
        for one in changed:
            with refused("not admissible", NotAdmissibleError):
                await c.launch_once(one, launcher)

    with untouched(campaign.path, campaign.control / "state.json"):
        run(try_all())
    assert launcher.permits == []
    assert run(c.launch_once(msgspec.to_builtins(permit), launcher)) == "result"  # the JSON form of the right one
    assert launcher.permits == [permit]
    run(c.close())


def test_second_launch_is_not_admissible(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    run(c.launch_once(permit, launcher))
    for _ in range(2):
        with untouched(campaign.control / "state.json"), refused("not admissible", NotAdmissibleError):
            run(c.launch_once(permit, launcher))
    run(finish(c, permit))
    with refused("not admissible", NotAdmissibleError):
        run(c.launch_once(permit, launcher))
    assert len(launcher.permits) == 1
    run(c.close())


def test_launch_before_a_restart_is_not_admissible_after_it(campaign: Campaign) -> None:
    c = campaign.open()
    dead, ended = run(c.reserve("a")), run(completed(c, "b"))
    with pytest.raises(ZeroDivisionError):
        run(c.launch_once(dead, raises(ZeroDivisionError())))
    run(c.close())
    c, launcher = campaign.open(), Counted()
    for permit in (dead, ended):
        with refused("not admissible", NotAdmissibleError):
            run(c.launch_once(permit, launcher))
    assert launcher.permits == []
    run(c.close())


def test_two_launches_at_once_call_one_launcher(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()

    async def both() -> list[Any]:
        permit = await c.reserve("a")
        return await asyncio.gather(*(c.launch_once(permit, launcher) for _ in range(5)), return_exceptions=True)

    answers_found = run(both())
    assert answers_found[0] == "result"
    assert all(isinstance(one, NotAdmissibleError) for one in answers_found[1:])
    assert len(launcher.permits) == 1
    run(c.close())


def test_claim_made_by_anybody_makes_the_launch_not_admissible(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    (campaign.claims / permit.reservation_id).symlink_to("nowhere")
    with untouched(campaign.control / "state.json"), refused("not admissible", NotAdmissibleError):
        run(c.launch_once(permit, launcher))
    assert launcher.permits == []
    (campaign.claims / permit.reservation_id).unlink()
    run(c.close())


def test_stop_is_judged_after_the_permit_and_before_the_row(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    first, second = run(launched(c, "a")), run(c.reserve("b"))
    run(c.stop("operator_request", "enough"))
    document = campaign.read()
    document["scenarios"][1]["attempts"][0]["profile"] = "edited"
    campaign.write(document)
    with refused("not admissible", NotAdmissibleError):
        run(c.launch_once(first, launcher))
    with refused("stopped", StoppedError):
        run(c.launch_once(second, launcher))
    assert launcher.permits == []
    run(c.close())


@pytest.mark.parametrize("edit", ROW_EDITS)
def test_edited_row_is_not_launched(campaign: Campaign, edit: dict[str, Any]) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    good = campaign.read()
    document = campaign.read()
    document["scenarios"][0]["attempts"][0].update(edit)
    campaign.write(document)
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("Reserved attempt changed", ReservedAttemptChangedError),
    ):
        run(c.launch_once(permit, launcher))
    campaign.write(good)
    assert run(c.launch_once(permit, launcher)) == "result"
    run(c.close())


@pytest.mark.parametrize("key", ["profile", "usage", "model"])
def test_row_with_a_key_less_is_not_launched(campaign: Campaign, key: str) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    document = campaign.read()
    del document["scenarios"][0]["attempts"][0][key]
    campaign.write(document)
    with refused("Reserved attempt changed", ReservedAttemptChangedError):
        run(c.launch_once(permit, launcher))
    run(c.close())


@pytest.mark.parametrize("gone", ["row", "scenario"])
def test_row_that_is_gone_is_not_launched(campaign: Campaign, gone: str) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    document = campaign.read()
    if gone == "row":
        document["scenarios"][0]["attempts"] = []
    else:
        del document["scenarios"][0]
    campaign.write(document)
    with refused("Reserved attempt changed", ReservedAttemptChangedError):
        run(c.launch_once(permit, launcher))
    assert launcher.permits == []
    run(c.close())


@pytest.mark.parametrize("error", [ZeroDivisionError("0"), KeyError("k"), OSError(5, "io"), CoordinatorError("mine")])
def test_what_a_launcher_raises_reaches_the_caller_unchanged(campaign: Campaign, error: Exception) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    with pytest.raises(type(error)) as caught:
        run(c.launch_once(permit, raises(error)))
    assert caught.value is error
    assert phases(snapshot(c)) == {"a": "launching"}
    run(finish(c, permit, outcome="failed"))  # it can be completed all the same
    run(c.close())


def test_cancelled_launcher_leaves_launching_and_may_be_closed(campaign: Campaign) -> None:
    c = campaign.open()

    async def cancelled() -> None:
        started = asyncio.Event()

        async def waits(_: Permit) -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(c.launch_once(await c.reserve("a"), waits))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert phases(snapshot(c)) == {"a": "launching"}
    run(c.close())


def test_caller_cancelled_while_the_launch_is_begun_never_calls_the_launcher(campaign: Campaign) -> None:
    class Impatient(Unsynced):
        """Cancels the caller at the moment at which the claim is made."""

        task: asyncio.Task[Any] | None = None

        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            if self.task is not None:
                self.task.cancel()

    operations, launcher = Impatient(), Counted()
    c = campaign.open(operations)

    async def cancelled() -> Permit:
        permit = await c.reserve("a")
        operations.task = asyncio.create_task(c.launch_once(permit, launcher))
        with pytest.raises(asyncio.CancelledError):
            await operations.task
        return permit

    permit = run(cancelled())
    assert launcher.permits == []
    assert phases(snapshot(c)) == {"a": "launching"}  # begun, so finished; never to be launched again
    assert (campaign.claims / permit.reservation_id).exists()
    run(c.close())  # nothing is in flight


def test_lock_is_read_again_before_a_launch(campaign: Campaign) -> None:
    c, launcher = campaign.open(), Counted()
    permit = run(c.reserve("a"))
    abandon(campaign)
    with untouched(campaign.path, campaign.control / "state.json"), refused("lock lost", LockLostError):
        run(c.launch_once(permit, launcher))
    assert launcher.permits == []
    assert not (campaign.claims / permit.reservation_id).exists()


def test_lock_lost_between_launching_and_claim_calls_no_launcher(campaign: Campaign) -> None:
    """Somebody recovered while `launching` was written: what was written then is seen by them as uncertain."""

    class Recovered(Unsynced):
        armed = False

        def sync_directory(self, path: str) -> None:
            super().sync_directory(path)
            if self.armed and path == str(campaign.control):
                campaign.lock.unlink()

    operations, launcher = Recovered(), Counted()
    c = campaign.open(operations)
    permit = run(c.reserve("a"))
    operations.armed = True
    with refused("lock lost", LockLostError):
        run(c.launch_once(permit, launcher))
    assert launcher.permits == []
    assert state_of(campaign)["entries"][permit.reservation_id]["phase"] == "launching"
    assert not (campaign.claims / permit.reservation_id).exists()


def test_launcher_runs_outside_the_queue(campaign: Campaign) -> None:
    c = campaign.open()

    async def uses_the_coordinator(permit: Permit) -> str:
        other = await c.reserve("b")
        await c.launch_once(other, answers)
        await finish(c, other)
        return (await c.reserve("c")).scenario_id

    assert run(c.launch_once(run(c.reserve("a")), uses_the_coordinator)) == "c"
    run(c.close())


def test_launcher_may_complete_its_own_attempt(campaign: Campaign) -> None:
    c = campaign.open()

    async def completes(permit: Permit) -> None:
        await finish(c, permit)

    run(c.launch_once(run(c.reserve("a")), completes))
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


def test_claims_are_never_deleted(campaign: Campaign) -> None:
    c = campaign.open()
    permits = [run(completed(c, name)) for name in "abc"]
    run(c.close())
    run(campaign.open().close())
    assert sorted(one.name for one in campaign.claims.iterdir()) == sorted(one.reservation_id for one in permits)
    assert stat.S_IMODE(campaign.claims.stat().st_mode) == 0o700
