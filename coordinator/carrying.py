"""Carries a purchase from wherever it stands to its end: one loop for `run`, `resume` and everything that broke."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.outcome import CANCELED, ENVIRONMENT, FAILURE
from coordinator.purchase import Purchase
from coordinator.results import Standing
from coordinator.service.wire import JobState
from coordinator.steps import exit_of_job, next_step, playable, unknown

MAX_STEPS = 64
"""Every step leaves the journal further than it found it; more than this is a fault of this program, not a wait."""


class Campaign(Protocol):
    """What is bought: how it is read, played and concluded."""

    @property
    def scenarios(self) -> Sequence[dict[str, Any]]:
        """The plan's playthroughs, as they stand in the manifest."""

    def standings(self) -> list[Standing]: ...

    async def play(self, scenario_ids: Sequence[str]) -> None:
        """Play these in a new batch; returns when the batch has ended, whatever came of it."""

    def conclude(self) -> tuple[int | None, dict[str, Any] | None]:
        """The exit code of what was played and the aggregate for the service; None where nothing was ever played."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """How far it came. `is_settled`: nothing is owed any more. `was_settled_elsewhere`: the service had ended the job.

    `waiting` are sentences on results that could not be delivered yet, `unknown` scenarios whose end nobody saw,
    `left` scenarios whose runs are open still.
    """

    job_id: str | None
    replayed: bool
    is_settled: bool
    exit_code: int
    job_state: str | None = None
    released_cents: int | None = None
    was_settled_elsewhere: bool = False
    was_played: bool = False
    waiting: list[str] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)
    left: list[str] = msgspec.field(default_factory=list)
    late: list[str] = msgspec.field(default_factory=list)


async def carry(
    purchase: Purchase, campaign: Campaign, before_settling: Callable[[], Awaitable[None]] | None = None
) -> Carried:
    """Do what `next_step` says until the purchase is finished, or until only time, a network or a person can go on.

    `before_settling` is awaited when every run has its end and the job is open still: the time for uploads.
    Raises `PurchaseOpenError`, `NothingBoughtError`, `PlanMismatchError`, and what playing raises.
    """
    return await _Carrier(purchase, campaign, before_settling).carry()


class _Carrier:
    def __init__(
        self, purchase: Purchase, campaign: Campaign, before_settling: Callable[[], Awaitable[None]] | None
    ) -> None:
        self.purchase, self.campaign, self.before_settling = purchase, campaign, before_settling
        self.replayed = purchase.file.journal.job_id is not None
        self.job: JobState | None = None
        self.is_played = self.is_elsewhere = False
        self.waiting: list[str] = []

    async def carry(self) -> Carried:
        for _ in range(MAX_STEPS):
            journal = self.purchase.file.journal
            if journal.state == "registered":
                self.job = await self.purchase.look()
            standings = self.campaign.standings()
            step = next_step(journal, self.job, standings, is_played=self.is_played)
            if step == "done":
                return self._carried(journal.exit_code or 0, standings)
            if step == "person" or (step in ("deliver", "cancel") and self.waiting):
                return self._carried(self._open_code(standings), standings)
            await self._do(step, standings)
        raise CoordinatorError("the purchase does not come to an end by its own steps; coordinate verify says more")

    async def _do(self, step: str, standings: Sequence[Standing]) -> None:
        purchase = self.purchase
        if step == "register":
            self.replayed = await purchase.register(self.campaign.scenarios) or self.replayed
        elif step == "deliver":
            self.waiting = await purchase.deliver(standings)
        elif step == "play":
            still_open = await purchase.begin([one.scenario_id for one in playable(purchase.file.journal, standings)])
            if still_open:
                self.is_played = True
                await self.campaign.play(still_open)
        elif step == "cancel":
            self.waiting = await purchase.deliver(standings)
            if not self.waiting:
                await purchase.settle(self._aggregate(), reason="canceled")
        elif step == "closed":
            self.is_elsewhere = True
            purchase.mark_unanswered_late(standings)
            assert self.job is not None
            purchase.settled(self.job)
        elif step == "finish":
            if self.before_settling is not None:
                await self.before_settling()
            self.job = await purchase.settle(self._aggregate())
        elif step == "record":
            purchase.record(self._end_code())

    def _aggregate(self) -> dict[str, Any] | None:
        return self.campaign.conclude()[1]

    def _end_code(self) -> int:
        """What was played decides, unless the service ended the job in its own way."""
        state = self.purchase.file.journal.job_state or ""
        code = self.campaign.conclude()[0]
        if self.is_elsewhere or state == "canceled" or code is None:
            return exit_of_job(state)
        return code

    def _open_code(self, standings: Sequence[Standing]) -> int:
        code = self.campaign.conclude()[0]
        # A row that a person closed reads like an interrupted one; only what was played now was canceled now.
        if unknown(self.purchase.file.journal, standings) and not (code == CANCELED and self.is_played):
            return ENVIRONMENT
        return code or FAILURE

    def _carried(self, exit_code: int, standings: Sequence[Standing]) -> Carried:
        journal = self.purchase.file.journal
        return Carried(
            job_id=journal.job_id,
            replayed=self.replayed,
            is_settled=journal.state == "finished",
            exit_code=exit_code,
            job_state=journal.job_state,
            released_cents=self.job.refunded_cents if self.job is not None else None,
            was_settled_elsewhere=self.is_elsewhere,
            was_played=self.is_played,
            waiting=self.waiting,
            unknown=[one.scenario_id for one in unknown(journal, standings)],
            left=self.purchase.left,
            late=self.purchase.late_results(),
        )
