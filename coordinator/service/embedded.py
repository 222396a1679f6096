"""The embedded service: quote, hold once, run states, settle, over the project's own ledger.

It lives behind the same interface as a remote one. Its prices are the user's own costs, so it never refunds what was
sent to a provider: it releases the unused part of the hold. `coordinate serve` offers the same logic at a flat price.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator

import msgspec

from coordinator.client import NotSentError, UnknownOutcomeError
from coordinator.documents import content_sha256, sha256
from coordinator.errors import InvalidInputError
from coordinator.service.ledger import Ledger, LedgerCommitError, LedgerError, dollars, post
from coordinator.service.matrix import Prices, Row, RunPrice, rows_of
from coordinator.service.received import (
    MAX_KEY_CHARACTERS,
    check_count,
    check_job_request,
    check_json,
    check_key,
    check_name,
    check_result,
    keep_file,
    read_body,
    refuse,
)
from coordinator.service.settlement import charge_of, end_state, released_cents, settle_job, settle_run, settle_stalled
from coordinator.service.wire import (
    CONTROLLERS,
    MAX_REPETITIONS,
    RUN_STATES,
    Estimate,
    EstimateRequest,
    Job,
    JobRequest,
    JobRun,
    JobState,
    Pack,
    Price,
    Routing,
    RunBudget,
    RunLimits,
    RunResult,
    RunState,
    cents,
)

__all__ = ["DEFAULT_STALL_SECONDS", "EmbeddedService", "RunPrice"]
DEFAULT_STALL_SECONDS = 24 * 3600
MAX_SIMULATION_SECONDS = 900.0
WARN_PERCENT = 80
_ORDER = {state: position for position, state in enumerate(RUN_STATES)}


class EmbeddedService:
    """See `coordinator.client.Service` for the calls. Amounts are millionths of a dollar.

    `run_price` is of one playthrough of the campaign at hand, `long_run_price` of one with run length `long` where
    both are sold; `simulation_price` of a batch. `cap` bounds the hold of one job; None: no bound. `is_flat`: a usable
    run costs its whole part, another one nothing. `stall_seconds`: how long a job without heartbeats can be resumed
    before it is settled. `store`: a directory that keeps uploads; None: they are only booked, the files are here.
    """

    is_embedded = True
    address = "embedded"

    def __init__(
        self,
        ledger: Ledger,
        *,
        now: Callable[[], str],
        game: str = "local",
        run_price: RunPrice | None = None,
        long_run_price: RunPrice | None = None,
        simulation_price: RunPrice | None = None,
        cap: int | None = None,
        is_flat: bool = False,
        personas: tuple[str, ...] = (),
        wall_seconds: float = 600.0,
        stall_seconds: int = DEFAULT_STALL_SECONDS,
        store: str | os.PathLike[str] | None = None,
    ) -> None:
        self._ledger, self._now, self._game = ledger, now, game
        free = RunPrice()
        self._prices = Prices(
            run=run_price or free, long_run=long_run_price, simulation=simulation_price or free, cap=cap
        )
        self._is_flat, self._personas = is_flat, personas
        self._wall_seconds, self._stall_seconds = wall_seconds, stall_seconds
        self._store = None if store is None else os.path.abspath(store)
        self._secret = ledger.secret()

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One change of the ledger, after what has stalled was settled; its failures in the interface's words."""
        try:
            settle_stalled(self._ledger, self._now())
            with self._ledger.transaction() as connection:
                yield connection
        except LedgerCommitError as error:
            raise UnknownOutcomeError(str(error)) from error
        except LedgerError as error:
            raise NotSentError(str(error)) from error

    async def pack(self) -> Pack:
        return Pack(
            personas=list(self._personas),
            routing=Routing(action_controllers=list(CONTROLLERS), controller_plans=True, repetitions=MAX_REPETITIONS),
        )

    async def estimate(self, request: EstimateRequest) -> Estimate:
        rows = rows_of(request, self._personas)
        total = self._prices.totals(rows, request.run_length)
        is_simulation = any(row.module == "balance_sim" for row in rows)
        with self._change():
            balance = self._ledger.balances().balance
        return Estimate(
            ok=True,
            estimate_cents=cents(total.worst),
            balance_cents=balance // 10_000,
            breakdown=self._prices.breakdown(rows, request.run_length),
            persona_run_count=sum(row.module == "persona_playtest" for row in rows),
            run_length=request.run_length,
            controllers=request.controllers,
            execution_mode="direct_command_batch" if is_simulation else None,
            simulation_limits={"wall_seconds": MAX_SIMULATION_SECONDS} if is_simulation else None,
            low=cents(total.low),
            likely=cents(total.likely),
            worst=cents(total.worst),
        )

    # -- jobs

    async def register(self, idempotency_key: str, body: bytes) -> Job:
        """Hold the price once: the same key and bytes again get the same job, other bytes a 409."""
        check_key(idempotency_key)
        request = check_job_request(read_body(body, JobRequest))
        rows = rows_of(request, self._personas)
        hold, digest = self._prices.totals(rows, request.run_length).worst, sha256(body)
        with self._change() as connection:
            found = self._find(connection, idempotency_key)
            if found is not None:
                if found[1:] != (digest, self._game):
                    refuse(409, "idempotency_conflict", "this key was used with another request")
                return self._job(connection, found[0], replayed=True)
            if request.confirm_price_cents != cents(hold):
                refuse(409, "price_changed", f"the price is {cents(hold)} cents, not {request.confirm_price_cents}")
            balance = self._ledger.balances().balance
            if hold > balance:
                refuse(402, "insufficient_balance", f"{dollars(hold)} are needed, the balance is {dollars(balance)}")
            job_id = "job_" + secrets.token_hex(8)
            connection.execute(
                "INSERT INTO job (id, idempotency_key, request_sha256, game, price_microdollars, hold_microdollars,"
                " state, created_at) VALUES (?, ?, ?, ?, ?, ?, 'open', ?)",
                (job_id, idempotency_key, digest, self._game, hold, hold, self._now()),
            )
            if hold:
                post(connection, self._now(), "hold", "balance", "held", hold, job_id=job_id)
            self._insert_runs(connection, job_id, rows, self._prices.parts(rows, request.run_length))
            return self._job(connection, job_id, replayed=False)

    def _insert_runs(self, connection: sqlite3.Connection, job_id: str, rows: list[Row], parts: list[int]) -> None:
        for position, (row, part) in enumerate(zip(rows, parts, strict=True)):
            connection.execute(
                "INSERT INTO run (id, job_id, position, module, persona, controller, repetition, token_sha256, state,"
                " part_microdollars, beaten_at, stall_seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
                (
                    "run_" + secrets.token_hex(8),
                    job_id,
                    position,
                    row.module,
                    row.persona,
                    row.controller,
                    row.repetition,
                    hashlib.sha256(self._token(job_id, position).encode()).hexdigest(),
                    part,
                    self._now(),
                    self._stall_seconds,
                ),
            )

    def _token(self, job_id: str, position: int) -> str:
        """A run's token is derived from the ledger's secret: nobody else can tell it, a repeated registration answers
        the same one, and none is stored.
        """
        return hmac.new(self._secret, f"{job_id}/{position}".encode(), hashlib.sha256).hexdigest()[:32]

    def _find(self, connection: sqlite3.Connection, key: str) -> tuple[str, str, str] | None:
        """Id, hash of the request and game of the job under a key, whichever game it was for."""
        query = "SELECT id, request_sha256, game FROM job WHERE idempotency_key = ?"
        found: tuple[str, str, str] | None = connection.execute(query, (key,)).fetchone()
        return found

    async def find_job(self, idempotency_key: str) -> Job | None:
        with self._change() as connection:
            found = self._find(connection, idempotency_key)
            if found is None or found[2] != self._game:
                return None
            return self._job(connection, found[0], replayed=True)

    def _job(self, connection: sqlite3.Connection, job_id: str, *, replayed: bool) -> Job:
        price, state, cancel = connection.execute(
            "SELECT price_microdollars, state, cancel_requested FROM job WHERE id = ?", (job_id,)
        ).fetchone()
        rows = connection.execute(
            "SELECT id, module, persona, controller, repetition, state, position FROM run WHERE job_id = ?"
            " ORDER BY position",
            (job_id,),
        )
        runs = []
        for run_id, module, persona, controller, repetition, run_state, position in rows:
            seconds = MAX_SIMULATION_SECONDS if module == "balance_sim" else self._wall_seconds
            runs.append(
                JobRun(
                    run_id=run_id,
                    module=module,
                    persona=persona,
                    controller=controller,
                    repetition=repetition,
                    playtest_token=self._token(job_id, position),
                    state=run_state,
                    limits=RunLimits(wall_seconds=seconds),
                    budget=RunBudget(wall_seconds_max=seconds),
                )
            )
        return Job(
            job_id=job_id,
            replayed=replayed,
            price=Price(price_cents=cents(price)),
            runs=runs,
            state=state,
            cancel_requested=bool(cancel),
        )

    async def job(self, job_id: str) -> JobState:
        with self._change() as connection:
            return self._job_state(connection, job_id)

    def _job_state(self, connection: sqlite3.Connection, job_id: str) -> JobState:
        found = connection.execute(
            "SELECT state, cancel_requested FROM job WHERE id = ? AND game = ?", (job_id, self._game)
        ).fetchone()
        if found is None:
            refuse(404, "no_such_job", f"there is no job {job_id!r}")
        is_settled = found[0] != "open"
        return JobState(
            job_id=job_id,
            state=found[0],
            cancel_requested=bool(found[1]),
            refunded_cents=released_cents(connection, job_id) if is_settled else None,
        )

    async def finish(self, job_id: str, reason: str | None = None) -> JobState:
        """Settle: runs that are open end and give back what they hold. Safe to repeat.

        `reason` may be a run's final state, which the open runs then get; any other text is only noted.
        """
        with self._change() as connection:
            stands = self._job_state(connection, job_id)
            if stands.state == "open":
                state = end_state(reason, cancel_requested=stands.cancel_requested)
                settle_job(connection, job_id, state, (reason or "")[:MAX_KEY_CHARACTERS], self._now())
            return self._job_state(connection, job_id)

    async def request_cancel(self, job_id: str) -> None:
        """Somebody wants the job to end: its client sees it with the next heartbeat."""
        with self._change() as connection:
            self._job_state(connection, job_id)
            connection.execute("UPDATE job SET cancel_requested = 1 WHERE id = ?", (job_id,))

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None:
        text = msgspec.json.encode(check_json(aggregate)).decode()
        with self._change() as connection:
            self._job_state(connection, job_id)
            connection.execute("UPDATE job SET aggregate = ? WHERE id = ?", (text, job_id))

    # -- runs

    async def run(self, job_id: str, run_id: str) -> RunState:
        with self._change() as connection:
            return self._run_state(connection, job_id, run_id)

    def _run_state(
        self, connection: sqlite3.Connection, job_id: str, run_id: str, warning: str | None = None
    ) -> RunState:
        found = connection.execute(
            "SELECT run.state, cancel_requested FROM run JOIN job ON job.id = job_id"
            " WHERE run.id = ? AND job_id = ? AND game = ?",
            (run_id, job_id, self._game),
        ).fetchone()
        if found is None:
            refuse(404, "no_such_run", f"there is no run {run_id!r} in job {job_id!r}")
        return RunState(run_id=run_id, state=found[0], cancel_requested=bool(found[1]), budget_warning=warning)

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState:
        """Forward only; the state that stands is accepted again. Anything else is 409 and changes nothing."""
        with self._change() as connection:
            stands = self._run_state(connection, job_id, run_id).state
            if state not in _ORDER or stands not in _ORDER or _ORDER[state] < _ORDER[stands]:
                refuse(409, "illegal_transition", f"run {run_id} is {stands}; it cannot become {state!r}")
            connection.execute("UPDATE run SET state = ?, beaten_at = ? WHERE id = ?", (state, self._now(), run_id))
            return self._run_state(connection, job_id, run_id)

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState:
        check_count(actions_taken, "actions_taken")
        check_count(checkpoint_step, "checkpoint_step")
        with self._change() as connection:
            stands = self._run_state(connection, job_id, run_id)
            if stands.state not in _ORDER:
                refuse(409, "run_closed", f"run {run_id} is {stands.state}")
            connection.execute(
                "UPDATE run SET actions_taken = MAX(actions_taken, ?), beaten_at = ? WHERE id = ?",
                (actions_taken, self._now(), run_id),
            )
            return self._run_state(connection, job_id, run_id, self._warning(connection, run_id))

    def _warning(self, connection: sqlite3.Connection, run_id: str) -> str | None:
        """Once for each run of a priced job, when little of the budget is left."""
        part, warned = connection.execute(
            "SELECT part_microdollars, warned FROM run WHERE id = ?", (run_id,)
        ).fetchone()
        found = self._ledger.balances()
        bound = found.held + found.spent
        if warned or not part or bound * 100 < found.budget * WARN_PERCENT:
            return None
        connection.execute("UPDATE run SET warned = 1 WHERE id = ?", (run_id,))
        return (
            f"{dollars(found.held)} held and {dollars(found.spent)} spent of a budget of {dollars(found.budget)};"
            " raise it with coordinate budget set"
        )

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState:
        """Settle one run: what was used is spent, the rest of its part released. The same result again is accepted.

        A result for a run that is closed already is 409: `result_conflict` when another result closed it, `run_closed`
        when it was settled without one.
        """
        digest = content_sha256(check_result(result))
        with self._change() as connection:
            stands = self._run_state(connection, job_id, run_id)
            module, part, known = connection.execute(
                "SELECT module, part_microdollars, result_sha256 FROM run WHERE id = ?", (run_id,)
            ).fetchone()
            if known == digest:
                return stands
            if known is not None:
                refuse(409, "result_conflict", f"run {run_id} is {stands.state} already, by another result")
            if stands.state not in _ORDER:
                refuse(409, "run_closed", f"run {run_id} is {stands.state} already")
            try:
                charge = charge_of(result, module, part, flat=self._is_flat)
            except InvalidInputError as error:
                refuse(400, "invalid_request", str(error))
            settle_run(connection, job_id, run_id, charge, self._now())
            connection.execute(
                "UPDATE run SET state = ?, result_sha256 = ?, spent_microdollars = ?, used_microdollars = ?,"
                " actions_taken = ? WHERE id = ?",
                (result.state, digest, charge.spent, charge.used, result.actions_taken, run_id),
            )
            return self._run_state(connection, job_id, run_id)

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        """Keep a file by its checksum, before it is booked: what the books name is there."""
        check_name(name)
        if hashlib.sha256(data).hexdigest() != sha256:
            refuse(400, "checksum_mismatch", f"{name!r} does not have the SHA-256 that came with it")
        with self._change() as connection:
            self._run_state(connection, job_id, run_id)
            if self._store is not None:
                keep_file(self._store, data, sha256)
            cursor = connection.execute(
                "INSERT OR IGNORE INTO upload (run_id, name, sha256, bytes) VALUES (?, ?, ?, ?)",
                (run_id, name, sha256, len(data)),
            )
            return cursor.rowcount == 1

    async def has_upload(self, job_id: str, run_id: str, sha256: str) -> bool:
        """Whether the run has a file with this checksum."""
        with self._change() as connection:
            self._run_state(connection, job_id, run_id)
            query = "SELECT 1 FROM upload WHERE run_id = ? AND sha256 = ?"
            return bool(connection.execute(query, (run_id, sha256)).fetchall())

    async def close(self) -> None:
        self._ledger.close()
