"""The embedded service: quote, hold once, run states, settle, over the project's own ledger.

It lives behind the same interface as a remote one. Its prices are the user's own costs, so it never refunds what was
sent to a provider: it releases the unused part of the hold.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec

from coordinator.client import AnsweredNoError
from coordinator.documents import content_sha256, sha256
from coordinator.errors import InvalidInputError
from coordinator.service.ledger import Ledger, check_amount, dollars, post
from coordinator.service.wire import (
    FINAL_RUN_STATES,
    MODULES,
    RUN_STATES,
    BreakdownRow,
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

DEFAULT_STALL_SECONDS = 24 * 3600
CONTROLLERS = ("standard", "jev", "rune")
_OPEN_STATES = "(" + ", ".join(f"'{state}'" for state in RUN_STATES) + ")"
_ORDER = {state: position for position, state in enumerate(RUN_STATES)}


class RunPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What one playthrough costs, in millionths of a dollar: a quote has all three."""

    low: int = 0
    likely: int = 0
    worst: int = 0

    def __post_init__(self) -> None:
        for name in ("low", "likely", "worst"):
            check_amount(getattr(self, name), f"price ({name})")
        if not self.low <= self.likely <= self.worst:
            raise InvalidInputError(f"price: low {self.low}, likely {self.likely}, worst {self.worst} are not in order")


class EmbeddedService:
    """See `coordinator.client.Service` for the calls. `cap` bounds the hold of one job; None: no bound.

    `stall_seconds`: how long a job without heartbeats can be resumed before it is settled.
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
        cap: int | None = None,
        personas: tuple[str, ...] = (),
        wall_seconds: float = 600.0,
        stall_seconds: int = DEFAULT_STALL_SECONDS,
    ) -> None:
        self._ledger, self._now, self._game = ledger, now, game
        self._run_price = run_price or RunPrice()
        self._cap = cap
        self._personas, self._wall_seconds, self._stall_seconds = personas, wall_seconds, stall_seconds

    async def pack(self) -> Pack:
        return Pack(
            personas=list(self._personas),
            routing=Routing(action_controllers=list(CONTROLLERS), controller_plans=True, repetitions=100),
        )

    async def estimate(self, request: EstimateRequest) -> Estimate:
        count = _count(request)
        price = self._run_price
        hold = self._hold(request, count)
        return Estimate(
            ok=True,
            estimate_cents=cents(hold),
            balance_cents=self._ledger.balances().balance // 10_000,
            breakdown=[BreakdownRow(unit=_unit(request), count=count, unit_cents=cents(price.worst))],
            persona_run_count=count if "persona_playtest" in request.modules else 0,
            run_length=request.run_length,
            controllers=request.controllers,
            low=cents(min(price.low * count, hold)),
            likely=cents(min(price.likely * count, hold)),
            worst=cents(hold),
        )

    def _hold(self, request: EstimateRequest, count: int) -> int:
        worst = 0 if request.modules == ["balance_sim"] else self._run_price.worst * count
        return worst if self._cap is None else min(worst, self._cap)

    # -- jobs

    async def register(self, idempotency_key: str, body: bytes) -> Job:
        try:
            request = msgspec.json.decode(body, type=JobRequest)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            _no(400, "invalid_request", f"the body is not a job: {error}")
        count = _count(request)
        hold = self._hold(request, count)
        digest = sha256(body)
        with self._ledger.transaction() as connection:
            found = self._find(connection, idempotency_key)
            if found is not None:
                if found[1] != digest:
                    _no(409, "idempotency_conflict", "this key was used with another request")
                return self._job(connection, found[0], replayed=True)
            if request.confirm_price_cents != cents(hold):
                _no(409, "price_changed", f"the price is {cents(hold)} cents, not {request.confirm_price_cents}")
            balance = self._ledger.balances().balance
            if hold > balance:
                _no(402, "insufficient_balance", f"{dollars(hold)} are needed, the balance is {dollars(balance)}")
            job_id = "job_" + secrets.token_hex(8)
            connection.execute(
                "INSERT INTO job (id, idempotency_key, request_sha256, game, price_microdollars, hold_microdollars,"
                " state, created_at) VALUES (?, ?, ?, ?, ?, ?, 'open', ?)",
                (job_id, idempotency_key, digest, self._game, hold, hold, self._now()),
            )
            if hold:
                post(connection, self._now(), "hold", "balance", "held", hold, job_id=job_id)
            self._insert_runs(connection, job_id, request, hold)
            return self._job(connection, job_id, replayed=False)

    def _insert_runs(self, connection: sqlite3.Connection, job_id: str, request: JobRequest, hold: int) -> None:
        """Every run has a fixed part of the hold; what does not divide goes to the first ones."""
        rows = _matrix(request)
        part, rest = divmod(hold, max(1, len(rows)))
        for position, (module, persona, controller, repetition) in enumerate(rows):
            connection.execute(
                "INSERT INTO run (id, job_id, position, module, persona, controller, repetition, token_sha256, state,"
                " part_microdollars, beaten_at, stall_seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
                (
                    "run_" + secrets.token_hex(8),
                    job_id,
                    position,
                    module,
                    persona,
                    controller,
                    repetition,
                    hashlib.sha256(self._token(job_id, position).encode()).hexdigest(),
                    part + (position < rest),
                    self._now(),
                    self._stall_seconds,
                ),
            )

    def _token(self, job_id: str, position: int) -> str:
        """A run's token is derived, so that a repeated registration answers the same bytes and none is stored."""
        return hashlib.sha256(f"{self._ledger.path}/{job_id}/{position}".encode()).hexdigest()[:32]

    def _find(self, connection: sqlite3.Connection, key: str) -> tuple[str, str] | None:
        found = connection.execute(
            "SELECT id, request_sha256 FROM job WHERE idempotency_key = ? AND game = ?", (key, self._game)
        ).fetchone()
        return None if found is None else (str(found[0]), str(found[1]))

    async def find_job(self, idempotency_key: str) -> Job | None:
        with self._ledger.transaction() as connection:
            found = self._find(connection, idempotency_key)
            return None if found is None else self._job(connection, found[0], replayed=True)

    def _job(self, connection: sqlite3.Connection, job_id: str, *, replayed: bool) -> Job:
        price, state, cancel = connection.execute(
            "SELECT price_microdollars, state, cancel_requested FROM job WHERE id = ?", (job_id,)
        ).fetchone()
        rows = connection.execute(
            "SELECT id, module, persona, controller, repetition, state, position FROM run WHERE job_id = ?"
            " ORDER BY position",
            (job_id,),
        )
        return Job(
            job_id=job_id,
            replayed=replayed,
            price=Price(price_cents=cents(price)),
            state=state,
            cancel_requested=bool(cancel),
            runs=[
                JobRun(
                    run_id=run_id,
                    module=module,
                    persona=persona,
                    controller=controller,
                    repetition=repetition,
                    playtest_token=self._token(job_id, position),
                    state=run_state,
                    limits=RunLimits(wall_seconds=self._wall_seconds),
                    budget=RunBudget(wall_seconds_max=self._wall_seconds),
                )
                for run_id, module, persona, controller, repetition, run_state, position in rows
            ],
        )

    async def job(self, job_id: str) -> JobState:
        with self._ledger.transaction() as connection:
            self._settle_stalled(connection, job_id)
            return self._job_state(connection, job_id)

    def _job_state(self, connection: sqlite3.Connection, job_id: str) -> JobState:
        found = connection.execute("SELECT state, cancel_requested FROM job WHERE id = ?", (job_id,)).fetchone()
        if found is None:
            _no(404, "no_such_job", f"there is no job {job_id}")
        return JobState(job_id=job_id, state=found[0], cancel_requested=bool(found[1]))

    async def finish(self, job_id: str, reason: str | None = None) -> JobState:
        """Settle: runs that are open end, what they hold is released. Safe to repeat."""
        with self._ledger.transaction() as connection:
            if self._job_state(connection, job_id).state == "open":
                self._settle(connection, job_id, "canceled" if reason == "canceled" else "skipped", reason)
            return self._job_state(connection, job_id)

    def _settle(self, connection: sqlite3.Connection, job_id: str, open_runs_become: str, reason: str | None) -> None:
        connection.execute(
            f"UPDATE run SET state = ? WHERE job_id = ? AND state IN {_OPEN_STATES}", (open_runs_become, job_id)
        )
        held = self._held(connection, job_id)
        if held:
            post(connection, self._now(), "release", "held", "balance", held, job_id=job_id, note=reason or "")
        states = {state for (state,) in connection.execute("SELECT state FROM run WHERE job_id = ?", (job_id,))}
        order = ("stalled", "canceled", "budget_exceeded", "failed", "succeeded", "skipped")
        state = next((one for one in order if one in states), "succeeded")
        connection.execute("UPDATE job SET state = ? WHERE id = ?", (state, job_id))

    def _held(self, connection: sqlite3.Connection, job_id: str) -> int:
        return int(
            connection.execute(
                "SELECT COALESCE(SUM(microdollars), 0) FROM entry JOIN posting ON posting.id = posting_id"
                " WHERE job_id = ? AND account = 'held'",
                (job_id,),
            ).fetchone()[0]
        )

    def _settle_stalled(self, connection: sqlite3.Connection, job_id: str) -> None:
        """A job whose heartbeats stopped for longer than its limit is over."""
        if self._job_state(connection, job_id).state != "open":
            return
        beats = connection.execute(
            f"SELECT beaten_at, stall_seconds FROM run WHERE job_id = ? AND state IN {_OPEN_STATES}", (job_id,)
        ).fetchall()
        now = datetime.fromisoformat(self._now())
        if beats and all(now - datetime.fromisoformat(at) > timedelta(seconds=limit) for at, limit in beats):
            self._settle(connection, job_id, "stalled", "no heartbeat within the limit")

    async def request_cancel(self, job_id: str) -> None:
        """Somebody wants the job to end: its client sees it with the next heartbeat."""
        with self._ledger.transaction() as connection:
            self._job_state(connection, job_id)
            connection.execute("UPDATE job SET cancel_requested = 1 WHERE id = ?", (job_id,))

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None:
        with self._ledger.transaction() as connection:
            self._job_state(connection, job_id)
            text = msgspec.json.encode(aggregate).decode()
            connection.execute("UPDATE job SET aggregate = ? WHERE id = ?", (text, job_id))

    # -- runs

    async def run(self, job_id: str, run_id: str) -> RunState:
        with self._ledger.transaction() as connection:
            self._settle_stalled(connection, job_id)
            return self._run_state(connection, job_id, run_id)

    def _run_state(self, connection: sqlite3.Connection, job_id: str, run_id: str) -> RunState:
        found = connection.execute(
            "SELECT run.state, cancel_requested FROM run JOIN job ON job.id = job_id WHERE run.id = ? AND job_id = ?",
            (run_id, job_id),
        ).fetchone()
        if found is None:
            _no(404, "no_such_run", f"there is no run {run_id} in job {job_id}")
        return RunState(run_id=run_id, state=found[0], cancel_requested=bool(found[1]))

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState:
        """Forward only; the state that stands is accepted again. Anything else is 409 and changes nothing."""
        with self._ledger.transaction() as connection:
            self._settle_stalled(connection, job_id)
            stands = self._run_state(connection, job_id, run_id).state
            if state not in _ORDER or stands not in _ORDER or _ORDER[state] < _ORDER[stands]:
                _no(409, "illegal_transition", f"run {run_id} is {stands}; it cannot become {state}")
            connection.execute("UPDATE run SET state = ?, beaten_at = ? WHERE id = ?", (state, self._now(), run_id))
            return self._run_state(connection, job_id, run_id)

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState:
        with self._ledger.transaction() as connection:
            self._settle_stalled(connection, job_id)
            stands = self._run_state(connection, job_id, run_id)
            if stands.state not in _ORDER:
                _no(409, "run_closed", f"run {run_id} is {stands.state}")
            connection.execute(
                "UPDATE run SET actions_taken = MAX(actions_taken, ?), beaten_at = ? WHERE id = ?",
                (actions_taken, self._now(), run_id),
            )
            return stands

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState:
        """Settle one run: what was used is spent, the rest of its part released. The same result again is accepted."""
        if result.state not in FINAL_RUN_STATES:
            _no(400, "invalid_request", f"the state {result.state} is not final")
        digest = content_sha256(msgspec.to_builtins(result))
        used = _used(result)
        with self._ledger.transaction() as connection:
            stands = self._run_state(connection, job_id, run_id)
            part, known = connection.execute(
                "SELECT part_microdollars, result_sha256 FROM run WHERE id = ?", (run_id,)
            ).fetchone()
            if known == digest:
                return stands
            if known is not None or stands.state not in _ORDER:
                _no(409, "run_closed", f"run {run_id} is {stands.state} already")
            spent = min(used, part)
            now = self._now()
            if spent:
                post(connection, now, "spend", "held", "spent", spent, job_id=job_id, run_id=run_id)
            if part - spent:
                post(connection, now, "release", "held", "balance", part - spent, job_id=job_id, run_id=run_id)
            connection.execute(
                "UPDATE run SET state = ?, result_sha256 = ?, spent_microdollars = ?, actions_taken = ? WHERE id = ?",
                (result.state, digest, spent, result.actions_taken, run_id),
            )
            return self._run_state(connection, job_id, run_id)

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        """The embedded service keeps no copies: the files are here already. It only books them."""
        if hashlib.sha256(data).hexdigest() != sha256:
            _no(400, "checksum_mismatch", f"{name} does not have the SHA-256 {sha256}")
        with self._ledger.transaction() as connection:
            self._run_state(connection, job_id, run_id)
            cursor = connection.execute(
                "INSERT OR IGNORE INTO upload (run_id, name, sha256, bytes) VALUES (?, ?, ?, ?)",
                (run_id, name, sha256, len(data)),
            )
            return cursor.rowcount == 1

    async def close(self) -> None:
        self._ledger.close()


def _no(status: int, code: str, message: str) -> NoReturn:
    raise AnsweredNoError(status, code, message)


def _count(request: EstimateRequest) -> int:
    return len(_matrix(request))


def _unit(request: EstimateRequest) -> str:
    return "playtest_run" if request.modules == ["balance_sim"] else "persona_run"


def _matrix(request: EstimateRequest) -> list[tuple[str, str | None, str | None, int | None]]:
    """The runs of a request, in order: persona, then controller, then repetition."""
    unknown = [module for module in request.modules if module not in MODULES]
    if unknown or not request.modules:
        _no(400, "invalid_estimate", f"modules {request.modules!r}: known are {', '.join(MODULES)}")
    repetitions = 1 if request.repetitions is None else request.repetitions
    if repetitions < 1 or len(request.personas) != len(set(request.personas)):
        _no(400, "invalid_estimate", "personas must not repeat and repetitions must be at least 1")
    rows: list[tuple[str, str | None, str | None, int | None]] = []
    if "persona_playtest" in request.modules:
        rows.extend(
            ("persona_playtest", persona, controller, repetition)
            for persona in request.personas
            for controller in request.controllers or ["standard"]
            for repetition in range(1, repetitions + 1)
        )
    if "balance_sim" in request.modules:
        rows.append(("balance_sim", None, None, None))
    return rows


def _used(result: RunResult) -> int:
    usage: dict[str, Any] = result.usage or {}
    try:
        return check_amount(usage.get("microdollars", 0), "usage")
    except InvalidInputError as error:
        _no(400, "invalid_request", str(error))
