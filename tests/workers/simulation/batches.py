"""Batches for the tests: the games of `games/`, played by the real runner in real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.simulation.batch import BatchProgress, BatchResult, run_batch
from workers.simulation.order import SimulateOrder

GAMES = Path(__file__).parent / "games"
RANDOM = [{"name": "random", "policy": "random"}]
NOW = "2026-01-01T00:00:00.000Z"


class Stop:
    """A stop request that a test sets."""

    def __init__(self) -> None:
        self.requested: str | None = None


def configuration(**changes: Any) -> dict[str, Any]:
    """A small valid configuration with some keys changed; a value of None takes the key away."""
    base: dict[str, Any] = {
        "version": 1,
        "seed": 7,
        "runs": 20,
        "max_steps": 1000,
        "workers": 1,
        "strategies": RANDOM,
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def in_process(game: str) -> dict[str, Any]:
    """A game of `games/`, as `module:factory` or the name of a class in `known.py`."""
    return {"python": game if ":" in game else f"known:{game}", "cwd": str(GAMES)}


def bridge(game: str, *, sessions: int = 1, **keys: Any) -> dict[str, Any]:
    """A game of `known.py` behind a pipe."""
    command = [sys.executable, "serve.py", game, str(sessions)]
    return {"command": command, "cwd": str(GAMES), "sessions": sessions, **keys}


def script(path: Path, text: str, **keys: Any) -> dict[str, Any]:
    """A bridge of a test's own, written to `path`."""
    path.write_text(text)
    return {"command": [sys.executable, str(path)], "cwd": str(path.parent), **keys}


def play(
    directory: Path,
    game: dict[str, Any],
    config: dict[str, Any] | None = None,
    *,
    stop: Stop | None = None,
    plots: bool = False,
    configuration_directory: str = str(GAMES),
    progress: Callable[[BatchProgress], None] | None = None,
    **order: Any,
) -> BatchResult:
    """Play a batch to its end."""
    return run_batch(
        SimulateOrder(
            configuration=configuration() if config is None else config,
            bridge=game,
            configuration_directory=configuration_directory,
            plots=plots,
            **order,
        ),
        directory=directory,
        stop=stop or Stop(),
        progress=progress or (lambda _: None),
        now=lambda: NOW,
    )


def outcomes(result: BatchResult, cell: int = 0) -> dict[str, int]:
    """Outcome -> how many games of one strategy."""
    return {row["outcome"]: row["count"] for row in result.summary["strategies"][cell]["outcomes"]}


def reasons(result: BatchResult) -> list[str]:
    """What stands as reasons for games that did not complete, all strategies together."""
    return [row["reason"] for cell in result.summary["strategies"] for row in cell["reasons"]]
