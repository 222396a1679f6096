"""Prints how many cases the crash suites tried, and the seeds that draw the same ones again."""

from __future__ import annotations

import pytest

from tests.crash.counts import COUNTS, SEEDS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, number in sorted(COUNTS.items()):
        seed = f" (seed {SEEDS[what]})" if what in SEEDS else ""
        terminalreporter.write_line(f"crash suites: {number} {what}{seed}")
