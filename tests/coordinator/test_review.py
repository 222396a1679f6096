"""Closure reviews: what was measured stays, what it qualified does not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, CoordinatorError, Digests, Permit, Review
from coordinator.documents import sha256
from coordinator.errors import ContentConflictError, InvalidInputError, QualifyingError, ReceiptError, RefusedError
from tests.coordinator.calls import QuickCampaign, launched, refused, run, snapshot, untouched
from tests.coordinator.campaign import Campaign, attempt, completion

PREVIOUS = {"definitionDigest": "definition-a", "graderDigest": "grader-1"}
NEXT = {"definitionDigest": "definition-a", "graderDigest": "grader-2"}
CONTENT = {"id": "a", "ordinal": 1, "previous": PREVIOUS, "next": NEXT}
PATH = "reviews/closure.json"


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    found = QuickCampaign(tmp_path)
    (found.evidence / "reviews").mkdir()
    return found


def write_review(campaign: Campaign, content: Any = CONTENT, **changes: Any) -> dict[str, Any]:
    """The review's file, and the review that fits it."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (campaign.evidence / PATH).write_bytes(data)
    return {"evidencePath": PATH, "receiptSha256": sha256(data), "previous": PREVIOUS, "next": NEXT, **changes}


async def complete(c: Coordinator, permit: Permit, review: Any, **changes: Any) -> None:
    content = completion("a", **{"evidencePaths": [PATH], **changes})
    await c.complete(permit, content, review=review)  # type: ignore[arg-type]


def refuse_review(campaign: Campaign, phrase: str, kind: type[CoordinatorError], review: Any, **changes: Any) -> None:
    """The review is refused with nothing changed, and the right one accepted afterwards."""
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path, campaign.control / "state.json"), refused(phrase, kind):
        run(complete(c, permit, review, **changes))
    right = campaign.evidence / PATH
    if right.is_symlink() or not right.is_file() or right.stat().st_nlink > 1:
        if right.is_dir():
            right.rmdir()
        else:
            right.unlink(missing_ok=True)
    run(complete(c, permit, write_review(campaign)))
    assert campaign.read()["scenarios"][0]["qualifyingGraderDigest"] is None
    run(c.close())


def test_review_nulls_the_qualifying_digests_and_keeps_the_attempt(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(complete(c, permit, write_review(campaign)))
    found = campaign.read()["scenarios"][0]
    assert (found["qualifyingDefinitionDigest"], found["qualifyingGraderDigest"]) == (None, None)
    row = found["attempts"][0]
    assert (row["outcome"], row["definitionDigest"], row["graderDigest"]) == ("passed", "definition-a", "grader-1")
    other = campaign.read()["scenarios"][1]
    assert other["qualifyingDefinitionDigest"] == "definition-b"
    run(c.close())


def test_scenario_whose_digests_were_nulled_admits_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    run(complete(c, run(launched(c, "a")), write_review(campaign)))
    run(c.close())
    campaign.selections = [{"scenarioId": "a", "attempt": attempt("a", 2)}]
    c = campaign.open(batch_id="batch-2", control_directory=campaign.folder / "control-2")
    with untouched(campaign.path), refused("is not the qualifying one, None"):
        run(c.reserve("a"))
    run(c.close())


def test_review_structs_and_json_are_the_same(campaign: Campaign) -> None:
    review = write_review(campaign)
    digests = {
        "previous": Digests(definition_digest="definition-a", grader_digest="grader-1"),
        "next": Digests(definition_digest="definition-a", grader_digest="grader-2"),
    }
    forms: list[Any] = [
        {**review, **digests},
        Review(evidence_path=PATH, receipt_sha256=review["receiptSha256"], **digests),
        Review(evidence_path=PATH, receipt_sha256=review["receiptSha256"], previous=PREVIOUS, next=NEXT),
    ]
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(complete(c, permit, review))
    for form in forms:
        with untouched(campaign.path, campaign.control / "state.json"):
            run(complete(c, permit, form))  # a repeat, whatever the form
    run(c.close())


@pytest.mark.parametrize("outcome", ["failed", "interrupted", "budget_exceeded", "canceled"])
def test_review_goes_with_passed_only(campaign: Campaign, outcome: str) -> None:
    refuse_review(campaign, "Invalid qualifying", QualifyingError, write_review(campaign), outcome=outcome)


@pytest.mark.parametrize(
    "changes",
    [
        {"previous": NEXT},
        {"previous": {**PREVIOUS, "definitionDigest": "another"}},
        {"previous": {"definitionDigest": "definition-a"}},
        {"previous": {**PREVIOUS, "more": 1}},
        {"previous": None},
        {"next": PREVIOUS},
        {"next": {"definitionDigest": "definition-a", "graderDigest": None}},
        {"next": {}},
        {"next": "grader-2"},
    ],
)
def test_review_must_be_about_the_reserved_digests_and_change_one(campaign: Campaign, changes: dict[str, Any]) -> None:
    content = {**CONTENT, **changes}
    refuse_review(campaign, "Invalid qualifying", QualifyingError, write_review(campaign, content, **changes))


@pytest.mark.parametrize("changed", ["definitionDigest", "graderDigest", "both"])
def test_one_changed_digest_is_enough(campaign: Campaign, changed: str) -> None:
    keys = ["definitionDigest", "graderDigest"] if changed == "both" else [changed]
    following = {**PREVIOUS, **dict.fromkeys(keys, "next")}
    review = write_review(campaign, {**CONTENT, "next": following}, next=following)
    c = campaign.open()
    run(complete(c, run(launched(c, "a")), review))
    run(c.close())


@pytest.mark.parametrize("receipt", ["0" * 64, "", "no hash", None, 7, {"sha256": "x"}, "upper"])
def test_receipt_that_is_not_the_files_hash_is_a_mismatch(campaign: Campaign, receipt: Any) -> None:
    review = write_review(campaign)
    review["receiptSha256"] = review["receiptSha256"].upper() if receipt == "upper" else receipt
    refuse_review(campaign, "receipt mismatch", ReceiptError, review)


def test_receipt_is_judged_before_whether_the_file_is_evidence(campaign: Campaign) -> None:
    review = {**write_review(campaign), "receiptSha256": "no"}
    refuse_review(campaign, "receipt mismatch", ReceiptError, review, evidencePaths=[])


def test_review_is_judged_before_the_evidence(campaign: Campaign) -> None:
    review = {**write_review(campaign), "receiptSha256": "no"}
    refuse_review(campaign, "receipt mismatch", ReceiptError, review, evidencePaths=["../x", PATH])


def test_file_that_is_not_among_the_evidence_is_refused(campaign: Campaign) -> None:
    review = write_review(campaign)
    refuse_review(campaign, "is not among the completion's evidence", RefusedError, review, evidencePaths=["other"])


OTHER_CONTENTS: list[Any] = [
    {**CONTENT, "more": 1},
    {key: value for key, value in CONTENT.items() if key != "ordinal"},
    {**CONTENT, "id": "b"},
    {**CONTENT, "ordinal": 2},
    {**CONTENT, "ordinal": 1.0},
    {**CONTENT, "ordinal": "1"},
    {**CONTENT, "previous": NEXT},
    {**CONTENT, "next": PREVIOUS},
    {**CONTENT, "next": {**NEXT, "more": 1}},
    [CONTENT],
    b"",
    b"{}",
    b"not json",
    json.dumps(CONTENT).encode() + b"x",
    json.dumps(CONTENT).encode()[:-1] + b', "id": "a"}',
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", OTHER_CONTENTS, ids=range(len(OTHER_CONTENTS)))
def test_file_must_be_exactly_the_object(campaign: Campaign, content: Any) -> None:
    review = write_review(campaign, content)
    refuse_review(campaign, "does not hold exactly", RefusedError, review)


def test_file_may_be_spelt_in_any_way(campaign: Campaign) -> None:
    spelt = json.dumps(dict(reversed(CONTENT.items())), indent=4).encode() + b"\n\n"
    c = campaign.open()
    run(complete(c, run(launched(c, "a")), write_review(campaign, spelt)))
    run(c.close())


@pytest.mark.parametrize("kind", ["missing", "symlink", "hard link", "directory", "fifo", "large"])
def test_review_file_must_be_a_regular_file_of_bounded_size(campaign: Campaign, kind: str) -> None:
    review, path = write_review(campaign), campaign.evidence / PATH
    aside = campaign.evidence / "aside"
    path.rename(aside)
    if kind == "symlink":
        path.symlink_to("../aside")
    elif kind == "hard link":
        os.link(aside, path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)  # sparse
    phrases = {"missing": "receipt mismatch", "symlink": "symbolic link", "hard link": "hard links"}
    refuse_review(campaign, phrases.get(kind, "bytes" if kind == "large" else "regular file"), CoordinatorError, review)


@pytest.mark.parametrize("path", ["../reviews/closure.json", "/etc/passwd", "", "reviews", "a\0b"])
def test_review_path_outside_is_refused(campaign: Campaign, path: str) -> None:
    review = {**write_review(campaign), "evidencePath": path}
    refuse_review(campaign, "evidence path", RefusedError, review, evidencePaths=[path, PATH])


@pytest.mark.parametrize("review", ["review", 7, [], {}, {"evidencePath": PATH}, {"evidencePath": None}])
def test_review_without_its_form_is_refused(campaign: Campaign, review: Any) -> None:
    refuse_review(campaign, "review", InvalidInputError, review)


def test_another_review_is_a_content_conflict(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    review = write_review(campaign)
    run(complete(c, permit, review))
    following = {**NEXT, "graderDigest": "grader-3"}
    for other in (None, {**review, "next": following}, {**review, "receiptSha256": "0" * 64}):
        with untouched(campaign.path, campaign.control / "state.json"), refused("content conflict"):
            run(complete(c, permit, other))
    run(c.close())


def test_review_given_only_with_the_repeat_is_a_content_conflict(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(complete(c, permit, None))
    with untouched(campaign.path), refused("content conflict", ContentConflictError):
        run(complete(c, permit, write_review(campaign)))
    assert campaign.read()["scenarios"][0]["qualifyingGraderDigest"] == "grader-1"
    run(c.close())


def test_repeat_with_its_review_needs_the_file_no_more(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    review = write_review(campaign)
    run(complete(c, permit, review))
    (campaign.evidence / PATH).unlink()
    with untouched(campaign.path, campaign.control / "state.json"):
        run(complete(c, permit, review))
    receipt = snapshot(c).entries[permit.reservation_id].receipt
    assert receipt.review_sha256 is not None
    run(c.close())
