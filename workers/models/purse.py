"""What a run with a model may spend: a fixed part, booked at its worst before each call and settled after it.

`spend.jsonl` has a line `{"call", "state": "sent", "microdollars", "tokens"}` that is durable before a call is sent,
and a second one with the same `call` once it is known what the call really cost. The last line of a call counts: a
call whose outcome stays unknown, or whose player was killed, stays charged at its worst.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from workers.contract import SPEND_NAME, Usage
from workers.models.access import ModelAccess, Tokens
from workers.transcript import open_private


class CallCost(msgspec.Struct, frozen=True, kw_only=True):
    """Millionths of a dollar (None: no price is known) and tokens."""

    microdollars: int | None
    tokens: int


class CallPurse:
    """`part` in millionths of a dollar and `access.token_budget` each bound the run; None: no bound."""

    def __init__(self, folder: Path, access: ModelAccess, part: int | None) -> None:
        self._path = folder / SPEND_NAME
        self._access, self._part = access, part
        self._booked: dict[int, CallCost] = {}
        self._open: set[int] = set()
        self.tokens = Tokens()

    @property
    def spent(self) -> int:
        """Millionths of a dollar, calls of unknown outcome at their worst."""
        return sum(cost.microdollars or 0 for cost in self._booked.values())

    @property
    def spent_tokens(self) -> int:
        return sum(cost.tokens for cost in self._booked.values())

    @property
    def unknown(self) -> int:
        """How many calls are charged at their worst because their outcome is not known."""
        return len(self._open)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left; whether the next call still fits is asked with its worst cost."""
        return (self._part is not None and self.spent >= self._part) or (
            self._access.token_budget is not None and self.spent_tokens >= self._access.token_budget
        )

    def worst(self, bound: Tokens) -> CallCost:
        """What a call can cost at most that asks for so many tokens."""
        price = self._access.price
        return CallCost(microdollars=None if price is None else price.bound(bound), tokens=bound.total)

    def fits(self, cost: CallCost) -> bool:
        """Whether a call of this cost can pass neither bound."""
        if self._part is not None and self.spent + (cost.microdollars or 0) > self._part:
            return False
        budget = self._access.token_budget
        return budget is None or self.spent_tokens + cost.tokens <= budget

    def send(self, worst: CallCost) -> int:
        """Book a call at its worst, durably; its number. Raises OSError: then the call must not be made."""
        number = len(self._booked) + 1
        self._write(number, "sent", worst)
        self._booked[number] = worst
        self._open.add(number)
        return number

    def settle(self, number: int, tokens: Tokens) -> bool:
        """What the call really cost. A count above its bound is not believed: the call stays at its worst then."""
        price = self._access.price
        worst = self._booked[number]
        cost = CallCost(microdollars=None if price is None else price.cost(tokens), tokens=tokens.total)
        if cost.tokens > worst.tokens or (cost.microdollars or 0) > (worst.microdollars or 0):
            return False
        self._write(number, "settled", cost)
        self._booked[number] = cost
        self._open.discard(number)
        self.tokens = self.tokens.plus(tokens)
        return True

    def _write(self, number: int, state: str, cost: CallCost) -> None:
        line = {"call": number, "state": state, "microdollars": cost.microdollars, "tokens": cost.tokens}
        if not self._path.exists():
            open_private(self._path).close()
            _sync_folder(self._path.parent)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def _cost_usd(self) -> float | None:
        if self._access.price is None:
            return None
        return self.spent / 1_000_000

    @property
    def _coverage(self) -> str:
        if not self._open:
            return "complete"
        calls = f"{len(self._open)} call{'s' * (len(self._open) != 1)}"
        return f"at most: {calls} of unknown outcome charged at the worst"

    def usage(self) -> Usage:
        return Usage(cost_usd=self._cost_usd, tokens=self.spent_tokens, coverage=self._coverage)

    def facts(self) -> dict[str, Any]:
        """The run's `usage.json`."""
        return {
            "cost_usd": self._cost_usd,
            "tokens": self.spent_tokens,
            "coverage": self._coverage,
            "microdollars": self.spent if self._access.price is not None else None,
            "calls": len(self._booked),
            "calls_of_unknown_outcome": len(self._open),
            "tokens_by_kind": msgspec.to_builtins(self.tokens),
            "provider": self._access.provider,
            "model": self._access.model,
            "part_microdollars": self._part,
            "token_budget": self._access.token_budget,
        }


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
