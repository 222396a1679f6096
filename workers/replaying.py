"""The job that plays one finding of an earlier run again, on its own: the same stamp, made anew."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from drivers import make_driver
from drivers.base import Driver, Launch
from workers.contract import Finding, Job, PlayResult, Usage
from workers.folders import write_new
from workers.goals import goal_test
from workers.replays import Stage, replay
from workers.stop import StopFlag

RESERVE_SECONDS = 10.0
FINDING_REPLAY_NAME = "finding-replay.json"
NOT_CONTROLLED = "seed not controlled"


class FindingReplay(msgspec.Struct, frozen=True, kw_only=True):
    """`finding-replay.json`: the fresh stamp, whether the finding came back at least once, and what was played."""

    id: str
    title: str
    signature: str
    replay: str
    before: str | None
    reproduced: bool
    sessions: int
    actions: int


async def replay_finding(job: Job, run: Path, environment: Mapping[str, str], stop: StopFlag) -> PlayResult:
    """Play a finding's actions three times in fresh sessions and leave `finding-replay.json` in `run`.

    The outcome is `passed` when an oracle said the same again. Raises `msgspec.ValidationError` for a finding that is
    none, OSError when the folder cannot be written.
    """
    assert job.play is not None and job.simulate is not None, "checked when the job was read"
    order = job.play
    finding = msgspec.convert(job.simulate["finding"], Finding)
    root = Path(tempfile.mkdtemp(prefix="replays-", dir=run))
    persona_name = str(order.persona.get("name", ""))

    def launch(directory: Path) -> Launch:
        return Launch(
            settings=order.driver_settings,
            directory=directory,
            seed=order.seed,
            environment={**environment, "PLAYLANE_PERSONA": persona_name},
            playtest={"run_id": job.reservation_id, "persona": persona_name},
        )

    def open_driver() -> Driver:
        return make_driver(order.driver)

    stage = Stage(
        open_driver=open_driver,
        launch=launch,
        folder=lambda: Path(tempfile.mkdtemp(dir=root)),
        goal=goal_test(order.brief.goal_when),
        stop=stop,
    )
    try:
        done = await replay(
            finding,
            stage,
            deadline=time.monotonic() + job.limits.wall_seconds - RESERVE_SECONDS,
            # What the first run found out about the seed stands in its stamp.
            seed_controlled=order.seed is not None and NOT_CONTROLLED not in (finding.replay or ""),
            shortening=False,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    stamp = done.finding.replay or "not replayable: nothing was played"
    reproduced = stamp[:1].isdigit() and not stamp.startswith("0/")
    answer = FindingReplay(
        id=finding.id, title=finding.title, signature=finding.signature, replay=stamp, before=finding.replay,
        reproduced=reproduced, sessions=done.sessions, actions=len(finding.actions),
    )  # fmt: skip
    write_new(run / FINDING_REPLAY_NAME, msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n")
    return PlayResult(
        end_reason="goal_reached",
        outcome="passed" if reproduced else "failed",
        partial=False,
        actions_taken=0,
        artefacts=[FINDING_REPLAY_NAME],
        usage=Usage(cost_usd=0, tokens=0, coverage="complete"),
        observed_failure=None if reproduced else f"the finding did not come back: {stamp}",
    )
