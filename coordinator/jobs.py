"""What a worker is asked to do, made from the manifest and a permit."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from coordinator.errors import RefusedError
from coordinator.games import settings_to_play
from coordinator.records import Permit
from workers.contract import JOB_VERSION, Brief, Job, JobKind, Limits, PlayOrder, ProbeOrder

KEY_BYTES = 32
# The player ends itself at its wall clock and still has to write its report; the supervisor's limit comes later.
REPORT_SECONDS = 30.0
SUMMING_SECONDS = 300.0


def job_for(
    permit: Permit,
    scenario: dict[str, Any],
    *,
    project: Path,
    control_directory: Path,
    budget_microdollars: int | None = None,
) -> Job:
    """The job of one reservation of a playthrough; its key is fresh and exists nowhere else.

    `project` is the folder that a relative `driverConfig` starts from, `budget_microdollars` what the run may spend.
    Raises `RefusedError` for a scenario that this program did not plan, `ConfigurationError` when the game's folder is
    gone.
    """
    playtest = scenario.get("playtest")
    if not isinstance(playtest, dict) or playtest.get("kind") != "play":
        raise RefusedError(
            f"scenario {permit.scenario_id!r} has no playtest of kind play; plan it with coordinate plan"
        )
    limits = playtest["limits"]
    return msgspec.structs.replace(
        _reserved_job("play", permit, scenario, control_directory),
        limits=Limits(
            wall_seconds=limits["wallSeconds"] + REPORT_SECONDS,
            silence_seconds=limits["silenceSeconds"],
            output_bytes=limits["outputBytes"],
        ),
        play=PlayOrder(
            persona=playtest["personaDefinition"],
            controller=playtest["controller"],
            brain=playtest["brain"],
            driver=playtest["driver"],
            driver_settings=settings_to_play(
                playtest["driver"], project / playtest["driverConfig"], playtest["driverSettings"]
            ),
            brief=msgspec.convert(playtest["brief"], Brief),
            max_actions=limits["maxActions"],
            wall_seconds=limits["wallSeconds"],
            seed=playtest["seed"],
            model=playtest["model"],
            repetition=playtest["repetition"],
            control_run=playtest["controlRun"],
            realtime=playtest["realtime"],
            vocabulary=playtest["vocabulary"],
            known_findings=playtest.get("knownFindings", {}),
            # What is new is known when all runs are merged: a run alone fails at no level then.
            fail_on="never" if playtest["failOn"].startswith("new:") else playtest["failOn"],
            record_video=playtest["recordVideo"],
            budget_microdollars=budget_microdollars,
            build=playtest["build"],
        ),
        secrets=playtest["secrets"],
    )


def simulation_job(permit: Permit, scenario: dict[str, Any], order: dict[str, Any], *, control_directory: Path) -> Job:
    """The job of a simulation batch; `order` is a worker's `SimulateOrder` in its JSON form."""
    wall = float(order["wallSeconds"])
    return msgspec.structs.replace(
        _reserved_job("simulate", permit, scenario, control_directory),
        # Summing up a large batch comes after its wall clock.
        limits=Limits(wall_seconds=wall * 1.5 + SUMMING_SECONDS, silence_seconds=wall + SUMMING_SECONDS),
        simulate=order,
    )


def _reserved_job(kind: JobKind, permit: Permit, scenario: dict[str, Any], control_directory: Path) -> Job:
    """The job of a reservation, still without what it asks; its key is fresh."""
    control = control_directory.absolute()
    return Job(
        version=JOB_VERSION,
        kind=kind,
        batch_id=permit.batch_id,
        reservation_id=permit.reservation_id,
        scenario_id=permit.scenario_id,
        execution_id=permit.execution_id,
        ordinal=permit.ordinal,
        definition_digest=scenario["qualifyingDefinitionDigest"],
        grader_digest=scenario["qualifyingGraderDigest"],
        key=secrets.token_hex(KEY_BYTES),
        run_directory=str(control / "runs" / permit.reservation_id),
        inbox_directory=str(control / "inbox"),
        evidence_root=str(control),
        limits=Limits(),
    )


def replay_job(order: dict[str, Any], *, control_directory: Path, wall: float) -> Job:
    """A job that plays a trace again, outside any batch; `order` is a worker's `ReplayOrder` in its JSON form."""
    return msgspec.structs.replace(_asking_job("replay", control_directory, wall), simulate=order)


def replay_finding_job(play: PlayOrder, finding: dict[str, Any], *, control_directory: Path, wall: float) -> Job:
    """A job that plays a finding's actions again, outside any batch, as `play` had them played."""
    job = _asking_job("replay", control_directory, wall)
    return msgspec.structs.replace(job, play=play, simulate={"finding": finding})


def bridge_job(
    kind: JobKind,
    place: Path,
    settings: dict[str, Any],
    *,
    seed: int | None,
    control_directory: Path,
    wall: float,
    driver: str = "cli_stdio",
) -> Job:
    """A job of kind `probe` or `inspect`, in a control directory of its own; nothing is registered.

    `place` is the bridge file, or for a terminal (`probe` only) the folder of its command.
    """
    probe = ProbeOrder(driver=driver, driver_settings=settings_to_play(driver, place, settings), seed=seed)
    return msgspec.structs.replace(_asking_job(kind, control_directory, wall), probe=probe)


def _asking_job(kind: JobKind, control_directory: Path, wall: float) -> Job:
    """A job outside any batch, still without what it asks."""
    control = control_directory.absolute()
    reservation = f"{kind}-{secrets.token_hex(8)}"
    return Job(
        version=JOB_VERSION,
        kind=kind,
        batch_id=kind,
        reservation_id=reservation,
        scenario_id=kind,
        execution_id=kind,
        ordinal=1,
        definition_digest="",
        grader_digest="",
        key=secrets.token_hex(KEY_BYTES),
        run_directory=str(control / "runs" / reservation),
        inbox_directory=str(control / "inbox"),
        evidence_root=str(control),
        limits=Limits(wall_seconds=wall, silence_seconds=wall),
    )
