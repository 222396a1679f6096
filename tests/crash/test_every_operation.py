"""Every kind of fault at every file operation of every transition, then a recovery, faulted too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.counts import SEEDS, count
from tests.crash.exploration import explore, plain_steps
from tests.crash.seam import Fault, kinds_for
from tests.crash.transitions import TRANSITIONS, Transition

PAIRS_PER_TRANSITION = 60
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
    return [
        Fault(number=number, kind=kind) for number, step in enumerate(steps, start=1) for kind in kinds_for(step)
    ]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these faults are of processes, nothing here waits for a platter."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda one: one.name)
def test_every_single_fault_leaves_before_or_after(transition: Transition, root: Path) -> None:
    async def check() -> None:
        for position, fault in enumerate(await single_faults(transition, root)):
            with noted(f"{transition.name}: {fault}"):
                await explore(transition, fault, root, deep=position % 16 == 0)
            count("single faults")

    asyncio.run(check())
