"""Runs of one order after another, and the numbers that are made of them."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from workers.contract import Brief, EndReason, PlayOrder, RunReport, load_persona
from workers.playthrough import play

ROOT = Path(__file__).parents[2]
CAVERN = ROOT / "examples" / "cavern"
TEXTWORLD_BRIDGE = ROOT / "tests" / "workers" / "textworld_bridge.py"

ACTIONS = 200
SEEDS = (1, 2, 3, 4, 5)
QUESTS = tuple(range(1, 31))
ORACLES: Mapping[str, frozenset[str]] = {
    "crash": frozenset({"crash"}),
    "softlock": frozenset({"soft_lock"}),
    "unreachable_goal": frozenset({"unreachable_goal"}),
    "invariant": frozenset({"violation"}),
    "illegal_list": frozenset({"empty_moves", "illegal_move"}),
    "lost_progress": frozenset({"progress_lost"}),
}
"""Planted bug -> the oracles that name it."""

NOT_FOUND = ACTIONS + 1
PROCESSES = 2


class _NoStop:
    requested: EndReason | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run's report, and the highest progress in its transcript."""

    report: RunReport
    best_progress: float


def run(brain: str, settings: dict[str, Any], seed: int) -> Run:
    """Play the explorer with default limits, without a control run, in a folder that is removed afterwards."""
    order = PlayOrder(
        persona=load_persona("explorer"),
        controller="standard",
        brain=brain,
        driver="cli_stdio",
        driver_settings=settings,
        brief=Brief(),
        max_actions=ACTIONS,
        wall_seconds=600.0,
        seed=seed,
        control_run=False,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(
            play(
                order,
                run_directory=folder,
                scenario_id=f"{brain}-{seed}",
                run_id=f"{brain}-{seed}",
                batch_id="exploration",
                execution_id=f"{brain}-{seed}",
                environment={"PATH": os.environ["PATH"]},
                stop=_NoStop(),
                now=lambda: "",
            )
        )
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=RunReport)
        lines = (folder / "transcript.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line)["progress"] for line in lines]
    return Run(report=report, best_progress=max((value for value in values if value is not None), default=0.0))


def run_all(asked: Sequence[tuple[str, dict[str, Any], int]]) -> list[Run]:
    """Play (brain, settings, seed) each as `run` does, two at a time in processes of their own; in the order asked."""
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(run, *zip(*asked, strict=True)))


def cavern(bug: str | None, shift: int = 0) -> dict[str, Any]:
    """Bridge settings of the example with one planted bug switched on, its gate moved by `shift`."""
    extra = ([] if bug is None else ["--bugs", bug]) + ([] if shift == 0 else ["--shift", str(shift)])
    return {"command": [sys.executable, str(CAVERN / "bridge.py"), *extra], "cwd": str(CAVERN)}


def textworld(folder: Path) -> dict[str, Any]:
    """Bridge settings of generated quests, which are kept in `folder`."""
    return {
        "command": [sys.executable, "-W", "ignore", str(TEXTWORLD_BRIDGE), str(folder)],
        "startup_timeout_ms": 120_000,
        "step_timeout_ms": 30_000,
    }


def actions_to_find(bug: str, report: RunReport) -> int:
    """The step of the first standing finding that names the bug, else `NOT_FOUND`."""
    steps = [
        finding.step
        for finding in report.findings
        if finding.oracle in ORACLES[bug] and finding.dropped is None and finding.step is not None
    ]
    return min(steps, default=NOT_FOUND)


def recall(brain: str, shift: int = 0) -> dict[tuple[str, int], int]:
    """(bug, seed) -> actions to find it, each bug alone in the game."""
    pairs = [(bug, seed) for bug in ORACLES for seed in SEEDS]
    runs = run_all([(brain, cavern(bug, shift), seed) for bug, seed in pairs])
    return {(bug, seed): actions_to_find(bug, played.report) for (bug, seed), played in zip(pairs, runs, strict=True)}


def found_per_seed(found: Mapping[tuple[str, int], int]) -> list[int]:
    """How many of the bugs were found with each seed."""
    return [sum(found[(bug, seed)] < NOT_FOUND for bug in ORACLES) for seed in SEEDS]


def sign_test(better: Sequence[int], worse: Sequence[int]) -> tuple[int, int, float]:
    """Pairs won, pairs lost, and the exact two-sided p of a sign test (ties left out); fewer actions win."""
    won = sum(one < other for one, other in zip(better, worse, strict=True))
    lost = sum(one > other for one, other in zip(better, worse, strict=True))
    number = won + lost
    tail = sum(math.comb(number, k) for k in range(max(won, lost), number + 1)) / 2**number
    return won, lost, min(1.0, 2 * tail)


def median(found: Mapping[tuple[str, int], int]) -> float:
    """The median of actions to find, a bug not found counting as one action more than there were."""
    return statistics.median(found.values())
