"""A worker's simulation batch or replay of a trace: order in, files in the run's folder, an account out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from workers.contract import EndReason, Job, PlayResult, Progress, Usage
from workers.folders import write_new
from workers.stop import StopFlag
from workers.transcript import ProgressFile

REPLAY_NAME = "replay.json"
BATCH_NAME = "batch.json"
FREE = Usage(cost_usd=0, tokens=0, coverage="complete")


class BatchFiles(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`runs/ID/batch.json`: where the batch's files are, relative to the run's folder, and how it ended."""

    summary: str
    results: str
    timing: str
    report: str
    csv: str | None
    traces: list[str]
    ended: str | None
    error: str | None
    exit_code: int


async def simulate(
    job: Job, run: Path, environment: Mapping[str, str], stop: StopFlag, now: Callable[[], str]
) -> PlayResult:
    """Play the batch of a job. A batch that could not begin ends as `never_started`, with the reason."""
    from workers.simulation.batch import BatchProgress, run_batch
    from workers.simulation.errors import SimulationError
    from workers.simulation.order import SimulateOrder

    order = msgspec.convert(job.simulate, SimulateOrder)
    file = ProgressFile(run / "progress.json")

    def show(progress: BatchProgress) -> None:
        file.write(
            Progress(
                state="playing",
                actions_taken=progress.steps,
                step=progress.finished,
                of=progress.requested,
                note=f"{progress.games_per_second:.0f} games/s",
                findings=progress.failed,
                at=now(),
            )
        )

    try:
        result = await asyncio.to_thread(
            run_batch, order, directory=run, stop=stop, progress=show, now=now, environment=environment
        )
    except SimulationError as error:
        return _ended("never_started", "failed", [], str(error), 0)

    def relative(path: Path) -> str:
        return path.relative_to(run).as_posix()

    files = BatchFiles(
        summary=relative(result.summary_path),
        results=relative(result.results),
        timing=relative(result.timing_path),
        report=relative(result.report),
        csv=relative(result.csv) if result.csv is not None else None,
        traces=[relative(path) for path in result.traces],
        ended=result.ended,
        error=result.error,
        exit_code=result.exit_code,
    )
    write_new(run / BATCH_NAME, msgspec.json.format(msgspec.json.encode(files), indent=2) + b"\n")
    artefacts = [BATCH_NAME, files.summary, files.timing, files.report, files.results, *files.traces]
    reason, outcome = _judge(result.ended, result.exit_code)
    return _ended(
        reason,
        outcome,
        artefacts + ([files.csv] if files.csv is not None else []),
        result.error,
        int(result.summary["total_steps"]),
    )


def _judge(ended: str | None, exit_code: int) -> tuple[EndReason, str]:
    """A canceled batch is settled with what it has: nothing of it is left to resume."""
    if ended == "canceled":
        return "canceled", "canceled"
    reason: EndReason = "wall_clock" if ended == "wall clock" else "harness_fault" if ended else "goal_reached"
    return reason, "passed" if exit_code == 0 else "failed"


async def replay(job: Job, run: Path, environment: Mapping[str, str]) -> PlayResult:
    """Play a trace again and leave `replay.json`: what `ReplayResult` says."""
    from workers.simulation.errors import SimulationError
    from workers.simulation.order import ReplayOrder
    from workers.simulation.replay import replay_trace

    order = msgspec.convert(job.simulate, ReplayOrder)
    try:
        result = await asyncio.to_thread(replay_trace, order, environment=environment)
    except SimulationError as error:
        return _ended("never_started", "failed", [], str(error), 0)
    write_new(run / REPLAY_NAME, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    outcome = "passed" if result.matched else "failed"
    return _ended("goal_reached", outcome, [REPLAY_NAME], None, result.steps_compared)


def _ended(reason: EndReason, outcome: str, artefacts: list[str], failure: str | None, steps: int) -> PlayResult:
    return PlayResult(
        end_reason=reason,
        outcome=outcome,
        partial=reason != "goal_reached",
        actions_taken=steps,
        artefacts=artefacts,
        usage=FREE,
        observed_failure=failure,
    )
