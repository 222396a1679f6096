"""`run`: two lanes, refilled, drained after an error or a stop; failures retained; cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import (
    Completion,
    CompletionResult,
    Coordinator,
    CoordinatorError,
    Permit,
    RetainedFailure,
    State,
)
from coordinator.errors import ClosedError, InFlightError, LockLostError, PoisonedError, RefusedError
from tests.coordinator.calls import (
    QuickCampaign,
    abandon,
    answers,
    completed,
    finish,
    launched,
    phases,
    raises,
    refused,
    run,
    snapshot,
    state_of,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt, completion, failing_at, scenario


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path, "abcde")


class Play:
    """The three callbacks, each writing down what happened; `launch` may be replaced."""

    def __init__(self, launch: Callable[[Permit], Awaitable[Any]] | None = None) -> None:
        self.log: list[tuple[str, Any]] = []
        self.failures: list[tuple[Permit | None, BaseException, str]] = []
        self.open = self.most_open = 0
        self._launch = launch

    async def launch_only(self, permit: Permit) -> Any:
        self.log.append(("launch", permit.scenario_id))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if self._launch is not None:
                return await self._launch(permit)
            await asyncio.sleep(0)
            return permit.scenario_id
        finally:
            self.open -= 1

    async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
        self.log.append(("read", (permit.scenario_id, launched_as)))
        return CompletionResult(completion=completion(permit.scenario_id))

    async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
        self.failures.append((permit, error, phase))
        return RetainedFailure(evidence_path=f"failures/{phase}.json", summary=f"{type(error).__name__} kept")

    @property
    def launches(self) -> list[str]:
        return [name for what, name in self.log if what == "launch"]


def drive(c: Coordinator, play: Play) -> Awaitable[State]:
    return c.run(launch_only=play.launch_only, read_completion=play.read_completion, retain_failure=play.retain_failure)


async def wait_for(c: Coordinator, play: Play) -> State:
    return await drive(c, play)


def test_every_selection_is_launched_once_and_completed(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    state = run(wait_for(c, play))
    assert sorted(play.launches) == list("abcde")
    assert phases(state) == dict.fromkeys("abcde", "completed")
    assert (state.stop, state.failures, play.failures) == (None, [], [])
    assert all(campaign.row(name)["outcome"] == "passed" for name in "abcde")
    assert sorted(one for what, one in play.log if what == "read") == [(name, name) for name in "abcde"]
    run(c.close())


@pytest.mark.parametrize("lanes", [1, 2])
def test_at_most_so_many_lanes_are_open(campaign: Campaign, lanes: int) -> None:
    full = asyncio.Event()

    async def launch(permit: Permit) -> str:
        if play.open == lanes:
            full.set()
        await full.wait()  # nobody returns before all lanes were open at once
        await c.snapshot()
        return "x"

    c, play = campaign.open(max_lanes=lanes), Play(launch)
    run(wait_for(c, play))
    assert play.most_open == lanes
    assert sorted(play.launches) == list("abcde")
    run(c.close())


def test_lane_is_refilled_as_soon_as_its_own_completion_is_committed(campaign: Campaign) -> None:
    """While `a` hangs, the other lane plays all the rest."""
    rest_done = asyncio.Event()

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            await rest_done.wait()
        if permit.scenario_id == "e":
            assert phases(c.state) == {
                "a": "launching",
                "b": "completed",
                "c": "completed",
                "d": "completed",
                "e": "launching",
            }
            rest_done.set()
        return permit.scenario_id

    c, play = campaign.open(), Play(launch)
    assert phases(run(wait_for(c, play))) == dict.fromkeys("abcde", "completed")
    run(c.close())


def test_json_form_of_what_the_callbacks_return_is_taken(campaign: Campaign) -> None:
    class Plain(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            if permit.scenario_id == "a":
                return {"completion": completion("a"), "stop": None, "review": None}
            if permit.scenario_id == "b":
                return CompletionResult(completion=Completion(**snake(completion("b"))))
            return {"completion": completion(permit.scenario_id, outcome="odd")}

        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            return {"evidencePath": "kept", "summary": "one line"}

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Plain()))
    assert phases(state) == {"a": "completed", "b": "completed", "c": "launched"}
    assert (state.failures[0].evidence_path, state.failures[0].summary) == ("kept", "one line")
    run(c.close())


def snake(content: dict[str, Any]) -> dict[str, Any]:
    names = {"finishedAt": "finished_at", "definitionDigest": "definition_digest", "graderDigest": "grader_digest"}
    names |= {"evidencePaths": "evidence_paths", "observedFailure": "observed_failure"}
    names |= {"corePrDependencies": "core_pr_dependencies"}
    return {names.get(key, key): value for key, value in content.items()}


# -- errors


@pytest.mark.parametrize("phase", ["reserve", "launch", "completion"])
def test_error_is_retained_recorded_and_stops_the_batch(
    campaign: Campaign, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if phase == "reserve":
        document = campaign.read()
        document["scenarios"][0]["blocker"] = "no"
        campaign.write(document)
    play = Play(raises(ZeroDivisionError("by zero")) if phase == "launch" else None)
    if phase == "completion":

        async def fails(permit: Permit, _: Any) -> Any:
            raise ZeroDivisionError("by zero")

        monkeypatch.setattr(play, "read_completion", fails)
    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, play))
    (permit, error, seen_phase) = play.failures[0]
    assert seen_phase == phase
    assert (permit is None) is (phase == "reserve")
    assert isinstance(error, RefusedError if phase == "reserve" else ZeroDivisionError)
    (failure,) = state.failures
    assert failure.scenario_id == "a"
    assert failure.phase == phase
    assert failure.reservation_id == (permit.reservation_id if permit else None)
    assert failure.evidence_path == f"failures/{phase}.json"
    assert failure.summary.endswith("kept")
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    assert f"failures/{phase}.json" in state.stop.detail
    assert phases(state) == {"reserve": {}, "launch": {"a": "launching"}, "completion": {"a": "launched"}}[phase]
    assert state_of(campaign)["failures"][0]["evidencePath"] == f"failures/{phase}.json"
    run(c.close())


def test_refused_completion_is_a_failure_of_the_phase_completion(campaign: Campaign) -> None:
    class Wrong(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            return CompletionResult(completion=completion(permit.scenario_id, graderDigest="another"))

    c, play = campaign.open(max_lanes=1), Wrong()
    state = run(wait_for(c, play))
    assert [one.phase for one in state.failures] == ["completion"]
    assert play.launches == ["a"]
    run(c.close())


@pytest.mark.parametrize("odd", [None, 7, "done", {}, {"completion": None}, Permit])
def test_read_completion_that_returns_anything_else_is_a_failure(campaign: Campaign, odd: Any) -> None:
    class Odd(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            return odd

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Odd()))
    assert [one.phase for one in state.failures] == ["completion"]
    run(c.close())


def test_error_drains_the_other_lane_and_nothing_more_is_reserved(campaign: Campaign) -> None:
    failed = asyncio.Event()

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            failed.set()
            raise ZeroDivisionError
        await failed.wait()
        return "slow"

    c, play = campaign.open(), Play(launch)
    state = run(wait_for(c, play))
    assert play.launches == ["a", "b"]
    assert phases(state) == {"a": "launching", "b": "completed"}
    run(c.close())


def test_no_lane_reserves_while_an_error_is_being_retained(campaign: Campaign) -> None:
    """The stop is durable only after `retain_failure`: until then the other lane must hold back by itself."""
    other_done, retaining = asyncio.Event(), asyncio.Event()

    class Slow(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            retaining.set()
            await other_done.wait()
            for _ in range(20):
                await c.snapshot()  # many turns of the queue for the other lane to do wrong
            assert c.state.stop is None
            return await super().retain_failure(permit, error, phase)

        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            other_done.set()
            return await super().read_completion(permit, launched_as)

    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            raise ZeroDivisionError
        await retaining.wait()
        return "slow"

    c, play = campaign.open(), Slow(launch)
    state = run(wait_for(c, play))
    assert play.launches == ["a", "b"]
    assert phases(state) == {"a": "launching", "b": "completed"}
    run(c.close())


def test_reservation_that_was_queued_before_the_error_was_seen_is_not_made(campaign: Campaign) -> None:
    """Lane 2 asks for `c` and waits its turn; meanwhile lane 1 fails; then the turn comes."""
    gate, at_gate = asyncio.Event(), asyncio.Event()
    b_launched = asyncio.Event()
    hold = False

    async def fault(stage: str) -> None:
        if hold and stage == "state":
            at_gate.set()
            await gate.wait()

    async def launch(permit: Permit) -> str:
        nonlocal hold
        if permit.scenario_id == "a":
            await at_gate.wait()  # b's completion is in its commit; its lane will ask for c next
            raise ZeroDivisionError
        b_launched.set()
        return "b"

    class Watched(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            nonlocal hold
            hold = True
            return await super().read_completion(permit, launched_as)

        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            gate.set()
            return await super().retain_failure(permit, error, phase)

    c, play = campaign.open(fault=fault), Watched(launch)
    state = run(wait_for(c, play))
    assert phases(state) == {"a": "launching", "b": "completed"}
    run(c.close())


def test_both_lanes_may_fail(campaign: Campaign) -> None:
    c, play = campaign.open(), Play(raises(ZeroDivisionError()))
    state = run(wait_for(c, play))
    assert sorted(str(one.scenario_id) for one in state.failures) == ["a", "b"]
    assert state.stop is not None
    assert [one.reason for one in state.later_stops] == ["coordinator_failure"]
    run(c.close())


def test_failing_retain_failure_is_recorded_with_both_messages(campaign: Campaign) -> None:
    class Broken(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            raise OSError("disk is full")

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Broken(raises(ZeroDivisionError("by zero")))))
    (failure,) = state.failures
    assert failure.evidence_path is None
    assert "by zero" in failure.summary
    assert "disk is full" in failure.summary
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    run(c.close())


@pytest.mark.parametrize("odd", [None, "path", {}, {"summary": 7}, {"evidencePath": "\udc80", "summary": "x"}])
def test_retain_failure_that_returns_anything_else_loses_no_failure(campaign: Campaign, odd: Any) -> None:
    class Odd(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            return odd

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Odd(raises(ZeroDivisionError("by zero")))))
    assert state.failures[0].evidence_path is None
    assert "by zero" in state.failures[0].summary
    assert "retain_failure" in state.failures[0].summary
    run(c.close())


@pytest.mark.parametrize("text", ["bad name \udcff\udcfe", "lines\nand\nlines", "x" * 100_000, "\x00\x1b[31m"])
def test_error_text_of_any_kind_is_recorded(campaign: Campaign, text: str) -> None:
    class Broken(Play):
        async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
            raise OSError(text)

    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, Broken(raises(ZeroDivisionError(text)))))
    assert len(state.failures) == 1
    assert len(state.failures[0].summary) < 10_000
    run(c.close())
    run(campaign.open().close())  # and what was written can be read


def test_base_exceptions_of_a_launcher_are_not_taken_for_failures(campaign: Campaign) -> None:
    class Leave(BaseException):
        pass

    async def leaves(_: Permit) -> None:
        raise Leave

    c, play = campaign.open(max_lanes=1), Play(leaves)
    with pytest.raises(Leave):
        run(wait_for(c, play))
    assert snapshot(c).failures == []
    run(c.close())


@pytest.mark.parametrize("phase", ["launch", "completion"])
def test_cancellation_that_a_callback_met_is_an_error_as_any(
    campaign: Campaign, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits_for_a_cancelled_task(*_: Any) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    play = Play(waits_for_a_cancelled_task if phase == "launch" else None)
    if phase == "completion":
        monkeypatch.setattr(play, "read_completion", waits_for_a_cancelled_task)
    c = campaign.open(max_lanes=1)
    state = run(wait_for(c, play))
    assert [one.phase for one in state.failures] == [phase]
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    assert play.launches == ["a"]
    run(c.close())


# -- stops


def test_stop_from_outside_drains_and_is_no_failure(campaign: Campaign) -> None:
    async def launch(permit: Permit) -> str:
        if permit.scenario_id == "a":
            await c.stop("operator_request", "enough")
        return "x"

    c, play = campaign.open(), Play(launch)
    state = run(wait_for(c, play))
    assert state.failures == []
    assert state.stop is not None
    assert state.stop.reason == "operator_request"
    assert set(phases(state)) <= {"a", "b"}
    assert phases(state)["a"] == "completed"
    run(c.close())


def test_stop_that_comes_with_a_completion_ends_the_run(campaign: Campaign) -> None:
    class Leaks(Play):
        async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
            return CompletionResult(
                completion=completion(permit.scenario_id), stop={"reason": "secret_leak", "detail": "token in a log"}
            )

    c, play = campaign.open(max_lanes=1), Leaks()
    state = run(wait_for(c, play))
    assert play.launches == ["a"]
    assert state.stop is not None
    assert (state.stop.reason, state.failures) == ("secret_leak", [])
    run(c.close())


def test_stopped_batch_runs_nothing(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    run(c.stop("budget_exceeded", "x"))
    with untouched(campaign.path):
        state = run(wait_for(c, play))
    assert (play.launches, state.failures) == ([], [])
    run(c.close())


def test_stop_between_reservation_and_launch_leaves_the_reservation(campaign: Campaign) -> None:
    stopped = False

    async def fault(stage: str) -> None:
        nonlocal stopped
        if stage == "state" and not stopped:
            stopped = True
            asyncio.ensure_future(c.stop("operator_request", "now"))  # noqa: RUF006  queued behind this commit
            await asyncio.sleep(0)

    c, play = campaign.open(max_lanes=1, fault=fault), Play()
    state = run(wait_for(c, play))
    assert (play.launches, state.failures, phases(state)) == ([], [], {"a": "reserved"})
    run(c.close())


# -- resuming


@pytest.mark.parametrize("launcher_raised", [False, True])
def test_uncertain_entries_are_refused_before_anything_is_reserved(campaign: Campaign, launcher_raised: bool) -> None:
    c, play = campaign.open(), Play()
    permit = run(c.reserve("b"))
    if launcher_raised:
        with pytest.raises(ZeroDivisionError):
            run(c.launch_once(permit, raises(ZeroDivisionError())))
    else:
        run(c.launch_once(permit, answers))
    with untouched(campaign.path, campaign.control / "state.json"), refused(permit.reservation_id, RefusedError):
        run(wait_for(c, play))
    assert play.log == []
    run(finish(c, permit))
    assert phases(run(wait_for(c, play))) == dict.fromkeys("abcde", "completed")
    run(c.close())


def test_completed_entries_are_not_launched_again(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "b"))
    run(completed(c, "d"))
    run(c.close())
    c, play = campaign.open(), Play()
    assert phases(run(wait_for(c, play))) == dict.fromkeys("abcde", "completed")
    assert sorted(play.launches) == ["a", "c", "e"]
    assert phases(run(wait_for(c, play))) == dict.fromkeys("abcde", "completed")
    assert len(play.launches) == 3
    run(c.close())


@pytest.mark.parametrize("names", ["a", "e", "de", "ce"])
def test_reserved_never_launched_entries_are_launched_when_a_closed_batch_is_resumed(
    campaign: Campaign, names: str
) -> None:
    c = campaign.open()
    permits = [run(c.reserve(name)) for name in names]
    run(c.close())
    c, play = campaign.open(), Play()
    state = run(wait_for(c, play))
    assert state.failures == []
    assert phases(state) == dict.fromkeys("abcde", "completed")
    assert len(play.launches) == 5
    assert {permit.reservation_id for permit in permits} <= set(state.entries)
    run(c.close())


def test_running_row_of_another_batch_leaves_one_lane(campaign: Campaign) -> None:
    document = campaign.read()
    document["scenarios"].append(scenario("x", attempts=[attempt("x")]))
    campaign.write(document)
    c, play = campaign.open(), Play()
    state = run(wait_for(c, play))
    assert (play.most_open, state.failures) == (1, [])
    assert phases(state) == dict.fromkeys("abcde", "completed")
    run(c.close())


# -- one run at a time, closing, poison


def test_second_run_and_close_are_in_flight(campaign: Campaign) -> None:
    async def launch(permit: Permit) -> str:
        with refused("in flight", InFlightError):
            await c.close()
        with refused("in flight", InFlightError):
            await wait_for(c, Play())
        return "x"

    c, play = campaign.open(), Play(launch)
    assert run(wait_for(c, play)).failures == []
    run(c.close())


def test_two_runs_started_together_are_one(campaign: Campaign) -> None:
    c, first, second = campaign.open(), Play(), Play()

    async def both() -> list[Any]:
        return list(await asyncio.gather(wait_for(c, first), wait_for(c, second), return_exceptions=True))

    one, other = run(both())
    assert isinstance(one, State)
    assert isinstance(other, InFlightError)
    assert (len(first.launches), second.log) == (5, [])
    run(c.close())


def test_poisoned_run_raises_at_once(campaign: Campaign) -> None:
    c, play = campaign.open(fault=failing_at("manifest", ZeroDivisionError())), Play()
    with pytest.raises(ZeroDivisionError):
        run(c.reserve("a"))
    with pytest.raises(PoisonedError):
        run(wait_for(c, play))
    assert play.log == []


def test_commit_that_does_not_end_raises_out_of_run_with_the_lock_kept(campaign: Campaign) -> None:
    commits = 0

    def fault(stage: str) -> None:
        nonlocal commits
        commits += stage == "state"
        if commits == 3:
            raise ZeroDivisionError("fault")

    c, play = campaign.open(fault=fault), Play()
    with pytest.raises(ZeroDivisionError, match="fault"):
        run(wait_for(c, play))
    assert play.failures == []  # the disk decides, not a callback
    assert campaign.lock.exists()
    with pytest.raises(PoisonedError):
        run(c.close())


def test_run_whose_lock_is_lost_launches_no_more(campaign: Campaign) -> None:
    async def launch(permit: Permit) -> str:
        if campaign.lock.exists():
            abandon(campaign)
        return "x"

    c, play = campaign.open(max_lanes=1), Play(launch)
    with pytest.raises(LockLostError):
        run(wait_for(c, play))
    assert play.launches == ["a"]
    assert campaign.row("a")["outcome"] == "running"


def test_closed_coordinator_does_not_run(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    run(c.close())
    with pytest.raises(ClosedError):
        run(wait_for(c, play))
    assert play.log == []


# -- cancelling


async def cancel_when_both_play(c: Coordinator, play: Play, both: asyncio.Event, cancels: int = 1) -> None:
    task = asyncio.ensure_future(drive(c, play))
    await both.wait()
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_cancelled_run_records_canceled_and_leaves_its_entries(campaign: Campaign, cancels: int) -> None:
    both = asyncio.Event()

    async def hangs(permit: Permit) -> None:
        if permit.scenario_id == "b":
            both.set()
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)
    run(cancel_when_both_play(c, play, both, cancels))
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, state.failures) == ("canceled", [])
    assert phases(state) == {"a": "launching", "b": "launching"}
    assert (campaign.row("a")["outcome"], campaign.row("b")["outcome"]) == ("running", "running")
    run(c.close())


def test_cancelled_run_waits_for_no_launcher(campaign: Campaign) -> None:
    """A launcher that swallows its cancellation neither holds the run up nor changes its entry afterwards."""
    both, release = asyncio.Event(), asyncio.Event()

    async def stubborn(permit: Permit) -> str:
        if permit.scenario_id == "b":
            both.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    c, play = campaign.open(), Play(stubborn)

    async def scenario_of_it() -> None:
        await cancel_when_both_play(c, play, both)
        with refused("in flight", InFlightError):
            await c.close()
        release.set()
        while c._launching or (c._run is not None and c._run.open_lanes):
            await c.snapshot()

    run(scenario_of_it())
    state = snapshot(c)
    assert set(phases(state).values()) <= {"launching", "launched"}
    assert [what for what, _ in play.log] == ["launch", "launch"]  # no completion was read
    assert (campaign.row("a")["outcome"], state.failures) == ("running", [])
    run(c.close())


def test_run_cancelled_before_its_first_step_of_work_records_canceled(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()

    async def cancelled() -> None:
        task = asyncio.ensure_future(drive(c, play))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    state = snapshot(c)
    assert state.stop is not None
    assert state.stop.reason == "canceled"
    assert play.launches == []
    run(c.close())


def test_canceled_stands_beside_an_earlier_stop(campaign: Campaign) -> None:
    both = asyncio.Event()

    async def hangs(permit: Permit) -> None:
        if permit.scenario_id == "b":
            await c.stop("operator_request", "first")
            both.set()
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)
    run(cancel_when_both_play(c, play, both))
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, [one.reason for one in state.later_stops]) == ("operator_request", ["canceled"])
    run(c.close())


def test_run_ends_with_timeouts_of_its_caller(campaign: Campaign) -> None:
    async def hangs(_: Permit) -> None:
        await asyncio.Event().wait()

    c, play = campaign.open(), Play(hangs)

    async def limited() -> None:
        async with asyncio.timeout(0.05):
            await drive(c, play)

    with pytest.raises(TimeoutError):
        run(limited())
    assert (stop := snapshot(c).stop) is not None
    assert stop.reason == "canceled"
    run(c.close())


def test_events_tell_people_what_happened(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    run(wait_for(c, play))
    run(c.close())
    events = [json.loads(line)["event"] for line in (campaign.control / "events.jsonl").read_text().splitlines()]
    assert events[0] == "opened"
    assert events[-1] == "closed"
    assert [events.count(what) for what in ("reserved", "launching", "launched", "completed")] == [5, 5, 5, 5]


def test_retained_failure_struct_is_what_the_state_keeps(campaign: Campaign) -> None:
    c = campaign.open(max_lanes=1)
    run(wait_for(c, Play(raises(CoordinatorError("mine")))))
    run(c.close())
    state = snapshot(c := campaign.open())
    assert state.failures[0].evidence_path == "failures/launch.json"
    run(c.close())


def test_launched_by_hand_then_run_completes_the_rest(campaign: Campaign) -> None:
    c, play = campaign.open(), Play()
    permit = run(launched(c, "c"))
    run(finish(c, permit, outcome="failed"))
    state = run(wait_for(c, play))
    assert sorted(play.launches) == ["a", "b", "d", "e"]
    assert phases(state)["c"] == "completed"
    run(c.close())
