"""Shows the service what the workers do, while they do it, and hears when it wants them to end.

The worker never talks to the service: its progress file is mirrored here. A network that is away ends nothing; the
next beat tells everything that the lost ones would have told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.campaign import Batch
from coordinator.client import AnsweredNoError, AuthenticationError, ServiceError
from coordinator.purchase import Purchase
from coordinator.records import Entry
from coordinator.service.wire import RUN_STATES, RunState
from coordinator.status import read_progress
from coordinator.steps import is_settled

BEAT_SECONDS = 5.0
LOOK_SECONDS = 0.5
_ORDER = {state: position for position, state in enumerate(RUN_STATES)}


class Mirror:
    """`pause(seconds)` paces the beats; a test gives one of its own."""

    def __init__(
        self,
        purchase: Purchase,
        control_directory: str,
        *,
        beat_seconds: float = BEAT_SECONDS,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._purchase, self._control = purchase, control_directory
        self._beat_seconds, self._pause = beat_seconds, pause
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._known: dict[str, str] = {}
        self._beaten: dict[str, float] = {}
        self._ended: set[str] = set()
        self.refused: ServiceError | None = None
        """Why the service did not let the batch go on, if it was a no and not a wish."""

    async def follow(self, batch: Batch) -> None:
        """Mirror until it is cancelled or has ended the batch. Raises what the journal's disk raises."""
        while not await self.look(batch):
            await self._pause(min(LOOK_SECONDS, self._beat_seconds))

    async def look(self, batch: Batch) -> bool:
        """One round over the runs under way; whether the batch was ended."""
        for reservation_id, entry in batch.state.entries.items():
            if entry.phase in ("launching", "launched") and reservation_id not in self._ended:
                detail = await self._show(batch, reservation_id, entry)
                if detail is not None:
                    unauthorised = isinstance(self.refused, AuthenticationError)
                    await batch.end("shared_infrastructure" if unauthorised else "canceled", detail)
                    return True
        return False

    async def _show(self, batch: Batch, reservation_id: str, entry: Entry) -> str | None:
        """Show one run; why the batch must end, or None."""
        run_id = self._purchase.file.journal.runs.get(entry.permit.scenario_id)
        if run_id is None:
            return None
        progress = read_progress(self._control, reservation_id)
        wanted = progress.state if progress is not None else "launching"
        actions, step = (progress.actions_taken, progress.step) if progress is not None else (0, 0)
        try:
            stands = await self._transition(run_id, wanted)
            if self._clock() - self._beaten.get(run_id, float("-inf")) >= self._beat_seconds:
                self._beaten[run_id] = self._clock()
                stands = await self._purchase.service.heartbeat(self._purchase.job_id, run_id, actions, step)
                self._known[run_id] = stands.state
        except AnsweredNoError as error:
            return await self._judge_no(batch, reservation_id, run_id, error)
        except ServiceError:
            # Fate unknown, or not sent: the next round says it again.
            return None
        if stands is None:
            return None
        self._purchase.heed(stands)
        return "the service asks for the end of the job" if stands.cancel_requested else None

    async def _transition(self, run_id: str, wanted: str) -> RunState | None:
        """Forward only: an attempt that plays a run again finds it further on, and an illegal transition is a 409."""
        known = self._known.get(run_id)
        if known is None:
            known = (await self._purchase.service.run(self._purchase.job_id, run_id)).state
            self._known[run_id] = known
        if known not in _ORDER or _ORDER[wanted] <= _ORDER[known]:
            return None
        found = await self._purchase.service.transition(self._purchase.job_id, run_id, wanted)
        self._known[run_id] = found.state
        return found

    async def _judge_no(self, batch: Batch, reservation_id: str, run_id: str, error: AnsweredNoError) -> str | None:
        if error.status not in (401, 403, 404, 409):
            return None
        if error.code == "illegal_transition":
            # It is further on than was thought: asked again in the next round, and told nothing that changes anything.
            self._known.pop(run_id, None)
            return None
        if error.status == 409:
            try:
                job = await self._purchase.service.job(self._purchase.job_id)
            except ServiceError:
                return None
            if not is_settled(job.state) and not job.cancel_requested:
                self._ended.add(reservation_id)
                batch.end_run(reservation_id)
                return None
        self.refused = error
        return f"the service does not let run {run_id} go on: {error}"
