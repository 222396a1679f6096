"""Unmodified games that nobody here wrote, on a terminal: PyPI's adventure, Debian's bsdgames and nethack-console."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.workers.play.games import Flag, make_order, transcript
from workers.contract import PlayOrder, RunReport
from workers.playthrough import play

PERSONAS = ("newcomer", "explorer", "button_masher")
SEEDS = (1, 2, 3)
GAMES_PATH = f"{os.environ['PATH']}:/usr/games"
NETHACK_PLAYGROUND = Path("/var/games/nethack")
MIN_ROOMS = 10
ACTIONS = 200

pytestmark = pytest.mark.ci
needs_adventure = pytest.mark.skipif(
    importlib.util.find_spec("adventure") is None, reason="adventure is missing: pip install -e '.[ci]' brings it"
)


def needs(program: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program, path=GAMES_PATH) is None, reason=f"{program} is missing: apt-get install {package} has it"
    )


def play_together(orders: dict[str, PlayOrder], folder: Path) -> dict[str, RunReport]:
    """Play orders at the same time (games that print slowly mostly sleep); their reports by name."""

    async def one(name: str, order: PlayOrder) -> RunReport:
        (folder / name).mkdir(mode=0o700)
        await play(
            order,
            run_directory=folder / name,
            scenario_id=name,
            run_id=name,
            batch_id="batch",
            execution_id=name,
            environment={"PATH": GAMES_PATH, "PYTHONDONTWRITEBYTECODE": "1"},
            stop=Flag(),
            now=lambda: "2030-01-01T00:00:00.000Z",
        )
        return msgspec.json.decode((folder / name / "report.json").read_bytes(), type=RunReport)

    async def everything() -> list[RunReport]:
        return await asyncio.gather(*(one(name, order) for name, order in orders.items()))

    return dict(zip(orders, asyncio.run(everything()), strict=True))


def terminal_order(command: list[str], **changes: Any) -> PlayOrder:
    return make_order({"command": command, "startup_timeout_ms": 60_000}, driver="terminal", **changes)


def shown_text(folder: Path) -> str:
    return "\n".join(str(row["text"]) for row in transcript(folder))


def check_runs(command: list[str], folder: Path, wanted: tuple[str, ...], actions: int = 30) -> None:
    """Three personas play; their transcripts hold the game's own words, and nothing serious is claimed of the game."""
    orders = {
        persona: terminal_order(command, persona=persona, max_actions=actions, wall_seconds=300.0)
        for persona in PERSONAS
    }
    for persona, report in play_together(orders, folder).items():
        assert report.steps >= 5, (persona, report.summary)
        assert report.end_reason in ("max_actions", "gave_up", "stuck"), report.summary
        assert [one.title for one in report.findings if one.severity in ("critical", "major")] == []
        assert report.tested["seed_control"] == "seed not controlled"
        text = shown_text(folder / persona)
        missing = [words for words in wanted if words not in text]
        assert missing == [], (persona, missing)
        assert "\x1b" not in text


@needs("hangman", "bsdgames")
def test_hangman_is_played_by_keys_on_its_whole_screen(tmp_path: Path) -> None:
    check_runs(["hangman"], tmp_path, ("Guessed:", "Word:", "|_________|"))


@needs("wump", "bsdgames")
def test_wump_is_played_by_lines(tmp_path: Path) -> None:
    check_runs(["wump"], tmp_path, ("You are in room", "Move or shoot? (m-s)"))


@needs("robots", "bsdgames")
def test_robots_is_played_by_keys_on_its_whole_screen(tmp_path: Path) -> None:
    check_runs(["robots"], tmp_path, ("Directions:", "Score:", "+-----------"))


@pytest.fixture
def nethack(tmp_path: Path) -> Iterator[list[str]]:
    """A command with a name of its own for each session; what nethack saves under them is removed afterwards."""
    names = tmp_path / "names"
    yield ["sh", "-c", f'echo "Pl$$" >> {names}; exec nethack -u "Pl$$" -@']
    for name in names.read_text().split() if names.exists() else ():
        for file in (*NETHACK_PLAYGROUND.glob(f"*{name}*"), *(NETHACK_PLAYGROUND / "save").glob(f"*{name}*")):
            file.unlink(missing_ok=True)


@needs("nethack", "nethack-console")
def test_nethack_is_played_by_keys_on_its_whole_screen(tmp_path: Path, nethack: list[str]) -> None:
    (tmp_path / "runs").mkdir()
    check_runs(nethack, tmp_path / "runs", ("Dlvl:1", "HP:"))


@needs_adventure
def test_adventure_is_played_at_its_own_slow_pace(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adventure"]
    check_runs(command, tmp_path, ("STANDING AT THE END OF A ROAD BEFORE A SMALL BRICK BUILDING",), actions=25)


def rooms_seen(folder: Path) -> set[int]:
    """Numbers of the rooms whose long or short description stands in the transcript."""
    game: Any = importlib.import_module("adventure.game").Game()
    importlib.import_module("adventure").load_advent_dat(game)
    text = " ".join(shown_text(folder).split()).lower()
    found = set()
    for number, room in game.rooms.items():
        told = [" ".join((words or "").split()).lower() for words in (room.long_description, room.short_description)]
        if any(len(words) > 12 and words in text for words in told):
            found.add(number)
    return found


@needs_adventure
def test_at_least_ten_rooms_of_adventure_are_seen_in_two_hundred_actions_at_the_median_of_seeds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adventure"]
    orders = {
        str(seed): terminal_order(command, seed=seed, max_actions=ACTIONS, wall_seconds=1_500.0) for seed in SEEDS
    }
    reports = play_together(orders, tmp_path)
    assert {report.actions_taken for report in reports.values()} == {ACTIONS}
    assert statistics.median(len(rooms_seen(tmp_path / name)) for name in orders) >= MIN_ROOMS
