"""`complete`: what is judged, in which order, what the row becomes, and repeats."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import Completion, CoordinatorError, Permit, Stop
from coordinator.errors import (
    ContentConflictError,
    InvalidInputError,
    NotAdmissibleError,
    ReceiptError,
    RefusedError,
    ReservedAttemptChangedError,
    StoppedError,
)
from tests.coordinator.calls import (
    QuickCampaign,
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
from tests.coordinator.campaign import Campaign, attempt, completion, failing_at
from tests.coordinator.test_launch import ROW_EDITS, changed_permits


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


# -- repeats


def test_same_completion_again_changes_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    for _ in range(2):
        with untouched(campaign.path, campaign.control / "state.json"):
            run(finish(c, permit))
    run(c.close())
    c = campaign.open()  # also after a restart
    with untouched(campaign.path, campaign.control / "state.json"):
        run(finish(c, permit))
    run(c.close())


def test_same_completion_again_still_records_its_stop(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    with untouched(campaign.path):
        run(c.complete(permit, completion("a"), stop=Stop(reason="secret_leak", detail="found late")))  # type: ignore[arg-type]
    stop = snapshot(c).stop
    assert stop is not None
    assert (stop.reason, stop.detail) == ("secret_leak", "found late")
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(c.close())


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "failed"},
        {"finishedAt": "2027-01-01T00:00:00.000Z"},
        {"usage": {"costUsd": 0.0, "tokens": 0, "coverage": "complete"}},
        {"classification": "x"},
        {"evidencePaths": ["x"]},
        {"definitionDigest": "another"},
    ],
)
def test_another_content_is_a_content_conflict(campaign: Campaign, changes: dict[str, Any]) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("content conflict", ContentConflictError),
    ):
        run(finish(c, permit, **changes))
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize(
    "edit", [{"outcome": "failed"}, {"usage": None}, {"newKey": 1}, {"ordinal": 1.0}, {"profile": "x"}]
)
def test_repeat_differs_from_receipt_when_the_row_was_edited(campaign: Campaign, edit: dict[str, Any]) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    good = campaign.read()
    edit_row(campaign, **edit)
    stop = {"reason": "canceled", "detail": "x"}
    with (
        untouched(campaign.path, campaign.control / "state.json"),
        refused("differs from receipt", ReceiptError),
    ):
        run(c.complete(permit, completion("a"), stop=stop))  # type: ignore[arg-type]
    campaign.write(good)
    run(finish(c, permit))
    run(c.close())


def test_completed_row_that_is_gone_differs_from_receipt(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(completed(c, "a"))
    document = campaign.read()
    document["scenarios"][0]["attempts"] = []
    campaign.write(document)
    with refused("differs from receipt", ReceiptError):
        run(finish(c, permit))
    run(c.close())


def test_two_equal_completions_at_once_are_one(campaign: Campaign) -> None:
    c = campaign.open()

    async def both() -> None:
        permit = await launched(c, "a")
        await asyncio.gather(*(finish(c, permit) for _ in range(4)))

    run(both())
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


def test_two_different_completions_at_once_keep_the_first(campaign: Campaign) -> None:
    c = campaign.open()

    async def both() -> list[Any]:
        permit = await launched(c, "a")
        ends = (finish(c, permit), finish(c, permit, outcome="failed"))
        return list(await asyncio.gather(*ends, return_exceptions=True))

    first, second = run(both())
    assert first is None
    assert isinstance(second, ContentConflictError)
    assert campaign.row("a")["outcome"] == "passed"
    run(c.close())


# -- stops that come with a completion


def test_stop_given_with_a_completion_is_recorded_with_it(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.complete(permit, completion("a"), stop={"reason": "budget_exceeded", "detail": "cap"}))  # type: ignore[arg-type]
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, phases(state)) == ("budget_exceeded", {"a": "completed"})
    assert state.stop.at is not None
    run(c.close())


@pytest.mark.parametrize("stop", [{"reason": "because", "detail": "x"}, {"reason": "canceled"}, "canceled", 7, []])
def test_unknown_stop_refuses_the_whole_completion(campaign: Campaign, stop: Any) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("stop", InvalidInputError):
        run(c.complete(permit, completion("a"), stop=stop))  # type: ignore[arg-type]
    run(finish(c, permit))
    run(c.close())


@pytest.mark.parametrize(
    "text", ["coordinator_failure", "secret leak", "stop", "budget_exceeded", {"stop": "canceled"}]
)
def test_text_in_observed_failure_never_sets_a_stop(campaign: Campaign, text: Any) -> None:
    c = campaign.open()
    run(completed(c, "a", outcome="failed", observedFailure=text, classification=text))
    assert snapshot(c).stop is None
    run(c.reserve("b"))
    run(c.close())


def test_failed_cleanup_stops_the_batch(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a", cleanup="failed"))
    stop = snapshot(c).stop
    assert stop is not None
    assert stop.reason == "cleanup_failure"
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(c.close())


def test_failed_cleanup_is_durable_before_its_own_commit_begins(campaign: Campaign) -> None:
    stages: list[tuple[str, Any]] = []

    def fault(stage: str) -> None:
        stages.append((stage, state_of(campaign)["stop"]))
        if len(stages) == 4:  # three of the reservation, then the completion's intent
            raise ZeroDivisionError

    c = campaign.open(fault=fault)
    permit = run(launched(c, "a"))
    with pytest.raises(ZeroDivisionError):
        run(finish(c, permit, cleanup="failed"))
    assert stages[3][0] == "intent"
    assert stages[3][1]["reason"] == "cleanup_failure"
    assert campaign.row("a")["outcome"] == "running"
    campaign.lock.unlink()
    c = campaign.open()
    with refused("stopped", StoppedError):
        run(c.reserve("b"))
    run(finish(c, permit, cleanup="failed"))
    run(c.close())


def test_given_stop_stands_beside_the_cleanup_failure(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    stop = {"reason": "secret_leak", "detail": "x"}
    run(c.complete(permit, completion("a", cleanup="failed"), stop=stop))  # type: ignore[arg-type]
    state = snapshot(c)
    assert state.stop is not None
    assert (state.stop.reason, [one.reason for one in state.later_stops]) == ("cleanup_failure", ["secret_leak"])
    run(c.close())


def test_refused_completion_with_failed_cleanup_sets_no_stop(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.control / "state.json"), refused("not final"):
        run(finish(c, permit, cleanup="failed", outcome="running"))
    with untouched(campaign.control / "state.json"), refused("'..'"):
        run(finish(c, permit, cleanup="failed", evidencePaths=["../x"]))
    run(c.close())


# -- evidence paths


def evidence(campaign: Campaign) -> dict[str, bool]:
    """Path -> whether it is accepted."""
    root = campaign.evidence
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("x")
    (root / "a" / "привет 🎲.txt").write_text("x")
    (root / "hard").write_text("x")
    os.link(root / "hard", root / "hard2")
    (root / "link").symlink_to("a/b/file")
    (root / "dangling").symlink_to("nowhere")
    (root / "linked-folder").symlink_to("a")
    os.mkfifo(root / "fifo")
    outside = campaign.folder / "outside"
    outside.write_text("secret")
    return {
        "a/b/file": True,
        "./a//b/file": True,
        "a/привет 🎲.txt": True,
        "no/such/file": True,
        "a/b/none": True,
        "..a/x": True,
        "a..b": True,
        "": False,
        ".": False,
        "/": False,
        "a": False,
        "a/b/": False,
        "a/b/file/x": False,
        "hard": False,
        "hard2": False,
        "link": False,
        "dangling": False,
        "linked-folder/b/file": False,
        "linked-folder/none": False,
        "fifo": False,
        "fifo/x": False,
        "..": False,
        "../outside": False,
        "a/../a/b/file": False,
        "none/../../outside": False,
        str(outside): False,
        str(root / "a" / "b" / "file"): False,
        "a/b/fi\0le": False,
        "\0": False,
        "a/" + "n" * 300: False,
        "x/" * 3000 + "y": True,
    }


def test_evidence_paths(campaign: Campaign) -> None:
    paths = evidence(campaign)
    accepted = [path for path, good in paths.items() if good]
    c = campaign.open()
    permit = run(launched(c, "a"))

    async def try_all() -> None:
        for path, good in paths.items():
            if not good:
                with refused("evidence path", RefusedError):
                    await finish(c, permit, evidencePaths=["a/b/file", path])

    with untouched(campaign.path, campaign.control / "state.json"):
        run(try_all())
    run(finish(c, permit, evidencePaths=accepted))
    assert campaign.row("a")["evidencePaths"] == accepted
    run(c.close())


def test_device_is_no_evidence(campaign: Campaign) -> None:
    c = campaign.open(evidence_root="/dev")
    permit = run(launched(c, "a"))
    with refused("not a regular file", RefusedError):
        run(finish(c, permit, evidencePaths=["null"]))
    run(c.close())


def test_evidence_root_may_be_reached_through_a_link(campaign: Campaign) -> None:
    (campaign.folder / "way").symlink_to("evidence")
    (campaign.evidence / "file").write_text("x")
    c = campaign.open(evidence_root=campaign.folder / "way")
    run(completed(c, "a", evidencePaths=["file"]))
    run(c.close())


def test_evidence_root_that_does_not_exist_yet_is_accepted(campaign: Campaign) -> None:
    c = campaign.open(evidence_root=campaign.folder / "later" / "evidence")
    run(completed(c, "a", evidencePaths=["file"]))
    run(c.close())


# -- receipts


def test_receipt_binds_row_and_completion(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    before = snapshot(c).entries[permit.reservation_id].receipt
    run(finish(c, permit))
    after = snapshot(c).entries[permit.reservation_id].receipt
    assert after.reserved_sha256 == before.reserved_sha256
    assert len({after.reserved_sha256, after.row_sha256, after.completion_sha256}) == 3
    assert after.completion == completion("a")
    assert (before.completion, before.row_sha256, after.review_sha256) == (None, None, None)
    run(c.close())


def test_row_and_state_of_a_completion_survive_the_process(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    before = snapshot(c)
    run(c.close())
    c = campaign.open()
    after = snapshot(c)
    assert after.entries == before.entries
    assert after.stop is None
    assert campaign.row("a")["outcome"] == "passed"
    assert campaign.read()["scenarios"][1]["attempts"] == []
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_what_fault_raises_in_a_completion_reaches_the_caller(campaign: Campaign, stage: str) -> None:
    error = ZeroDivisionError(stage)
    armed = failing_at(stage, error)
    on = False
    c = campaign.open(fault=lambda reached: armed(reached) if on else None)
    permit = run(launched(c, "a"))
    on = True
    with pytest.raises(ZeroDivisionError) as caught:
        run(finish(c, permit))
    assert caught.value is error
    with pytest.raises(CoordinatorError):
        run(c.snapshot())
    assert campaign.lock.exists()


def test_other_rows_of_the_scenario_are_left_alone(campaign: Campaign) -> None:
    rows = [attempt("a", 1, outcome="failed", cleanup="passed", note="first")]
    document = campaign.read()
    document["scenarios"][0]["attempts"] = rows
    campaign.write(document)
    campaign.selections[0] = {"scenarioId": "a", "attempt": attempt("a", 2)}
    c = campaign.open()
    permit = run(c.reserve("a"))
    run(c.launch_once(permit, answers))
    run(finish(c, permit))
    found = campaign.read()["scenarios"][0]["attempts"]
    assert (found[0], found[1]["outcome"]) == (rows[0], "passed")
    run(c.close())
