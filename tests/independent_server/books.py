"""The independent service's memory: jobs, runs, charges and refunds. No socket, no lock: its one caller holds both."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

from tests.independent_server.terms import (
    AGGREGATE,
    PLAYTEST,
    SIMULATION,
    JsonObject,
    Order,
    Quote,
    RefusalError,
    Terms,
)

OPEN_STATES = ("queued", "launching", "playing", "reporting", "uploading")
CLOSED_STATES = ("succeeded", "failed", "canceled", "budget_exceeded", "skipped", "stalled")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """Money taken, once for each registration that was accepted."""

    key: str
    job_id: str
    cents: int
    body_sha256: str


@dataclass(frozen=True, kw_only=True)
class Refund:
    """Money given back for one run, and why."""

    job_id: str
    run_id: str
    cents: int
    reason: str


@dataclass
class Run:
    """One row of a job; `completion` is the body that closed it, None while open or when the server closed it."""

    run_id: str
    job_id: str
    module: str
    persona: str | None
    controller: str | None
    repetition: int
    token: str
    cents: int
    state: str = "queued"
    actions_taken: int = 0
    checkpoint_step: int = 0
    heartbeats: int = 0
    completion: JsonObject | None = None
    report_lint: tuple[str, ...] = ()
    uploads: set[str] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass
class Job:
    """One purchase. `settled_by` is None, "client" (finish) or "server"."""

    job_id: str
    game: str
    key: str
    body: bytes
    cents: int
    runs: list[Run]
    state: str = "queued"
    cancel_requested: bool = False
    settled_by: str | None = None
    finish_reason: str | None = None
    aggregate: Any = None


class Books:
    """All money and all jobs of one server. `balance_cents` always is opening - charges + refunds."""

    def __init__(self, balance_cents: int) -> None:
        self.opening_cents = balance_cents
        self.balance_cents = balance_cents
        self.charges: list[Charge] = []
        self.refunds: list[Refund] = []
        self.jobs: dict[str, Job] = {}
        self.runs: dict[str, Run] = {}
        self._first_job_by_key: dict[tuple[str, str], Job] = {}
        self._remembered: dict[tuple[str, str], Job] = {}

    def imbalance_cents(self) -> int:
        """0 when the balance is what charges and refunds make it, each charge its job's price, each run given back
        at most once, and never more than it cost."""
        expected = self.opening_cents - sum(c.cents for c in self.charges) + sum(r.cents for r in self.refunds)
        wrong = abs(self.balance_cents - expected)
        wrong += sum(abs(c.cents - self.jobs[c.job_id].cents) for c in self.charges)
        for run in self.runs.values():
            given_back = sum(r.cents for r in self.refunds if r.run_id == run.run_id)
            wrong += max(0, given_back - run.cents)
        return wrong

    def deposit(self, cents: int) -> None:
        self.opening_cents += cents
        self.balance_cents += cents

    def forget_keys(self) -> None:
        """The window of all keys has passed: a lookup still finds the job, but a resend would be a new purchase."""
        self._remembered.clear()

    def replay(self, game: str, key: str, body: bytes) -> Job | None:
        """The job that this key already bought, None for a new key.

        Raises RefusalError (409 idempotency_key_reused) when the bytes are not those of the first request.
        """
        job = self._remembered.get((game, key))
        if job is not None and job.body != body:
            raise RefusalError(
                409, "idempotency_key_reused", f"key {key} was used for another request; nothing was charged"
            )
        return job

    def buy(self, game: str, key: str, body: bytes, order: Order, price: Quote, terms: Terms) -> Job:
        """Charges and opens a job, or raises RefusalError (402) and changes nothing."""
        if price.total_cents > self.balance_cents:
            raise RefusalError(
                402,
                "insufficient_balance",
                f"the price is {price.total_cents} cents, the balance {self.balance_cents}; nothing was charged",
            )
        job_id = f"job-{len(self.jobs) + 1}"
        rows: list[tuple[str, str | None, str | None, int]] = [(PLAYTEST, *run) for run in order.runs()]
        rows += [(module, None, None, 1) for module in (AGGREGATE, SIMULATION) if module in order.modules]
        runs = [
            Run(
                run_id=f"run-{len(self.runs) + number}",
                job_id=job_id,
                module=module,
                persona=persona,
                controller=controller,
                repetition=repetition,
                token=secrets.token_urlsafe(16),
                cents=price.cents_by_module[module],
            )
            for number, (module, persona, controller, repetition) in enumerate(rows, start=1)
        ]
        job = Job(job_id=job_id, game=game, key=key, body=body, cents=price.total_cents, runs=runs)
        digest = hashlib.sha256(body).hexdigest()
        self.balance_cents -= price.total_cents
        self.charges.append(Charge(key=key, job_id=job_id, cents=price.total_cents, body_sha256=digest))
        self.jobs[job_id] = job
        self.runs.update({run.run_id: run for run in runs})
        self._first_job_by_key.setdefault((game, key), job)
        self._remembered[(game, key)] = job
        return job

    def job_of_key(self, game: str, key: str) -> Job:
        job = self._first_job_by_key.get((game, key))
        if job is None:
            raise RefusalError(404, "not_found", f"no job was registered under key {key}")
        return job

    def job(self, game: str, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        if job is None or job.game != game:
            raise RefusalError(404, "not_found", f"no job {job_id} in game {game}")
        return job

    def run(self, game: str, job_id: str | None, run_id: str) -> Run:
        """A run by its id; where the path names the job too, it must be the run's own."""
        run = self.runs.get(run_id)
        if run is None or self.jobs[run.job_id].game != game or job_id not in (None, run.job_id):
            raise RefusalError(404, "not_found", f"no run {run_id} in job {job_id}, game {game}")
        return run

    def transition(self, run: Run, state: object, *, one_at_a_time: bool) -> None:
        """Moves an open run on. The state it already has is accepted: the answer to the first request was lost.

        Raises RefusalError (409 illegal_transition), the run unchanged: backwards, out of a closed state, or into one
        (a run is closed by `complete`, which also settles it).
        """
        legal: tuple[str, ...] = ()
        if run.is_open:
            legal = OPEN_STATES[OPEN_STATES.index(run.state) :]
            legal = legal[:2] if one_at_a_time else legal
        if state not in legal:
            raise RefusalError(409, "illegal_transition", f"run {run.run_id} is {run.state}; {state!r} cannot follow")
        run.state = str(state)
        self._mark_started(run)

    def heartbeat(self, run: Run, actions_taken: int, checkpoint_step: int) -> None:
        """Takes a sign of life; one that arrives late never turns the counts back. Raises RefusalError (409)."""
        if not run.is_open:
            raise RefusalError(409, "run_settled", f"run {run.run_id} is {run.state}; it takes no heartbeat")
        run.heartbeats += 1
        run.actions_taken = max(run.actions_taken, actions_taken)
        run.checkpoint_step = max(run.checkpoint_step, checkpoint_step)

    def complete(self, run: Run, body: JsonObject, terms: Terms) -> None:
        """Closes a run and gives its price back when there is no usable result; the same body again is harmless.

        Raises RefusalError (409 run_settled) for another body, or for a run that the server closed.
        """
        if not run.is_open:
            if run.completion == body:
                return
            raise RefusalError(409, "run_settled", f"run {run.run_id} is {run.state}; this result comes too late")
        if body["state"] not in CLOSED_STATES:
            raise RefusalError(422, "invalid_state", f"state {body['state']!r} does not close a run")
        self._mark_started(run)
        run.completion = body
        run.actions_taken = body["actions_taken"]
        if run.module == SIMULATION:
            result = body.get("simulation")
            usable = isinstance(result, dict) and terms.simulation_is_usable(result)
            run.report_lint = () if usable else ("no game reached an end",)
        else:
            has_report = bool(body.get("report") or body.get("report_md"))
            usable = has_report and run.actions_taken >= 1
            run.report_lint = () if has_report else ("there is no report",)
        self._close(run, body["state"], None if usable else "no usable result")

    def close_run(self, run: Run, state: str) -> None:
        """The server closes an open run by itself and gives its price back."""
        if run.is_open:
            self._close(run, state, f"the server closed the run as {state}")

    def put_aggregate(self, job: Job, body: object) -> None:
        """Keeps the campaign's aggregate; the same again is harmless.

        It is taken after `finish` too, since the protocol names no order; the money of its row is then settled
        already and stays as it is. Raises RefusalError (409) for another aggregate or a job that the server settled.
        """
        if job.settled_by == "server":
            raise RefusalError(409, "job_settled", f"job {job.job_id} is {job.state}; the aggregate comes too late")
        if job.aggregate is not None and job.aggregate != body:
            raise RefusalError(409, "aggregate_exists", f"job {job.job_id} has another aggregate")
        job.aggregate = body
        for run in job.runs:
            if run.module == AGGREGATE and run.is_open:
                self._close(run, "succeeded", None)

    def finish(self, job: Job, reason: str | None) -> None:
        """Closes what is still open, gives it back, and names the job's outcome; again it changes nothing."""
        if job.settled_by is not None:
            return
        for run in job.runs:
            if run.is_open:
                self._close(run, "skipped" if run.state == "queued" else "failed", "not completed before finish")
        states = {run.state for run in job.runs if run.module != AGGREGATE}
        if states <= {"succeeded"}:
            job.state = "succeeded"
        elif "budget_exceeded" in states:
            job.state = "budget_exceeded"
        elif job.cancel_requested or "canceled" in states:
            job.state = "canceled"
        else:
            job.state = "failed"
        job.settled_by, job.finish_reason = "client", reason

    def settle(self, job: Job, state: str) -> None:
        """The server ends a job by itself: every open run takes the state and is given back."""
        if job.settled_by is None:
            for run in job.runs:
                self.close_run(run, state)
            job.state, job.settled_by = state, "server"

    def _mark_started(self, run: Run) -> None:
        job = self.jobs[run.job_id]
        if job.state == "queued":
            job.state = "playing"

    def _close(self, run: Run, state: str, refund_reason: str | None) -> None:
        run.state = state
        if refund_reason is not None and run.cents:
            self.balance_cents += run.cents
            self.refunds.append(Refund(job_id=run.job_id, run_id=run.run_id, cents=run.cents, reason=refund_reason))
