"""JUnit, CI annotations, the difference of two campaigns, and the bundle."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest

from coordinator.errors import InvalidInputError
from coordinator.reports import Aggregate, against, build_reports, bundle, read_report, render, render_difference
from tests.coordinator.reports.campaigns import (
    HOSTILE,
    NOW,
    CampaignOnDisk,
    a_finding,
    a_report,
    never_started,
    six_by_three,
)

SCHEMA = Path(__file__).with_name("junit.xsd")


def rendered(made: CampaignOnDisk, form: str, fail_on: str = "major") -> bytes:
    return render(read_report(made.control, made.manifest, fail_on=fail_on, now=NOW), form)


def validated(junit: bytes) -> ElementTree.Element:
    etree: Any = pytest.importorskip("lxml.etree", reason="lxml is missing: pip install lxml")
    schema = etree.XMLSchema(etree.parse(str(SCHEMA)))
    schema.assertValid(etree.fromstring(junit))
    return ElementTree.fromstring(junit)


def hostile_campaign(folder: Path) -> CampaignOnDisk:
    made = CampaignOnDisk(folder, campaign=HOSTILE)
    nasty = HOSTILE + "\x00\x0b\ud800\ufffe\r\n::error::injected %0A , : " + "x" * 50_000
    finding = a_finding(
        title=nasty.replace("\ud800", ""), description=nasty.replace("\ud800", ""), actions=["\x1b]0;t\x07go"]
    )
    made.play(made.ask("newcomer\x01<b>", "standard"), a_report("r", findings=[finding]))
    broken = never_started("newcomer\x01<b>", "rune")
    made.play(made.ask("newcomer\x01<b>", "rune"), broken, outcome="failed", failure=HOSTILE + "\n::warning::x")
    made.save()
    return made


# -- JUnit ----------------------------------------------------------------------------------------------------------


def test_junit_has_a_suite_per_persona_and_a_case_per_scenario(tmp_path: Path) -> None:
    root = validated(rendered(six_by_three(tmp_path / "c"), "junit"))
    assert [suite.get("name") for suite in root] == [
        "newcomer", "explorer", "speedrunner", "completionist", "impatient", "cautious",
    ]  # fmt: skip
    assert [suite.get("tests") for suite in root] == ["3"] * 6
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("18", "8", "5")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases) == 18
    assert cases["cave/newcomer/jev/1"].find("error") is not None
    failure = cases["cave/explorer/rune/1"].find("failure")
    assert failure is not None
    assert failure.get("message") == "critical: The game ends with an error when the lamp is taken twice and 2 more"
    assert cases["cave/cautious/rune/1"].find("failure") is None
    below = cases["cave/cautious/rune/1"].findtext("system-out")
    assert below is not None
    assert "minor: Progress is lower" in below


def test_junit_fails_nothing_when_nothing_is_to_fail(tmp_path: Path) -> None:
    root = validated(rendered(six_by_three(tmp_path / "c"), "junit", "never"))
    assert (root.get("failures"), root.get("errors")) == ("0", "5")


def test_junit_is_valid_and_bounded_whatever_a_game_prints(tmp_path: Path) -> None:
    junit = rendered(hostile_campaign(tmp_path / "c"), "junit")
    root = validated(junit)
    assert len(junit) < 100_000
    assert (root.get("failures"), root.get("errors")) == ("1", "1")
    assert "\x1b" not in junit.decode()


# -- annotations ----------------------------------------------------------------------------------------------------


def test_annotations_are_one_command_a_line_in_the_order_of_the_ranking(tmp_path: Path) -> None:
    lines = rendered(six_by_three(tmp_path / "c"), "github").decode().splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == [
        "::error", "::error", "::error", "::warning", "::warning", "::error",
    ]  # fmt: skip
    assert lines[0].startswith("::error title=critical%3A The game ends with an error when the lamp is taken twice::")
    assert "%0AReplay: 3/3." in lines[0]
    assert "5 of 18 playthroughs were not played" in lines[4]


def test_no_text_of_a_game_begins_a_command(tmp_path: Path) -> None:
    text = rendered(hostile_campaign(tmp_path / "c"), "github").decode()
    lines = text.splitlines()
    assert len(lines) == 3
    assert "::error::injected" in lines[0].split("::", 2)[2]
    assert "%250A" in lines[0]
    title = lines[0].removeprefix("::error title=").split("::", 1)[0]
    assert not {":", ",", "\r"} & set(title)
    assert "\x1b" not in text


# -- two campaigns --------------------------------------------------------------------------------------------------


def campaign(folder: Path, runs: dict[str, list[str]], grader: str = "e", **report: Any) -> Aggregate:
    made = CampaignOnDisk(folder)
    for persona, signatures in runs.items():
        scenario = made.ask(persona, "standard")
        found = [a_finding(name, ident=f"f{at}") for at, name in enumerate(signatures)]
        made.play(scenario, a_report("r", persona=persona, findings=found, **report))
        scenario["attempts"][0]["graderDigest"] = grader * 64
    made.save()
    return read_report(made.control, made.manifest, fail_on="never", now=NOW).aggregate


def test_new_fixed_and_still_there_are_told_apart(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", {"newcomer": ["v1:stays", "v1:goes"]})
    after = campaign(tmp_path / "b", {"newcomer": ["v1:stays", "v1:comes"]})
    found = against(after, before)
    assert [row.signature for row in found.new] == ["v1:comes"]
    assert [row.signature for row in found.fixed] == ["v1:goes"]
    assert [row.signature for row in found.still] == ["v1:stays"]
    assert found.not_comparable == []
    assert "1 new, 1 fixed, 1 still there, 0 not comparable." in render_difference(found)


def test_what_nobody_could_have_met_is_not_fixed(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", {"newcomer": ["v1:x"], "explorer": []})
    after = campaign(tmp_path / "b", {"explorer": []})
    found = against(after, before)
    assert found.fixed == []
    assert [(row.signature, row.why) for row in found.not_comparable] == [
        ("v1:x", "only there, and nobody of newcomer x standard played in this campaign")
    ]
    assert [row.why for row in against(before, after).not_comparable] == [
        "only here, and nobody of newcomer x standard played in the other campaign"
    ]


def test_partial_runs_other_graders_and_shorter_runs_show_nothing_fixed(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", {"newcomer": ["v1:x"]})
    partial = campaign(tmp_path / "b", {"newcomer": []}, partial=True, end_reason="wall_clock")
    assert "partial" in against(partial, before).not_comparable[0].why
    regraded = campaign(tmp_path / "c", {"newcomer": []}, grader="f")
    assert "another grader" in against(regraded, before).not_comparable[0].why
    whole = campaign(tmp_path / "d", {"newcomer": []})
    short = msgspec.structs.replace(whole, runs=[msgspec.structs.replace(row, max_actions=2) for row in whole.runs])
    assert "it took 3 steps" in against(short, before).not_comparable[0].why
    assert [row.signature for row in against(whole, before).fixed] == ["v1:x"]
    nothing = msgspec.structs.replace(whole, played=0)
    assert "nothing was played" in against(nothing, before).not_comparable[0].why


def test_a_finding_marked_as_known_since_is_not_fixed(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", {"newcomer": ["v1:x"]})
    made = CampaignOnDisk(tmp_path / "b")
    known = a_finding("v1:x", suppressed_by="on purpose")
    made.play(made.ask("newcomer", "standard"), a_report("r", findings=[known]))
    made.save()
    after = read_report(made.control, made.manifest, fail_on="never", now=NOW).aggregate
    found = against(after, before)
    assert (found.fixed, found.new, found.not_comparable) == ([], [], [])


def test_the_difference_says_that_both_played_the_same_build(tmp_path: Path) -> None:
    before = campaign(tmp_path / "a", {"newcomer": []})
    assert "Both campaigns played the same build." in against(before, before).remarks


# -- bundle ---------------------------------------------------------------------------------------------------------


def test_a_bundle_holds_report_and_evidence_so_that_its_links_lead_somewhere(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    result = bundle(made.control, tmp_path / "out.zip")
    aggregate = read_report(made.control, made.manifest, fail_on="major", now=NOW).aggregate
    with zipfile.ZipFile(result.path) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
    assert names == set(result.files)
    linked = [item.path for f in aggregate.findings for met in f.occurrences for item in met.evidence if item.present]
    assert len(linked) == 16
    for path in linked:
        assert os.path.normpath(f"report/{unquote(path)}") in names
    assert stat.S_IMODE(os.stat(result.path).st_mode) == 0o600
    assert result.bytes == os.stat(result.path).st_size


def test_a_bundle_takes_no_keys_no_private_home_and_follows_no_link(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    (made.control / "jobs").mkdir()
    (made.control / "jobs" / "r00000.json").write_text('{"key": "secret"}')
    run = made.control / "runs" / "r00000"
    (run / "home").mkdir()
    (run / "home" / "save.dat").write_text("secret")
    (tmp_path / "private.png").write_bytes(b"secret")
    (run / "shot.png").symlink_to(tmp_path / "private.png")
    (run / "usage.json").unlink(missing_ok=True)
    (run / "usage.json").symlink_to(tmp_path / "private.png")
    os.mkfifo(run / "pipe.png")
    (made.control / "runs" / "elsewhere").symlink_to(tmp_path)
    result = bundle(made.control, tmp_path / "out.zip")
    with zipfile.ZipFile(result.path) as archive:
        assert all(b"secret" not in archive.read(name) for name in archive.namelist())
    assert not {name for name in result.files if "shot" in name or "pipe" in name or "home" in name or "jobs" in name}


def test_the_same_files_make_the_same_bundle_and_without_a_report_there_is_none(tmp_path: Path) -> None:
    made = six_by_three(tmp_path / "c")
    with pytest.raises(InvalidInputError, match="build it first"):
        bundle(made.control, tmp_path / "out.zip")
    assert list(tmp_path.glob("*.zip*")) == []
    build_reports(made.control, made.manifest, fail_on="major", now=NOW)
    first = bundle(made.control, tmp_path / "a.zip").path.read_bytes()
    assert bundle(made.control, tmp_path / "b.zip").path.read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip", "c"]
