"""Playing with a model: right end reasons, usage and cost to the token, and what a run writes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workers.models.playing import (
    PRICE,
    PROVIDERS,
    ROOMS,
    exchanges,
    first_option,
    order_for,
    spend_rows,
)
from tests.workers.models.server import Asked, Counted, ModelServer, Said, Trouble
from tests.workers.play.games import run_order, transcript
from workers.contract import RunReport
from workers.models import caller as caller_module
from workers.models.access import Provider, Tokens
from workers.models.caller import bound_of
from workers.models.conversation import Ask

USED = Counted(input=70, output=30, cache_read=1_000, cache_write=7)
COST_OF_A_CALL = 987
"""70 x 3 + 1,000 x 0.3 + 7 x 3.75 + 30 x 15 = 986.25 millionths of a dollar, rounded up."""


def counted(asked: Asked) -> Said:
    return Said(calls=first_option(asked).calls, usage=USED)


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of faults must not wait for minutes; the real numbers are tested where they are counted."""
    monkeypatch.setattr("workers.models.caller.back_off", lambda failures, jitter: 0.01)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_is_played_and_each_token_is_counted_once(tmp_path: Path, provider: Provider, stream: bool) -> None:
    with ModelServer(counted) as server:
        order = order_for(tmp_path / "game", server.url, provider, access_changes={"stream": stream})
        result, report = run_order(order, tmp_path / "run")
        assert (result.end_reason, result.outcome, report.actions_taken) == ("max_actions", "passed", 4)
        assert len(server.asked) == 4
    assert report.usage["tokens_by_kind"] == {"input": 280, "cache_read": 4_000, "cache_write": 28, "output": 120}
    assert report.usage["microdollars"] == 4 * COST_OF_A_CALL == result.usage.cost_usd * 1_000_000  # type: ignore[operator]
    assert (result.usage.tokens, result.usage.coverage) == (4 * 1_107, "complete")
    rows = spend_rows(tmp_path / "run")
    assert [row["state"] for row in rows] == ["sent", "settled"] * 4
    assert all(row["microdollars"] == COST_OF_A_CALL for row in rows[1::2])


TROUBLES: dict[str, Said] = {
    "empty": Said(),
    "prose": Said(text="I would go north."),
    "unknown tool": Said(calls=[("run_shell", {"command": "id"})]),
    "two calls": Said(calls=[("choose", {"label": "north"}), ("choose", {"label": "east"})]),
    "not on offer": Said(calls=[("choose", {"label": "through the wall"})]),
    "no label": Said(calls=[("choose", {})]),
}
COMPLAINTS = {
    "empty": "it was empty",
    "prose": "it was prose without a tool call",
    "unknown tool": "there is no tool 'run_shell'",
    "two calls": "it called 2 actions at once (choose, choose)",
    "not on offer": "'through the wall' is not on offer",
    "no label": "it names no label",
    "cut JSON": "are not whole JSON",
    "length": "cut off at the limit of its length",
}


def bad(kind: str, provider: Provider) -> Said:
    if kind == "cut JSON":
        return Said(calls=[("choose", '{"label": "nor')])
    if kind == "length":
        return Said(text="I thi", stop="max_tokens" if provider == "anthropic" else "length")
    return TROUBLES[kind]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", COMPLAINTS)
def test_one_repair_with_the_exact_complaint_and_then_model_fault(
    tmp_path: Path, provider: Provider, kind: str
) -> None:
    def think(asked: Asked) -> Said:
        return counted(asked) if asked.number == 1 else Said(**{**_fields(bad(kind, provider)), "usage": USED})

    with ModelServer(think) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url, provider), tmp_path / "run")
        assert (result.end_reason, result.outcome, report.actions_taken) == ("model_fault", "failed", 1)
        assert [COMPLAINTS[kind] in asked.text for asked in server.asked] == [False, False, True]
    assert report.partial and report.usage["microdollars"] == 3 * COST_OF_A_CALL
    assert report.counts["model_repairs"] == 1 and report.findings == []


def _fields(said: Said) -> dict[str, Any]:
    return {name: getattr(said, name) for name in Said.__struct_fields__}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_repaired_answer_is_played(tmp_path: Path, provider: Provider) -> None:
    def think(asked: Asked) -> Said:
        return first_option(asked) if "could not be used" in asked.text else TROUBLES["two calls"]

    with ModelServer(think) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url, provider), tmp_path / "run")
        assert (result.end_reason, report.actions_taken, len(server.asked)) == ("max_actions", 4, 8)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_refusal_is_model_refused_and_no_finding(tmp_path: Path, provider: Provider) -> None:
    def think(asked: Asked) -> Said:
        return counted(asked) if asked.number < 3 else Said(refusal="I will not play that.", usage=USED)

    with ModelServer(think) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url, provider), tmp_path / "run")
    assert (result.end_reason, result.outcome) == ("model_refused", "failed")
    assert report.findings == [] and "I will not play that." in report.summary
    assert report.usage["microdollars"] == 3 * COST_OF_A_CALL


@pytest.mark.parametrize("status", [429, 503, 529])
def test_busy_answers_are_asked_again_and_cost_nothing(tmp_path: Path, status: int) -> None:
    def think(asked: Asked) -> Said | Trouble:
        return Trouble(status=status) if asked.number in (1, 2) else counted(asked)

    with ModelServer(think) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url, max_actions=2), tmp_path / "run")
        assert len(server.asked) == 4
    assert (result.end_reason, report.usage["microdollars"]) == ("max_actions", 2 * COST_OF_A_CALL)
    assert report.counts["model_busy_answers"] == 2 and report.usage["coverage"] == "complete"


def test_retry_after_is_honoured_by_both_lanes(tmp_path: Path) -> None:
    came: list[float] = []

    def think(asked: Asked) -> Said | Trouble:
        came.append(time.monotonic())
        return Trouble(status=429, headers={"retry-after": "1.2"}) if asked.number == 1 else first_option(asked)

    with ModelServer(think) as server:
        order = order_for(tmp_path / "game", server.url, max_actions=1)
        run_order(order, tmp_path / "runs" / "one")
        assert came[1] - came[0] >= 1.2
        # The other lane's first call finds a pause that was asked for a moment ago.
        pause = tmp_path / "runs" / "model-pause.json"
        pause.write_text(json.dumps({"until": time.time() + 1.0, "why": "429"}))
        began = time.monotonic()
        run_order(order, tmp_path / "runs" / "two")
        assert came[2] - began >= 0.9


def test_busy_for_ever_ends_as_a_model_fault_within_bounded_tries(tmp_path: Path) -> None:
    with ModelServer(lambda asked: Trouble(status=429)) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url), tmp_path / "run")
        assert len(server.asked) == caller_module.MAX_TRIES
    assert (result.end_reason, report.usage["microdollars"], report.actions_taken) == ("model_fault", 0, 0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_no_is_not_asked_again(tmp_path: Path, status: int) -> None:
    with ModelServer(lambda asked: Trouble(status=status, message="never")) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url), tmp_path / "run")
        assert len(server.asked) == 1
    assert result.end_reason == "model_fault" and f"answered {status}: never" in report.summary
    assert report.usage["microdollars"] == 0


UNKNOWN = {
    "reset after sending": Trouble(reset=True),
    "cut in the middle": Trouble(cut_after=120),
    "stream without its end": Trouble(raw=b"event: ping\ndata: {}\n\n", content_type="text/event-stream"),
    "overloaded in mid-stream": Trouble(error_event="overloaded_error"),
    "not JSON": Trouble(raw=b"<html>"),
    "an answer without bounds": Trouble(raw=b" " * ((8 << 20) + 1)),
    "a gateway's 502": Trouble(status=502),
    "a 500": Trouble(status=500),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_call_of_unknown_outcome_stays_charged_at_its_worst(tmp_path: Path, provider: Provider, kind: str) -> None:
    def think(asked: Asked) -> Said | Trouble:
        return UNKNOWN[kind] if asked.number == 1 else counted(asked)

    with ModelServer(think) as server:
        order = order_for(tmp_path / "game", server.url, provider, max_actions=1)
        result, report = run_order(order, tmp_path / "run")
    assert result.end_reason == "max_actions"
    first, second, settled = spend_rows(tmp_path / "run")
    assert [first["state"], second["state"], settled["state"]] == ["sent", "sent", "settled"]
    assert settled["call"] == second["call"] == 2
    assert report.usage["microdollars"] == first["microdollars"] + COST_OF_A_CALL
    assert report.usage["calls_of_unknown_outcome"] == 1 and "unknown outcome" in result.usage.coverage


def test_a_drip_of_bytes_ends_at_the_total_deadline(tmp_path: Path) -> None:
    with ModelServer(lambda asked: Trouble(drip_seconds=0.05, said=first_option(asked))) as server:
        order = order_for(tmp_path / "game", server.url, access_changes={"call_seconds": 0.6}, wall_seconds=8.0)
        began = time.monotonic()
        result, report = run_order(order, tmp_path / "run")
        assert time.monotonic() - began < 10
    assert result.end_reason in ("model_fault", "wall_clock")
    assert report.usage["calls_of_unknown_outcome"] == report.usage["calls"] > 0


def test_a_provider_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    with ModelServer(counted) as server:
        url = server.url
    result, report = run_order(order_for(tmp_path / "game", url), tmp_path / "run")
    assert (result.end_reason, report.usage["microdollars"]) == ("model_fault", 0)
    assert "was not reached" in report.summary


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 10**12, "output_tokens": 1}, {"input_tokens": -5}])
def test_usage_that_cannot_be_true_leaves_the_call_at_its_worst(tmp_path: Path, usage: dict[str, Any] | None) -> None:
    with ModelServer(lambda asked: Said(calls=first_option(asked).calls, usage=usage)) as server:
        order = order_for(tmp_path / "game", server.url, max_actions=1)
        _, report = run_order(order, tmp_path / "run")
    [row] = spend_rows(tmp_path / "run")
    assert (row["state"], report.usage["microdollars"]) == ("sent", row["microdollars"])
    assert row["microdollars"] > 0 and report.counts["model_usage_not_believed"] == 1


def test_a_call_that_could_pass_the_budget_by_one_millionth_is_not_sent(tmp_path: Path) -> None:
    with ModelServer(counted) as server:
        whole, _ = run_order(order_for(tmp_path / "game", server.url), tmp_path / "first")
        rows = spend_rows(tmp_path / "first")
        # What stands before the third call, and its worst: exactly enough, and one millionth less.
        needed = 2 * COST_OF_A_CALL + rows[4]["microdollars"]
        for name, budget, calls, end in (
            ("enough", needed, 3, "budget"),
            ("short", needed - 1, 2, "budget"),
        ):
            sent = len(server.asked)
            order = order_for(tmp_path / "game", server.url, budget_microdollars=budget)
            result, report = run_order(order, tmp_path / name)
            assert len(server.asked) - sent == calls
            assert (result.end_reason, result.outcome, result.partial) == (end, "budget_exceeded", True)
            assert report.actions_taken == calls and report.usage["microdollars"] == calls * COST_OF_A_CALL
            assert report.usage["microdollars"] <= budget and "used up its budget" in report.summary
            assert len(transcript(tmp_path / name)) == calls
    assert whole.end_reason == "max_actions"


def test_without_a_price_the_cost_is_unknown_and_tokens_bound_the_run(tmp_path: Path) -> None:
    with ModelServer(counted) as server:
        changes = {"price": None, "token_budget": 14_000}
        order = order_for(tmp_path / "game", server.url, max_actions=50, access_changes=changes)
        result, report = run_order(order, tmp_path / "run")
    assert result.end_reason == "budget" and result.usage.cost_usd is None
    assert report.usage["microdollars"] is None and 0 < report.usage["tokens"] <= 14_000
    assert "cost not known" in (tmp_path / "run" / "report.md").read_text()
    assert all(row["microdollars"] is None for row in spend_rows(tmp_path / "run"))


def test_the_bound_of_a_call_is_above_what_any_byte_can_cost() -> None:
    ask = Ask(system="s", text="t", tools=(), max_output_tokens=7)
    bound = bound_of(b"x" * 5_000, ask)
    assert bound.input >= 5_000 and bound.output == 7
    dearest = Tokens(cache_write=bound.input, output=bound.output)
    assert PRICE.bound(bound) >= PRICE.cost(dearest)


def test_the_same_again_and_again_ends_as_stuck(tmp_path: Path) -> None:
    world = {"start": "wall", "rooms": {"wall": {"text": "A wall.", "moves": {"push": {}}}}}
    with ModelServer(first_option) as server:
        order = order_for(tmp_path / "game", server.url, world=world, max_actions=100, limits={"patience_steps": 1_000})
        result, report = run_order(order, tmp_path / "run")
    assert result.end_reason == "stuck" and report.actions_taken < 40


def test_a_player_who_stops_has_given_up(tmp_path: Path) -> None:
    with ModelServer(lambda asked: Said(calls=[("stop_playing", {"why": "bored"})])) as server:
        result, report = run_order(order_for(tmp_path / "game", server.url), tmp_path / "run")
    assert (result.end_reason, result.outcome) == ("gave_up", "passed") and "bored" in report.summary


def report_it(asked: Asked, **finding: Any) -> Said:
    given = {"title": "The hall is dull", "category": "content", "severity": "minor", "description": "It is."}
    return Said(calls=[*first_option(asked).calls, ("report_finding", {**given, **finding})])


def test_a_finding_needs_evidence_that_the_harness_issued(tmp_path: Path) -> None:
    def think(asked: Asked) -> Said:
        if asked.number == 2:
            assert "s1" in asked.text
            return report_it(asked, evidence=["s1"])
        if asked.number == 3:
            return report_it(asked, title="Made up", evidence=["s99", "p7"])
        return first_option(asked)

    with ModelServer(think) as server:
        _, report = run_order(order_for(tmp_path / "game", server.url), tmp_path / "run")
    by_title = {finding.title: finding for finding in report.findings}
    good, made_up = by_title["The hall is dull"], by_title["Made up"]
    assert (good.origin, good.weak, good.dropped) == ("persona", True, None)
    assert [(item.kind, item.ref, item.step) for item in good.evidence] == [("transcript", "s1", 1)]
    assert good.replay is not None and good.replay.startswith("not replayable")
    assert made_up.dropped is not None and made_up.evidence == []
    assert report.usage["new_findings"] == 1
    assert report.usage["cost_per_new_finding_usd"] == report.usage["cost_usd"]


def test_a_finding_beside_an_oracles_event_is_merged_with_it(tmp_path: Path) -> None:
    world = json.loads(json.dumps(ROOMS))
    world["rooms"]["hall"]["moves"] = {"north": {"to": "cellar", "does": "print"}}
    world["rooms"]["cellar"]["moves"] = {"south": {"to": "hall"}}

    def think(asked: Asked) -> Said:
        return report_it(asked, title="A trace", evidence=["s1"]) if asked.number == 2 else first_option(asked)

    with ModelServer(think) as server:
        _, report = run_order(order_for(tmp_path / "game", server.url, world=world), tmp_path / "run")
    assert [finding.origin for finding in report.findings] == ["oracle"]
    assert "A trace" not in [finding.title for finding in report.findings]


def test_what_was_sent_and_received_is_kept_without_the_key(tmp_path: Path) -> None:
    with ModelServer(first_option) as server:
        order = order_for(tmp_path / "game", server.url)
        run_order(order, tmp_path / "run")
        sent = [asked.text for asked in server.asked]
    rows = exchanges(tmp_path / "run")
    assert [row["sent"]["text"] for row in rows] == sent
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["sent"]["system"] and rows[1]["sent"]["system_and_tools_of_call"] == 1
    assert all(row["received"]["calls"][0]["name"] == "choose" for row in rows)


def test_notes_come_back_and_fade_with_the_personas_memory(tmp_path: Path) -> None:
    def think(asked: Asked) -> Said:
        calls = first_option(asked).calls
        return (
            Said(calls=[*calls, ("note", {"text": "the cellar is deep"})]) if asked.number == 1 else Said(calls=calls)
        )

    with ModelServer(think) as server:
        order = order_for(tmp_path / "game", server.url, max_actions=6, limits={"memory_steps": 3})
        run_order(order, tmp_path / "run")
        told = ["the cellar is deep" in asked.text for asked in server.asked]
    assert told == [False, True, True, True, False, False]


def test_a_late_step_costs_at_most_a_fifth_more_than_an_early_one(tmp_path: Path) -> None:
    rooms = {
        f"r{number}": {
            "text": f"Room {number:03d}. " + "The floor is wet and the light is poor. " * 10,
            "moves": {"on": {"to": f"r{(number + 1) % 130}"}, "back": {"to": f"r{(number - 1) % 130}"}},
        }
        for number in range(130)
    }
    with ModelServer(first_option) as server:
        order = order_for(
            tmp_path / "game", server.url, world={"start": "r0", "rooms": rooms}, max_actions=116,
            limits={"memory_steps": 2_000},
        )  # fmt: skip
        _, report = run_order(order, tmp_path / "run")
        assert report.actions_taken == 116
        # The body of the request, which is what the tokens are made of.
        sizes = [len(data) for data in server.raw]
    assert sizes[114] <= 1.2 * sizes[12]


def test_the_run_goes_on_until_its_clock_while_a_model_says_nothing(tmp_path: Path) -> None:
    with ModelServer(lambda asked: Trouble(silent=True)) as server:
        order = order_for(tmp_path / "game", server.url, wall_seconds=3.0, access_changes={"call_seconds": 60.0})
        began = time.monotonic()
        result, report = run_order(order, tmp_path / "run")
        assert time.monotonic() - began < 6
    assert result.end_reason == "wall_clock" and report.usage["calls_of_unknown_outcome"] == 1


def test_the_report_of_a_model_run_says_what_it_cost(tmp_path: Path) -> None:
    with ModelServer(counted) as server:
        run_order(order_for(tmp_path / "game", server.url, control_run=True), tmp_path / "run")
    text = (tmp_path / "run" / "report.md").read_text()
    assert "4428 tokens in 4 calls" in text and "0.003948" in text
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert document["control"]["actions_taken"] == 4 and RunReport.__struct_fields__
