"""The deciding parts alone: quotes, plans and what a purchase needs next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.journal import Journal
from coordinator.quote import (
    PlanMismatchError,
    PriceError,
    QuoteError,
    assign_runs,
    judge_pack,
    judge_price,
    judge_quote,
    judge_simulation_quote,
    make_request,
)
from coordinator.results import Standing, kind_of
from coordinator.service.wire import (
    BreakdownRow,
    Estimate,
    EstimateRequest,
    Job,
    JobRun,
    JobState,
    Pack,
    Price,
    Routing,
)
from coordinator.steps import exit_of_job, may_send_again, next_step
from coordinator.uploads import is_allowed
from tests.purchase.table import SCENARIOS, result, scenario

ASKED = EstimateRequest(
    modules=["persona_playtest"], personas=["newcomer", "explorer"], run_length="long", controllers=["standard", "rune"]
)
QUOTE = Estimate(
    ok=True,
    estimate_cents=40,
    balance_cents=100,
    breakdown=[BreakdownRow(unit="persona_run", count=4, unit_cents=10)],
    persona_run_count=4,
    run_length="long",
    controllers=["standard", "rune"],
)
SIMULATION = Estimate(
    ok=True,
    estimate_cents=40,
    balance_cents=100,
    breakdown=[BreakdownRow(unit="playtest_run", count=1, unit_cents=40)],
    persona_run_count=0,
    run_length="standard",
    execution_mode="direct_command_batch",
    simulation_limits={"wall_seconds": 900},
)


def test_quote_of_exactly_the_plan_is_accepted() -> None:
    assert judge_quote(QUOTE, ASKED, is_embedded=False) is QUOTE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ok": False}, "does not offer it"),
        ({"persona_run_count": 3}, "counts 3 runs, the plan has 4"),
        ({"run_length": "standard"}, "for a 'standard' run, not a 'long' one"),
        ({"controllers": ["rune", "standard"]}, "repeats the controllers"),
        ({"controllers": None}, "repeats the controllers"),
        ({"estimate_cents": -1}, "estimate_cents is -1"),
        ({"estimate_cents": 0}, "price of 0 is only ever accepted from the embedded service"),
        ({"breakdown": [BreakdownRow(unit="persona_run", count=2, unit_cents=10)]}, "breakdown counts 2 runs"),
    ],
)
def test_quote_of_anything_else_is_refused_with_its_fault(change: dict[str, Any], words: str) -> None:
    with pytest.raises(QuoteError) as refused:
        judge_quote(msgspec.structs.replace(QUOTE, **change), ASKED, is_embedded=False)
    assert words in str(refused.value)
    assert len(refused.value.faults) == 1


def test_free_quote_is_accepted_from_the_embedded_service() -> None:
    free = msgspec.structs.replace(QUOTE, estimate_cents=0)
    assert judge_quote(free, ASKED, is_embedded=True) is free


def test_simulation_quote_is_one_unit_at_its_total_with_mode_and_limits() -> None:
    assert judge_simulation_quote(SIMULATION, is_embedded=False) is SIMULATION


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimate_cents": 0}, "a positive whole number is needed"),
        ({"breakdown": [BreakdownRow(unit="playtest_run", count=2, unit_cents=20)]}, "not exactly one playtest_run"),
        ({"breakdown": [BreakdownRow(unit="game", count=1, unit_cents=40)]}, "not exactly one playtest_run"),
        ({"breakdown": [BreakdownRow(unit="playtest_run", count=1, unit_cents=39)]}, "the unit costs 39 cents"),
        ({"execution_mode": None}, "execution mode is None"),
        ({"simulation_limits": None}, "does not state its limits"),
    ],
)
def test_simulation_quote_of_anything_else_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(QuoteError, match=words):
        judge_simulation_quote(msgspec.structs.replace(SIMULATION, **change), is_embedded=False)


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        (Routing(max_personas=3, controller_plans=True), ["4 runs are asked for; this service plays at most 3"]),
        (Routing(max_personas=4, controller_plans=True), []),
        (Routing(), ["takes no plan of controllers"]),
        (Routing(controller_plans=True, action_controllers=["standard"]), ["does not have the controllers rune"]),
        (Routing(controller_plans=True), []),
    ],
)
def test_pack_is_judged_by_all_runs_and_a_limit_it_does_not_tell_is_none(routing: Routing, words: list[str]) -> None:
    found = judge_pack(Pack(personas=["newcomer", "explorer"], routing=routing), ASKED)
    assert len(found) == len(words)
    assert all(word in fault for word, fault in zip(words, found, strict=True))


def test_price_above_balance_limit_or_what_was_accepted_is_refused() -> None:
    judge_price(40, balance_cents=40, max_price=400_000, accepted_cents=40)
    for limits in ({"balance_cents": 39, "max_price": None}, {"balance_cents": 99, "max_price": 399_999}):
        with pytest.raises(PriceError):
            judge_price(40, **limits)
    with pytest.raises(PriceError, match=r"has risen from \$0.39"):
        judge_price(40, balance_cents=99, max_price=None, accepted_cents=39)


def job(*pairs: tuple[str, str | None]) -> Job:
    runs = [
        JobRun(run_id=f"r{number}", module="persona_playtest", state="queued", persona=persona, controller=controller)
        for number, (persona, controller) in enumerate(pairs)
    ]
    return Job(job_id="job-1", replayed=False, price=Price(price_cents=20), runs=runs)


def test_rows_in_any_order_are_the_plan_s_and_rows_without_a_controller_are_standard() -> None:
    assert assign_runs(job(("explorer", None), ("newcomer", "standard")), SCENARIOS) == {
        "game.newcomer.standard.1": "r1",
        "game.explorer.standard.1": "r0",
    }


@pytest.mark.parametrize(
    "pairs",
    [
        [("newcomer", "standard")],
        [("newcomer", "standard"), ("newcomer", "standard")],
        [("newcomer", "standard"), ("explorer", "rune")],
        [("newcomer", "standard"), ("explorer", "standard"), ("explorer", "standard")],
        [],
    ],
)
def test_rows_that_are_not_the_plan_s_as_a_multiset_are_refused(pairs: list[tuple[str, str | None]]) -> None:
    with pytest.raises(PlanMismatchError, match="nothing was launched"):
        assign_runs(job(*pairs), SCENARIOS)


def test_controllers_are_asked_for_only_when_they_were_chosen_and_targets_are_repetitions() -> None:
    runs = [scenario("newcomer", "standard", 1), scenario("newcomer", "standard", 2)]
    plain = make_request(runs, run_length="standard", controllers_chosen=False)
    assert (plain.controllers, plain.repetitions) == (None, 2)
    assert make_request(runs, run_length="standard", controllers_chosen=True).controllers == ["standard"]


# -- next


def journal(state: str = "registered", answered: tuple[str, ...] = ()) -> Journal:
    runs = {one["id"]: f"run-{number}" for number, one in enumerate(SCENARIOS)}
    return Journal(
        version=1, kind="campaign", key="k", game="local", service="embedded", state=state,  # type: ignore[arg-type]
        created_at="2030-01-01T00:00:00.000Z", request="", price_cents=20, limits={}, options={}, manifest_path="/m",
        runs=runs, results={run: {"answered": "succeeded"} for run in answered},
    )  # fmt: skip


def standings(*kinds: str) -> list[Standing]:
    return [
        Standing(scenario_id=one["id"], kind=kind, result=result() if kind == "final" else None)  # type: ignore[arg-type]
        for one, kind in zip(SCENARIOS, kinds, strict=True)
    ]


OPEN, CANCEL = JobState(state="open"), JobState(state="open", cancel_requested=True)


@pytest.mark.parametrize(
    ("found", "job_state", "kinds", "is_played", "step"),
    [
        (journal("finished"), None, ("final", "final"), False, "done"),
        (journal("settled"), None, ("final", "final"), False, "record"),
        (journal("registering"), None, ("unplayed", "unplayed"), False, "register"),
        (journal(), JobState(state="stalled"), ("final", "unplayed"), False, "closed"),
        (journal(), JobState(state="some new word"), ("unplayed", "unplayed"), False, "play"),
        (journal(), CANCEL, ("unplayed", "interrupted"), False, "cancel"),
        (journal(), OPEN, ("final", "unplayed"), False, "deliver"),
        (journal(answered=("run-0",)), OPEN, ("final", "interrupted"), False, "play"),
        (journal(answered=("run-0",)), OPEN, ("final", "interrupted"), True, "person"),
        (journal(answered=("run-0",)), OPEN, ("final", "unknown"), False, "person"),
        (journal(answered=("run-0",)), OPEN, ("final", "running"), False, "person"),
        (journal(answered=("run-0", "run-1")), OPEN, ("final", "interrupted"), False, "finish"),
    ],
)
def test_next_step_follows_from_journal_service_and_runs(
    found: Journal, job_state: JobState | None, kinds: tuple[str, ...], is_played: bool, step: str
) -> None:
    assert next_step(found, job_state, standings(*kinds), is_played=is_played) == step


def row(outcome: str, classification: str | None = None) -> dict[str, Any]:
    return {"outcome": outcome, "classification": classification}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([], "unplayed"),
        ([row("running")], "running"),
        ([row("passed")], "final"),
        ([row("failed")], "final"),
        ([row("budget_exceeded")], "final"),
        ([row("interrupted")], "interrupted"),
        ([row("canceled")], "interrupted"),
        ([row("interrupted", "uncertain_launch")], "unknown"),
        ([row("interrupted", "never_launched")], "unplayed"),
        ([row("interrupted", "uncertain_launch"), row("interrupted", "never_launched")], "unknown"),
        ([row("interrupted"), row("passed")], "final"),
    ],
)
def test_last_row_tells_what_a_run_came_to(rows: list[dict[str, Any]], kind: str) -> None:
    assert kind_of(rows) == kind


def test_key_may_be_sent_again_for_a_day() -> None:
    assert may_send_again(journal(), "2030-01-01T23:59:59.000Z")
    assert not may_send_again(journal(), "2030-01-02T00:00:00.000Z")


def test_settled_jobs_have_their_exit_codes() -> None:
    states = ("succeeded", "canceled", "budget_exceeded", "failed", "stalled", "skipped")
    assert [exit_of_job(state) for state in states] == [0, 10, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("report.md", True),
        ("usage.json", True),
        ("shots/step-3.png", True),
        ("report.json", False),
        ("home/save.dat", False),
        ("game.py", False),
        ("supervisor.log", False),
        ("job.json", False),
        ("transcript.jsonl", False),
        ("video.webm", False),
    ],
)
def test_only_what_the_list_names_goes_up(name: str, allowed: bool) -> None:
    assert is_allowed(name, video=False, transcript=False) is allowed


def test_video_and_transcript_go_up_when_they_were_asked_for() -> None:
    assert is_allowed("video.webm", video=True, transcript=False)
    assert is_allowed("transcript.jsonl", video=False, transcript=True)
    assert not is_allowed("bridge/transcript.jsonl", video=True, transcript=True)
