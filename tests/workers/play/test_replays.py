"""Replays: stamps, and input lists made short, in fresh sessions of real games."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drivers.base import Action
from tests.workers.play.games import CAVERN, cavern_settings, graph_settings, make_order, run_order
from workers.look import Input, input_from_data
from workers.replays import shorten

DEEP: dict[str, Any] = {
    "start": "a",
    "rooms": {
        "a": {"text": "A.", "moves": {"n": {"label": "on", "to": "b"}, "w": {"label": "wait"}}},
        "b": {"text": "B.", "moves": {"n": {"label": "on", "to": "c"}, "s": {"label": "back", "to": "a"}}},
        "c": {"text": "C.", "moves": {"x": {"label": "pull", "does": "crash"}, "s": {"label": "back", "to": "b"}}},
    },
}


def moves(finding: Any) -> list[str]:
    return [str(entry.get("move") or entry["kind"]) for entry in finding.actions]


def test_a_crash_is_replayed_three_times_and_its_inputs_become_the_shortest(tmp_path: Path) -> None:
    _, report = run_order(make_order(graph_settings(DEEP, tmp_path), brain="random", seed=5), tmp_path / "run")
    (finding,) = report.findings
    assert (finding.oracle, finding.replay) == ("crash", "3/3")
    assert moves(finding) == ["n", "n", "x"] and finding.repro_steps == ["on", "on", "pull"]


@pytest.mark.parametrize("bug", ["crash", "softlock"])
def test_a_planted_bug_shrinks_to_its_known_depth(bug: str, tmp_path: Path) -> None:
    _, report = run_order(make_order(cavern_settings(bug), max_actions=100), tmp_path / "run")
    planted = json.loads((CAVERN / "planted.json").read_text(encoding="utf-8"))["shifts"]["0"][bug]
    finding = report.findings[0]
    assert finding.replay == "3/3"
    assert moves(finding) == planted["inputs"]["1"]


def test_a_fault_that_hangs_on_chance_is_stamped_with_its_share(tmp_path: Path) -> None:
    script = tmp_path / "chance.py"
    counter = tmp_path / "count"
    counter.write_text("0", encoding="utf-8")
    script.write_text(CHANCE, encoding="utf-8")
    settings = {"command": ["python3", str(script), str(counter)], "cwd": str(tmp_path)}
    _, report = run_order(make_order(settings, max_actions=3), tmp_path / "run")
    assert [finding.replay for finding in report.findings] == ["1/3, seed not controlled"]


CHANCE = """
import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
count = int(path.read_text()) + 1
path.write_text(str(count))
broken = count in (1, 3)
for line in sys.stdin:
    r = json.loads(line)
    out = {"name": "c", "version": "1", "protocol": 1}
    if r["method"] != "initialize":
        out = {"state": 1, "text": "x", "actions": [{"id": "a"}], "done": False}
        out["violations"] = ["the sky fell"] if broken and r["method"] == "step" else []
    print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": out}), flush=True)
"""


def test_a_game_that_does_not_start_again_is_not_replayable(tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(CHANCE.replace("count in (1, 3)", "True").replace("for line", "assert count < 2\nfor line"))
    (tmp_path / "count").write_text("0", encoding="utf-8")
    settings = {"command": ["python3", str(script), str(tmp_path / "count")], "cwd": str(tmp_path)}
    _, report = run_order(make_order(settings, max_actions=3), tmp_path / "run")
    assert str(report.findings[0].replay).startswith("not replayable: the game did not start again")


def test_a_supposed_soft_lock_that_ends_by_itself_is_dropped(tmp_path: Path) -> None:
    script = tmp_path / "patience.py"
    script.write_text(PATIENCE, encoding="utf-8")
    settings = {"command": ["python3", str(script)], "cwd": str(tmp_path)}
    _, report = run_order(make_order(settings, max_actions=10, limits={"patience_steps": 9}), tmp_path / "run")
    (finding,) = report.findings
    assert (finding.oracle, finding.replay) == ("soft_lock", "0/3")
    assert finding.dropped is not None


PATIENCE = """
import json, sys
# Opens by itself at the fourth input, except in the first session of this folder.
import pathlib
mark = pathlib.Path(__file__).with_suffix(".played")
first = not mark.exists()
mark.touch()
steps = 0
for line in sys.stdin:
    r = json.loads(line)
    out = {"name": "p", "version": "1", "protocol": 1}
    if r["method"] != "initialize":
        steps = 0 if r["method"] == "reset" else steps + 1
        is_open = steps >= 3 and not first
        moves = [{"id": "a"}, {"id": "b"}] if not is_open else [{"id": "go"}]
        out = {"state": is_open, "text": "door", "actions": moves, "done": False, "seed": "1"}
    print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": out}), flush=True)
"""


def test_shortening_keeps_just_what_is_needed() -> None:
    inputs = [Input(action=Action(kind="choose", move=str(index))) for index in range(64)]
    tried: list[int] = []

    async def trial(candidate: Sequence[Input]) -> bool:
        tried.append(len(candidate))
        return inputs[7] in candidate and inputs[50] in candidate

    assert asyncio.run(shorten(inputs, trial)) == [inputs[7], inputs[50]]
    assert len(tried) <= 60


def test_inputs_read_back_from_a_report_are_the_inputs() -> None:
    for given in (Input(restart=True), Input(action=Action(kind="command", text="take lamp"))):
        assert input_from_data(given.as_data()) == given
