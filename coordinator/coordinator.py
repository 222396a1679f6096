"""The serialised API over one batch: reserve, launch once, complete, stop, snapshot, close, and run in lanes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec

from coordinator import lock, rules
from coordinator.commit import Batch
from coordinator.documents import sha256
from coordinator.errors import (
    ClosedError,
    InFlightError,
    InvalidInputError,
    NotAdmissibleError,
    StoppedError,
)
from coordinator.evidence import check_evidence_path, read_review_file
from coordinator.files import Files, Operations
from coordinator.opening import new_owner, open_batch
from coordinator.paths import ControlPaths, ManifestPaths, read_path
from coordinator.records import (
    Completion,
    CoordinatorOptions,
    Entry,
    Failure,
    Permit,
    Review,
    Selection,
    State,
    Stop,
    read_permit,
    read_record,
    read_selections,
)
from coordinator.run import LaunchOnly, ReadCompletion, RetainFailure, Run
from coordinator.stop_request import read_stop_request

T = TypeVar("T")


class Worker(Protocol):
    """Something that was started and may still live."""

    @property
    def alive(self) -> bool: ...


def utc_now() -> str:
    """UTC, ISO 8601, milliseconds, `Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Coordinator:
    """The owner of one campaign manifest and of one batch in it. See docs/files.md for what lies on disk."""

    def __init__(self, batch: Batch, selections: tuple[Selection, ...], evidence_root: str, max_lanes: int) -> None:
        self._batch = batch
        self._selections = selections
        self._evidence_root = evidence_root
        self._max_lanes = max_lanes
        self._turn = asyncio.Lock()
        self._turn_loop: asyncio.AbstractEventLoop | None = None
        self._launching: set[str] = set()
        self._workers: list[Worker] = []
        self._run: Run[Any] | None = None
        self._closed = False

    @classmethod
    def open(cls, options: CoordinatorOptions, *, operations: Operations | None = None) -> Coordinator:
        """Take the manifest's lock and this batch, settling whatever a dead owner left.

        Raises `LockedError` if anybody owns it, `UnrecognizedManifestError` or `DamagedError` with the lock kept, and
        any other `CoordinatorError` with nothing written.
        """
        if options.max_lanes not in (1, 2) or isinstance(options.max_lanes, bool):
            raise InvalidInputError(f"max_lanes: 1 or 2, found {options.max_lanes!r}")
        if not read_record(options.batch_id, str, "batch_id"):
            raise InvalidInputError("batch_id: a text is needed, found an empty one")
        selections = read_selections(options.selections)
        manifest = ManifestPaths(options.manifest_path)
        control = ControlPaths(options.control_directory)
        evidence_root = os.path.realpath(read_path(options.evidence_root, "evidence_root"))
        now, files = options.now or utc_now, Files(operations)
        owner = new_owner(options.batch_id, control, secrets.token_hex(16), now())
        batch = open_batch(files, manifest, control, owner=owner, selections=selections, now=now, fault=options.fault)
        return cls(batch, selections, evidence_root, options.max_lanes)

    # -- the queue of changes

    async def _change(self, change: Callable[[], Awaitable[T]]) -> T:
        """Run one change at a time, in the order of the first await; one that has begun is finished."""
        loop = asyncio.get_running_loop()
        if self._turn_loop is not loop and not self._turn.locked():
            self._turn, self._turn_loop = asyncio.Lock(), loop
        async with self._turn:
            if self._closed:
                raise ClosedError
            self._batch.check_usable()
            if self._batch.fault is None:  # only the seam suspends a change: it cannot be cancelled half-way
                try:
                    return await change()
                finally:
                    await asyncio.sleep(0)  # a cancellation is delivered here, and others get their turn
            task = asyncio.ensure_future(change())
            cancellation: asyncio.CancelledError | None = None
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError as error:
                    cancellation = error
            if cancellation is not None:
                if not task.cancelled():
                    task.exception()
                raise cancellation
            return task.result()

    # -- changes

    async def reserve(self, scenario_id: str) -> Permit:
        """Promise a lane to a selection, durably. Raises a `RefusedError` with the manifest's bytes untouched."""
        return await self.reserve_unless(scenario_id, lambda: False)

    async def reserve_unless(self, scenario_id: str, draining: Callable[[], bool]) -> Permit:
        """`reserve` for a lane of `run`: refused as stopped if an error was seen by the time its turn came."""

        async def change() -> Permit:
            batch = self._batch
            batch.check_ownership()
            if draining():
                raise StoppedError("coordinator_failure", "an error in another lane is being recorded")
            rules.refuse_stopped(batch.state)
            ledger = batch.read_ledger()
            again = rules.find_entry(batch.state, scenario_id)
            if again is not None and again.phase == "reserved":
                rules.judge_row(again, ledger)
                return read_permit(again.permit)  # a copy: its list of arguments can be edited
            entry = rules.admit(
                batch.state,
                ledger,
                self._selections,
                scenario_id,
                reservation_id=secrets.token_hex(12),
                max_lanes=self._max_lanes,
                free_bytes=min(
                    batch.files.free_bytes(path)
                    for path in (batch.control.directory, os.path.dirname(batch.manifest.manifest))
                ),
                now=batch.now(),
            )
            permit = entry.permit
            await batch.commit(
                "reserve",
                ledger.with_row_added(scenario_id, entry.reserved_attempt),
                rules.with_entry(batch.state, entry),
                reservation_id=permit.reservation_id,
                row_before=None,
                row_after=entry.reserved_attempt,
            )
            batch.event("reserved", **_facts(permit))
            return read_permit(permit)

        return await self._change(change)

    async def launch_once(
        self,
        permit: Permit,
        launcher: Callable[[Permit], Awaitable[T]],
        *,
        job: Callable[[Permit], bytes] | None = None,
    ) -> T:
        """Call the launcher at most once for a reservation, in this process or any later one.

        `job(permit)` gives the bytes of the worker's job file, which is durable before `launching` is. What the
        launcher raises reaches the caller; the entry then stays `launching` and keeps its lane.
        """
        permit = read_permit(permit)
        began = False

        async def begin() -> None:
            nonlocal began
            batch = self._batch
            batch.check_ownership()
            claimed = batch.claimed(permit.reservation_id)
            entry = rules.judge_launch(batch.state, batch.read_ledger(), permit, claimed=claimed)
            job_sha256 = None
            if job is not None:
                data = job(permit)
                job_sha256 = sha256(data)
                batch.files.replace(batch.control.job(permit.reservation_id), data)
            self._set_entry(msgspec.structs.replace(entry, phase="launching", job_sha256=job_sha256))
            batch.check_ownership()
            claim = rules.new_claim(permit, batch.control.directory, batch.now())
            try:
                batch.claim(claim)
            except FileExistsError as error:
                raise NotAdmissibleError(
                    permit.reservation_id, "its launch was begun before (its claim exists)"
                ) from error
            self._launching.add(permit.reservation_id)
            began = True
            batch.event("launching", **_facts(permit))

        async def end() -> None:
            entry = self._batch.state.entries[permit.reservation_id]
            if entry.phase == "launching":
                self._set_entry(msgspec.structs.replace(entry, phase="launched"))
                self._batch.event("launched", **_facts(permit))

        try:
            await self._change(begin)
            result = await launcher(permit)
        finally:
            if began:  # also when the caller was cancelled and the launcher never called
                self._launching.discard(permit.reservation_id)
        await self._change(end)
        return result

    def _set_entry(self, entry: Entry) -> None:
        self._batch.replace_state(rules.with_entry(self._batch.state, entry))

    async def complete(self, permit: Permit, completion: Completion, stop: Any = None, review: Any = None) -> None:
        """Record the end of a launched attempt, once. The same completion again is accepted and changes nothing.

        `stop` is recorded with it; cleanup `failed` sets the stop `cleanup_failure` first. `review` nulls the
        scenario's qualifying digests. Raises a `RefusedError` with nothing changed.
        """
        permit = read_permit(permit)
        completion = read_record(completion, Completion, "completion")
        review = None if review is None else read_record(review, Review, "review")
        stop = None if stop is None else read_record(stop, Stop, "stop")

        async def change() -> None:
            batch = self._batch
            batch.check_ownership()
            now = batch.now()
            wanted = None if stop is None else rules.read_stop(stop, now)
            entry = rules.judge_permit(batch.state, permit)
            ledger = batch.read_ledger()
            if rules.is_repeat(entry, ledger, completion, review):
                if wanted is not None:
                    self._record_stop(wanted)
                return
            rules.judge_completion(entry, ledger, completion)
            self._judge_evidence(entry, completion, review)
            if completion.cleanup == "failed":
                detail = f"cleanup of attempt {permit.ordinal} of {permit.scenario_id} failed"
                self._record_stop(Stop(reason="cleanup_failure", detail=detail, at=now))
            row = rules.completed_row(entry, completion)
            state = rules.with_entry(batch.state, rules.complete_entry(entry, completion, review, row, now))
            await batch.commit(
                "complete",
                ledger.with_row_replaced(permit.scenario_id, permit.ordinal, row, clear_qualifying=review is not None),
                state if wanted is None else rules.with_stop(state, wanted),
                reservation_id=permit.reservation_id,
                row_before=entry.reserved_attempt,
                row_after=row,
            )
            batch.event("completed", outcome=completion.outcome, cleanup=completion.cleanup, **_facts(permit))

        await self._change(change)

    def _judge_evidence(self, entry: Entry, completion: Completion, review: Review | None) -> None:
        if review is not None:
            rules.judge_review(entry, completion, review)
            found_sha256, found = read_review_file(self._evidence_root, review.evidence_path)
            rules.judge_review_file(entry, completion, review, found_sha256, found)
        for path in completion.evidence_paths:
            check_evidence_path(self._evidence_root, path)

    async def stop(self, reason: str, detail: str) -> None:
        """Admit nothing more, durably. The first stop stands; later ones are kept beside it."""
        stop = read_record({"reason": reason, "detail": detail}, Stop, "stop")

        async def change() -> None:
            self._batch.check_ownership()
            self._record_stop(rules.read_stop(stop, self._batch.now()))

        await self._change(change)

    def _record_stop(self, stop: Stop, failure: Failure | None = None) -> None:
        state = rules.with_stop(self._batch.state, stop)
        if failure is not None:
            state = msgspec.structs.replace(state, failures=[*state.failures, failure])
        if state is not self._batch.state:
            self._batch.replace_state(state)
            self._batch.event("stopped", reason=stop.reason, detail=stop.detail)

    async def record_failure(self, failure: Failure, detail: str) -> None:
        """Keep an error that `run` met, together with the stop `coordinator_failure`, in one write."""

        async def change() -> None:
            self._batch.check_ownership()
            self._record_stop(Stop(reason="coordinator_failure", detail=detail, at=self._batch.now()), failure)

        await self._change(change)

    async def take_stop_request(self) -> None:
        """Turn an operator's `stop-request.json` into a durable stop, then rename it out of the way."""

        async def change() -> None:
            batch = self._batch
            batch.check_ownership()
            wish = read_stop_request(batch.control.stop_request)
            if wish is None:
                return
            self._record_stop(rules.read_stop(wish, batch.now()))
            number = 1
            while os.path.lexists(taken := os.path.join(batch.control.directory, f"stop-request-taken-{number}.json")):
                number += 1
            batch.files.move(batch.control.stop_request, taken)

        if os.path.lexists(self._batch.control.stop_request):
            await self._change(change)

    async def snapshot(self) -> State:
        """A copy of the state as it is durable now."""

        async def change() -> State:
            return msgspec.convert(msgspec.to_builtins(self._batch.state), State)

        return await self._change(change)

    async def close(self) -> None:
        """Give the manifest back. Raises `InFlightError` while something that was started has not returned."""
        if self._closed:
            return

        async def change() -> None:
            batch = self._batch
            self._refuse_running()
            if self._launching:
                raise InFlightError(f"launchers of {', '.join(sorted(self._launching))} have not returned")
            living = [worker for worker in self._workers if worker.alive]
            if living:
                raise InFlightError(f"{len(living)} workers that this coordinator started live")
            batch.check_ownership()
            batch.event("closed")
            batch.replace_state(msgspec.structs.replace(batch.state, owner=None))
            self._closed = True
            lock.release(batch.files, batch.manifest.lock, batch.owner.token)

        with contextlib.suppress(ClosedError):  # another close was queued before this one
            await self._change(change)

    def _refuse_running(self) -> None:
        if self._run is not None and (self._run.active or self._run.open_lanes):
            raise InFlightError(f"run has {self._run.open_lanes} lanes open")

    # -- lanes

    def track(self, worker: Worker) -> None:
        """Remember a worker that a launcher started: `close` refuses while it lives."""
        self._workers.append(worker)

    @property
    def selections(self) -> tuple[Selection, ...]:
        return self._selections

    @property
    def state(self) -> State:
        """The state as it was durable last, without queueing."""
        return self._batch.state

    @property
    def poisoned(self) -> bool:
        return self._batch.poisoned is not None

    def lanes_for_run(self) -> int:
        """How many lanes are not taken by running rows of other batches, at least one."""
        _, foreign = rules.open_lanes(self._batch.state, self._batch.read_ledger())
        return max(1, self._max_lanes - foreign)

    async def run(
        self,
        *,
        launch_only: LaunchOnly[T],
        read_completion: ReadCompletion[T],
        retain_failure: RetainFailure,
        job: Callable[[Permit], bytes] | None = None,
    ) -> State:
        """Launch and complete every selection that was not, in lanes, until done or stopped; return the last state.

        Errors of reserve, launch and completion are retained, recorded and stop the batch; they are not raised. Raises
        at once when a commit did not end, and `CoordinatorError` if entries of unknown fate stand.
        """
        self._refuse_running()
        self._run = Run(self, launch_only, read_completion, retain_failure, job)
        return await self._run.drive()


def _facts(permit: Permit) -> dict[str, Any]:
    return {"reservationId": permit.reservation_id, "scenarioId": permit.scenario_id, "ordinal": permit.ordinal}
