"""The Lamp Below: equal turns in both languages, no faults without planted ones, and those just where declared."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drivers.base import Action, Launch, Observation
from drivers.bridge import BridgeDriver
from drivers.errors import GameEndedError
from tests.drivers.children import ENVIRONMENT, EXAMPLES, cavern_settings

CAVERN = EXAMPLES / "cavern"
PLANTED: dict[str, Any] = json.loads((CAVERN / "planted.json").read_text())
BUGS = tuple(PLANTED["shifts"]["0"])
SEEDS = tuple(int(seed) for seed in PLANTED["goal"])
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


@contextmanager
def example_modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The example's own `rules` and `solver`, loaded from its folder and forgotten afterwards."""
    loaded = []
    for name in ("rules", "solver"):
        spec = importlib.util.spec_from_file_location(name, CAVERN / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        loaded.append(module)
    try:
        yield loaded[0], loaded[1]
    finally:
        del sys.modules["rules"], sys.modules["solver"]


async def play(directory: Path, settings: dict[str, Any], seed: int, moves: list[str]) -> list[Observation]:
    """Play these moves; the observations, the last one before a crash included."""
    driver = BridgeDriver()
    try:
        turns = [await driver.start(Launch(settings=settings, directory=directory, seed=seed, environment=ENVIRONMENT))]
        for move in moves:
            result = await driver.act(Action(kind="choose", move=move))
            assert result.status == "done", (move, result.detail)
            turns.append(result.observation)
        return turns
    finally:
        await driver.stop("end of test")


def played_by_chance(rules: ModuleType, seed: int, count: int) -> list[str]:
    """Moves of a player who often knows the way, so that every region is seen."""
    game, chance, moves = rules.Game(seed), random.Random(seed), []
    for _ in range(count):
        listed = [move["id"] for move in game.moves()]
        if not listed:
            break
        right = game.layout[game.region][game.spot]["right"] if game.region < 4 else listed[0]
        moves.append(right if right in listed and chance.random() < 0.6 else chance.choice(listed))
        game.step(moves[-1])
    return moves


@needs_node
@pytest.mark.parametrize("seed", [0, 1, 9007199254740993, 18446744073709551615])
def test_the_same_seed_and_moves_give_the_same_turns_in_python_and_javascript(tmp_path: Path, seed: int) -> None:
    with example_modules() as (rules, _):
        moves = played_by_chance(rules, seed, 150)
    assert len(moves) > 20
    python = asyncio.run(play(tmp_path, cavern_settings("bridge.json"), seed, moves))
    javascript = asyncio.run(play(tmp_path, cavern_settings("bridge-js.json"), seed, moves))
    for step, (one, other) in enumerate(zip(python, javascript, strict=True)):
        assert one == other, f"turn {step} after {moves[:step]}"
    assert len({turn.frame_hash for turn in python}) > 15


@needs_node
def test_seeds_that_differ_past_53_bits_are_different_caves(tmp_path: Path) -> None:
    for bridge_file in ("bridge.json", "bridge-js.json"):
        first = [
            asyncio.run(play(tmp_path, cavern_settings(bridge_file), seed, []))[0].frame_hash
            for seed in (2**53, 2**53 + 1)
        ]
        assert first[0] != first[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_goal_is_reached_in_twenty_moves_and_nothing_is_wrong_on_the_way(tmp_path: Path, seed: int) -> None:
    turns = asyncio.run(play(tmp_path, cavern_settings("bridge.json"), seed, PLANTED["goal"][str(seed)]))
    assert len(turns) == 21
    assert (turns[-1].goal, turns[-1].outcome, turns[-1].done) == (True, "lamp", True)
    assert [turn.violations for turn in turns] == [()] * 21
    assert [turn.progress for turn in turns[:20]] == list(range(20))


def everywhere(rules: ModuleType, solver: ModuleType, seed: int) -> tuple[dict[str, set[str]], set[str], int]:
    """Every situation of a game without bugs and where its moves lead; all outcomes; the largest number of moves."""
    queue = deque([rules.Game(seed)])
    leads_to: dict[str, set[str]] = {}
    outcomes, widest = set(), 0
    while queue:
        game = queue.popleft()
        turn = game.turn()
        turn.pop("metrics", None)
        here = json.dumps([turn, game.saved], sort_keys=True)
        if here in leads_to:
            continue
        leads_to[here] = set()
        assert turn["violations"] == []
        if turn["done"]:
            outcomes.add(turn["outcome"])
            continue
        assert turn["actions"], f"no moves in {turn['text']}"
        widest = max(widest, len(turn["actions"]))
        for move in turn["actions"]:
            following = solver.copy.copy(game)
            following.step(move["id"])
            told = following.turn()
            told.pop("metrics", None)
            leads_to[here].add(json.dumps([told, following.saved], sort_keys=True))
            queue.append(following)
    return leads_to, outcomes, widest


def test_without_planted_bugs_every_situation_has_moves_with_effect_and_a_way_to_the_goal() -> None:
    with example_modules() as (rules, solver):
        leads_to, outcomes, widest = everywhere(rules, solver, 3)
    assert outcomes == {"lamp", "eaten", "empty_handed", "darkness", "keeper"}
    assert 50 <= len(leads_to) <= 250
    assert widest <= 8
    reaching = {here for here in leads_to if json.loads(here)[0]["goal"]}
    grew = True
    while grew:
        more = {here for here, there in leads_to.items() if there & reaching} - reaching
        reaching |= more
        grew = bool(more)
    for here, there in leads_to.items():
        turn = json.loads(here)[0]
        if not turn["done"]:
            assert there - {here}, f"nothing has an effect in {turn['text']}"
            assert here in reaching, f"the goal cannot be reached from {turn['text']}"


@pytest.mark.parametrize("bug", BUGS)
def test_no_shorter_input_shows_a_planted_bug(bug: str) -> None:
    with example_modules() as (rules, solver):
        assert bug in rules.BUGS
        for seed in SEEDS:
            found = solver.first_difference(seed, bug, 0)
            assert found == PLANTED["shifts"]["0"][bug]["inputs"][str(seed)]
            assert len(found) == PLANTED["shifts"]["0"][bug]["depth"]


def test_the_declared_depths_are_those_of_the_gates() -> None:
    depths = {bug: row["depth"] for bug, row in PLANTED["shifts"]["0"].items()}
    assert (depths["crash"], depths["softlock"], depths["unreachable_goal"]) == (3, 6, 10)
    for shift, rows in PLANTED["shifts"].items():
        moved = {bug for bug, row in rows.items() if row["gate"] != PLANTED["shifts"]["0"][bug]["gate"]}
        assert moved == (set() if shift == "0" else {"crash", "softlock"})
        for row in rows.values():
            assert {len(inputs) for inputs in row["inputs"].values()} == {row["depth"]}


def test_without_its_bug_the_goal_exists_and_with_it_no_input_reaches_it() -> None:
    with example_modules() as (_, solver):
        assert solver.way_to_goal(2) is not None
        assert solver.way_to_goal(2, ("unreachable_goal",)) is None


async def show(directory: Path, settings: dict[str, Any], seed: int, bug: str, moves: list[str]) -> None:
    """Play a declared input over the real bridge and see the bug."""
    if bug == "crash":
        with pytest.raises(GameEndedError) as died:
            await play(directory, settings, seed, moves)
        assert died.value.exit_code == 1
        assert "fastened to nothing" in died.value.tail
        return
    turns = await play(directory, settings, seed, moves)
    last = turns[-1]
    if bug == "softlock":
        assert last.moves
        for move in last.moves:
            after = (await play(directory, settings, seed, [*moves, move.id, last.moves[0].id]))[-1]
            assert after.frame_hash == last.frame_hash
    elif bug == "invariant":
        assert last.violations == ("gold is negative: -3",)
    elif bug == "illegal_list":
        assert (last.moves, last.done) == ((), False)
    elif bug == "lost_progress":
        saved = turns[moves.index("save") + 1].progress
        assert moves[-1] == "load"
        assert last.progress is not None and saved is not None and last.progress < saved
    else:
        assert moves[-1] == "open"
        assert last.frame_hash == turns[-2].frame_hash


@pytest.mark.parametrize("bridge_file", ["bridge.json", pytest.param("bridge-js.json", marks=needs_node)])
@pytest.mark.parametrize("bug", BUGS)
def test_each_declared_input_shows_its_bug_over_the_real_bridge(tmp_path: Path, bug: str, bridge_file: str) -> None:
    for shift, seeds in (("0", ("1",)), ("4", ("2",))):
        settings = cavern_settings(bridge_file, "--bugs", bug, "--shift", shift)
        for seed in seeds:
            moves = PLANTED["shifts"][shift][bug]["inputs"][seed]
            asyncio.run(show(tmp_path, settings, int(seed), bug, moves))
            # The same input is harmless without the bug.
            clean = asyncio.run(play(tmp_path, cavern_settings(bridge_file), int(seed), moves))
            assert all(turn.moves and not turn.violations for turn in clean)
