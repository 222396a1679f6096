"""A whole batch: the coordinator, two lanes, real workers, one inbox."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import msgspec

from coordinator import Coordinator, CoordinatorOptions, Permit, RetainedFailure, State
from coordinator.documents import encode
from coordinator.lanes import Lanes
from coordinator.processes import WorkerProcess
from coordinator.records import CompletionResult
from tests.coordinator.campaign import attempt, manifest, scenario
from tests.workers.runs import PREAMBLE, make_job

LIMIT_SECONDS = 60
LAUNCHED = Path(__file__).parents[1] / "workers" / "launched.py"


class Batch:
    """A coordinator with one scenario a name, over a small player program."""

    def __init__(self, root: Path, player: str, names: list[str]) -> None:
        self.control = root / "control"
        self.control.mkdir(mode=0o700)
        self.manifest = root / "manifest.json"
        self.manifest.write_bytes(encode(manifest(*[scenario(name) for name in names])))
        script = root / "player.py"
        script.write_text(PREAMBLE + player)
        self.coordinator = Coordinator.open(
            CoordinatorOptions(
                manifest_path=self.manifest,
                control_directory=self.control,
                batch_id="b1",
                selections=[{"scenarioId": name, "attempt": attempt(name)} for name in names],
                evidence_root=self.control,
            )
        )
        self.lanes = Lanes(
            self.control,
            entries=lambda: self.coordinator.state.entries,
            command=[sys.executable, "-P", str(LAUNCHED), str(script)],
        )
        self.workers: list[WorkerProcess] = []
        self.most_alive = 0

    def job(self, permit: Permit) -> bytes:
        return encode(
            msgspec.structs.replace(
                make_job(self.control.parent, permit.reservation_id),
                scenario_id=permit.scenario_id,
                execution_id=permit.execution_id,
                definition_digest=f"definition-{permit.scenario_id}",
                grader_digest="grader-1",
                evidence_root=str(self.control),
            )
        )

    async def launch(self, permit: Permit) -> WorkerProcess:
        worker = await self.lanes.launch_only(permit)
        self.coordinator.track(worker)
        self.workers.append(worker)
        self.most_alive = max(self.most_alive, sum(one.alive for one in self.workers))
        return worker

    async def read(self, permit: Permit, worker: WorkerProcess) -> CompletionResult:
        completion, stop = await self.lanes.read_completion(permit, worker)
        return CompletionResult(completion=completion, stop=stop)

    async def retain(self, permit: Permit | None, error: BaseException, phase: str) -> RetainedFailure:
        path, summary = await self.lanes.retain_failure(permit, error, phase)
        return RetainedFailure(evidence_path=path, summary=summary)

    def play(self) -> State:
        async def go() -> State:
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    state = await self.coordinator.run(
                        launch_only=self.launch, read_completion=self.read, retain_failure=self.retain, job=self.job
                    )
                    await self.coordinator.close()
                    return state
            finally:
                self.lanes.close()
                for worker in self.workers:
                    with contextlib.suppress(ProcessLookupError):
                        worker.kill()

        return asyncio.run(go())


def test_batch_of_four_is_completed_by_at_most_two_living_workers(tmp_path: Path) -> None:
    batch = Batch(tmp_path, "open('report.json', 'w').write('{}'); finish(artefacts=['report.json'])", list("abcd"))
    state = batch.play()
    assert {entry.phase for entry in state.entries.values()} == {"completed"}
    assert state.stop is None
    assert state.failures == []
    assert 1 <= batch.most_alive <= 2
    for reservation_id, entry in state.entries.items():
        assert entry.receipt.completion["outcome"] == "passed"
        assert f"runs/{reservation_id}/report.json" in entry.receipt.completion["evidencePaths"]
    assert len(list((batch.control / "inbox").iterdir())) == 4
    assert list((batch.control / "rejected").iterdir()) == []


def test_secret_in_an_artefact_stops_the_batch(tmp_path: Path) -> None:
    token = "gh" + "p_" + "aB3dE6gH9j" * 4
    batch = Batch(tmp_path, f"print({token!r}); finish()", list("abcd"))
    state = batch.play()
    assert state.stop is not None
    assert state.stop.reason == "secret_leak"
    assert len(state.entries) <= 2
    assert token not in (batch.control / "state.json").read_text()


def test_worker_that_vanishes_is_a_failure_of_its_completion_and_stops_the_batch(tmp_path: Path) -> None:
    batch = Batch(tmp_path, "os.kill(os.getppid(), signal.SIGKILL)", list("ab"))
    state = batch.play()
    assert state.stop is not None
    assert state.stop.reason == "coordinator_failure"
    failure = state.failures[0]
    assert failure.phase == "completion"
    assert "signal 9" in failure.summary
    assert failure.evidence_path is not None
    assert (batch.control / failure.evidence_path).is_file()
    assert "completed" not in {entry.phase for entry in state.entries.values()}
