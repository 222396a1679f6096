"""The player's side of a run: its order comes by standard input, its account is `result.json` in the run's folder.

The first line of input is the job without its signing key; where the job names the key of a model, the second line is
`{"model_key": ...}`, which stands nowhere else; a later line `{"stop": reason}` asks for the end after the turn in
flight; the end of input means that the supervisor died, and then the player ends everything below it and itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import signal
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec

from workers.contract import EndReason, Job, PlayResult, Usage
from workers.delivery import RESULT_NAME
from workers.descendants import become_subreaper, end_descendants, hide_memory, wake_when_parent_ends
from workers.environment import HOME_NAME, TEMPORARY_NAME, game_environment
from workers.folders import remove_tree, write_new
from workers.jobs import key_name_of
from workers.stop import StopFlag

MAX_ORDER_BYTES = 8 << 20
MAX_FILE_BYTES = 8 << 30
ORPHAN_SECONDS = 20.0
EXIT_ORPHANED = 70
FREE = Usage(cost_usd=0, tokens=0, coverage="complete")


class OrderError(Exception):
    """The supervisor's order did not come whole."""


def run_player() -> int:
    """Read the order, play it, leave the result; give the exit code. Raises `OrderError` and what playing raises."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(MAX_FILE_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    wake_when_parent_ends()
    become_subreaper()
    lifeline = _take_over_input()
    line, rest = _read_line(lifeline, b"")
    job = msgspec.json.decode(line, type=Job)
    model_key = None
    if key_name_of(job) is not None:
        line, rest = _read_line(lifeline, rest)
        model_key = msgspec.json.decode(line, type=dict[str, str | None]).get("model_key")
        # Whoever plays as the same user must not read it out of this process.
        hide_memory()
    run = Path(job.run_directory)
    stop = StopFlag()
    threading.Thread(target=_hold_lifeline, args=(lifeline, rest, stop, run), daemon=True, name="lifeline").start()
    result = asyncio.run(_until_terminated(job, stop, model_key))
    write_new(run / RESULT_NAME, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return 0


def _take_over_input() -> int:
    # Games inherit descriptor 0 where a driver gives them none: it must not be the line to the supervisor.
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    return lifeline


def _read_line(descriptor: int, buffer: bytes) -> tuple[bytes, bytes]:
    while b"\n" not in buffer:
        if len(buffer) > MAX_ORDER_BYTES:
            raise OrderError(f"a line of more than {MAX_ORDER_BYTES} bytes came")
        data = os.read(descriptor, 64 << 10)
        if not data:
            raise OrderError("the input ended in the middle of a line")
        buffer += data
    line, _, rest = buffer.partition(b"\n")
    return line, rest


def _hold_lifeline(descriptor: int, rest: bytes, stop: StopFlag, run: Path) -> None:
    with contextlib.suppress(OrderError, OSError):
        while True:
            line, rest = _read_line(descriptor, rest)
            wish = msgspec.json.decode(line, type=dict[str, str])
            reason = wish.get("stop", "")
            if reason in get_args(EndReason):
                stop.request(reason)  # type: ignore[arg-type]  # checked in the line above
    end_descendants(os.getpid(), limit_seconds=ORPHAN_SECONDS, reap=_reap)
    for name in (HOME_NAME, TEMPORARY_NAME):
        remove_tree(run / name)
    os._exit(EXIT_ORPHANED)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def _until_terminated(job: Job, stop: StopFlag, model_key: str | None) -> PlayResult:
    """Play; a SIGTERM asks like the supervisor does, and cancels when somebody had asked before."""
    playing = asyncio.ensure_future(play_job(job, stop, model_key))

    def on_sigterm() -> None:
        if stop.requested is None:
            stop.request("interrupted")
        else:
            playing.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, on_sigterm)
    return await playing


async def play_job(job: Job, stop: StopFlag, model_key: str | None = None) -> PlayResult:
    """Do what the job asks, by kind. `probe` and `inspect` end as `goal_reached` when they ran to their end."""
    run = Path(job.run_directory)
    persona = str(job.play.persona.get("name", "")) if job.play else ""
    environment = game_environment(
        os.environ,
        token=secrets.token_hex(16),
        run_id=job.reservation_id,
        job_id=job.batch_id,
        persona=persona,
    )
    if job.kind == "probe":
        return await _probe(job, run, environment)
    if job.kind == "inspect":
        return await _inspect(job, run, environment)
    if job.kind == "simulate":
        from workers.simulating import simulate

        return await simulate(job, run, environment, stop, utc_now)
    if job.kind == "replay" and job.play is not None:
        from workers.replaying import replay_finding

        return await replay_finding(job, run, environment, stop)
    if job.kind == "replay":
        from workers.simulating import replay

        return await replay(job, run, environment)
    from workers.playthrough import play

    assert job.play is not None
    return await play(
        job.play,
        run_directory=run,
        scenario_id=job.scenario_id,
        run_id=job.reservation_id,
        batch_id=job.batch_id,
        execution_id=job.execution_id,
        environment=environment,
        stop=stop,
        now=utc_now,
        model_key=model_key,
    )


async def _probe(job: Job, run: Path, environment: Mapping[str, str]) -> PlayResult:
    from drivers.conformance import probe
    from drivers.errors import DriverError

    assert job.probe is not None
    try:
        found = await probe(job.probe.driver_settings, run, job.probe.seed, environment, driver_name=job.probe.driver)
    except DriverError as error:
        return _ended("never_started", "failed", [], str(error))
    write_new(run / "probe.json", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return _ended("goal_reached", "passed", ["probe.json"], None, leftovers=list(found.leftovers))


async def _inspect(job: Job, run: Path, environment: Mapping[str, str]) -> PlayResult:
    from drivers.conformance import inspect_bridge
    from drivers.errors import DriverError

    assert job.probe is not None
    try:
        rules = await inspect_bridge(job.probe.driver_settings, run, job.probe.seed, environment)
    except DriverError as error:
        return _ended("never_started", "failed", [], str(error))
    write_new(run / "rules.json", msgspec.json.format(msgspec.json.encode(rules), indent=2) + b"\n")
    broken = [rule.rule for rule in rules if not rule.passed]
    failure = f"{len(broken)} of {len(rules)} rules are not kept: {'; '.join(broken)}" if broken else None
    return _ended("goal_reached", "failed" if broken else "passed", ["rules.json"], failure)


def _ended(
    reason: EndReason, outcome: str, artefacts: list[str], failure: str | None, *, leftovers: list[str] | None = None
) -> PlayResult:
    return PlayResult(
        end_reason=reason,
        outcome=outcome,
        partial=reason == "never_started",
        actions_taken=0,
        artefacts=artefacts,
        usage=FREE,
        observed_failure=failure,
        leftovers=leftovers or [],
    )


def utc_now() -> str:
    """The UTC time as ISO 8601 with milliseconds and `Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
