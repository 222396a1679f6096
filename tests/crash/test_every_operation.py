"""Every kind of fault at every file operation of every transition, then a recovery, faulted too."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.crash.counts import SEEDS, count
from tests.crash.exploration import explore, plain_steps
from tests.crash.seam import Fault, kinds_for
from tests.crash.transitions import TRANSITIONS, Transition

PAIRED = 1 / 8
DRAWN = 0.57
SEED = secrets.randbits(32)


@contextlib.contextmanager
def noted(case: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(case)
        raise


async def single_faults(transition: Transition, root: Path) -> list[Fault]:
    steps = await plain_steps(transition, root)
    return [Fault(number=number, kind=kind) for number, step in enumerate(steps, start=1) for kind in kinds_for(step)]


async def explore_transition(index: int, root: Path, seed: int, share: float) -> dict[str, int]:
    """A share of the faults in one transition, and for some of them a second one in the recovery."""
    transition, draw = TRANSITIONS[index], random.Random(seed + index)
    done = {"single faults": 0, "pairs of faults": 0}
    for position, fault in enumerate(await single_faults(transition, root)):
        if draw.random() >= share:
            continue
        with noted(f"{transition.name}: {fault}"):
            steps = await explore(transition, fault, root, deep=position % 16 == 0)
        done["single faults"] += 1
        if not steps or draw.random() >= PAIRED:
            continue
        number = draw.randint(1, len(steps))
        second = Fault(number=number, kind=draw.choice(kinds_for(steps[number - 1])))
        with noted(f"seed {seed}, {transition.name}: {fault}, then in its recovery {second}"):
            await explore(transition, fault, root, recovery_fault=second, deep=position % 16 == 1)
        done["pairs of faults"] += 1
    return done


def explore_in_process(index: int, root: str, seed: int, share: float) -> dict[str, int]:
    return asyncio.run(explore_transition(index, Path(root), seed, share))


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor
        executor.shutdown(cancel_futures=True)  # of tests that were not chosen


@pytest.fixture(scope="module", params=[DRAWN, pytest.param(1.0, marks=pytest.mark.ci)], ids=["drawn", "all"])
def explored(
    pool: ProcessPoolExecutor, memory_root: Path, request: pytest.FixtureRequest
) -> list[Future[dict[str, int]]]:
    """Four thousand faults drawn anew on each run, or all of them."""
    return [
        pool.submit(explore_in_process, index, str(memory_root), SEED, request.param)
        for index in range(len(TRANSITIONS))
    ]


@pytest.mark.parametrize("index", range(len(TRANSITIONS)), ids=[one.name for one in TRANSITIONS])
def test_every_fault_leaves_before_or_after(index: int, explored: list[Future[dict[str, int]]]) -> None:
    """At every operation, of every kind; every eighth is followed by a second one in the recovery."""
    SEEDS["single faults"] = SEEDS["pairs of faults"] = SEED
    for what, number in explored[index].result(timeout=600).items():
        count(what, number)
