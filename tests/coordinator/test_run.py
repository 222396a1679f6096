"""`run`: two lanes, refilled, drained after an error or a stop; failures retained; cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coordinator import (
    Completion,
    CompletionResult,
    Permit,
)
from coordinator.errors import RefusedError
from tests.coordinator.calls import (
    QuickCampaign,
    answers,
    completed,
    finish,
    phases,
    raises,
    refused,
    run,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt, completion, scenario
from tests.coordinator.plays import Play, wait_for


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path, "abcde")


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
