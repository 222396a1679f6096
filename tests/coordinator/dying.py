"""A coordinator in a process of its own that dies at a named moment, leaving the disk as a kill would."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coordinator import Coordinator, Permit
from tests.coordinator.campaign import Campaign, completion

EXIT_CODE = 77


def die_in(folder: Path, moment: str, names: str = "abc") -> str:
    """Run a coordinator over the campaign in `folder` until `moment`; return the reservation it was busy with."""
    command = [sys.executable, "-m", "tests.coordinator.dying", str(folder), moment, names]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert found.returncode == EXIT_CODE, found.stderr
    return found.stdout.strip()


def _die(*_: object) -> None:
    sys.stdout.flush()
    os._exit(EXIT_CODE)


async def _launched(coordinator: Coordinator, permit: Permit) -> None:
    async def launcher(_: Permit) -> None:
        return None

    await coordinator.launch_once(permit, launcher)


async def _play(folder: Path, moment: str, names: str) -> None:
    campaign = Campaign(folder, names, fresh=False)
    stage: dict[str, str] = {}

    def fault(reached: str) -> None:
        if stage.get("die") == reached:
            _die()

    coordinator = campaign.open(fault=fault)
    if moment == "opened":
        _die()
    kind, _, at = moment.partition(":")
    if kind == "reserve":
        stage["die"] = at
    permit = await coordinator.reserve("a")
    print(permit.reservation_id, flush=True)
    if moment == "reserved":
        _die()
    if moment == "launching":

        async def launcher(_: Permit) -> None:
            _die()

        await coordinator.launch_once(permit, launcher)
    await _launched(coordinator, permit)
    if moment == "launched":
        _die()
    if kind == "complete":
        stage["die"] = at
    await coordinator.complete(permit, completion("a"))  # type: ignore[arg-type]
    if moment == "completed":
        _die()
    await coordinator.close()
    _die()


def edit_owner(campaign: Campaign, **changes: Any) -> None:
    """Change facts of the lock on disk, as an operator or another host would show them."""
    found = json.loads(campaign.lock.read_text())
    campaign.lock.write_text(json.dumps({**found, **changes}))


if __name__ == "__main__":
    asyncio.run(_play(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
