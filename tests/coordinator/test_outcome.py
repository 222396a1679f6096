"""Exit codes of a campaign, as the table of the design has them."""

from __future__ import annotations

import itertools

import pytest

from coordinator.outcome import Ended, judge_campaign

GOOD = Ended(scenario_id="good", end_reason="goal_reached", outcome="passed", played=True)


def ended(end_reason: str, outcome: str = "failed", *, played: bool = True) -> Ended:
    return Ended(scenario_id=end_reason or "missing", end_reason=end_reason, outcome=outcome, played=played)


@pytest.mark.parametrize(
    ("end_reason", "outcome", "code"),
    [
        ("goal_reached", "passed", 0), ("gave_up", "passed", 0), ("stuck", "passed", 0), ("max_actions", "passed", 0),
        ("game_exited", "passed", 0), ("game_crashed", "passed", 0), ("page_unresponsive", "passed", 0),
        ("wall_clock", "passed", 0), ("needs_human", "passed", 0), ("budget", "budget_exceeded", 2),
        ("model_fault", "failed", 5), ("model_refused", "failed", 5), ("harness_fault", "failed", 1),
        ("never_started", "failed", 1), ("interrupted", "interrupted", 10), ("canceled", "canceled", 10),
    ],
)  # fmt: skip
def test_one_run_beside_a_good_one_decides_the_exit_code(end_reason: str, outcome: str, code: int) -> None:
    played = end_reason != "never_started"
    found, reasons = judge_campaign(
        [GOOD, ended(end_reason, outcome, played=played)], stop=None, failed_findings=0, fail_on="never"
    )
    assert found == code
    assert bool(reasons) == bool(code)


def test_first_that_applies_of_10_3_1_5_2_1_decides_and_all_are_listed() -> None:
    canceled = ended("interrupted", "interrupted")
    model, budget = ended("model_fault"), ended("budget", "budget_exceeded")
    harness = ended("harness_fault")
    everything = [canceled, model, budget, harness]
    for size in range(1, 5):
        for some in itertools.combinations(everything, size):
            for findings in (0, 2):
                code, reasons = judge_campaign([*some, GOOD], stop=None, failed_findings=findings, fail_on="major")
                expected = (
                    10 if canceled in some else 1 if findings else 5 if model in some else 2 if budget in some else 1
                )
                assert code == expected
                assert len(reasons) == size + bool(findings)
                assert reasons[0].exit_code == code


def test_nothing_played_is_3_and_outranks_findings() -> None:
    code, reasons = judge_campaign(
        [ended("never_started", played=False)], stop=None, failed_findings=1, fail_on="minor"
    )
    assert code == 3
    assert [reason.exit_code for reason in reasons] == [3, 1, 1]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("operator_request", 10), ("canceled", 10), ("budget_exceeded", 2), ("coordinator_failure", 1),
        ("cleanup_failure", 1), ("secret_leak", 1), ("shared_infrastructure", 1),
    ],
)  # fmt: skip
def test_stop_of_the_batch_is_never_a_success(reason: str, code: int) -> None:
    found, reasons = judge_campaign([GOOD], stop=(reason, "why"), failed_findings=0, fail_on="never")
    assert found == code
    assert reason in reasons[0].what or code == 2


def test_run_that_was_not_played_is_1() -> None:
    code, [reason] = judge_campaign([GOOD, ended("", "", played=False)], stop=None, failed_findings=0, fail_on="never")
    assert (code, reason.what) == (1, "not played: missing")
