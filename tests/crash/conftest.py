"""Prints how many cases the crash suites tried, and the seeds that draw the same ones again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.counts import COUNTS, SEEDS


@pytest.fixture(scope="module")
def memory_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where there is one: what dies here are processes, nothing waits for a platter."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("crash")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, number in sorted(COUNTS.items()):
        seed = f" (seed {SEEDS[what]})" if what in SEEDS else ""
        terminalreporter.write_line(f"crash suites: {number} {what}{seed}")
