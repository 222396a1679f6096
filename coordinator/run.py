"""Up to two lanes, each refilled as soon as its own completion is committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from coordinator.errors import CoordinatorError, PoisonedError, RefusedError, StoppedError
from coordinator.records import (
    UNCERTAIN_PHASES,
    CompletionResult,
    Failure,
    Permit,
    RetainedFailure,
    State,
    read_record,
)

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

STOP_REQUEST_POLL_SECONDS = 0.5


class LaunchOnly(Protocol[T_co]):
    async def __call__(self, permit: Permit, /) -> T_co: ...


class ReadCompletion(Protocol[T_contra]):
    async def __call__(self, permit: Permit, launched: T_contra, /) -> Any: ...


class RetainFailure(Protocol):
    async def __call__(self, permit: Permit | None, error: BaseException, phase: str, /) -> Any: ...


class Run(Generic[T]):
    """One call of `Coordinator.run`."""

    def __init__(
        self,
        coordinator: Coordinator,
        launch_only: LaunchOnly[T],
        read_completion: ReadCompletion[T],
        retain_failure: RetainFailure,
        job: Callable[[Permit], bytes] | None,
    ) -> None:
        self._coordinator = coordinator
        self._launch_only, self._read_completion, self._retain_failure = launch_only, read_completion, retain_failure
        self._job = job
        self._waiting: list[str] = []
        self._draining = False
        self._abandoned = False
        self.active = True
        self._lanes: set[asyncio.Task[None]] = set()

    @property
    def open_lanes(self) -> int:
        return sum(not lane.done() for lane in self._lanes)

    async def drive(self) -> State:
        try:
            await self._drive()
            return await self._coordinator.snapshot()
        except asyncio.CancelledError:
            self._abandon()
            await self._record_cancellation()
            raise
        except BaseException:
            self._abandon()
            raise
        finally:
            self.active = False

    async def _drive(self) -> None:
        state = await self._coordinator.snapshot()
        uncertain = [one for one, entry in state.entries.items() if entry.phase in UNCERTAIN_PHASES]
        if uncertain:
            raise RefusedError(
                f"entries of unknown fate stand: {', '.join(uncertain)}; a launch is never repeated by the program:"
                " coordinate recover, or --end"
            )
        phases = {entry.permit.scenario_id: entry.phase for entry in state.entries.values()}
        names = [one.scenario_id for one in self._coordinator.selections if phases.get(one.scenario_id) != "completed"]
        # Reserved ones hold lanes already: anything else before them would find no lane free.
        self._waiting = sorted(names, key=lambda name: name not in phases)
        self._lanes = {asyncio.create_task(self._lane()) for _ in range(self._coordinator.lanes_for_run())}
        watch = asyncio.create_task(self._watch_stop_requests())
        try:
            # Not TaskGroup: a cancelled run waits for nothing, whatever its launchers do.
            done_lanes, _ = await asyncio.wait({*self._lanes}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            watch.cancel()
            watch.add_done_callback(_read_exception)
        errors = [error for lane in done_lanes if (error := lane.exception()) is not None]
        # A lane whose commit did not end poisons the other one; the cause is what the caller needs.
        for error in sorted(errors, key=lambda error: isinstance(error, PoisonedError)):
            raise error

    def _abandon(self) -> None:
        self._abandoned = True
        for lane in self._lanes:
            lane.cancel()
            lane.add_done_callback(_read_exception)

    async def _record_cancellation(self) -> None:
        """Durable also when the impatient cancel again: it waits for changes only, and those are short."""
        recording = asyncio.ensure_future(self._coordinator.stop("canceled", "run was cancelled"))
        while not recording.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([recording])
        recording.result()

    async def _lane(self) -> None:
        while self._waiting and not self._draining:
            scenario_id = self._waiting.pop(0)
            permit: Permit | None = None
            phase = "reserve"
            try:
                await self._coordinator.take_stop_request()
                permit = await self._coordinator.reserve_unless(scenario_id, lambda: self._draining)
                phase = "launch"
                launched = await self._coordinator.launch_once(permit, self._launch_only, job=self._job)
                if self._abandoned:  # by a launcher that does not end when it is cancelled
                    return
                phase = "completion"
                result = read_record(
                    await self._read_completion(permit, launched), CompletionResult, "what read_completion returned"
                )
                if self._abandoned:
                    return
                await self._coordinator.complete(
                    permit, completion=result.completion, stop=result.stop, review=result.review
                )
            except StoppedError as error:
                if phase == "reserve" or self._still_reserved(permit):
                    return
                await self._fail(scenario_id, permit, error, phase)
                return
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if self._abandoned or (task is not None and task.cancelling()):
                    raise
                # Nobody cancelled this lane: what its launcher waited for was cancelled, which is an error as any.
                await self._fail(scenario_id, permit, error, phase)
                return
            except Exception as error:
                if self._coordinator.poisoned:
                    raise
                await self._fail(scenario_id, permit, error, phase)
                return

    def _still_reserved(self, permit: Permit | None) -> bool:
        """A stop that came between reservation and launch: nothing was begun, the reservation stays."""
        return permit is not None and self._coordinator.state.entries[permit.reservation_id].phase == "reserved"

    async def _fail(self, scenario_id: str, permit: Permit | None, error: BaseException, phase: str) -> None:
        self._draining = True
        try:
            retained = read_record(
                await self._retain_failure(permit, error, phase), RetainedFailure, "what retain_failure returned"
            )
            evidence, summary = retained.evidence_path, retained.summary
        except Exception as second:  # noqa: BLE001  the first error must be recorded whatever keeping it does
            evidence, summary = None, f"{_one_line(error)}; keeping it failed too: {_one_line(second)}"
        failure = Failure(
            scenario_id=scenario_id,
            reservation_id=permit.reservation_id if permit is not None else None,
            phase=phase,
            summary=summary,
            evidence_path=evidence,
        )
        where = f"evidence {evidence}" if evidence is not None else "no evidence kept"
        await self._coordinator.record_failure(failure, f"{phase} of {scenario_id} failed: {summary} ({where})")

    async def _watch_stop_requests(self) -> None:
        """An operator's wish must count also while both lanes are busy; the wish is a file, so it is looked for."""
        while True:
            await asyncio.sleep(STOP_REQUEST_POLL_SECONDS)
            with contextlib.suppress(CoordinatorError):
                await self._coordinator.take_stop_request()


def _one_line(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".replace("\n", " ")[:2000]
    # A path that is not UTF-8 stands in an error's text as lone surrogates, which no control file can hold.
    return text.encode("utf-8", "backslashreplace").decode()


def _read_exception(task: asyncio.Task[None]) -> None:
    """An abandoned lane's end is known from the state; asyncio must not complain that nobody asked."""
    if not task.cancelled():
        task.exception()
