"""Campaigns that are bought through the real command, on a game that lasts until somebody ends it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from coordinator.bought import Options
from coordinator.coordinator import utc_now
from coordinator.documents import decode
from coordinator.journal import Journal, JournalFile, list_journals, new_key
from coordinator.money import verify_purchases
from coordinator.purchase import Purchase
from coordinator.quote import make_registration, make_request
from coordinator.service.embedded import EmbeddedService
from coordinator.service.ledger import Balances, Ledger
from coordinator.service.matrix import RunPrice
from coordinator.service.wire import Build
from tests.cli.command import Ran, coordinate
from tests.cli.test_run import ENDLESS, GAME, PATIENT, PATIENT_PERSONAS, make_endless

BUDGET = 1_000_000_000
PRICE = 100
"""Millionths of a dollar for each action."""
BRAIN = ("--brain", f"scripted:{PRICE}")
ENDLESS_RUN = (*BRAIN, "--yes", "--max-actions", ENDLESS, *PATIENT_PERSONAS)


class Shop:
    """A project with an endless game, two patient personas and a budget."""

    def __init__(self, root: Path, *, budget: int = BUDGET) -> None:
        self.root = root
        make_endless(root / "road")
        # What a test tells the game lies in a hidden folder, which is no part of the build.
        (root / "road" / ".told").mkdir()
        start = f"import os, runpy; os.chdir('.told'); runpy.run_path({str(GAME)!r}, run_name='__main__')"
        self.bridge = root / "road" / "bridge.json"
        self.bridge.write_text(json.dumps({"command": [sys.executable, "-c", start]}))
        for name in ("walker", "runner"):
            (root / f"{name}.toml").write_text(PATIENT.format(name=name))
        self.path = root / ".playlane" / "ledger.sqlite"
        if budget:
            set_to = coordinate("budget", "set", f"{budget / 1_000_000:.2f}", cwd=root)
            assert set_to.code == 0, set_to.err

    def run(self, *arguments: str, bridge: str = "road/bridge.json") -> Ran:
        return coordinate("run", "--json", "--no-control", "--driver-config", bridge, *arguments, cwd=self.root)

    def resume(self, *arguments: str) -> Ran:
        return coordinate("resume", "--json", *arguments, cwd=self.root)

    def half_bought(self, *, registered: bool = True, price_cents: int | None = None, **changes: Any) -> str:
        """What a process leaves that was killed right after its registration, or before it; the purchase's key.

        `price_cents`: the price that was agreed to, where it is not today's. `changes` are of the journal.
        """
        flags = ("--no-control", "--driver-config", "road/bridge.json", "--brain", f"scripted:{PRICE}")
        planned = coordinate("plan", "--json", *flags, "--max-actions", "100", cwd=self.root)
        assert planned.code == 0, planned.err
        manifest = next(self.root.glob(".playlane/campaigns/*/manifest.json"))
        scenarios = decode(manifest.read_bytes())["scenarios"]
        agreed = price_cents if price_cents is not None else 2
        body = make_registration(
            make_request(scenarios, run_length="standard", controllers_chosen=False),
            price_cents=agreed,
            version="0.1.0",
            build=Build(kind="bridge", ref=scenarios[0]["playtest"]["build"]["digest"]),
        )
        options = Options(
            project=str(self.root), brain=f"scripted:{PRICE}", max_actions=100, wall_seconds=600.0, lanes=2,
            fail_on="never", run_microdollars=100 * PRICE,
        )  # fmt: skip
        key = new_key()
        fields: dict[str, Any] = {
            "version": 1, "kind": "campaign", "key": key, "game": "local", "service": "embedded",
            "state": "registering", "created_at": utc_now(), "request": body.decode(), "price_cents": agreed,
            "limits": {}, "options": msgspec.to_builtins(options), "manifest_path": str(manifest),
        }  # fmt: skip
        file = JournalFile.create(str(self.root / ".playlane" / "campaigns" / key), Journal(**{**fields, **changes}))
        if registered:
            service = EmbeddedService(
                Ledger(self.path), now=utc_now, run_price=RunPrice(low=PRICE, likely=PRICE, worst=100 * PRICE)
            )

            async def register() -> None:
                await Purchase(file, service, now=utc_now).register(scenarios)
                await service.close()

            asyncio.run(register())
        file.close()
        return key

    def finish_the_game(self) -> None:
        (self.root / "road" / ".told" / "finish.flag").touch()

    @property
    def journal(self) -> Journal:
        """The one purchase of the project."""
        [(_, journal)] = list_journals(str(self.root))
        assert isinstance(journal, Journal), journal
        return journal

    def rows(self) -> dict[str, int]:
        ledger = Ledger(self.path, read_only=True)
        try:
            return ledger.row_counts()
        finally:
            ledger.close()

    def balances(self) -> Balances:
        ledger = Ledger(self.path, read_only=True)
        try:
            return ledger.balances()
        finally:
            ledger.close()

    def at_the_service(self, call: str, *arguments: Any) -> Any:
        """What somebody else does with the job meanwhile."""
        service = EmbeddedService(Ledger(self.path), now=utc_now, run_price=RunPrice(worst=PRICE * int(ENDLESS)))

        async def do() -> Any:
            try:
                return await getattr(service, call)(*arguments)
            finally:
                await service.close()

        return asyncio.run(do())

    def spent_by_the_players(self) -> int:
        """From the runs' own files."""
        total = 0
        for path in self.root.glob(".playlane/campaigns/*/batch-*/runs/*/spend.jsonl"):
            total += sum(msgspec.json.decode(line)["microdollars"] for line in path.read_bytes().splitlines())
        return total

    def check_money(self, *, jobs: int = 1) -> None:
        """One charge, and spent is what was used; files and ledger agree, and nothing was launched twice."""
        assert self.rows()["job"] == jobs
        assert verify_purchases(self.root).problems == []
        verified = coordinate("verify", "--json", cwd=self.root)
        assert (verified.code, verified.document["problems"]) == (0, [])

    def check_settled(self) -> None:
        self.check_money()
        found = self.balances()
        assert (found.held, found.spent) == (0, self.spent_by_the_players())
        assert found.spent > 0
        assert self.journal.state == "finished"
