"""The texts of a report."""

from __future__ import annotations

import pytest

from workers.contract import EndReason
from workers.findings import Event, EvidenceBook, Findings
from workers.playthrough import outcome_of
from workers.report import keep_playing, plain
from workers.session import Ended


@pytest.mark.parametrize("text", ["<b>", "a | b", "`x`", "[a](b)", "# up", "*bold*", "![i](j)", "~~s~~", "- list"])
def test_markdown_signs_of_the_game_lose_their_meaning(text: str) -> None:
    made = plain(text)
    for sign in "<|`[]#*!~":
        assert all(made[i - 1] == "\\" for i, c in enumerate(made) if c == sign)


def test_lines_of_the_game_become_one_bounded_line() -> None:
    assert plain("a\n\n# b\r\x1b[2Jc\u202e") == "a \\# b \\[2Jc"
    assert len(plain("x" * 5_000)) == 400


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("goal_reached", "passed"), ("gave_up", "passed"), ("stuck", "passed"), ("max_actions", "passed"),
        ("game_exited", "passed"), ("game_crashed", "passed"), ("page_unresponsive", "passed"),
        ("wall_clock", "passed"), ("needs_human", "passed"), ("budget", "budget_exceeded"), ("model_fault", "failed"),
        ("model_refused", "failed"), ("harness_fault", "failed"), ("never_started", "failed"),
        ("interrupted", "interrupted"), ("canceled", "canceled"),
    ],
)  # fmt: skip
def test_each_end_reason_has_its_outcome(reason: EndReason, outcome: str) -> None:
    assert outcome_of(reason, [], "never") == outcome


def test_a_finding_at_fail_on_fails_only_runs_that_were_played() -> None:
    book = EvidenceBook()
    findings = Findings(book, {})
    event = Event(oracle="crash", category="crash", severity="major", title="t", description="d", message="m")
    findings.add(event, step=1, evidence=[book.issue("transcript", 1)], actions=[], steps_in_words=[])
    assert outcome_of("max_actions", findings.standing(), "major") == "failed"
    assert outcome_of("max_actions", findings.standing(), "critical") == "passed"
    assert outcome_of("interrupted", findings.standing(), "major") == "interrupted"


def test_the_judgement_says_that_nobody_was_asked() -> None:
    for reason in ("gave_up", "goal_reached", "never_started"):
        assert "no person and no model was asked" in keep_playing(Ended(end_reason=reason), [])
