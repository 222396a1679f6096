"""What a run may spend: a fixed part of the purchase, counted in `spend.jsonl` before each call.

The file is written before the call and synced, so that a run that is killed leaves what it spent at most.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import msgspec

from workers.contract import SCRIPTED_PREFIX, SPEND_NAME, EndReason, PlayOrder, Usage
from workers.models.purse import CallPurse
from workers.transcript import open_private


class StopRequest(Protocol):
    """Set by a signal or a stop file; read between two steps."""

    @property
    def requested(self) -> EndReason | None: ...


class Purse:
    """Millionths of a dollar. `part` None: no bound."""

    def __init__(self, path: Path, *, price: int, part: int | None) -> None:
        self._path, self._price, self._part = path, price, part
        self._spent = self._calls = 0

    @property
    def is_empty(self) -> bool:
        """Whether the next call could pass the part: then it is not made."""
        return self._part is not None and self._spent + self._price > self._part

    def spend(self) -> None:
        """Count one call. Raises OSError when that cannot be made durable: then the call must not be made."""
        self._calls += 1
        self._spent += self._price
        line = msgspec.json.encode({"call": self._calls, "microdollars": self._price}) + b"\n"
        if not self._path.exists():
            open_private(self._path).close()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self) -> Usage:
        return Usage(cost_usd=self._spent / 1_000_000, tokens=0, coverage="complete")

    def facts(self) -> dict[str, Any]:
        """The run's `usage.json`."""
        return {
            "cost_usd": self._spent / 1_000_000,
            "tokens": 0,
            "coverage": "complete",
            "microdollars": self._spent,
            "calls": self._calls,
        }


RunPurse = Purse | CallPurse


class EmptyPurse:
    """A stop request that is also set once the purse is empty."""

    def __init__(self, stop: StopRequest, purse: RunPurse) -> None:
        self._stop, self._purse = stop, purse

    @property
    def requested(self) -> EndReason | None:
        if self._stop.requested is not None:
            return self._stop.requested
        return "budget" if self._purse.is_empty else None


def open_purse(folder: Path, order: PlayOrder) -> RunPurse:
    """The purse of a run in `folder`; a brain without a price spends nothing. Prices are checked before a purchase."""
    brain, part = order.brain, order.budget_microdollars
    if order.model_access is not None:
        return CallPurse(folder, order.model_access, part)
    text = brain.removeprefix(SCRIPTED_PREFIX)
    price = int(text) if brain.startswith(SCRIPTED_PREFIX) and text.isascii() and text.isdigit() else 0
    return Purse(folder / SPEND_NAME, price=price, part=part)
