"""A small purchase without workers: its campaign lives in memory, its journal, ledger and service are the real ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator.bought import Options
from coordinator.documents import seal
from coordinator.journal import JOURNAL_VERSION, Batch, Journal, JournalFile
from coordinator.purchase import Purchase
from coordinator.quote import make_registration, make_request
from coordinator.records import Entry, Permit, Receipt, State
from coordinator.results import Kind, Standing
from coordinator.service.wire import Build, RunResult

PERSONAS = ("newcomer", "explorer")
PRICE_CENTS = 20
USED = 30_000
"""Millionths of a dollar that each played run uses."""


def scenario(persona: str, controller: str = "standard", repetition: int = 1) -> dict[str, Any]:
    return {
        "id": f"game.{persona}.{controller}.{repetition}",
        "playtest": {
            "kind": "play", "persona": persona, "controller": controller, "repetition": repetition,
            "driver": "cli_stdio",
        },
    }  # fmt: skip


SCENARIOS = [scenario(name) for name in PERSONAS]


def result(used: int = USED) -> RunResult:
    return RunResult(
        state="succeeded",
        quit_reason="goal_reached",
        actions_taken=12,
        report={"summary": "reached the goal"},
        usage={"microdollars": used, "coverage": "complete"},
    )


class MemoryCampaign:
    """What was played stays played, whoever asks: as files would. `ends` says how the next attempts end."""

    def __init__(self, ends: dict[str, Kind] | None = None) -> None:
        self.purchase: Purchase | None = None
        self.scenarios: Sequence[dict[str, Any]] = SCENARIOS
        self.kinds: dict[str, Kind] = {one["id"]: "unplayed" for one in SCENARIOS}
        self.ends = ends or {}
        self.launches: dict[str, int] = {}
        self.code = 0

    def standings(self) -> list[Standing]:
        return [
            Standing(scenario_id=name, kind=kind, result=result() if kind == "final" else None)
            for name, kind in self.kinds.items()
        ]

    async def play(self, scenario_ids: Sequence[str]) -> None:
        self._write_batch(scenario_ids)
        for name in scenario_ids:
            assert self.kinds[name] in ("unplayed", "interrupted"), "what has its end is never launched again"
            self.launches[name] = self.launches.get(name, 0) + 1
            self.kinds[name] = self.ends.pop(name, "final")

    def _write_batch(self, scenario_ids: Sequence[str]) -> None:
        """What `verify` finds of a batch: its directory in the journal, its state with a receipt for each run."""
        if self.purchase is None:
            return
        file = self.purchase.file
        control = Path(os.path.dirname(file.path), f"batch-{len(file.journal.batches) + 1}")
        batch = Batch(batch_id=control.name, control_directory=str(control))
        file.change(batches=[*file.journal.batches, batch])
        control.mkdir(mode=0o700)
        entries = {f"{control.name}-{number}": entry(name) for number, name in enumerate(scenario_ids)}
        state = State(
            version=1, batch_id=control.name, manifest_path=file.journal.manifest_path, owner=None,
            selections_sha256="0" * 64, entries=entries,
        )  # fmt: skip
        (control / "state.json").write_bytes(seal(state))

    def conclude(self) -> tuple[int | None, dict[str, Any] | None]:
        if not self.launches:
            return None, None
        return self.code, {"schema_version": "1.0", "played": len(self.launches)}


def entry(name: str) -> Entry:
    permit = Permit(reservation_id=name, batch_id="b", scenario_id=name, execution_id="e", ordinal=1, args=[])
    completion = {"outcome": "passed", "usage": {"costUsd": USED / 1_000_000}}
    return Entry(
        phase="completed",
        permit=permit,
        reserved_attempt={},
        receipt=Receipt(reserved_sha256="0" * 64, completion=completion),
    )


def registration(price_cents: int = PRICE_CENTS) -> bytes:
    request = make_request(SCENARIOS, run_length="standard", controllers_chosen=False)
    return make_registration(
        request, price_cents=price_cents, version="0.1.0", build=Build(kind="bridge", ref="f" * 64)
    )


def new_journal(
    folder: Path, *, key: str = "key-1", now: str, price_cents: int = PRICE_CENTS, service: str = "embedded"
) -> JournalFile:
    options = Options(
        project=str(folder), brain="scripted:1000", max_actions=100, wall_seconds=600.0, lanes=2, fail_on="never"
    )
    journal = Journal(
        version=JOURNAL_VERSION,
        kind="campaign",
        key=key,
        game="local",
        service=service,
        state="registering",
        created_at=now,
        request=registration(price_cents).decode(),
        price_cents=price_cents,
        limits={},
        options=msgspec.to_builtins(options),
        manifest_path=str(folder / "manifest.json"),
    )
    return JournalFile.create(str(folder / ".playlane" / "campaigns" / key), journal)
