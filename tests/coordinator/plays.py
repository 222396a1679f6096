"""The three callbacks of `run`, which write down what happened; and a batch played to every phase."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from coordinator import CompletionResult, Coordinator, Permit, RetainedFailure, State
from coordinator.files import Operations
from tests.coordinator.calls import finish, launched, run, state_of
from tests.coordinator.campaign import Campaign, completion


class Play:
    """The three callbacks, each writing down what happened; `launch` may be replaced."""

    def __init__(self, launch: Callable[[Permit], Awaitable[Any]] | None = None) -> None:
        self.log: list[tuple[str, Any]] = []
        self.failures: list[tuple[Permit | None, BaseException, str]] = []
        self.open = self.most_open = 0
        self._launch = launch

    async def launch_only(self, permit: Permit) -> Any:
        self.log.append(("launch", permit.scenario_id))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if self._launch is not None:
                return await self._launch(permit)
            await asyncio.sleep(0)
            return permit.scenario_id
        finally:
            self.open -= 1

    async def read_completion(self, permit: Permit, launched_as: Any) -> Any:
        self.log.append(("read", (permit.scenario_id, launched_as)))
        return CompletionResult(completion=completion(permit.scenario_id))

    async def retain_failure(self, permit: Permit | None, error: BaseException, phase: str) -> Any:
        self.failures.append((permit, error, phase))
        return RetainedFailure(evidence_path=f"failures/{phase}.json", summary=f"{type(error).__name__} kept")

    @property
    def launches(self) -> list[str]:
        return [name for what, name in self.log if what == "launch"]


def drive(c: Coordinator, play: Play) -> Awaitable[State]:
    return c.run(launch_only=play.launch_only, read_completion=play.read_completion, retain_failure=play.retain_failure)


async def wait_for(c: Coordinator, play: Play) -> State:
    return await drive(c, play)


def played(campaign: Campaign, operations: Operations | None = None) -> None:
    """A batch with an entry of every phase, a stop and a stop beside it, closed."""
    c = campaign.open(operations)
    permit = run(c.reserve("a"))
    run(c.launch_once(permit, raises_nothing, job=lambda _: b"{}\n"))
    run(finish(c, permit))
    run(launched(c, "b"))
    run(c.reserve("c"))
    run(c.stop("operator_request", "1"))
    run(c.stop("canceled", "2"))
    run(c.close())


async def raises_nothing(_: Any) -> None:
    return None


def phases_on_disk(campaign: Campaign) -> dict[str, str]:
    return {one["permit"]["scenarioId"]: one["phase"] for one in state_of(campaign)["entries"].values()}


class Gate:
    """An async `fault` that holds a commit at one stage until it is let go."""

    def __init__(self, stage: str = "intent") -> None:
        self.stage = stage
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self.log: list[str] = []

    async def __call__(self, stage: str) -> None:
        self.log.append(stage)
        if stage == self.stage:
            self.reached.set()
            await self.let_go.wait()


ROW_EDITS: list[dict[str, Any]] = [
    {"outcome": "passed"},
    {"ordinal": 1.0},
    {"automaticRetries": False},
    {"evidencePaths": ["x"]},
    {"newKey": None},
    {"usage": {"costUsd": 0.0, "tokens": 0, "coverage": "complete"}},
]


def changed_permits(permit: Permit) -> list[Any]:
    """The permit as a Struct and as JSON with each field wrong in its type's ways, and things that are no permit."""
    replaced: list[dict[str, Any]] = [
        {"reservation_id": "0" * 24},
        {"reservation_id": ""},
        {"reservation_id": "../" + permit.reservation_id},
        {"batch_id": "batch-2"},
        {"scenario_id": "b"},
        {"execution_id": "run-b"},
        {"ordinal": 2},
        {"args": []},
        {"args": [*permit.args, "--more"]},
        {"args": permit.args[::-1]},
    ]
    structs = [msgspec.structs.replace(permit, **one) for one in replaced]
    plain: dict[str, Any] = msgspec.to_builtins(permit)
    plains: list[Any] = [msgspec.to_builtins(one) for one in structs]
    plains += [{**plain, key: value} for key in plain for value in (None, 1.5, {"x": 1}, float("nan"))]
    plains += [{key: value for key, value in plain.items() if key != missing} for missing in plain]
    plains += [{**plain, "more": 1}, None, "permit", [], 7, {}]
    return [*structs, *plains]
