"""Controllers compared on five fixed sets of reports, against tables written by hand from the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.reports import PlannedRun, RunRecord, controller_comparison, run_state
from tests.coordinator.reports.campaigns import a_finding, a_report, never_started
from workers.contract import Evidence, RunReport


def planned(run_id: str, persona: str, controller: str, report: RunReport | None, **more: Any) -> PlannedRun:
    record = msgspec.convert(msgspec.to_builtins(report), RunRecord) if report is not None else None
    return PlannedRun(run_id=run_id, scenario_id=run_id, persona=persona, controller=controller, report=record, **more)


def compared(runs: list[PlannedRun]) -> dict[str, Any]:
    found = controller_comparison(runs)
    assert found is not None
    return found


def row(
    run_id: str, controller: str, state: str, available: bool, partial: bool, actions: int | None
) -> dict[str, Any]:
    return {
        "run_id": run_id, "persona": "newcomer", "controller": controller, "state": state,
        "report_available": available, "partial": partial, "actions_taken": actions,
    }  # fmt: skip


def evidence(ref: str, step: int) -> list[dict[str, Any]]:
    return [{"kind": "transcript", "ref": ref, "step": step}]


def test_two_whole_runs_with_one_common_finding_are_complete() -> None:
    runs = [
        planned("a", "newcomer", "standard", a_report("a", findings=[a_finding(title="Lamp", category="crash")])),
        planned("b", "newcomer", "rune", a_report("b", controller="rune", findings=[a_finding(title="Lamp", step=5)])),
    ]
    found = compared(runs)
    assert list(found) == ["schema_version", "controllers", "status", "limits", "runs", "findings", "control"]
    assert (found["schema_version"], found["controllers"]) == ("1.0", ["standard", "rune"])
    assert found["status"] == "reports_complete"
    assert found["runs"] == [
        row("a", "standard", "succeeded", True, False, 12),
        row("b", "rune", "succeeded", True, False, 12),
    ]
    assert found["findings"] == [
        {
            "title": "Lamp", "persona": "newcomer", "category": "crash", "match": "reported_by_multiple_controllers",
            "occurrences": [
                {"run_id": "a", "controller": "standard", "evidence": evidence("s3", 3)},
                {"run_id": "b", "controller": "rune", "evidence": evidence("s5", 5)},
            ],
        }
    ]  # fmt: skip
    assert found["control"] is None


def test_a_missing_run_makes_it_inconclusive_and_stands_there() -> None:
    runs = [
        planned("a", "newcomer", "standard", a_report("a", findings=[a_finding(title="Lamp")])),
        planned("b", "newcomer", "rune", None, report_fault="no report was written"),
    ]
    found = compared(runs)
    assert found["status"] == "inconclusive"
    assert found["runs"][1] == row("b", "rune", "failed", False, False, None)
    assert [item["match"] for item in found["findings"]] == ["reported_by_one_controller"]


def test_a_dropped_an_evidenceless_and_a_known_finding_are_left_out() -> None:
    dropped = a_finding("v1:1", ident="f1", title="Dropped", dropped="its evidence was never issued")
    bare = a_finding("v1:2", ident="f2", title="Bare", evidence=[])
    known = a_finding("v1:3", ident="f3", title="Known", suppressed_by="on purpose")
    stays = a_finding("v1:4", ident="f4", title="Stays")
    runs = [
        planned("a", "newcomer", "standard", a_report("a", findings=[dropped, bare, known, stays])),
        planned("b", "newcomer", "rune", a_report("b", findings=[dropped])),
    ]
    found = compared(runs)
    assert [(item["title"], item["match"]) for item in found["findings"]] == [("Stays", "reported_by_one_controller")]
    assert found["status"] == "reports_complete"


def test_titles_that_differ_by_case_and_white_space_are_one_finding() -> None:
    runs = [
        planned("a", "newcomer", "standard", a_report("a", findings=[a_finding("v1:1", title="The  LAMP\n burns")])),
        planned("b", "newcomer", "rune", a_report("b", findings=[a_finding("v1:2", title=" the lamp Burns ")])),
        planned("c", "explorer", "rune", a_report("c", findings=[a_finding("v1:3", title="the lamp burns")])),
        planned("d", "newcomer", "rune", a_report("d", findings=[a_finding(title="the lamp burns", category="text")])),
    ]
    found = compared(runs)["findings"]
    assert [
        (item["persona"], item["category"], item["title"], item["match"], [o["run_id"] for o in item["occurrences"]])
        for item in found
    ] == [
        ("explorer", "crash", "the lamp burns", "reported_by_one_controller", ["c"]),
        ("newcomer", "crash", "The LAMP burns", "reported_by_multiple_controllers", ["a", "b"]),
        ("newcomer", "text", "the lamp burns", "reported_by_one_controller", ["d"]),
    ]


def test_unknown_numbers_of_actions_stay_null() -> None:
    silent = msgspec.structs.replace(msgspec.convert(msgspec.to_builtins(a_report("a")), RunRecord), actions_taken=None)
    runs = [
        PlannedRun(run_id="a", scenario_id="a", persona="newcomer", controller="standard", report=silent),
        planned("b", "newcomer", "rune", a_report("b", steps=7)),
    ]
    found = compared(runs)
    assert [item["actions_taken"] for item in found["runs"]] == [None, 7]
    assert found["status"] == "reports_complete"


def test_a_controller_whose_runs_all_vanished_still_stands_there() -> None:
    runs = [
        planned("a", "newcomer", "standard", a_report("a")),
        planned("b", "newcomer", "jev", None, ledger_state="skipped"),
        planned("c", "newcomer", "rune", a_report("c", partial=True)),
    ]
    found = compared(runs)
    assert found["controllers"] == ["standard", "jev", "rune"]
    assert found["status"] == "inconclusive"
    assert found["runs"] == [
        row("a", "standard", "succeeded", True, False, 12),
        row("b", "jev", "skipped", False, False, None),
        row("c", "rune", "succeeded", True, True, 12),
    ]


def test_one_controller_is_no_comparison() -> None:
    assert controller_comparison([planned("a", "newcomer", "standard", a_report("a"))]) is None


def test_two_findings_of_one_run_are_one_controller() -> None:
    twice = [a_finding("v1:1", ident="f1", title="Lamp"), a_finding("v1:2", ident="f2", title="lamp", step=9)]
    runs = [
        planned("a", "newcomer", "standard", a_report("a", findings=twice)),
        planned("b", "newcomer", "rune", a_report("b")),
    ]
    (finding,) = compared(runs)["findings"]
    assert finding["match"] == "reported_by_one_controller"
    assert [item["evidence"] for item in finding["occurrences"]] == [evidence("s3", 3), evidence("s9", 9)]


def test_the_control_arm_stands_in_the_comparison_and_not_in_its_runs() -> None:
    with_arm = a_report("a", findings=[a_finding(title="Lamp")], control=True)
    runs = [planned("a", "newcomer", "standard", with_arm), planned("b", "newcomer", "rune", a_report("b"))]
    found = compared(runs)
    assert [item["run_id"] for item in found["runs"]] == ["a", "b"]
    assert found["control"] == {
        "runs": [
            {
                "beside_run_id": "a", "persona": "newcomer", "controller": "standard", "brain": "random", "seed": 42,
                "actions_taken": 12, "end_reason": "max_actions", "findings": 1, "coverage": {"states": 4},
            }
        ],
        "findings": [
            {"title": "Lamp", "category": "crash", "signature": "v1:00000000000000aa", "beside_run_ids": ["a"]}
        ],
    }  # fmt: skip


def test_the_limits_say_what_a_comparison_does_not_show() -> None:
    runs = [planned("a", "newcomer", "standard", a_report("a")), planned("b", "newcomer", "rune", a_report("b"))]
    said = " ".join(compared(runs)["limits"])
    assert "sessions of its own" in said
    assert "not proven" in said
    assert "verifies nothing" in said
    assert "passes nothing" in said


@pytest.mark.parametrize(
    ("report", "facts", "expected"),
    [
        ("whole", {"refused": True, "journal_state": "succeeded"}, "failed"),
        ("whole", {"journal_state": "canceled", "service_state": "succeeded"}, "canceled"),
        ("whole", {"service_state": "stalled"}, "stalled"),
        ("partial", {"service_state": "succeeded"}, "succeeded"),
        ("partial", {}, "budget_exceeded"),
        ("whole", {}, "succeeded"),
        (None, {"unreadable": True}, "failed"),
        (None, {"unreadable": True, "journal_state": "succeeded"}, "failed"),
        (None, {"journal_state": "canceled"}, "canceled"),
        (None, {}, "failed"),
    ],
)
def test_the_state_of_a_run_follows_the_rule(report: str | None, facts: dict[str, Any], expected: str) -> None:
    record = None if report is None else RunRecord(partial=report == "partial")
    assert run_state(record, **facts) == expected


def test_a_comparison_is_the_same_bytes_every_time() -> None:
    runs = [
        planned(name, "newcomer", controller, a_report(name, findings=[a_finding(title=title)]))
        for name, controller, title in (("a", "standard", "B"), ("b", "rune", "a"), ("c", "jev", "C"))
    ]
    assert msgspec.json.encode(compared(runs)) == msgspec.json.encode(compared(list(runs)))


def test_a_finding_of_a_run_that_never_started_is_compared_too() -> None:
    stillborn = msgspec.structs.replace(
        never_started("newcomer", "rune"),
        findings=[a_finding(title="No greeting", step=None, evidence=[Evidence(kind="console", ref="c1")])],
    )
    runs = [planned("a", "newcomer", "standard", a_report("a")), planned("b", "newcomer", "rune", stillborn)]
    found = compared(runs)
    assert found["runs"][1]["state"] == "skipped"
    assert found["findings"][0]["occurrences"][0]["evidence"] == [{"kind": "console", "ref": "c1", "step": None}]
