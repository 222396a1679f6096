"""The report is one file that asks nobody for anything, and says first what matters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.workers.simulation.batches import GAMES, configuration, in_process, play
from workers.simulation import plots

THREE = [
    {"name": "<b>random</b> $x$", "policy": "random"},
    {"name": "first", "policy": "first"},
    {"name": "weighted", "policy": {"kind": "weighted", "weights": {"toss": 1}}},
]


def test_the_page_is_whole_in_itself_and_escapes_names(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are an extra; without it the next test is the one that matters")
    result = play(tmp_path, in_process("Coin"), configuration(runs=90, strategies=THREE), plots=True)
    page = result.report.read_text()
    assert page.count("<svg") == 4
    for title in ("How games end", "Which strategy does better", "metrics look like", "How long games take"):
        assert title in page
    assert not re.search(r"<script|<link|<iframe|@import|src=|url\((?!#)", page)
    links = set(re.findall(r'(?:xlink:)?href="([^"#][^"]*)"', page))
    assert links == {f"traces/{path.name}" for path in result.traces}
    assert "<b>random</b>" not in page and "&lt;b&gt;random&lt;/b&gt; $x$" in page
    assert len(page) < 2_000_000


def test_without_matplotlib_the_tables_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_plots(*_: object) -> list[plots.Plot]:
        raise plots.NoPlotsError

    monkeypatch.setattr("workers.simulation.report.draw_plots", no_plots)
    result = play(tmp_path, in_process("Coin"), configuration(runs=30), plots=True)
    page = result.report.read_text()
    assert "matplotlib is not installed" in page and "<svg" not in page
    assert result.exit_code == 0 and "heads: " in page


def test_the_first_sentence_is_about_what_went_wrong(tmp_path: Path) -> None:
    result = play(tmp_path, in_process("faulty:Faulty"), configuration(seed=3, runs=6, params={"fault": "raises"}))
    page = result.report.read_text()
    first = page[page.index('class="verdict') :]
    assert re.match(r'class="verdict warn">\d of 6 games failed', first)


def test_no_folder_name_of_this_machine_is_in_the_report(tmp_path: Path) -> None:
    result = play(tmp_path, in_process("Coin"), configuration(runs=30))
    assert str(GAMES) not in result.report.read_text() and str(tmp_path) not in result.report.read_text()
