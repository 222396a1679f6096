"""Asks a bridge, through a worker and outside any campaign: does it play, and which rules does it keep."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec

from coordinator.builds import read_bridge
from coordinator.errors import CanceledError
from coordinator.files import read_bounded
from coordinator.interrupts import Interrupts
from coordinator.jobs import bridge_job
from coordinator.lanes import run_job
from coordinator.project import Project
from workers.contract import Delivery, Job

PROBE_SECONDS = 60.0
INSPECT_SECONDS = 180.0
MAX_ANSWER_BYTES = 1 << 20


class RuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the conformance suite, as the worker wrote it."""

    rule: str
    passed: bool
    found: str = ""
    todo: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`fault` is None when the bridge played; `rules` are only asked by `inspect_bridge`."""

    fault: str | None
    facts: dict[str, Any]
    rules: list[RuleAnswer]


def probe_bridge(project: Project, path: Path, *, seed: int | None) -> Answer:
    """Start, one reset, one step, close. Raises `CoordinatorError` when no worker could be asked."""
    return probe_game(project, "cli_stdio", path, read_bridge(path), seed=seed)


def probe_game(project: Project, driver: str, place: Path, settings: dict[str, Any], *, seed: int | None) -> Answer:
    """The short look at any game: does it start, and does it take an input. Raises like `probe_bridge`."""
    delivery, answer = _ask(project, place, "probe", seed, PROBE_SECONDS, driver=driver, settings=settings)
    if delivery.end_reason != "goal_reached":
        return Answer(fault=_fault(delivery), facts={}, rules=[])
    return Answer(fault=None, facts=answer if isinstance(answer, dict) else {}, rules=[])


def inspect_bridge(project: Project, path: Path, *, seed: int | None) -> Answer:
    """The whole conformance suite, rule by rule. Raises `CoordinatorError` when no worker could be asked."""
    delivery, answer = _ask(project, path, "inspect", seed, INSPECT_SECONDS)
    if delivery.end_reason != "goal_reached" or not isinstance(answer, list):
        return Answer(fault=_fault(delivery), facts={}, rules=[])
    return Answer(fault=None, facts={}, rules=msgspec.convert(answer, list[RuleAnswer]))


def _ask(
    project: Project,
    path: Path,
    kind: Literal["probe", "inspect"],
    seed: int | None,
    seconds: float,
    *,
    driver: str = "cli_stdio",
    settings: dict[str, Any] | None = None,
) -> tuple[Delivery, Any]:
    """Run the job in a folder of its own, which is removed again: nothing of it is a result."""
    project.make_store()
    folder = project.store / "asked" / secrets.token_hex(8)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    job = bridge_job(
        kind,
        path,
        read_bridge(path) if settings is None else settings,
        seed=seed,
        control_directory=folder,
        wall=seconds,
        driver=driver,
    )
    name = {"probe": "probe.json", "inspect": "rules.json"}[kind]
    try:
        delivery = asyncio.run(run_asking_job(folder, job, f"{kind} of {path}"))
        try:
            data = read_bounded(f"{job.run_directory}/{name}", MAX_ANSWER_BYTES)
        except FileNotFoundError:
            return delivery, None
        return delivery, msgspec.json.decode(data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def run_asking_job(folder: Path, job: Job, what: str) -> Delivery:
    """Run a job outside any batch; Ctrl-C, SIGTERM and SIGHUP end it. Raises `CanceledError` then."""
    interrupts = Interrupts()
    with interrupts.caught():
        running = asyncio.create_task(run_job(folder, job))
        came = asyncio.create_task(interrupts.came.wait())
        await asyncio.wait({running, came}, return_when=asyncio.FIRST_COMPLETED)
        came.cancel()
        if not running.done():
            running.cancel()
            try:
                await running
            except asyncio.CancelledError as error:
                raise CanceledError(f"{what} was canceled by {interrupts.name}") from error
        return running.result()


def _fault(delivery: Delivery) -> str:
    told = delivery.completion.observed_failure
    return str(told) if told else f"its worker ended with {delivery.end_reason}"
