"""A service whose network fails, in process and on a virtual clock: one fault at one request or answer at a time.

A `Fault` names the call it strikes by its number (0, 1, 2, in the order in which the client makes calls), the side it
is on, and its kind:

| kind | request | response |
|---|---|---|
| drop | never arrives; the client waits out its deadline | carried out; the client waits out its deadline |
| delay | arrives only after the client has given up and made another call | carried out, arrives late but in time |
| repeat | arrives twice; the first answer counts | arrives twice; a connection carries one answer |
| truncate | arrives cut off: nothing is carried out, the connection ends | carried out; the answer ends in the middle |
| reset | the connection is refused: certainly not sent | carried out; the connection is reset |

`ServiceFaults` holds the call log and the clock over any number of clients, so that a purchase that is resumed with a
new client goes on in the same numbering.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from coordinator.client import NotSentError, Service, ServiceError, UnknownOutcomeError
from coordinator.service.wire import Estimate, EstimateRequest, Job, JobState, Pack, RunResult, RunState

Kind = Literal["drop", "delay", "repeat", "truncate", "reset"]
Side = Literal["request", "response"]
KINDS: tuple[Kind, ...] = ("drop", "delay", "repeat", "truncate", "reset")
SIDES: tuple[Side, ...] = ("request", "response")
DEADLINE_SECONDS = 60.0
DELAY_SECONDS = 30.0

T = TypeVar("T")


class VirtualClock:
    """Time that passes only when it is told to. `now` is what the product takes as its clock."""

    def __init__(self, start: str = "2030-01-01T00:00:00.000Z") -> None:
        self._moment = datetime.fromisoformat(start)

    def now(self) -> str:
        """ISO 8601 with milliseconds and `Z`."""
        return self._moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def advance(self, seconds: float) -> None:
        self._moment += timedelta(seconds=seconds)

    async def wait(self, seconds: float) -> None:
        """In place of `asyncio.sleep`."""
        self.advance(seconds)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    call: int
    side: Side
    kind: Kind


def single_faults(calls: int) -> Iterator[Fault]:
    """Every fault of each request and each response of a purchase that makes `calls` calls."""
    for call in range(calls):
        for side in SIDES:
            for kind in KINDS:
                yield Fault(call=call, side=side, kind=kind)


def drawn_pairs(seed: int, calls: int, count: int) -> Iterator[tuple[Fault, Fault]]:
    """`count` pairs of faults at two different calls; the same ones for the same seed.

    The second may lie a few calls behind the end of an undisturbed purchase: a first fault makes it longer.
    """
    generator = random.Random(seed)
    for _ in range(count):
        first, second = sorted(generator.sample(range(calls + 4), 2))
        yield (
            Fault(call=first, side=generator.choice(SIDES), kind=generator.choice(KINDS)),
            Fault(call=second, side=generator.choice(SIDES), kind=generator.choice(KINDS)),
        )


class ServiceFaults:
    """The network between clients and one service. `log` names the calls made, `struck` the faults that happened."""

    def __init__(self, faults: Sequence[Fault] = (), clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.log: list[str] = []
        self.struck: list[Fault] = []
        self._faults = {(fault.call, fault.side): fault for fault in faults}
        self._late: list[Callable[[], Awaitable[object]]] = []

    def take(self, call: int, side: Side) -> Kind | None:
        found = self._faults.pop((call, side), None)
        if found is None:
            return None
        self.struck.append(found)
        return found.kind

    async def carry(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """One request and its answer, with whatever strikes them."""
        number = len(self.log)
        self.log.append(name)
        request, response = self.take(number, "request"), self.take(number, "response")
        if request is not None and request != "repeat":
            await self._request_fails(name, request, call)
        answer = await call()
        if request == "repeat":
            await self._again(call)
        await self.deliver_late()
        return self._answered(name, response, answer)

    async def _request_fails(self, name: str, kind: Kind, call: Callable[[], Awaitable[object]]) -> None:
        if kind == "reset":
            raise NotSentError(f"{name}: the connection was refused")
        if kind == "delay":
            self._late.append(call)
        if kind != "truncate":
            self.clock.advance(DEADLINE_SECONDS)
        raise UnknownOutcomeError(f"{name}: no answer")

    def _answered(self, name: str, kind: Kind | None, answer: T) -> T:
        if kind == "delay":
            self.clock.advance(DELAY_SECONDS)
        if kind in (None, "delay", "repeat"):
            return answer
        if kind == "drop":
            self.clock.advance(DEADLINE_SECONDS)
        raise UnknownOutcomeError(f"{name}: the answer was lost ({kind})")

    async def deliver_late(self) -> None:
        """What was held up reaches the service. To be called once more when the client is done."""
        late, self._late = self._late, []
        for call in late:
            await self._again(call)

    async def _again(self, call: Callable[[], Awaitable[object]]) -> None:
        """Nobody waits for this answer any more."""
        try:
            await call()
        except ServiceError:
            return


class FaultyService(Service):
    """A client of `inner` over a network that fails. Closing it leaves `inner` open for the next client."""

    def __init__(self, inner: Service, network: ServiceFaults) -> None:
        self.inner, self.network = inner, network

    @property
    def is_embedded(self) -> bool:
        return self.inner.is_embedded

    @property
    def address(self) -> str:
        return self.inner.address

    async def pack(self) -> Pack:
        return await self.network.carry("pack", self.inner.pack)

    async def estimate(self, request: EstimateRequest) -> Estimate:
        return await self.network.carry("estimate", lambda: self.inner.estimate(request))

    async def register(self, idempotency_key: str, body: bytes) -> Job:
        return await self.network.carry("register", lambda: self.inner.register(idempotency_key, body))

    async def find_job(self, idempotency_key: str) -> Job | None:
        return await self.network.carry("find_job", lambda: self.inner.find_job(idempotency_key))

    async def job(self, job_id: str) -> JobState:
        return await self.network.carry("job", lambda: self.inner.job(job_id))

    async def finish(self, job_id: str, reason: str | None = None) -> JobState:
        return await self.network.carry("finish", lambda: self.inner.finish(job_id, reason))

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None:
        await self.network.carry("send_aggregate", lambda: self.inner.send_aggregate(job_id, aggregate))

    async def run(self, job_id: str, run_id: str) -> RunState:
        return await self.network.carry("run", lambda: self.inner.run(job_id, run_id))

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState:
        return await self.network.carry("transition", lambda: self.inner.transition(job_id, run_id, state))

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState:
        return await self.network.carry(
            "heartbeat", lambda: self.inner.heartbeat(job_id, run_id, actions_taken, checkpoint_step)
        )

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState:
        return await self.network.carry("complete", lambda: self.inner.complete(job_id, run_id, result))

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        return await self.network.carry("upload", lambda: self.inner.upload(job_id, run_id, name, data, sha256))

    async def close(self) -> None:
        """A client goes away; what is on its way still arrives."""
        await self.network.deliver_late()
