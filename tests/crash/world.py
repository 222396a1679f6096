"""A small campaign, what its user was told, what was launched for it, and the person who recovers it."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from coordinator import Coordinator, CoordinatorError, Permit, State
from coordinator.commit import MAX_CLAIM_BYTES, MAX_STATE_BYTES, read_sealed
from coordinator.documents import decode, encode
from coordinator.files import Operations, read_bounded
from coordinator.lock import read_owner
from coordinator.manifest import Ledger
from coordinator.opening import SelectionsRecord
from coordinator.records import Claim, Pending, Stop
from coordinator.recovery import Recovered, recover, retry
from tests.coordinator.campaign import Campaign, completion
from tests.crash.seam import Crash
from workers.contract import JOB_VERSION, Job, Limits

ANOTHER_BOOT = "another-boot"


class World:
    """One campaign with the scenarios `a` and `b`; `operations` are its present process's."""

    def __init__(self, folder: Path, operations: Operations, names: str = "ab") -> None:
        self.campaign = Campaign(folder, names)
        self.operations = operations
        self.launches: list[tuple[str, int]] = []
        self.permit: Permit | None = None

    # -- what a user does

    def open(self, **changes: Any) -> Coordinator:
        return self.campaign.open(self.operations, **changes)

    async def reserve(self, coordinator: Coordinator, name: str = "a") -> Permit:
        permit = await coordinator.reserve(name)
        if name == "a":
            self.permit = permit
        return permit

    async def launcher(self, permit: Permit) -> None:
        """The outside world: whatever comes here was paid for."""
        claim = self.campaign.claims / permit.reservation_id
        assert claim.exists(), f"{permit.scenario_id} was launched without a claim"
        self.launches.append((permit.scenario_id, permit.ordinal))

    def job(self, permit: Permit) -> bytes:
        control = self.campaign.control
        return encode(
            Job(
                version=JOB_VERSION,
                kind="probe",
                batch_id=permit.batch_id,
                reservation_id=permit.reservation_id,
                scenario_id=permit.scenario_id,
                execution_id=permit.execution_id,
                ordinal=permit.ordinal,
                definition_digest=f"definition-{permit.scenario_id}",
                grader_digest="grader-1",
                key="00" * 32,
                run_directory=str(control / "runs" / permit.reservation_id),
                inbox_directory=str(control / "inbox"),
                evidence_root=str(self.campaign.evidence),
                limits=Limits(),
            )
        )

    async def launch(self, coordinator: Coordinator) -> None:
        assert self.permit is not None
        await coordinator.launch_once(self.permit, self.launcher, job=self.job)

    async def complete(self, coordinator: Coordinator, **extra: Any) -> None:
        assert self.permit is not None
        values = extra.pop("completion", {})
        await coordinator.complete(self.permit, completion("a", **values), **extra)  # type: ignore[arg-type]

    # -- what a person does

    def look(self) -> tuple[str | None, list[str]]:
        """The token of the lock, and every launch that was begun; the machine was restarted meanwhile."""
        token = None
        if self.campaign.lock.exists():
            found = json.loads(self.campaign.lock.read_bytes())
            self.campaign.lock.write_text(json.dumps({**found, "bootId": ANOTHER_BOOT}, indent=2) + "\n")
            token = found["token"]
        claims = os.listdir(self.campaign.claims) if self.campaign.claims.exists() else []
        return token, [name for name in claims if not name.startswith(".")]

    async def recover(self, operations: Operations, **changes: Any) -> Recovered | None:
        """Recover as a person would who knows that everything is dead. None: there was nothing to recover."""
        if not self.campaign.lock.exists() and not (self.campaign.control / "state.json").exists():
            return None
        token, workers = self.look()
        values = {
            "owner_is_dead": token,
            "worker_is_dead": workers,
            "control_directory": self.campaign.control,
            "operations": operations,
            "now": self.campaign.now,
            **changes,
        }
        return await recover(self.campaign.path, **values)

    async def finish(self) -> None:
        """End what is uncertain, review the next batch, run it: every scenario comes to its end."""
        state = self.state()
        if state is not None:
            ids = [one for one, entry in state.entries.items() if entry.phase != "completed"]
            recovered = await self.recover(self.operations, end=ids)
            assert recovered is not None and recovered.ended == ids and recovered.problems == []
            selections = retry(self.campaign.path, self.campaign.control)
        else:
            selections = [dict(one) for one in self.campaign.selections]
        control = self.campaign.folder / "next"
        coordinator = self.open(control_directory=control, batch_id="batch-2", selections=selections)

        async def read_completion(permit: Permit, _: None) -> dict[str, Any]:
            return {"completion": completion(permit.scenario_id)}

        async def retain_failure(permit: Permit | None, error: BaseException, phase: str) -> None:
            raise error

        after = await coordinator.run(
            launch_only=self.launcher, read_completion=read_completion, retain_failure=retain_failure
        )
        await coordinator.close()
        assert after.stop is None, after.stop
        for scenario in self.campaign.read()["scenarios"]:
            rows = scenario["attempts"]
            assert rows and rows[-1]["outcome"] == "passed", scenario["id"]
            assert [row["ordinal"] for row in rows] == list(range(1, len(rows) + 1))
        self.check_launches()

    # -- what anybody can see

    def state(self) -> State | None:
        found = read_sealed(str(self.campaign.control / "state.json"), State, MAX_STATE_BYTES)
        return None if found is None else found[0]

    def ledger(self) -> dict[str, Any]:
        """The manifest, with the times of reservations made equal."""
        document = decode(read_bounded(str(self.campaign.path)))
        Ledger.read(document)
        for scenario in document["scenarios"]:
            for row in scenario["attempts"]:
                row["startedAt"] = "some time" if row["startedAt"] else row["startedAt"]
        return document

    def phase(self, name: str = "a") -> str | None:
        state = self.state()
        entries = [] if state is None else [one for one in state.entries.values() if one.permit.scenario_id == name]
        assert len(entries) <= 1
        return entries[0].phase if entries else None

    def stops(self) -> list[Stop]:
        state = self.state()
        return [] if state is None or state.stop is None else [state.stop, *state.later_stops]

    def check_launches(self) -> None:
        twice = [one for one, times in Counter(self.launches).items() if times > 1]
        assert not twice, f"launched twice: {twice}"

    def check_files(self) -> None:
        """Every file that has its name is whole; unfinished ones have temporary names only."""
        self.ledger()
        self.state()
        control = self.campaign.control
        read_sealed(str(control / "pending.json"), Pending, MAX_STATE_BYTES)
        read_sealed(str(control / "selections.json"), SelectionsRecord, MAX_STATE_BYTES)
        if self.campaign.claims.exists():
            for path in self.campaign.claims.iterdir():
                if not path.name.startswith("."):
                    read_sealed(str(path), Claim, MAX_CLAIM_BYTES)
        read_owner(str(self.campaign.lock))

    def check_settled(self) -> None:
        """Nothing pending, nobody owns, and every entry is the ledger's row."""
        assert not self.campaign.lock.exists()
        assert not (self.campaign.control / "pending.json").exists()
        state = self.state()
        entries = {} if state is None else state.entries
        rows = {
            (scenario["id"], row["ordinal"]): row
            for scenario in self.campaign.read()["scenarios"]
            for row in scenario["attempts"]
        }
        assert len(rows) == len(entries), f"{len(rows)} rows, {len(entries)} entries"
        for entry in entries.values():
            row = rows[entry.permit.scenario_id, entry.permit.ordinal]
            if entry.phase == "completed":
                assert row == {**entry.reserved_attempt, **entry.receipt.completion}
            else:
                assert row == entry.reserved_attempt
        self.check_launches()
        known = {one.permit.scenario_id for one in entries.values() if one.phase not in ("reserved",)}
        assert {name for name, _ in self.launches} <= known, "a launch is not in the state"

    def content(self) -> tuple[bytes, dict[str, Any] | None]:
        """What a second recovery must leave as it is: the manifest's bytes and the state."""
        state = self.state()
        return self.campaign.path.read_bytes(), None if state is None else msgspec.to_builtins(state)


async def expect_refusals(world: World, coordinator: Coordinator) -> None:
    """Try to launch whatever stands in the state again; the launch log must not grow by what it holds."""
    for entry in coordinator.state.entries.values():
        try:
            await coordinator.launch_once(entry.permit, world.launcher)
        except (CoordinatorError, Crash):
            continue
    world.check_launches()
