"""A ledger with money in it, a service over it, and the requests of a small campaign."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from coordinator.client import AnsweredNoError
from coordinator.service.audit import inconsistencies
from coordinator.service.embedded import EmbeddedService, RunPrice
from coordinator.service.ledger import Ledger
from coordinator.service.wire import Build, EstimateRequest, Job, JobRequest, RunResult
from tests.service.faults import VirtualClock

DOLLAR = 1_000_000
PRICE = RunPrice(low=40_000, likely=60_000, worst=100_000)
"""Ten cents at worst."""

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """One event loop a call, with a limit."""

    async def limited() -> T:
        return await asyncio.wait_for(coroutine, 30)

    return asyncio.run(limited())


class Stage:
    """`budget` in millionths of a dollar; further arguments go to the service."""

    def __init__(self, folder: Path, *, budget: int = DOLLAR, **settings: Any) -> None:
        self.path = folder / "ledger.sqlite"
        self.clock = VirtualClock()
        self.ledger = Ledger(self.path)
        if budget:
            self.ledger.set_budget(budget, self.clock.now())
        self.service = EmbeddedService(self.ledger, now=self.clock.now, **{"run_price": PRICE, **settings})

    def register(self, key: str = "key-1", body: bytes | None = None) -> Job:
        return run(self.service.register(key, body or body_of()))

    def complete(self, job: Job, position: int = 0, result: RunResult | None = None) -> str:
        found = run(self.service.complete(job.job_id, job.runs[position].run_id, result or played()))
        return found.state

    def close(self) -> None:
        self.ledger.close()

    def money(self) -> tuple[int, int, int]:
        """Balance, held, spent; the ledger adds up whenever it is looked at."""
        assert inconsistencies(self.ledger) == []
        found = self.ledger.balances()
        return found.balance, found.held, found.spent


def plan(**changes: Any) -> EstimateRequest:
    """Two personas with one controller: two runs."""
    request = EstimateRequest(
        modules=["persona_playtest"], personas=["newcomer", "explorer"], run_length="standard", controllers=["standard"]
    )
    return msgspec.structs.replace(request, **changes)


def body_of(price_cents: int = 20, request: EstimateRequest | None = None, **changes: Any) -> bytes:
    """A registration's bytes."""
    fields = msgspec.structs.asdict(request or plan())
    built = JobRequest(
        **{
            **fields,
            "confirm_price_cents": price_cents,
            "cli_version": "0.1.0",
            "build": Build(kind="bridge", ref="f" * 64),
        }
    )
    document = {**msgspec.to_builtins(built), **changes}
    return msgspec.json.encode({key: value for key, value in document.items() if value is not None})


def played(microdollars: object = 30_000, **changes: Any) -> RunResult:
    """A run's usable result."""
    result = RunResult(
        state="succeeded",
        quit_reason="goal_reached",
        actions_taken=12,
        report={"summary": "reached the goal", "steps": 12},
        usage={"microdollars": microdollars},
    )
    return msgspec.structs.replace(result, **changes)


def refused(status: int, code: str) -> Any:
    """`with refused(409, "run_closed"):` the call inside is answered with that no."""
    return _Refused(status, code)


class _Refused:
    def __init__(self, status: int, code: str) -> None:
        self._wanted = (status, code)
        self._raises = pytest.raises(AnsweredNoError)

    def __enter__(self) -> pytest.ExceptionInfo[AnsweredNoError]:
        self._found = self._raises.__enter__()
        return self._found

    def __exit__(self, *facts: Any) -> bool:
        caught = self._raises.__exit__(*facts)
        assert (self._found.value.status, self._found.value.code) == self._wanted
        return bool(caught)
