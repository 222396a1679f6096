"""One purchase against its service: register once, show that it lives, deliver each result, settle.

Every step is made durable in the journal before and after it is sent, and may be repeated: the same key and the same
bytes, whatever broke in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from coordinator.client import (
    AnsweredNoError,
    AuthenticationError,
    NotSentError,
    Service,
    ServiceError,
    UnknownOutcomeError,
)
from coordinator.documents import encode, sha256
from coordinator.errors import CoordinatorError
from coordinator.files import Files, read_bounded
from coordinator.journal import JournalFile
from coordinator.quote import PlanMismatchError, assign_runs
from coordinator.results import Standing
from coordinator.service.wire import FINAL_RUN_STATES, RUN_STATES, JobState, RunResult, RunState
from coordinator.steps import is_answered, may_send_again, open_runs, undelivered

RETRY_SECONDS = (1.0, 2.0, 4.0)
MAX_RESULT_BYTES = 4 << 20
FAILURE, ENVIRONMENT, AUTHENTICATION = 1, 3, 4

T = TypeVar("T")
Wait = Callable[[float], Awaitable[None]]


class PurchaseOpenError(CoordinatorError):
    """Something failed after the registration was durable; the purchase goes on with the line that the message has."""

    def __init__(self, what: str, *, path: str, key: str, exit_code: int = FAILURE) -> None:
        self.path, self.key, self.exit_code = path, key, exit_code
        super().__init__(f"{what}\nThe purchase is kept in {path}; go on with: coordinate resume {key}")


class NothingBoughtError(CoordinatorError):
    """The service said no, or does not know the key: nothing was registered or charged, and the journal is closed."""

    def __init__(self, what: str, *, exit_code: int = ENVIRONMENT) -> None:
        self.exit_code = exit_code
        super().__init__(what)


class PriceMovedError(NothingBoughtError):
    """The price is not the one that was confirmed any more: to be shown and asked again, under a new key."""


class Purchase:
    """`wait` pauses between two tries of a request; a test gives a clock of its own."""

    def __init__(
        self, file: JournalFile, service: Service, *, now: Callable[[], str], wait: Wait = asyncio.sleep
    ) -> None:
        self.file, self.service, self._now, self._wait = file, service, now, wait

    @property
    def key(self) -> str:
        return self.file.journal.key

    @property
    def job_id(self) -> str:
        found = self.file.journal.job_id
        assert found is not None, "only a registered purchase is asked for its job"
        return found

    def open_error(self, what: str, exit_code: int = FAILURE) -> PurchaseOpenError:
        return PurchaseOpenError(what, path=self.file.path, key=self.key, exit_code=exit_code)

    async def tried(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request that is safe to repeat. Raises what the last try raised."""
        for seconds in RETRY_SECONDS:
            try:
                return await call()
            except (NotSentError, UnknownOutcomeError):
                await self._wait(seconds)
        return await call()

    # -- register

    async def register(self, scenarios: Sequence[dict[str, Any]]) -> bool:
        """Register under the journal's key and check that the job's runs are the plan's; whether it was known already.

        Raises `NothingBoughtError` (`PriceMovedError`), `PlanMismatchError` or `PurchaseOpenError`.
        """
        journal = self.file.journal
        earlier = journal.job_id is not None
        request = journal.request.encode()
        if not may_send_again(journal, self._now()):
            job = await self._looked_up()
        else:
            try:
                job = await self.tried(lambda: self.service.register(journal.key, request))
            except AnsweredNoError as error:
                await self._refused(error)
                raise self.open_error(f"the registration was refused: {error}") from error
            except ServiceError as error:
                raise self.open_error(f"whether the registration arrived is not known: {error}") from error
        if job is None:
            self.abandon("unknown to the service")
            raise NothingBoughtError(
                "the time in which this purchase could be registered is over, and the service does not know its key"
            )
        self.file.change(job_id=job.job_id)
        if job.price.price_cents > journal.price_cents:
            raise self.open_error(
                f"job {job.job_id} is priced at {job.price.price_cents} cents, accepted were {journal.price_cents};"
                " nothing was launched"
            )
        try:
            runs = assign_runs(job, scenarios)
        except PlanMismatchError as error:
            raise self.open_error(str(error)) from error
        self.file.change(state="registered", runs=runs)
        return job.replayed or earlier

    async def _looked_up(self) -> Any:
        try:
            return await self.tried(lambda: self.service.find_job(self.key))
        except AuthenticationError as error:
            raise self.open_error(str(error), AUTHENTICATION) from error
        except ServiceError as error:
            raise self.open_error(f"the service cannot be asked for this purchase: {error}") from error

    async def _refused(self, error: AnsweredNoError) -> None:
        """A no to a key that the service does not know closes the purchase: its bytes name a price and are not sent
        again. Returns when a no leaves a doubt.
        """
        if isinstance(error, AuthenticationError):
            if self.file.journal.job_id is None:
                self.abandon(error.code)
                raise NothingBoughtError(str(error), exit_code=AUTHENTICATION) from error
            raise self.open_error(str(error), AUTHENTICATION) from error
        if error.code == "idempotency_conflict" or await self._looked_up() is not None:
            return
        self.abandon(error.code)
        # Services have their own words for it; a 409 to a key that is not known can only be about the price.
        kind = PriceMovedError if error.status == 409 else NothingBoughtError
        raise kind(str(error)) from error

    def abandon(self, why: str) -> None:
        """Close the journal of a purchase that was never made."""
        self.file.change(state="finished", job_state=f"not registered: {why}", exit_code=ENVIRONMENT)

    # -- while it runs

    async def look(self) -> JobState:
        """The job as the service sees it. Raises `PurchaseOpenError`."""
        try:
            return await self.tried(lambda: self.service.job(self.job_id))
        except AuthenticationError as error:
            raise self.open_error(str(error), AUTHENTICATION) from error
        except ServiceError as error:
            raise self.open_error(f"the service cannot be asked about job {self.job_id}: {error}") from error

    async def begin(self, scenario_ids: Sequence[str]) -> list[str]:
        """One heartbeat for each run, awaited before anything is launched; which of them the service still has open.

        A run that it closed meanwhile is marked so and is not played. Raises `PurchaseOpenError`.
        """
        still_open = []
        for scenario_id in scenario_ids:
            run_id = self.file.journal.runs[scenario_id]
            try:
                found = await self.tried(lambda one=run_id: self.service.heartbeat(self.job_id, one, 0, 0))  # type: ignore[misc]
            except AuthenticationError as error:
                raise self.open_error(f"nothing was launched: {error}", AUTHENTICATION) from error
            except AnsweredNoError as error:
                if error.status != 409:
                    raise self.open_error(f"nothing was launched: {error}") from error
                await self._mark_closed(run_id)
                continue
            except ServiceError as error:
                raise self.open_error(f"nothing was launched: no heartbeat was answered: {error}") from error
            self.heed(found)
            if not found.cancel_requested:
                still_open.append(scenario_id)
        return still_open

    def heed(self, found: RunState) -> None:
        """Keep a warning that came with an answer."""
        warnings = self.file.journal.warnings
        if found.budget_warning is not None and found.budget_warning not in warnings:
            self.file.change(warnings=[*warnings, found.budget_warning])

    async def _mark_closed(self, run_id: str) -> None:
        try:
            state = (await self.tried(lambda: self.service.run(self.job_id, run_id))).state
        except ServiceError as error:
            raise self.open_error(f"the state of run {run_id} is not known: {error}") from error
        if state in FINAL_RUN_STATES:
            self._note(run_id, answered=state, closed=True)

    # -- deliver

    async def deliver(self, standings: Sequence[Standing]) -> list[str]:
        """Send every final result that was not answered; a sentence for each that waits still.

        A result is durable beside the journal before it is sent, and those bytes are sent again. Raises
        `PurchaseOpenError` when a kept result is damaged.
        """
        waiting = []
        for one in undelivered(self.file.journal, standings):
            run_id = self.file.journal.runs[one.scenario_id]
            result = self._kept(run_id, one)
            try:
                answer = await self.tried(lambda r=run_id, b=result: self.service.complete(self.job_id, r, b))  # type: ignore[misc]
            except AnsweredNoError as error:
                if error.status != 409:
                    waiting.append(f"{one.scenario_id}: {error}")
                    continue
                # Another result closed the run, or the job was settled without it: this one is late and stays here.
                await self._mark_late(run_id)
            except ServiceError as error:
                waiting.append(f"{one.scenario_id}: {error}")
            else:
                self._note(run_id, answered=answer.state)
        return waiting

    def _kept(self, run_id: str, standing: Standing) -> RunResult:
        known = self.file.journal.results.get(run_id)
        path = os.path.join(os.path.dirname(self.file.path), "results", f"{sha256(run_id.encode())[:32]}.json")
        files = Files()
        if known is None or not os.path.lexists(path):
            assert standing.result is not None
            data = encode(standing.result)
            if known is not None and known["sha256"] != sha256(data):
                raise self.open_error(f"the result of run {run_id} was at {path} and is gone; put it back")
            files.make_directory(os.path.dirname(path))
            files.replace(path, data)
            self._note(run_id, sha256=sha256(data), state=standing.result.state)
        data = read_bounded(path, MAX_RESULT_BYTES)
        if sha256(data) != self.file.journal.results[run_id]["sha256"]:
            raise self.open_error(f"{path} is not the result that was to be delivered; put it back")
        return msgspec.json.decode(data, type=RunResult)

    async def _mark_late(self, run_id: str) -> None:
        try:
            found = await self.tried(lambda: self.service.run(self.job_id, run_id))
        except ServiceError as error:
            raise self.open_error(f"the state of run {run_id} is not known: {error}") from error
        self._note(run_id, answered=found.state, late=True)

    def _note(self, run_id: str, **facts: Any) -> None:
        results = self.file.journal.results
        self.file.change(results={**results, run_id: {**results.get(run_id, {}), **facts}})

    # -- settle

    async def settle(self, aggregate: dict[str, Any] | None, *, reason: str | None = None) -> JobState:
        """Hand over the campaign's aggregate, then end the job. Safe to repeat. Raises `PurchaseOpenError`."""
        try:
            if aggregate is not None:
                await self._send_aggregate(aggregate)
            found = await self.tried(lambda: self.service.finish(self.job_id, reason))
        except AuthenticationError as error:
            raise self.open_error(str(error), AUTHENTICATION) from error
        except ServiceError as error:
            raise self.open_error(f"the job is not settled yet: {error}") from error
        if found.state == "open" or found.state in RUN_STATES:
            raise self.open_error("the service answered the end of the job, but left it open")
        self.settled(found)
        return found

    async def _send_aggregate(self, aggregate: dict[str, Any]) -> None:
        try:
            await self.tried(lambda: self.service.send_aggregate(self.job_id, aggregate))
        except AnsweredNoError as error:
            if error.status in (401, 403):
                raise
            # A service that does not take it (too large, an older one) must not keep the money for that.
            self.file.change(warnings=[*self.file.journal.warnings, f"the aggregate was not taken: {error}"])

    def settled(self, job: JobState) -> None:
        """The service settled the job: every run has its end."""
        self.file.change(state="settled", job_state=job.state)

    def record(self, exit_code: int) -> None:
        """The end of the purchase; what a later resume prints and exits with."""
        self.file.change(state="finished", exit_code=exit_code)

    def late_results(self) -> list[str]:
        """Scenarios whose result came too late and stays here."""
        results = self.file.journal.results
        return [name for name, run_id in self.file.journal.runs.items() if (results.get(run_id) or {}).get("late")]

    def mark_unanswered_late(self, standings: Sequence[Standing]) -> None:
        """For a job that was settled elsewhere: results that were not delivered stay here, marked."""
        for one in undelivered(self.file.journal, standings):
            self._note(self.file.journal.runs[one.scenario_id], answered="settled", late=True)

    @property
    def left(self) -> list[str]:
        """Scenarios whose run is not settled."""
        return open_runs(self.file.journal)

    def has_answer(self, scenario_id: str) -> bool:
        return is_answered(self.file.journal, self.file.journal.runs[scenario_id])


__all__ = ["NothingBoughtError", "PlanMismatchError", "PriceMovedError", "Purchase", "PurchaseOpenError"]
