"""What a dead coordinator left of a simulation batch, brought to an end: adopted if delivered, else closed.

A simulation spends nothing per launch, so its row may be closed and the batch played on in a new one. What a person
must say stays a person's: that an owner is dead, and that a worker nobody saw begin is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from coordinator.commit import MAX_STATE_BYTES as MAX_CONTROL_STATE_BYTES
from coordinator.commit import read_sealed
from coordinator.errors import RefusedError
from coordinator.inspection import RecoveryReport, inspect_recovery
from coordinator.lanes import find_delivery
from coordinator.paths import ControlPaths
from coordinator.records import State
from coordinator.recovery import recover
from coordinator.simulation import Simulation


async def settle_simulation(
    simulation: Simulation, *, owner_is_dead: str | None, ask: Callable[[str], None]
) -> State | None:
    """Settle the newest batch; return its state if its worker had delivered, None if it is to be played again.

    `ask` puts a question and raises for a no. Raises `RefusedError` while owner or worker lives or may live.
    """
    manifest = simulation.campaign.manifest_path
    if not simulation.journal.batches:
        return None
    control = simulation.journal.batches[-1]
    if not os.path.lexists(f"{manifest}.coordinator-lock") and not os.path.lexists(ControlPaths(control).state):
        return None
    found = inspect_recovery(manifest, control)
    _refuse_living(found)
    if found.owner_liveness == "dead" and owner_is_dead is None:
        ask(f"The process that owned this batch is dead ({found.lock}). Take its lock and go on?")
        owner_is_dead = found.token
    await recover(manifest, owner_is_dead=owner_is_dead, control_directory=control, find_delivery=find_delivery)
    state = _state(control)
    if state is None:
        return None
    left = [one for one, entry in state.entries.items() if entry.phase != "completed"]
    if left:
        done = await recover(manifest, control_directory=control, end=left)
        if done.problems:
            raise RefusedError(f"the batch cannot be taken up: {'; '.join(done.problems)}")
        return None
    delivered = [
        entry
        for entry in state.entries.values()
        if isinstance(entry.receipt.completion, dict)
        and entry.receipt.completion.get("classification") not in ("uncertain_launch", "never_launched")
    ]
    return state if delivered else None


def _refuse_living(found: RecoveryReport) -> None:
    if found.owner_liveness in ("alive", "unknown"):
        raise RefusedError(f"the batch has an owner that is {found.owner_liveness} ({found.lock}); it is not taken up")
    for worker in found.workers:
        if worker.liveness == "alive":
            raise RefusedError(
                f"the batch's worker lives (pid {worker.pid}) and finishes by itself; run the same command again then"
            )
        if worker.liveness in ("may be alive", "unknown"):
            raise RefusedError(
                f"the batch's worker may be alive; make sure that it is gone, then: coordinate recover --manifest"
                f" {found.manifest} --worker-is-dead {worker.reservation_id} --end {worker.reservation_id}"
            )


def _state(control: str) -> State | None:
    found = read_sealed(ControlPaths(control).state, State, MAX_CONTROL_STATE_BYTES)
    return None if found is None else found[0]
