"""What the tests of playing share: orders on small games that run as real child processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from drivers.base import Action, Move, Observation
from workers.brains.base import Candidate
from workers.contract import Brief, EndReason, PlayOrder, PlayResult, RunReport, load_persona
from workers.look import Input
from workers.playthrough import play

HERE = Path(__file__).parent
GRAPH = HERE / "bridges" / "graph_bridge.py"
CAVERN = Path(__file__).parents[3] / "examples" / "cavern"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}


class Flag:
    """A stop request."""

    def __init__(self, requested: EndReason | None = None) -> None:
        self.requested = requested


def graph_settings(world: dict[str, Any], folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of a bridge that plays this world."""
    path = folder / "world.json"
    path.write_text(json.dumps(world), encoding="utf-8")
    return {"command": [sys.executable, str(GRAPH), str(path)], "cwd": str(folder), **more}


def cavern_settings(bugs: str = "", shift: int = 0) -> dict[str, Any]:
    """Settings of the example game with planted bugs switched on."""
    extra = (["--bugs", bugs] if bugs else []) + (["--shift", str(shift)] if shift else [])
    return {"command": [sys.executable, str(CAVERN / "bridge.py"), *extra], "cwd": str(CAVERN)}


def make_order(settings: dict[str, Any], **changes: Any) -> PlayOrder:
    """An order for the explorer with `offline`; `persona_changes` go into the persona's limits."""
    persona = load_persona(changes.pop("persona", "explorer"))
    persona["limits"].update(changes.pop("limits", {}))
    persona.update(changes.pop("persona_changes", {}))
    order = PlayOrder(
        persona=persona,
        controller="standard",
        brain="offline",
        driver="cli_stdio",
        driver_settings=settings,
        brief=Brief(),
        max_actions=60,
        wall_seconds=120.0,
        seed=1,
        control_run=False,
    )
    return msgspec.structs.replace(order, **changes)


def run_order(order: PlayOrder, folder: Path, stop: Flag | None = None) -> tuple[PlayResult, RunReport]:
    """Play an order in a new private folder; the result and the report as it lies on disk."""
    folder.mkdir(mode=0o700, parents=True)
    ticks = iter(range(1_000_000))

    def now() -> str:
        return f"2030-01-01T00:00:00.{next(ticks) % 1000:03d}Z"

    result = asyncio.run(
        play(
            order,
            run_directory=folder,
            scenario_id="scenario",
            run_id="run",
            batch_id="batch",
            execution_id="execution",
            environment=ENVIRONMENT,
            stop=stop or Flag(),
            now=now,
        )
    )
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=RunReport)
    return result, report


def transcript(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's transcript."""
    return [json.loads(line) for line in (folder / "transcript.jsonl").read_text(encoding="utf-8").splitlines()]


def observation(text: str = "A room.", moves: Sequence[str] | None = ("north",), **more: Any) -> Observation:
    """An observation that lists these moves, each labelled by its id."""
    listed = None if moves is None else tuple(Move(id=move, label=move) for move in moves)
    return Observation(text=text, moves=listed, **more)


def choose(move: str) -> Input:
    """The input that chooses a listed move."""
    return Input(action=Action(kind="choose", move=move))


def propose(*moves: str) -> list[Candidate]:
    """Candidates of listed moves."""
    return [Candidate(input=choose(move), label=move) for move in moves]


Goal = Callable[[Observation], bool | None]
