"""Calls of a model within a budget: booked before, settled after, tried again only where that is right."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from workers.brains.base import BrainEndedError
from workers.contract import EndReason
from workers.models.access import HIDDEN_TOKENS, PICTURE_TOKENS, Tokens
from workers.models.conversation import Ask, Reply, Wire
from workers.models.errors import (
    BusyError,
    CallRefusedError,
    ModelError,
    NotSentError,
)
from workers.models.exchanges import Exchanges
from workers.models.pause import SharedPause, back_off
from workers.models.purse import CallPurse
from workers.models.transport import Sends

MAX_TRIES = 6
MAX_WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.5
GRACE_SECONDS = 5.0
"""How long an answer under way is waited for once somebody asked for the end."""


class Asked(Protocol):
    """Who may ask for the end of the run."""

    @property
    def requested(self) -> EndReason | None: ...


class Bounds(msgspec.Struct, kw_only=True):
    """What holds a caller: somebody's wish, the run's deadline (monotonic), and a sign of life while it waits."""

    stop: Asked
    deadline: float
    alive: Callable[[str], None]


class Caller:
    """All calls of one run go through here. `sleep` and `clock` are for tests."""

    def __init__(
        self,
        *,
        wire: Wire,
        transport: Sends,
        purse: CallPurse,
        pause: SharedPause,
        bounds: Bounds,
        exchanges: Exchanges,
        rng: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire, self._transport, self._purse, self._pause = wire, transport, purse, pause
        self._bounds, self._exchanges, self._rng, self._sleep, self._clock = bounds, exchanges, rng, sleep, clock
        self.facts: Counter[str] = Counter()
        self.step = 0
        self.last_call = 0

    async def close(self) -> None:
        await self._transport.close()
        self._exchanges.close()

    async def ask(self, ask: Ask, purpose: str) -> Reply:
        """A whole answer. Raises `BrainEndedError`: budget, wall clock, somebody's wish, or `model_fault`."""
        body = self._wire.encode(ask)
        bound = bound_of(body, ask)
        waited, failures = 0.0, 0
        while True:
            waited += await self._wait_for_pause()
            try:
                return await self._try(ask, body, bound, purpose)
            except BrainEndedError:
                raise
            except CallRefusedError as error:
                raise BrainEndedError("model_fault", str(error)) from error
            except ModelError as error:
                failures += 1
                self.facts["tries_failed"] += 1
                wait = self._wait_after(error, failures)
                if failures >= MAX_TRIES or waited + wait > MAX_WAIT_SECONDS:
                    raise BrainEndedError(
                        "model_fault", f"{failures} calls failed, the last because {error}"
                    ) from error
                waited += await self._wait(wait, str(error))

    def _wait_after(self, error: ModelError, failures: int) -> float:
        wait = back_off(failures, self._rng.random())
        if isinstance(error, BusyError):
            self.facts["busy_answers"] += 1
            wait = wait if error.retry_after is None else max(error.retry_after, wait / 8)
            # The other lane uses the same account: it holds still as well.
            self._pause.ask(wait, f"{error}")
        return wait

    async def _try(self, ask: Ask, body: bytes, bound: Tokens, purpose: str) -> Reply:
        worst = self._purse.worst(bound)
        if not self._purse.fits(worst):
            raise BrainEndedError("budget", "the next call could pass the run's budget")
        number = self.last_call = self._purse.send(worst)
        began = self._clock()
        answer: Reply | str = "cancelled"
        try:
            found = answer = await self._answer(body)
        except (NotSentError, BusyError, CallRefusedError) as error:
            # Nothing is charged for what was not sent or was answered with a no.
            answer = str(error)
            self._purse.settle(number, Tokens())
            raise
        except ModelError as error:
            answer = str(error)
            self.facts["unknown_outcomes"] += 1
            raise
        finally:
            self._exchanges.write(
                call=number, purpose=purpose, step=self.step, ask=ask, answer=answer, seconds=self._clock() - began
            )
        if found.usage is None or not self._purse.settle(number, found.usage):
            self.facts["usage_not_believed"] += 1
        return found

    async def _answer(self, body: bytes) -> Reply:
        """Wait for an answer, with signs of life; give up on it once the end was asked for or time is over."""
        sending = asyncio.ensure_future(self._transport.send(body))
        asked_at: float | None = None
        try:
            while True:
                done, _ = await asyncio.wait({sending}, timeout=LOOK_SECONDS)
                if done:
                    return sending.result()
                now = self._clock()
                self._bounds.alive("waiting for the model")
                if asked_at is None and self._bounds.stop.requested is not None:
                    asked_at = now
                if now >= self._bounds.deadline or (asked_at is not None and now - asked_at >= GRACE_SECONDS):
                    raise BrainEndedError(*self._end())
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.exception()

    def _end(self) -> tuple[EndReason, str]:
        asked = self._bounds.stop.requested
        if asked is not None:
            return asked, "asked to stop while the model was waited for"
        return "wall_clock", "the time of the run was over while the model was waited for"

    async def _wait_for_pause(self) -> float:
        waited = 0.0
        while (left := self._pause.seconds_left) > 0:
            if waited >= MAX_WAIT_SECONDS:
                raise BrainEndedError("model_fault", f"the provider was busy for {waited:.0f} s")
            waited += await self._wait(min(left, 2.0), "the provider is busy")
        return waited

    async def _wait(self, seconds: float, why: str) -> float:
        left = seconds
        while left > 0:
            if self._bounds.stop.requested is not None or self._clock() >= self._bounds.deadline:
                raise BrainEndedError(*self._end())
            await self._sleep(min(left, LOOK_SECONDS))
            left -= LOOK_SECONDS
            self._bounds.alive(f"waiting for the model: {why}"[:80])
        return seconds


def bound_of(body: bytes, ask: Ask) -> Tokens:
    """More tokens than any provider can count for a request: its tokenizers give a byte at least one token's share.

    A picture's base64 is counted as a picture; what a provider adds for tools is in `HIDDEN_TOKENS`.
    """
    size, picture = len(body), 0
    if ask.picture is not None:
        size -= 4 * ((len(ask.picture.data) + 2) // 3)
        picture = PICTURE_TOKENS
    return Tokens(input=size + picture + HIDDEN_TOKENS, output=ask.max_output_tokens)
