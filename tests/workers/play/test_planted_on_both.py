"""The example's planted bugs over the bridge and over a terminal: every finding stamped, and as short as is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers.play.games import CAVERN, cavern_settings, make_order, run_order, transcript
from workers.contract import RunReport

PLANTED: dict[str, Any] = json.loads((CAVERN / "planted.json").read_text())
SEED = 2
TEXT_ONLY = {"crash": "crash", "invariant": "console_error"}
"""Bugs that show in a text alone, and the oracle that sees them; the others need a list of moves or a state."""


def shortest(bug: str) -> int:
    return len(PLANTED["shifts"]["0"][bug]["inputs"][str(SEED)])


def on_terminal(bugs: str, folder: Path, **changes: Any) -> RunReport:
    command = [sys.executable, str(CAVERN / "terminal.py"), "--seed", "{seed}"]
    settings = {"command": [*command, *(["--bugs", bugs] if bugs else [])], "prompt": "^> $"}
    order = make_order(settings, driver="terminal", seed=SEED, max_actions=150, **changes)
    return run_order(order, folder / "run")[1]


@pytest.mark.parametrize("bug", sorted(TEXT_ONLY))
def test_a_finding_over_the_terminal_is_stamped_and_short(tmp_path: Path, bug: str) -> None:
    (finding,) = on_terminal(bug, tmp_path).findings
    assert (finding.oracle, finding.replay, finding.dropped) == (TEXT_ONLY[bug], "3/3", None)
    assert len(finding.actions) <= 1.5 * shortest(bug)
    assert {action["kind"] for action in finding.actions} == {"command"}


@pytest.mark.parametrize(
    "bug",
    [
        "crash",
        *(
            pytest.param(bug, marks=pytest.mark.ci)
            for bug in ("invariant", "softlock", "illegal_list", "lost_progress")
        ),
    ],
)
def test_a_finding_over_the_bridge_is_stamped_and_short(tmp_path: Path, bug: str) -> None:
    order = make_order(cavern_settings(bug), seed=SEED, max_actions=200)
    findings = run_order(order, tmp_path / "run")[1].findings
    assert findings and {finding.replay for finding in findings} == {"3/3"}
    assert min(len(finding.actions) for finding in findings) <= 1.5 * shortest(bug)


def test_nothing_is_claimed_of_the_example_without_bugs_and_its_text_is_the_bridges(tmp_path: Path) -> None:
    report = on_terminal("", tmp_path, persona="newcomer")
    assert report.findings == []
    first = run_order(make_order(cavern_settings(), seed=SEED, max_actions=1), tmp_path / "bridge")
    assert first[1].findings == []
    seen = " ".join(str(row["text"]) for row in transcript(tmp_path / "run"))
    assert "Mouth of the Cave" in seen and "Hall of Drips" in seen


def test_a_game_that_takes_no_seed_says_so_in_the_stamp(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input('Press Enter> '); raise RuntimeError('always')"]
    order = make_order({"command": command}, driver="terminal", seed=SEED, max_actions=5)
    report = run_order(order, tmp_path / "run")[1]
    assert [finding.replay for finding in report.findings] == ["3/3, seed not controlled"]
    assert report.tested["seed_control"] == "seed not controlled"
