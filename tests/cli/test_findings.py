"""Findings by the real command: listed, marked, suppressed in the next run, and played again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.configuration import ConfigurationError
from coordinator.marks import FINDINGS_NAME, Mark, known_findings, read_marks, write_mark
from tests.cli.command import ROOT, Ran, coordinate

CAVERN = ROOT / "examples" / "cavern"


def play(folder: Path, bugs: str = "crash") -> Ran:
    """Seed 2: the explorer finds the planted crash within 30 inputs."""
    bridge = folder / "bridge.json"
    if not bridge.exists():
        command = [sys.executable, str(CAVERN / "bridge.py"), "--bugs", bugs]
        bridge.write_text(json.dumps({"command": command, "startup_timeout_ms": 30_000}))
    return coordinate(
        "run", "--json", "--no-control", "--personas", "explorer", "--max-actions", "120", "--seed", "2",
        "--fail-on", "critical", "--driver-config", "bridge.json", cwd=folder,
    )  # fmt: skip


def listed(folder: Path) -> list[dict[str, Any]]:
    ran = coordinate("findings", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = ran.document["findings"]
    return found


def test_a_finding_is_listed_played_again_marked_and_known_to_the_next_run(tmp_path: Path) -> None:
    assert play(tmp_path).code == 1
    (row,) = listed(tmp_path)
    assert (row["severity"], row["replay"], row["mark"], row["suppressed"]) == ("critical", "3/3", None, False)

    again = coordinate("replay", row["ids"][0], "--json", cwd=tmp_path)
    assert again.code == 0, again.err
    assert (again.document["replay"], again.document["reproduced"]) == ("3/3", True)
    assert again.document["signature"] == row["signature"] and not any((tmp_path / ".playlane" / "asked").iterdir())

    marked = coordinate("findings", "mark", row["ids"][0], "intended", "--name", "loose chain", "--json", cwd=tmp_path)
    assert marked.code == 0, marked.err
    assert [one.name for one in read_marks(tmp_path)] == ["loose chain"]

    second = play(tmp_path)
    assert second.code == 0, "an intended finding fails nothing"
    (row,) = listed(tmp_path)
    assert (row["suppressed"], row["name"], row["mark"]) == (True, "loose chain", "intended")
    plan = json.loads(
        (tmp_path / ".playlane" / "campaigns" / second.document["campaign"] / "manifest.json").read_text()
    )
    assert plan["scenarios"][0]["playtest"]["knownFindings"] == {row["signature"]: "loose chain"}

    # The same actions on a build without the bug: the finding does not come back.
    bridge = json.loads((tmp_path / "bridge.json").read_text())
    job = next((tmp_path / ".playlane" / "campaigns" / second.document["campaign"] / "batch-1" / "jobs").glob("*.json"))
    mended = json.loads(job.read_text())
    mended["play"]["driverSettings"]["command"] = bridge["command"][:2]
    job.write_text(json.dumps(mended))
    gone = coordinate("replay", row["ids"][0], "--json", cwd=tmp_path)
    assert (gone.code, gone.document["replay"], gone.document["reproduced"]) == (1, "0/3", False)


def test_what_cannot_be_found_is_refused_by_name(tmp_path: Path) -> None:
    for arguments in (
        ("replay", "nobody/f1"), ("replay", "nothing"), ("findings",), ("findings", "mark", "v1:00", "intended"),
        ("findings", "mark", "v1:00", "nonsense"),
    ):  # fmt: skip
        ran = coordinate(*arguments, "--json", cwd=tmp_path)
        assert ran.code == 3, arguments
        assert ran.document["error"]["message"]


def test_marks_come_back_as_they_were_written_and_one_signature_has_one_mark(tmp_path: Path) -> None:
    nasty = Mark(signature="v1:1", mark="intended", name='a "quoted" \\ name\n\x7f é', note="tab\t")
    write_mark(tmp_path, nasty)
    write_mark(tmp_path, Mark(signature="v1:2", mark="confirmed", name="other"))
    assert read_marks(tmp_path) == [nasty, Mark(signature="v1:2", mark="confirmed", name="other")]
    changed = Mark(signature="v1:1", mark="duplicate", name="same as 2")
    assert write_mark(tmp_path, changed)[0] == changed == read_marks(tmp_path)[0]
    assert known_findings([nasty, changed]) == {"v1:1": nasty.name}
    assert (tmp_path / FINDINGS_NAME).read_text().startswith("# ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[finding]]\nsignature = 'v1:1'\nmark = 'liked'\nname = 'x'", "mark"),
        ("[[finding]]\nsignature = 'v1:1'\nmark = 'intended'\nname = 'x'\ncolour = 'red'", "colour"),
        ("[[finding]\n", "not TOML"),
        ("[[finding]]\nsignature='v1:1'\nmark='intended'\nname='x'\n" * 2, "marked twice"),
    ],
)
def test_a_file_of_marks_with_a_fault_is_refused_and_not_overwritten(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / FINDINGS_NAME).write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        write_mark(tmp_path, Mark(signature="v1:2", mark="confirmed", name="other"))
    assert (tmp_path / FINDINGS_NAME).read_text() == text
