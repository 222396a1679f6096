"""A trace plays again to the same end, or the first difference is named by step and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.simulation.batches import GAMES, bridge, configuration, in_process, play, script
from workers.simulation.batch import BatchResult
from workers.simulation.errors import TraceError
from workers.simulation.order import ReplayOrder
from workers.simulation.replay import ReplayResult, replay_trace
from workers.simulation.trace import read_trace

WALK = """
import json, random, sys
game = {}
for line in sys.stdin:
    message = json.loads(line)
    params = message["params"]
    if message["method"] == "initialize":
        result = {"name": "walk", "version": "1", "protocol": 1}
    elif message["method"] == "close":
        result = {}
    else:
        if message["method"] == "reset":
            game = {"dice": random.Random(SEED), "place": 0, "gold": 0}
        else:
            game["place"] += 1
            game["gold"] += game["dice"].randint(1, 6) + RULE
        done = game["place"] == 5
        result = {"state": {"gold": game["gold"], "place": game["place"]}, "done": done}
        if done:
            result |= {"outcome": "rich" if game["gold"] > 17 else "poor", "metrics": {"gold": game["gold"] * FACTOR}}
        else:
            result["actions"] = [{"id": "go"}]
        if message["method"] == "reset":
            result["seed"] = params["seed"]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def walk(path: Path, *, seed: str = "int(params['seed'])", rule: str = "0", factor: str = "1") -> dict[str, Any]:
    text = WALK.replace("SEED", seed).replace("RULE", rule).replace("FACTOR", factor)
    return script(path, text, step_timeout_ms=3_000)


def replay(trace: Path, game: dict[str, Any], **more: Any) -> ReplayResult:
    return replay_trace(ReplayOrder(trace=str(trace), bridge=game, **more))


def test_every_stored_trace_matches(tmp_path: Path) -> None:
    config = configuration(
        runs=60,
        strategies=[{"name": "r", "policy": "random"}, {"name": "l", "policy": "last"}],
        variants=[{"name": "fair"}, {"name": "bent", "params": {"bias": 900}}],
    )
    game = in_process("Coin")
    result = play(tmp_path, game, config)
    assert len(result.traces) >= 8
    for trace in result.traces:
        again = replay(trace, game, configuration=config)
        assert (again.matched, again.fully_replayed, again.first_divergence) == (True, True, None)
        assert (again.failure_reproduced, again.notes, again.exit_code) == (None, [], 0)


def test_a_trace_over_a_bridge_matches_and_holds_header_and_steps(tmp_path: Path) -> None:
    game = walk(tmp_path / "walk.py")
    result = play(tmp_path / "out", game, configuration(runs=3))
    header, steps = read_trace(result.traces[0])
    assert (header.run, header.strategy, len(steps), header.cut) == (0, "random", 6, False)
    assert (steps[0].action, steps[1].action, steps[5].done) == (None, "go", True)
    assert steps[5].metrics == {"gold": steps[5].state["gold"]}
    again = replay(result.traces[0], game)
    assert (again.matched, again.fully_replayed, again.steps_compared) == (True, True, 6)


@pytest.mark.parametrize(
    ("change", "step", "field"),
    [
        ({"rule": "(game['place'] >= 3)"}, 3, "state"),
        ({"seed": "None"}, 1, "state"),
        ({"factor": "2"}, 5, "metrics"),
    ],
)
def test_a_change_is_found_at_its_step_and_field(tmp_path: Path, change: dict[str, str], step: int, field: str) -> None:
    result = play(tmp_path / "out", walk(tmp_path / "walk.py"), configuration(runs=3, seed=5))
    again = replay(result.traces[0], walk(tmp_path / "walk.py", **change))
    assert again.first_divergence is not None
    assert (again.first_divergence.field, again.matched, again.exit_code) == (field, False, 1)
    if change == {"seed": "None"}:
        assert 1 <= again.first_divergence.step <= 3  # a die may fall the same way once or twice
    else:
        assert again.first_divergence.step == step
    assert again.first_divergence.expected != again.first_divergence.actual
    assert again.notes == ["another bridge or build than recorded; compared all the same"]
    assert [check.split(":")[0] for check in again.checks] == ["seed", "build", "outside"]


def test_another_configuration_is_said_and_compared_all_the_same(tmp_path: Path) -> None:
    game = in_process("Coin")
    result = play(tmp_path, game, configuration(runs=2))
    again = replay(result.traces[0], game, configuration=configuration(runs=2, seed=99))
    assert again.matched
    assert again.notes == ["another configuration than recorded; compared all the same"]


def test_hashes_leave_out_workers_sessions_and_time_outs(tmp_path: Path) -> None:
    game = bridge("coin", sessions=4)
    result = play(tmp_path, game, configuration(runs=2))
    other = {**game, "sessions": 1, "step_timeout_ms": 9_000, "startup_timeout_ms": 30_000}
    again = replay(result.traces[0], other, configuration=configuration(runs=2, workers=5))
    assert (again.matched, again.notes) == (True, [])


@pytest.mark.parametrize("fault", ["raises", "stalemate", "no_turn", "leaves"])
def test_a_failure_is_reproduced(tmp_path: Path, fault: str) -> None:
    game = in_process("faulty:Faulty")
    result = play(tmp_path, game, configuration(seed=3, runs=6, params={"fault": fault}))
    failures = [trace for trace in result.traces if read_trace(trace)[0].result.status == "failed"]
    assert len(failures) == 1
    again = replay(failures[0], game)
    if fault == "leaves":
        # Its steps died with its process: only the beginning can be played.
        assert again.failure_reproduced is False and again.matched is False
    else:
        assert (again.failure_reproduced, again.matched, again.fully_replayed) == (True, True, True)


def test_a_death_of_the_bridge_is_reproduced_and_its_absence_is_a_divergence(tmp_path: Path) -> None:
    dying = {"command": ["python3", "hostile.py", "dies"], "cwd": str(GAMES), "step_timeout_ms": 2_000}
    sound = {**dying, "command": ["python3", "hostile.py", "none"]}
    result = play(tmp_path, dying, configuration(seed=3, runs=4))
    failed = next(trace for trace in result.traces if read_trace(trace)[0].result.status == "failed")
    assert replay(failed, dying).failure_reproduced is True
    mended = replay(failed, sound)
    assert (mended.failure_reproduced, mended.matched) == (False, False)
    assert mended.first_divergence is not None
    assert (mended.first_divergence.step, mended.first_divergence.field) == (2, "failure")


def test_a_trace_that_ends_in_mid_game_is_a_matched_prefix_only(tmp_path: Path) -> None:
    game = in_process("faulty:Endless")
    result = play(tmp_path, game, configuration(runs=1, max_steps=20))
    again = replay(result.traces[0], game)
    assert (again.matched, again.fully_replayed) == (True, False)
    assert "matched prefix only" in again.notes[0]


def test_a_long_game_keeps_its_beginning_and_says_so(tmp_path: Path) -> None:
    game = in_process("faulty:Endless")
    result = play(tmp_path, game, configuration(runs=1, max_steps=30_000))
    header, steps = read_trace(result.traces[0])
    assert header.cut and 19_000 <= len(steps) <= 20_000
    again = replay(result.traces[0], game)
    assert (again.matched, again.fully_replayed) == (True, False)


@pytest.mark.parametrize("text", ["", "{}", "not json\n", '{"trace_version": 1}\n'])
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        replay(path, in_process("Coin"))
    assert caught.value.line == 1


def test_a_trace_with_a_step_missing_is_refused(tmp_path: Path) -> None:
    result: BatchResult = play(tmp_path, in_process("Coin"), configuration(runs=1))
    lines = result.traces[0].read_text().splitlines(keepends=True)
    assert json.loads(lines[1])["step"] == 0
    result.traces[0].write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(TraceError, match="step 1 where 0 is due"):
        replay(result.traces[0], in_process("Coin"))
