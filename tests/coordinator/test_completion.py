"""`complete`: what is judged, in which order, what the row becomes, and repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import Completion, Permit
from coordinator.errors import (
    InvalidInputError,
    NotAdmissibleError,
    RefusedError,
    ReservedAttemptChangedError,
)
from tests.coordinator.calls import (
    QuickCampaign,
    completed,
    finish,
    launched,
    phases,
    raises,
    refused,
    run,
    snapshot,
    untouched,
)
from tests.coordinator.campaign import Campaign, completion
from tests.coordinator.plays import ROW_EDITS, changed_permits


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def edit_row(campaign: Campaign, **changes: Any) -> None:
    document = campaign.read()
    document["scenarios"][0]["attempts"][0].update(changes)
    campaign.write(document)


TEN = (
    "outcome",
    "finishedAt",
    "definitionDigest",
    "graderDigest",
    "evidencePaths",
    "cleanup",
    "usage",
    "classification",
    "observedFailure",
    "corePrDependencies",
)


def test_completed_row_is_the_reserved_one_with_ten_fields_replaced(campaign: Campaign) -> None:
    campaign.selections[0]["attempt"]["theirOwn"] = [1]
    content = completion(
        "a",
        outcome="failed",
        usage={"costUsd": 0.25, "tokens": 7, "coverage": "partial", "more": {"x": 1}},
        classification="defect",
        observedFailure={"text": "it fell"},
        corePrDependencies=[12],
        evidencePaths=["a/report.json"],
    )
    assert tuple(content) == TEN
    c = campaign.open()
    permit = run(launched(c, "a"))
    reserved = campaign.row("a")
    run(c.complete(permit, content))  # type: ignore[arg-type]
    row = campaign.row("a")
    assert row == {**reserved, **content}
    assert list(row) == list(reserved)
    entry = next(iter(snapshot(c).entries.values()))
    assert (entry.phase, entry.permit) == ("completed", permit)
    run(c.close())


def test_struct_and_json_completions_are_the_same_content(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    struct = msgspec.convert(completion("a"), Completion)
    run(c.complete(permit, struct))
    with untouched(campaign.path, campaign.control / "state.json"):
        run(c.complete(msgspec.to_builtins(permit), completion("a")))  # type: ignore[arg-type]
        run(c.complete(permit, struct, stop=None, review=None))
    run(c.close())


@pytest.mark.parametrize("outcome", ["passed", "failed", "interrupted", "budget_exceeded", "canceled"])
def test_final_outcomes_are_accepted(campaign: Campaign, outcome: str) -> None:
    c = campaign.open()
    run(completed(c, "a", outcome=outcome))
    assert campaign.row("a")["outcome"] == outcome
    assert snapshot(c).stop is None
    run(c.close())


@pytest.mark.parametrize("outcome", ["running", "", "Passed", "done", "launched"])
def test_outcome_that_is_not_final_is_refused(campaign: Campaign, outcome: str) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("not final", RefusedError):
        run(finish(c, permit, outcome=outcome))
    run(finish(c, permit))
    run(c.close())


BAD_COMPLETIONS: list[Any] = [
    None,
    {},
    [],
    "passed",
    completion("a", outcome=None),
    completion("a", outcome=7),
    completion("a", finishedAt=None),
    completion("a", evidencePaths=None),
    completion("a", evidencePaths="x"),
    completion("a", evidencePaths=[1]),
    completion("a", cleanup=None),
    completion("a", usage={"costUsd": float("nan")}),
    completion("a", usage={"costUsd": float("inf")}),
    completion("a", usage={"tokens": 2**64}),
    completion("a", usage={"tokens": -(2**63) - 1}),
    completion("a", observedFailure="\ud800"),
    completion("a", observedFailure={"\udc80": 1}),
    completion("a", observedFailure=b"bytes"),
    completion("a", observedFailure=object()),
]


@pytest.mark.parametrize("content", BAD_COMPLETIONS, ids=range(len(BAD_COMPLETIONS)))
def test_completion_that_does_not_have_its_form_is_refused(campaign: Campaign, content: Any) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("completion", InvalidInputError):
        run(c.complete(permit, content))
    run(finish(c, permit))
    run(c.close())


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [40, 46, 60, 100, 50_000])
def test_completion_is_never_written_deeper_than_it_can_be_read_back(campaign: Campaign, depth: int) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    try:
        run(finish(c, permit, usage=nested(depth)))
    except InvalidInputError as error:
        assert depth > 46
        assert "nested deeper" in str(error)
        run(finish(c, permit))
    run(c.close())
    reopened = campaign.open()  # state and manifest are readable whatever was given
    assert phases(snapshot(reopened)) == {"a": "completed"}
    run(reopened.reserve("b"))
    run(reopened.close())


def test_never_launched_reservation_is_not_completed(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("not admissible", NotAdmissibleError):
        run(finish(c, permit))
    run(c.close())


def test_permit_that_differs_in_any_field_completes_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))

    async def try_all() -> None:
        for one in changed_permits(permit):
            with refused("not admissible", NotAdmissibleError):
                await c.complete(one, completion("a"))  # type: ignore[arg-type]

    with untouched(campaign.path, campaign.control / "state.json"):
        run(try_all())
    run(finish(c, permit))
    run(c.close())


def test_attempt_whose_launcher_raised_is_completed(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    with pytest.raises(ZeroDivisionError):
        run(c.launch_once(permit, raises(ZeroDivisionError())))
    run(finish(c, permit, outcome="interrupted"))
    assert campaign.row("a")["outcome"] == "interrupted"
    run(c.close())


def test_attempt_is_completed_under_a_stop(campaign: Campaign) -> None:
    c = campaign.open()
    first, second = run(launched(c, "a")), run(c.reserve("b"))
    with pytest.raises(ZeroDivisionError):
        run(c.launch_once(second, raises(ZeroDivisionError())))
    run(c.stop("operator_request", "enough"))
    run(finish(c, first))
    run(finish(c, second, outcome="failed"))
    assert phases(snapshot(c)) == {"a": "completed", "b": "completed"}
    run(c.close())


def test_uncertain_attempt_is_completed_after_a_restart(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.close())
    c = campaign.open()
    assert (state := snapshot(c)).stop is not None
    assert state.stop.reason == "coordinator_failure"
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize("edit", ROW_EDITS)
def test_edited_row_is_not_completed(campaign: Campaign, edit: dict[str, Any]) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    good = campaign.read()
    edit_row(campaign, **edit)
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("Reserved attempt changed", ReservedAttemptChangedError),
    ):
        run(finish(c, permit))
    campaign.write(good)
    run(finish(c, permit))
    run(c.close())


def test_row_with_its_keys_in_another_order_is_the_same_row(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    document = campaign.read()
    row = document["scenarios"][0]["attempts"][0]
    document["scenarios"][0]["attempts"][0] = dict(reversed(row.items()))
    campaign.write(document)
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize("key", ["definitionDigest", "graderDigest"])
def test_other_digests_than_the_reserved_ones_are_refused(campaign: Campaign, key: str) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused(key, RefusedError):
        run(finish(c, permit, **{key: "another"}))
    run(finish(c, permit))
    run(c.close())


def test_qualifying_digests_changed_meanwhile_do_not_matter(campaign: Campaign) -> None:
    """The reservation fixed what was measured; the scenario may have been reviewed since."""
    c = campaign.open()
    permit = run(launched(c, "a"))
    document = campaign.read()
    document["scenarios"][0]["qualifyingDefinitionDigest"] = "next"
    campaign.write(document)
    run(finish(c, permit))
    assert campaign.read()["scenarios"][0]["qualifyingDefinitionDigest"] == "next"
    run(c.close())


def test_order_of_judging(campaign: Campaign) -> None:
    """permit; repeat; row; digests; outcome; review; evidence: each fault hides all later ones."""
    c = campaign.open()
    permit = run(launched(c, "a"))
    good_row = campaign.read()
    edit_row(campaign, profile="edited")
    wrong: dict[str, Any] = {
        "definitionDigest": "another",
        "outcome": "running",
        "evidencePaths": ["../x"],
    }
    review = {"evidencePath": "../x", "receiptSha256": "no", "previous": {}, "next": {}}

    def judged(phrase: str, given: Permit = permit) -> None:
        with refused(phrase, RefusedError):
            run(c.complete(given, completion("a", **wrong), review=review))  # type: ignore[arg-type]

    judged("not admissible", msgspec.structs.replace(permit, ordinal=2))
    judged("Reserved attempt changed")
    campaign.write(good_row)
    judged("definitionDigest")
    del wrong["definitionDigest"]
    judged("not final")
    wrong["outcome"] = "passed"
    judged("Invalid qualifying")
    review = None  # type: ignore[assignment]
    judged("'..'")
    del wrong["evidencePaths"]
    run(c.complete(permit, completion("a", **wrong)))  # type: ignore[arg-type]
    edit_row(campaign, profile="edited")
    wrong["outcome"] = "running"
    judged("content conflict")  # a repeat is judged before row and outcome
    run(c.close())
