"""The speeds that are promised, each beside its bare counterpart in the same run."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.coordinator.commits import measure_commits, measure_large_commits
from benchmarks.coordinator.dispatch import BEYOND_LIMIT_SECONDS, measure_dispatch
from benchmarks.coordinator.starting import measure_starting

pytestmark = pytest.mark.ci


def test_a_commit_costs_little_more_than_its_system_calls() -> None:
    found = asyncio.run(measure_commits())
    assert found.kept, found


def test_a_commit_on_ten_thousand_attempts_costs_at_most_twice_a_bare_replacement() -> None:
    found = asyncio.run(measure_large_commits())
    assert found.kept, found


def test_a_worker_starts_nearly_as_fast_as_its_interpreter() -> None:
    found = measure_starting()
    assert found.kept, found


def test_the_next_worker_starts_soon_after_a_delivery() -> None:
    found = asyncio.run(measure_dispatch())
    assert found.beyond <= BEYOND_LIMIT_SECONDS, found
