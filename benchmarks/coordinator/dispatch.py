"""From the end of one piece of work to the start of the next: ours through commits and processes, peers in theirs."""

from __future__ import annotations

import importlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.coordinator.campaign import selections, write_manifest
from benchmarks.coordinator.commits import completion_of
from coordinator import Coordinator, CoordinatorOptions, Permit
from coordinator.documents import encode, sha256
from coordinator.lanes import Lanes
from coordinator.processes import WorkerProcess
from coordinator.records import CompletionResult
from workers.contract import DELIVERY_VERSION, JOB_VERSION, Delivery, Job, Limits, sign_delivery

T = TypeVar("T")

BEYOND_LIMIT_SECONDS = 0.015
KEY = "5a" * 32
WORKER = Path(__file__).with_name("delivering.py")


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Medians in seconds: from a delivery's appearance to the next exec, the commits within it, and what is left."""

    whole: float
    commits: float
    beyond: float


class TimedCoordinator(Coordinator):
    """Notes when each of its changes was under way (nanoseconds since the epoch)."""

    spans: list[tuple[int, int]]

    async def _timed(self, change: Awaitable[T]) -> T:
        begin = time.time_ns()
        try:
            return await change
        finally:
            self.spans.append((begin, time.time_ns()))

    async def reserve_unless(self, scenario_id: str, draining: Callable[[], bool]) -> Permit:
        return await self._timed(super().reserve_unless(scenario_id, draining))

    async def complete(self, permit: Permit, completion: Any, stop: Any = None, review: Any = None) -> None:
        await self._timed(super().complete(permit, completion, stop, review))

    async def launch_once(
        self,
        permit: Permit,
        launcher: Callable[[Permit], Awaitable[T]],
        *,
        job: Callable[[Permit], bytes] | None = None,
    ) -> T:
        """The launcher itself is no commit: the spans are what comes before and after it."""
        begin = time.time_ns()
        returned = begin

        async def between(permit: Permit) -> T:
            nonlocal returned
            self.spans.append((begin, time.time_ns()))
            found = await launcher(permit)
            returned = time.time_ns()
            return found

        found = await super().launch_once(permit, between, job=job)
        self.spans.append((returned, time.time_ns()))
        return found


async def measure_dispatch(size: int = 30) -> Dispatch:
    """One lane, real processes, the real inbox."""
    names = [f"s{number}" for number in range(size)]
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        control = folder / "control"
        write_manifest(folder / "manifest.json", names)
        coordinator = TimedCoordinator.open(
            CoordinatorOptions(
                manifest_path=folder / "manifest.json",
                control_directory=control,
                batch_id="benchmark",
                selections=selections(names),
                evidence_root=control,
                max_lanes=1,
            )
        )
        assert isinstance(coordinator, TimedCoordinator)
        coordinator.spans = []
        lanes = Lanes(control, command=[sys.executable, "-I", "-S", str(WORKER)])
        order: list[tuple[str, int]] = []

        def job(permit: Permit) -> bytes:
            asked = _job(control, permit)
            data = encode(asked)
            (control / f"prepared-{permit.reservation_id}").write_bytes(_delivery(asked, permit, sha256(data)))
            return data

        async def launch(permit: Permit) -> WorkerProcess:
            worker = await lanes.launch_only(permit)
            order.append((permit.reservation_id, time.time_ns()))
            return worker

        async def read(permit: Permit, worker: WorkerProcess) -> CompletionResult:
            completion, _ = await lanes.read_completion(permit, worker)
            return CompletionResult(completion=completion)

        async def retain(permit: Permit | None, error: BaseException, phase: str) -> Any:
            raise error

        state = await coordinator.run(launch_only=launch, read_completion=read, retain_failure=retain, job=job)
        await coordinator.close()
        lanes.close()
        assert state.stop is None, state.stop
        whole, commits = [], []
        for (previous, _), (_, started) in itertools.pairwise(order):
            appeared = int((control / f"appeared-{previous}").read_text())
            inside = (min(end, started) - max(begin, appeared) for begin, end in coordinator.spans)
            whole.append((started - appeared) / 1e9)
            commits.append(sum(span for span in inside if span > 0) / 1e9)
    return Dispatch(
        whole=statistics.median(whole),
        commits=statistics.median(commits),
        beyond=statistics.median(all_of - spent for all_of, spent in zip(whole, commits, strict=True)),
    )


def _job(control: Path, permit: Permit) -> Job:
    return Job(
        version=JOB_VERSION,
        kind="probe",
        batch_id=permit.batch_id,
        reservation_id=permit.reservation_id,
        scenario_id=permit.scenario_id,
        execution_id=permit.execution_id,
        ordinal=permit.ordinal,
        definition_digest=f"definition-{permit.scenario_id}",
        grader_digest="grader-1",
        key=KEY,
        run_directory=str(control / "runs" / permit.reservation_id),
        inbox_directory=str(control / "inbox"),
        evidence_root=str(control),
        limits=Limits(),
    )


def _delivery(job: Job, permit: Permit, job_sha256: str) -> bytes:
    return sign_delivery(
        Delivery(
            version=DELIVERY_VERSION,
            batch_id=job.batch_id,
            reservation_id=job.reservation_id,
            scenario_id=job.scenario_id,
            execution_id=job.execution_id,
            ordinal=job.ordinal,
            job_sha256=job_sha256,
            completion=completion_of(permit),
            end_reason="goal_reached",
            artefacts=[],
        ),
        KEY,
    )


def gaps(spans: list[tuple[int, int]]) -> float:
    """Median seconds from one end to the next start."""
    return statistics.median((after[0] - before[1]) / 1e9 for before, after in itertools.pairwise(spans))


def measure_huey(size: int = 30) -> float | None:
    """huey on SQLite with fsync, one worker thread, queue never empty; None if it is not installed."""
    try:
        huey = importlib.import_module("huey")
    except ImportError:
        return None
    spans: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as root:
        queue = huey.SqliteHuey("benchmark", filename=str(Path(root, "queue.db")), fsync=True)

        @queue.task()  # type: ignore[untyped-decorator,unused-ignore]
        def work() -> bool:
            spans.append((time.time_ns(), time.time_ns()))
            return True

        results = [work() for _ in range(size)]
        consumer = queue.create_consumer(workers=1, periodic=False, check_worker_health=False)
        consumer.start()
        for result in results:
            result.get(blocking=True, timeout=60)
        consumer.stop(graceful=True)
    return gaps(spans)


def stamp(_: int) -> tuple[int, int]:
    return time.time_ns(), time.time_ns()


def measure_dask(size: int = 30) -> float | None:
    """Dask distributed, one worker process, the next task submitted when the result is there; None: not installed."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        return None
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        return gaps([client.submit(stamp, number, pure=False).result(timeout=60) for number in range(size)])
