"""Proof from files that money and play agree: journal, ledger and what the batches launched. Reads, never writes.

The ledger's own rules are `coordinator.service.audit`; here are those between the three.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from coordinator.client import AnsweredNoError
from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.documents import content_sha256, sha256
from coordinator.errors import CoordinatorError
from coordinator.files import read_bounded
from coordinator.journal import Journal, list_journals
from coordinator.paths import ControlPaths
from coordinator.records import Entry, State
from coordinator.service.audit import inconsistencies
from coordinator.service.ledger import Ledger, dollars
from coordinator.service.matrix import rows_of
from coordinator.service.wire import FINAL_RUN_STATES, JobRequest, RunResult, cents
from coordinator.verification import Problem, Verification

EMBEDDED = "embedded"
MAX_RESULT_BYTES = 64 << 20


def verify_purchases(
    project: str | os.PathLike[str], manifest_path: str | os.PathLike[str] | None = None
) -> Verification:
    """Every purchase of a project, or those of one manifest, against the project's ledger and their batches.

    Raises `CoordinatorError` only for a ledger that cannot be opened.
    """
    root = os.fspath(project)
    problems: list[Problem] = []
    checked: Counter[str] = Counter()
    path = ledger_path(root)
    ledger = Ledger(path, read_only=True) if os.path.lexists(path) else None
    keys: set[str] = set()
    unreadable = False
    try:
        if ledger is not None:
            problems.extend(Problem(where=path, what=what) for what in inconsistencies(ledger))
            checked["postings"] += ledger.row_counts()["posting"]
        for journal_path, journal in list_journals(root):
            if isinstance(journal, CoordinatorError):
                unreadable = True
                problems.append(Problem(where=journal_path, what=str(journal)))
                continue
            keys.add(journal.key)
            if manifest_path is None or _same_path(journal.manifest_path, manifest_path):
                checked["purchases"] += 1
                problems.extend(verify_money(journal_path, journal, ledger, read_states(journal)))
        if ledger is not None and not unreadable:
            problems.extend(_charges_without_journal(ledger, keys))
    finally:
        if ledger is not None:
            ledger.close()
    return Verification(problems=problems, notes=[], checked=dict(checked))


def ledger_path(project: str) -> str:
    """The embedded service's ledger of a project."""
    return os.path.join(project, ".playlane", "ledger.sqlite")


def read_states(journal: Journal) -> dict[str, State]:
    """The states of a purchase's batches by their files; `coordinator.verification` tells what is wrong with a file."""
    found: dict[str, State] = {}
    for batch in journal.batches:
        path = ControlPaths(batch.control_directory).state
        try:
            state = read_sealed(path, State, MAX_STATE_BYTES)
        except CoordinatorError:
            continue
        if state is not None:
            found[path] = state[0]
    return found


def verify_money(
    journal_path: str, journal: Journal, ledger: Ledger | None, states: Mapping[str, State]
) -> list[Problem]:
    """What does not fit between one journal, the ledger (None: a remote service's, or none there) and the states."""
    check = _Purchase(journal_path, journal, states)
    check.check_request()
    check.check_launches()
    if journal.service == EMBEDDED:
        if ledger is not None:
            check.check_ledger(ledger)
        elif journal.job_id is not None:
            check.problem(journal_path, f"names job {journal.job_id}, but the project has no ledger")
    return check.problems


def _charges_without_journal(ledger: Ledger, keys: set[str]) -> Iterator[Problem]:
    """The journal is durable before anything is sent: a job that none knows was lost, or never meant."""
    for job_id, key, hold in ledger.query("SELECT id, idempotency_key, hold_microdollars FROM job"):
        if key not in keys:
            what = f"job {job_id} over {dollars(hold)} was registered under a key that no journal has"
            yield Problem(where=ledger.path, what=what)


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run's row in the ledger."""

    state: str
    module: str
    persona: str | None
    controller: str | None
    part: int
    spent: int
    used: int | None
    result_sha256: str | None


class _Purchase:
    def __init__(self, path: str, journal: Journal, states: Mapping[str, State]) -> None:
        self.path, self.journal, self.states = path, journal, states
        self.problems: list[Problem] = []

    def problem(self, where: str, what: str) -> None:
        self.problems.append(Problem(where=where, what=what))

    def entries(self) -> Iterator[tuple[str, Entry]]:
        for path, state in self.states.items():
            for entry in state.entries.values():
                yield path, entry

    # -- the journal in itself

    def check_request(self) -> None:
        request = self._request()
        if request is not None and request.confirm_price_cents != self.journal.price_cents:
            self.problem(
                self.path,
                f"a price of {self.journal.price_cents} cents was agreed to, the request confirms"
                f" {request.confirm_price_cents}",
            )
        runs = Counter(self.journal.runs.values())
        for run_id, count in runs.items():
            if count > 1:
                self.problem(self.path, f"run {run_id} stands for {count} scenarios: it was paid for once")
        if self.journal.runs and self.journal.job_id is None:
            self.problem(self.path, "has runs, but no job they were bought in")
        for run_id in self.journal.results:
            if run_id not in runs:
                self.problem(self.path, f"has a result of run {run_id}, which it did not buy")
        is_over = self.journal.state in ("settled", "finished") and self.journal.job_id is not None
        if is_over and self.journal.job_state is None:
            self.problem(self.path, f"is {self.journal.state}, but does not say how the job was settled")

    def _request(self) -> JobRequest | None:
        try:
            return msgspec.json.decode(self.journal.request, type=JobRequest)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            self.problem(self.path, f"its request is not a registration: {error}")
            return None

    # -- the journal and what was launched

    def check_launches(self) -> None:
        """A reservation is made only inside a registered job."""
        for path, entry in self.entries():
            name = entry.permit.scenario_id
            if self.journal.job_id is None:
                self.problem(path, f"{name!r} was reserved outside of a registered job")
            elif name not in self.journal.runs:
                self.problem(path, f"{name!r} was reserved, but is none of the runs that were bought")

    # -- the journal and the ledger

    def check_ledger(self, ledger: Ledger) -> None:
        rows = ledger.query(
            "SELECT id, idempotency_key, request_sha256, game, price_microdollars, state FROM job"
            " WHERE idempotency_key = ? OR id = ?",
            self.journal.key,
            self.journal.job_id or "",
        )
        if len(rows) > 1:
            self.problem(ledger.path, f"the purchase {self.journal.key} was charged as {len(rows)} jobs")
            return
        if not rows:
            if self.journal.job_id is not None:
                self.problem(ledger.path, f"does not know job {self.journal.job_id} of {self.path}")
            return
        job_id, key, digest, game, price, state = rows[0]
        if self.journal.job_id is None:
            if self.journal.state != "registering":
                self.problem(self.path, f"says that nothing was bought, but job {job_id} was charged")
            return
        if (job_id, key) != (self.journal.job_id, self.journal.key):
            self.problem(ledger.path, f"job {job_id} has the key {key}; the journal names {self.journal.job_id}")
        if digest != sha256(self.journal.request.encode()):
            self.problem(ledger.path, f"job {job_id} was registered by another request than the journal's")
        if game != self.journal.game:
            self.problem(ledger.path, f"job {job_id} is of game {game!r}, the journal's is {self.journal.game!r}")
        if cents(price) > self.journal.price_cents:
            self.problem(
                ledger.path, f"job {job_id} costs {dollars(price)}, agreed were {self.journal.price_cents} cents"
            )
        self._check_settled(ledger.path, job_id, state)
        self._check_runs(ledger, job_id)

    def _check_settled(self, where: str, job_id: str, state: str) -> None:
        is_over = self.journal.state in ("settled", "finished")
        if is_over and state == "open":
            self.problem(where, f"job {job_id} is open, but the journal is {self.journal.state}")
        if is_over and self.journal.job_state in FINAL_RUN_STATES and state not in ("open", self.journal.job_state):
            self.problem(where, f"job {job_id} was settled as {state}, the journal says {self.journal.job_state}")

    def _check_runs(self, ledger: Ledger, job_id: str) -> None:
        rows = ledger.query(
            "SELECT id, state, module, persona, controller, part_microdollars, spent_microdollars, used_microdollars,"
            " result_sha256 FROM run WHERE job_id = ? ORDER BY position",
            job_id,
        )
        names = list(_Run.__struct_fields__)
        runs = {row[0]: _Run(**dict(zip(names, row[1:], strict=True))) for row in rows}
        self._check_plan(ledger.path, job_id, runs)
        scenarios = {run_id: name for name, run_id in self.journal.runs.items()}
        for run_id in scenarios:
            if run_id not in runs:
                self.problem(ledger.path, f"run {run_id} of {scenarios[run_id]!r} is not in job {job_id}")
        for run_id, run in runs.items():
            if run_id not in scenarios:
                if self.journal.runs:
                    self.problem(self.path, f"run {run_id} was bought, but no scenario has it")
                continue
            self._check_result(ledger.path, run_id, run)
            self._check_spent(ledger.path, run_id, run, scenarios[run_id])

    def _check_plan(self, where: str, job_id: str, runs: dict[str, _Run]) -> None:
        request = self._request()
        if request is None:
            return
        try:
            wanted = Counter((row.module, row.persona, row.controller) for row in rows_of(request))
        except AnsweredNoError as error:
            self.problem(self.path, f"its request cannot have been registered: {error.message}")
            return
        if Counter((run.module, run.persona, run.controller) for run in runs.values()) != wanted:
            self.problem(where, f"the runs of job {job_id} are not those that were asked for")

    def _check_result(self, where: str, run_id: str, run: _Run) -> None:
        known: dict[str, Any] = self.journal.results.get(run_id) or {}
        answered, is_late = known.get("answered"), bool(known.get("late"))
        if is_late:
            return
        if answered in FINAL_RUN_STATES and answered != run.state:
            self.problem(where, f"run {run_id} is {run.state}, but its result was answered with {answered}")
        if answered is not None and not known.get("closed") and run.result_sha256 is None:
            self.problem(where, f"run {run_id} has no result, but the journal's was answered")
        if run.result_sha256 is not None and not known:
            self.problem(self.path, f"run {run_id} was settled by a result that the journal does not know")
        kept = self._kept(run_id)
        if kept is not None and run.result_sha256 not in (None, kept):
            self.problem(where, f"run {run_id} was settled by another result than the one kept beside the journal")

    def _kept(self, run_id: str) -> str | None:
        """The hash by which a service knows the result that was kept before it was sent."""
        folder = os.path.join(os.path.dirname(self.path), "results")
        path = os.path.join(folder, f"{sha256(run_id.encode())[:32]}.json")
        try:
            result = msgspec.json.decode(read_bounded(path, MAX_RESULT_BYTES), type=RunResult)
        except FileNotFoundError:
            return None
        except (CoordinatorError, msgspec.DecodeError, msgspec.ValidationError) as error:
            self.problem(path, f"the kept result cannot be read: {error}")
            return None
        return content_sha256(msgspec.to_builtins(result))

    def _check_spent(self, where: str, run_id: str, run: _Run, scenario_id: str) -> None:
        if run.used is not None and run.used > run.part:
            self.problem(where, f"run {run_id} used {dollars(run.used)}, more than its part of {dollars(run.part)}")
        phases = [entry for _, entry in self.entries() if entry.permit.scenario_id == scenario_id]
        if run.spent and not any(entry.phase != "reserved" for entry in phases):
            self.problem(where, f"{dollars(run.spent)} were spent for {scenario_id!r}, which was never launched")
        told, rows = 0, 0
        for entry in phases:
            cost = _cost_of(entry)
            told, rows = told + cost, rows + (cost > 0)
        if run.result_sha256 is not None and run.used is not None and told > run.used + rows:
            self.problem(
                where, f"the attempts of {scenario_id!r} used {dollars(told)}, only {dollars(run.used)} were booked"
            )


def _cost_of(entry: Entry) -> int:
    """Millionths of a dollar that a completed attempt's receipt tells; 0 where it tells none."""
    completion = entry.receipt.completion
    usage = completion.get("usage") if isinstance(completion, dict) else None
    cost = usage.get("costUsd") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost) or cost <= 0:
        return 0
    return int(Decimal(repr(cost)) * 1_000_000)


def _same_path(first: str, second: str | os.PathLike[str]) -> bool:
    return Path(first).resolve() == Path(second).resolve()
