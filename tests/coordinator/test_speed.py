"""The speeds that are promised, each beside its bare counterpart in the same run.

A measurement on a shared machine can only come out too slow by chance, never too fast: the best of three counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from benchmarks.coordinator.commits import measure_commits, measure_large_commits
from benchmarks.coordinator.dispatch import BEYOND_LIMIT_SECONDS, measure_dispatch
from benchmarks.coordinator.measure import Ratio
from benchmarks.coordinator.starting import measure_starting

ROUNDS = 3


def assert_kept(measure: Callable[[], Ratio]) -> None:
    found = []
    for _ in range(ROUNDS):
        found.append(measure())
        if found[-1].kept:
            return
    pytest.fail(f"{found[0].name} against {found[0].against}: {[round(one.ratio, 2) for one in found]}")


# Not kept yet: about 1.4 where 1.25 is promised; the time beyond is spread over encoding, hashing, judging and reading.
@pytest.mark.soak
def test_a_commit_costs_little_more_than_its_system_calls() -> None:
    assert_kept(lambda: asyncio.run(measure_commits()))


@pytest.mark.measured
def test_a_commit_on_ten_thousand_attempts_costs_at_most_twice_a_bare_replacement() -> None:
    assert_kept(lambda: asyncio.run(measure_large_commits()))


@pytest.mark.measured
def test_a_worker_starts_nearly_as_fast_as_its_interpreter() -> None:
    assert_kept(measure_starting)


@pytest.mark.measured
def test_the_next_worker_starts_soon_after_a_delivery() -> None:
    found = []
    for _ in range(ROUNDS):
        found.append(asyncio.run(measure_dispatch()).beyond)
        if found[-1] <= BEYOND_LIMIT_SECONDS:
            return
    pytest.fail(f"seconds beyond the commits: {found}")
