"""One batch of a campaign, from its selections to its reports: opens the coordinator, drives the lanes, concludes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from coordinator.configuration import DRIVERS
from coordinator.coordinator import Coordinator, utc_now
from coordinator.documents import encode
from coordinator.errors import CoordinatorError
from coordinator.files import read_document
from coordinator.games import build_of
from coordinator.interrupts import Interrupts
from coordinator.jobs import job_for, simulation_job
from coordinator.lanes import Lanes
from coordinator.outcome import Ended, Reason, judge_campaign
from coordinator.processes import WorkerProcess
from coordinator.records import CompletionResult, CoordinatorOptions, Permit, RetainedFailure, State
from coordinator.reports import Aggregate, ReportPaths, build_reports, read_aggregate

LOOK_SECONDS = 0.25
Watch = Callable[[State], None]


class BatchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one call plays. `project` is the folder that the plan's relative paths start from; `simulate` is the
    worker's order of a simulation batch, None for playthroughs."""

    manifest_path: Path
    control_directory: Path
    batch_id: str
    selections: Sequence[Any]
    project: Path
    lanes: int
    fail_on: str
    baseline: list[str] | None = None
    simulate: dict[str, Any] | None = None
    parts: dict[str, int] = {}
    """What a run may spend: scenario id -> millionths of a dollar. Without an entry: no bound."""


class Batch(Protocol):
    """A batch that plays, as its companion sees it."""

    @property
    def state(self) -> State: ...

    async def end(self, reason: str, detail: str) -> None: ...

    def end_run(self, reservation_id: str) -> None: ...


class Companion(Protocol):
    """Follows a batch while it plays, and may end it. It is cancelled when the batch has ended."""

    async def follow(self, batch: Batch, /) -> None: ...


class CampaignEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch ended. `warnings` are sentences that a reader of the results must know."""

    state: State
    reports: ReportPaths
    aggregate: Aggregate
    exit_code: int
    reasons: list[Reason]
    warnings: list[str]


async def play_batch(order: BatchOrder, watch: Watch, companion: Companion | None = None) -> State:
    """Play every selection that was not completed; return the last durable state.

    `watch` is called with the state a few times a second. The first Ctrl-C (SIGTERM and SIGHUP alike) stops admission
    and asks the workers to finish their turn, a second one ends them; both are durable stops, not exceptions. A
    `companion` that fails stops the batch. Raises what `Coordinator.open` refuses, and what poisons a commit.
    """
    document, _ = read_document(str(order.manifest_path))
    scenarios = {scenario["id"]: scenario for scenario in document["scenarios"]}
    coordinator = Coordinator.open(
        CoordinatorOptions(
            manifest_path=order.manifest_path,
            control_directory=order.control_directory,
            batch_id=order.batch_id,
            selections=order.selections,
            evidence_root=order.control_directory,
            max_lanes=order.lanes,
        )
    )
    return await _Batch(order, coordinator, scenarios, watch, companion).play()


class _Batch:
    """The lanes of one open coordinator."""

    def __init__(
        self,
        order: BatchOrder,
        coordinator: Coordinator,
        scenarios: dict[str, dict[str, Any]],
        watch: Watch,
        companion: Companion | None,
    ) -> None:
        self._order, self._coordinator, self._scenarios, self._watch = order, coordinator, scenarios, watch
        secrets = sorted(
            {name for one in scenarios.values() for name in (one.get("playtest") or {}).get("secrets", ())}
        )
        self._lanes = Lanes(
            order.control_directory, secrets=secrets, entries=lambda: coordinator.state.entries, now=utc_now
        )
        self._workers: list[WorkerProcess] = []
        self._asked: set[str] = set()
        self._companion = companion
        self._wish: str | None = None
        self._hurried = 0

    async def play(self) -> State:
        try:
            return await self._drive(Interrupts())
        finally:
            self._lanes.close()

    async def _drive(self, interrupts: Interrupts) -> State:
        with interrupts.caught():
            running = asyncio.create_task(
                self._coordinator.run(
                    launch_only=self._launch,
                    read_completion=self._read_completion,
                    retain_failure=self._retain_failure,
                    job=self._job,
                )
            )
            following = self._follow()
            while not running.done():
                came = asyncio.create_task(interrupts.came.wait())
                await asyncio.wait({running, came}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                came.cancel()
                interrupts.came.clear()
                await self._heed(interrupts)
                await self._heed_companion(following)
                self._watch(self._coordinator.state)
            await _cancelled(following)
            state = await running
            self._watch(state)
        await self._coordinator.close()
        return state

    async def _heed(self, interrupts: Interrupts) -> None:
        if interrupts.count and self._wish is None:
            self._wish = "interrupted"
            await self._coordinator.stop("canceled", f"{interrupts.name} from the user")
        if self._wish is None:
            return
        # A lane that was being launched meanwhile is asked at a later look; a worker that has not begun yet would die
        # of the signal instead of heeding it.
        for worker in self._workers:
            begun = os.path.lexists(os.path.join(worker.run_directory, "begun"))
            if begun and worker.alive and worker.reservation_id not in self._asked:
                worker.request_stop(self._wish)
                self._asked.add(worker.reservation_id)
        while self._hurried < interrupts.count - 1:
            self._hurried += 1
            for worker in self._workers:
                if worker.reservation_id in self._asked:
                    worker.hurry()

    # -- what a companion sees and may ask for

    def _follow(self) -> asyncio.Task[None] | None:
        return None if self._companion is None else asyncio.create_task(self._companion.follow(self))

    async def _heed_companion(self, following: asyncio.Task[None] | None) -> None:
        """A companion that failed can no longer say that the batch must end: then nothing more is started."""
        if following is not None and following.done() and not following.cancelled() and self._wish is None:
            error = following.exception()
            if error is not None:
                await self.end("coordinator_failure", f"the purchase cannot be followed: {error}")

    @property
    def state(self) -> State:
        return self._coordinator.state

    async def end(self, reason: str, detail: str) -> None:
        """Stop the batch; its workers are asked to end as canceled."""
        if self._wish is None:
            self._wish = "canceled"
            await self._coordinator.stop(reason, detail)

    def end_run(self, reservation_id: str) -> None:
        """Ask one worker to end as canceled."""
        for worker in self._workers:
            if worker.reservation_id == reservation_id and worker.alive and reservation_id not in self._asked:
                worker.request_stop("canceled")
                self._asked.add(reservation_id)

    def _job(self, permit: Permit) -> bytes:
        scenario, control = self._scenarios[permit.scenario_id], self._order.control_directory
        if self._order.simulate is not None:
            return encode(simulation_job(permit, scenario, self._order.simulate, control_directory=control))
        return encode(
            job_for(
                permit,
                scenario,
                project=self._order.project,
                control_directory=control,
                budget_microdollars=self._order.parts.get(permit.scenario_id),
            )
        )

    async def _launch(self, permit: Permit) -> WorkerProcess:
        worker = await self._lanes.launch_only(permit)
        self._workers.append(worker)
        self._coordinator.track(worker)
        return worker

    async def _read_completion(self, permit: Permit, worker: WorkerProcess) -> CompletionResult:
        completion, stop = await self._lanes.read_completion(permit, worker)
        return CompletionResult(completion=completion, stop=stop)

    async def _retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> RetainedFailure:
        evidence_path, summary = await self._lanes.retain_failure(permit, error, phase)
        return RetainedFailure(evidence_path=evidence_path, summary=summary)


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    """End a companion, and wait for it. What it failed of has stopped the batch already."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


def conclude(order: BatchOrder, state: State) -> CampaignEnd:
    """Build the reports and judge the campaign. Raises `CoordinatorError` when the reports cannot be built."""
    paths = build_reports(
        order.control_directory, order.manifest_path, fail_on=order.fail_on, now=utc_now(), baseline=order.baseline
    )
    aggregate = read_aggregate(paths.aggregate_json)
    runs = [
        Ended(
            scenario_id=row.scenario_id,
            end_reason=row.end_reason,
            outcome=row.outcome,
            played=row.played,
            partial=row.partial,
        )
        for row in aggregate.runs
    ]
    stop = (state.stop.reason, state.stop.detail) if state.stop is not None else None
    failing = sum(finding.fails for finding in aggregate.findings)
    code, reasons = judge_campaign(runs, stop=stop, failed_findings=failing, fail_on=order.fail_on)
    return CampaignEnd(
        state=state,
        reports=paths,
        aggregate=aggregate,
        exit_code=code,
        reasons=reasons,
        warnings=_changed_builds(order),
    )


def _changed_builds(order: BatchOrder) -> list[str]:
    """Builds whose files are not those that were planned: results before and after the change are of two builds."""
    document, _ = read_document(str(order.manifest_path))
    warnings: dict[str, str] = {}
    for scenario in document["scenarios"]:
        playtest = scenario.get("playtest") or {}
        if playtest.get("driver") not in DRIVERS or playtest["driverConfig"] in warnings:
            continue
        path = order.project / playtest["driverConfig"]
        try:
            now = build_of(playtest["driver"], path, playtest["driverSettings"], playtest["buildFiles"])
        except CoordinatorError as error:
            warnings[playtest["driverConfig"]] = f"the build of {path} cannot be read any more: {error}"
            continue
        if now.digest != playtest["build"]["digest"]:
            warnings[playtest["driverConfig"]] = (
                f"files of the build of {path} changed since it was planned: these results are of more than one build."
                " If the game writes into its own folder, name its own files with build_files"
            )
    return list(warnings.values())
