"""The campaign's report built from real files: denominator, merging, states, links, what is written and what is not."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest

from coordinator.errors import CoordinatorError, InvalidInputError
from coordinator.reports import Aggregate, build_reports, read_aggregate, read_report, render
from coordinator.reports.markdown import render_markdown
from tests.coordinator.reports.campaigns import (
    HOSTILE,
    NOW,
    CampaignOnDisk,
    a_finding,
    a_report,
    never_started,
    six_by_three,
)
from workers.contract import Evidence


def aggregate_of(made: CampaignOnDisk, fail_on: str = "major", baseline: frozenset[str] | None = None) -> Aggregate:
    return read_report(made.control, made.manifest, fail_on=fail_on, now=NOW, baseline=baseline).aggregate


def test_eighteen_asked_thirteen_played_five_not_everywhere(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    paths = build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    told = json.loads(paths.aggregate_json.read_bytes())
    assert (told["asked"], told["played"], told["not_played"]) == (18, 13, 5)
    assert sum(cell["asked"] for cell in told["matrix"]) == 18
    assert sum(cell["played"] for cell in told["matrix"]) == 13
    assert sum(cell["not_played"] for cell in told["matrix"]) == 5
    assert {why for cell in told["matrix"] for why in cell["why_not"]} == {"the bridge did not greet within 10 s"}
    assert "18 playthroughs asked, 13 played, 5 not played." in told["verdict"]["detail"]
    markdown = paths.aggregate_md.read_text()
    assert "18 playthroughs asked, 13 played, 5 not played." in markdown
    assert "18 asked, 13 played, 5 not played." in markdown
    page = paths.html.read_text()
    assert "18 asked, 13 played, 5 not played." in page
    junit = paths.junit_xml.read_text()
    assert 'tests="18"' in junit
    assert junit.count("<error ") == 5


def test_findings_merge_by_signature_and_rank_by_severity_personas_and_stamp(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    one = [a_finding("v1:minor", ident="f1", severity="minor"), a_finding("v1:once", ident="f2", severity="major")]
    two = [
        a_finding("v1:twice", ident="f1", severity="major", replay="1/3"),
        a_finding("v1:once-stamped-less", ident="f2", severity="major", replay="2/3"),
    ]
    three = [a_finding("v1:twice", ident="f1", severity="note", replay="3/3", actions=["north"])]
    for persona, found in (("newcomer", one), ("explorer", two), ("cautious", three)):
        made.play(made.ask(persona, "standard"), a_report("r", persona=persona, findings=found))
    made.save()
    findings = aggregate_of(made).findings
    assert [(f.number, f.signature, f.severity, f.replay) for f in findings] == [
        (1, "v1:twice", "major", "3/3"),
        (2, "v1:once", "major", "3/3"),
        (3, "v1:once-stamped-less", "major", "2/3"),
        (4, "v1:minor", "minor", "3/3"),
    ]
    assert findings[0].personas == ["explorer", "cautious"]
    assert [met.step for met in findings[0].occurrences] == [3, 3]
    assert findings[0].actions == [{"kind": "choose", "move": "north"}]


def test_a_finding_links_to_its_run_step_screenshot_and_log_line(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    evidence = [
        Evidence(kind="transcript", ref="s3", step=3),
        Evidence(kind="screenshot", ref="shot-3", step=3),
        Evidence(kind="screenshot", ref="shot-9", step=9),
    ]
    run_id = made.play(made.ask("newcomer", "standard"), a_report("r", findings=[a_finding(evidence=evidence)]))
    shots = made.control / "runs" / run_id / "screenshots"
    shots.mkdir()
    (shots / "shot-3.png").write_bytes(b"\x89PNG\r\n\x1a\n0000")
    made.save()
    (finding,) = aggregate_of(made).findings
    links = finding.occurrences[0].evidence
    assert [(link.kind, link.present, link.line) for link in links] == [
        ("transcript", True, 3), ("screenshot", True, None), ("screenshot", False, None),
    ]  # fmt: skip
    for link in links[:2]:
        assert (made.control / "report" / unquote(link.path)).resolve().is_file()
    assert finding.occurrences[0].run_id == run_id


def test_known_and_dropped_findings_are_listed_and_do_not_count(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    found = [
        a_finding("v1:1", ident="f1", suppressed_by="the lamp burns out on purpose"),
        a_finding("v1:2", ident="f2", dropped="evidence s99 was never issued"),
    ]
    made.play(made.ask("newcomer", "standard"), a_report("r", findings=found))
    made.save()
    aggregate = aggregate_of(made, "minor")
    assert aggregate.findings == []
    assert [known.reason for known in aggregate.suppressed] == ["the lamp burns out on purpose"]
    assert [gone.reason for gone in aggregate.dropped] == ["evidence s99 was never issued"]
    assert (aggregate.verdict.level, aggregate.verdict.fails) == ("clean", False)
    assert "no proof" in aggregate.verdict.detail


def test_an_unreadable_report_is_a_failed_run_that_says_why(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    made.play(made.ask("newcomer", "standard"), b'{"run_id": "r", "findings": [')
    made.play(made.ask("explorer", "standard"), b"\xff\xfe")
    made.play(made.ask("cautious", "standard"), b'{"steps": "many"}')
    made.save()
    aggregate = aggregate_of(made)
    assert [row.state for row in aggregate.runs] == ["failed"] * 3
    assert [row.report_available for row in aggregate.runs] == [False] * 3
    assert all("report.json cannot be read" in row.why_not_played for row in aggregate.runs)
    assert (aggregate.asked, aggregate.played) == (3, 0)
    assert aggregate.verdict.level == "nothing_played"


def test_a_newer_report_with_unknown_keys_and_an_unknown_severity_is_read(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    told = msgspec.to_builtins(a_report("r", findings=[a_finding(), a_finding("v1:2", ident="f2")]))
    told["from_the_future"] = {"x": 1}
    told["findings"][1]["severity"] = "apocalyptic"
    made.play(made.ask("newcomer", "standard"), json.dumps(told).encode())
    made.save()
    aggregate = aggregate_of(made)
    assert aggregate.played == 1
    assert [finding.signature for finding in aggregate.findings] == ["v1:00000000000000aa"]
    assert [gone.finding_id for gone in aggregate.dropped] == ["f2"]
    assert "cannot be read" in aggregate.dropped[0].reason


def test_what_was_never_attempted_and_what_is_running_are_not_played(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    made.ask("newcomer", "standard")
    made.play(made.ask("explorer", "standard"), None, outcome="running")
    blocked = made.ask("cautious", "standard")
    blocked["blocker"] = "waits for a build"
    made.stop = {"reason": "operator_request", "detail": "enough", "at": NOW}
    made.save()
    aggregate = aggregate_of(made)
    assert [(row.state, row.played) for row in aggregate.runs] == [
        ("skipped", False), ("playing", False), ("skipped", False),
    ]  # fmt: skip
    assert [row.why_not_played for row in aggregate.runs] == [
        "it was not attempted",
        "no report was written; the attempt is running",
        "blocked: waits for a build",
    ]
    assert aggregate.stop == "operator_request: enough"


def test_a_partial_run_says_so_and_ends_reasons_are_counted(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    made.play(made.ask("newcomer", "standard"), a_report("r", end_reason="wall_clock", partial=True))
    made.play(made.ask("explorer", "standard"), a_report("r", end_reason="budget", partial=True))
    made.play(made.ask("cautious", "standard"), a_report("r", end_reason="goal_reached"))
    made.save()
    aggregate = aggregate_of(made)
    assert [row.state for row in aggregate.runs] == ["succeeded", "budget_exceeded", "succeeded"]
    assert aggregate.partial == 2
    assert aggregate.end_reasons == {"budget": 1, "goal_reached": 1, "wall_clock": 1}
    assert any("2 runs ended before the end" in limit for limit in aggregate.limits)


def test_a_game_that_crashes_before_the_first_step_was_played(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    crash = a_report("r", end_reason="game_crashed", steps=0, findings=[a_finding(step=0, actions=[])])
    made.play(made.ask("newcomer", "standard"), crash)
    nothing = a_report("r", end_reason="harness_fault", steps=0, partial=True)
    made.play(made.ask("explorer", "standard"), nothing, outcome="failed", failure="the disk is full")
    made.save()
    aggregate = aggregate_of(made)
    assert [row.played for row in aggregate.runs] == [True, False]
    assert aggregate.runs[1].why_not_played == "the disk is full"


def test_a_retry_shows_the_run_that_was_played_and_counts_every_attempt(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    scenario = made.ask("newcomer", "standard")
    made.play(scenario, a_report("r", end_reason="interrupted", partial=True, steps=5), outcome="interrupted")
    second = made.play(scenario, a_report("r", steps=30))
    made.play(scenario, never_started("newcomer", "standard"), outcome="failed", failure="no bridge")
    made.save()
    (row,) = aggregate_of(made).runs
    assert (row.run_id, row.ordinal, row.attempts, row.actions_taken) == (second, 2, 3, 30)
    assert aggregate_of(made).usage.attempts == 3


def test_an_attempt_of_an_earlier_batch_is_found_through_its_claim(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    run_id = made.play(made.ask("newcomer", "standard"), a_report("r", findings=[a_finding()]))
    entry = made.entries.pop(run_id)
    made.save()
    earlier = tmp_path / "earlier batch"
    made.control.rename(earlier)
    (made.control / "runs").mkdir(parents=True)
    made.save()
    claims = Path(f"{made.manifest}.coordinator-claims")
    claims.mkdir()
    claim = {"version": 1, **entry["permit"], "controlDirectory": str(earlier), "at": NOW}
    (claims / run_id).write_text(json.dumps(claim))
    (claims / "planted").write_text(json.dumps({**claim, "reservationId": "../../etc", "ordinal": 9}))
    aggregate = aggregate_of(made)
    assert (aggregate.played, aggregate.runs[0].run_id) == (1, run_id)
    path = aggregate.findings[0].occurrences[0].evidence[0].path
    assert (made.control / "report" / unquote(path)).resolve() == earlier / "runs" / run_id / "transcript.jsonl"


def test_unknown_cost_is_unknown_and_never_zero(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    for persona, usage in (("newcomer", {"costUsd": 0.25, "tokens": 10}), ("explorer", {"costUsd": None})):
        scenario = made.ask(persona, "standard")
        made.play(scenario, a_report("r", persona=persona))
        scenario["attempts"][0]["usage"] = usage
    made.save()
    usage_totals = aggregate_of(made).usage
    assert (usage_totals.cost_usd, usage_totals.tokens, usage_totals.unknown) == (None, None, 1)
    made.scenarios[1]["attempts"][0]["usage"] = {"costUsd": 0.5, "tokens": 5}
    made.save()
    assert (aggregate_of(made).usage.cost_usd, aggregate_of(made).usage.tokens) == (0.75, 15)


@pytest.mark.parametrize(
    ("fail_on", "baseline", "fails"),
    [
        ("never", None, []), ("critical", None, ["v1:c"]), ("major", None, ["v1:c", "v1:m"]),
        ("new:minor", frozenset({"v1:c"}), ["v1:m", "v1:s"]), ("new:minor", None, ["v1:c", "v1:m", "v1:s"]),
    ],
)  # fmt: skip
def test_fail_on_decides_what_reaches_the_bar(
    tmp_path: Path, fail_on: str, baseline: frozenset[str] | None, fails: list[str]
) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    found = [
        a_finding("v1:c", ident="f1", severity="critical"), a_finding("v1:m", ident="f2", severity="major"),
        a_finding("v1:s", ident="f3", severity="minor"), a_finding("v1:n", ident="f4", severity="note"),
    ]  # fmt: skip
    made.play(made.ask("newcomer", "standard"), a_report("r", findings=found))
    made.save()
    aggregate = aggregate_of(made, fail_on, baseline)
    assert [finding.signature for finding in aggregate.findings if finding.fails] == fails
    assert aggregate.verdict.fails is bool(fails)


def test_an_unknown_fail_on_is_refused_by_name(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    for word in ("severe", "new:never", "new:", ""):
        with pytest.raises(InvalidInputError, match="fail_on"):
            aggregate_of(made, word)


def test_a_missing_manifest_and_a_missing_control_directory_are_refused(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    with pytest.raises(InvalidInputError, match="plan the campaign first"):
        build_reports(made.control, tmp_path / "none.json", fail_on="never", now=NOW)
    with pytest.raises(InvalidInputError, match="no such control directory"):
        build_reports(tmp_path / "none", made.manifest, fail_on="never", now=NOW)
    with pytest.raises(CoordinatorError, match="format 'pdf'"):
        render(read_report(made.control, made.manifest, fail_on="never", now=NOW), "pdf")


def test_reports_are_private_and_nothing_outside_their_folder_changes(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")

    def outside() -> dict[str, bytes]:
        files = (path for path in made.folder.rglob("*") if path.is_file() and "report/" not in path.as_posix())
        return {str(path): path.read_bytes() for path in files}

    before = outside()
    paths = build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    first = [path.read_bytes() for path in msgspec.structs.astuple(paths)]
    assert outside() == before
    assert stat.S_IMODE(os.stat(made.control / "report").st_mode) == 0o700
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in msgspec.structs.astuple(paths)} == {0o600}
    build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    assert [path.read_bytes() for path in msgspec.structs.astuple(paths)] == first
    assert sorted(path.name for path in (made.control / "report").iterdir()) == [
        "aggregate.json", "aggregate.md", "junit.xml", "report.html",
    ]  # fmt: skip


def test_an_aggregate_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    paths = build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    assert read_aggregate(paths.aggregate_json) == aggregate_of(made)


def test_a_stack_trace_is_fenced_and_cannot_leave_its_fence(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    trace = "Traceback\n```\n````` <script>\n# heading\n\x1b[31mKeyError"
    made.play(made.ask("newcomer", "standard"), a_report("r", findings=[a_finding(description=trace)]))
    made.save()
    lines = render_markdown(aggregate_of(made)).splitlines()
    opened = lines.index("``````")
    assert lines[opened + 1 : opened + 7] == [
        "Traceback", "```", "````` <script>", "# heading", "KeyError", "``````",
    ]  # fmt: skip


def test_facts_that_all_runs_share_stand_once_and_others_with_their_runs(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c")
    for number in range(8):
        told = {"build": "b1", "seed_control": number != 7, "driver": {"name": "bridge", "steps": number}, "host": None}
        report = msgspec.structs.replace(a_report("r"), tested=told)
        made.play(made.ask("newcomer", "standard", number + 1), report)
    made.save()
    tested = aggregate_of(made).tested
    assert tested.runs == 8
    assert tested.shared == {"brain": "offline", "build": "b1", "name": "bridge", "host": "not known"}
    assert tested.varying == {"seed_control": {"yes": 7, "no": 1}}
    assert tested.own == ["steps"]


def test_hostile_text_is_text_in_markdown(tmp_path: Path) -> None:
    made = CampaignOnDisk(tmp_path / "c", campaign=HOSTILE)
    hostile = a_finding(title=HOSTILE + "\n# heading", category=HOSTILE, description=HOSTILE, actions=[HOSTILE])
    for controller in ("standard", "rune|x\ny"):
        made.play(made.ask("newcomer", controller), a_report("r", summary=HOSTILE, findings=[hostile]))
    made.save()
    markdown = render_markdown(aggregate_of(made))
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert "\x1b" not in markdown
    assert "\u202e" not in markdown
    assert re.search(r"(?<!\\)\]\(http", markdown) is None
    assert "\n# heading" not in markdown
    heads = 0
    for line, before in zip(lines := markdown.splitlines(), ["", *lines], strict=False):
        if line.startswith("|"):
            heads += not before.startswith("|")
            # A cell that kept a bar or a line break would move every cell after it.
            assert not before.startswith("|") or line.count("|") == before.count("|"), line
    # Asked and played, compared runs, compared findings, runs, coverage.
    assert heads == 5
