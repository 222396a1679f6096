"""The one interface to a playtest service, embedded or remote, and what its failures mean.

The distinction that matters for money: a request that was certainly not sent, one whose fate is unknown (the same key
and the same bytes may be sent again, nothing else), and an answer that says no.
"""

from __future__ import annotations

from typing import Protocol

from coordinator.errors import CoordinatorError
from coordinator.service.wire import (
    Estimate,
    EstimateRequest,
    Job,
    JobState,
    Pack,
    RunResult,
    RunState,
)


class ServiceError(CoordinatorError):
    """Base of what a call to the service can end with instead of an answer."""


class NotSentError(ServiceError):
    """The request certainly did not reach the service (no connection was made)."""


class UnknownOutcomeError(ServiceError):
    """The request may have been carried out: the answer was lost, cut off, malformed or too late."""


class AnsweredNoError(ServiceError):
    """The service answered with an error. `status` is the HTTP status, `code` the service's word."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(f"the service said {code} ({status}): {message}")


class AuthenticationError(AnsweredNoError):
    """401 or 403."""


class UnusableAnswerError(ServiceError):
    """The service answered well-formed JSON that must not be acted on: an amount or a count is not what it must be."""


class Service(Protocol):
    """Every call raises a `ServiceError`. `register` takes the exact bytes that stand in the journal."""

    @property
    def is_embedded(self) -> bool: ...

    @property
    def address(self) -> str:
        """Where it is: `embedded`, or the URL without trailing slashes."""

    async def pack(self) -> Pack: ...

    async def estimate(self, request: EstimateRequest) -> Estimate: ...

    async def register(self, idempotency_key: str, body: bytes) -> Job: ...

    async def find_job(self, idempotency_key: str) -> Job | None:
        """The job registered under the key; None for 404."""

    async def job(self, job_id: str) -> JobState: ...

    async def finish(self, job_id: str, reason: str | None = None) -> JobState: ...

    async def send_aggregate(self, job_id: str, aggregate: dict[str, object]) -> None: ...

    async def run(self, job_id: str, run_id: str) -> RunState: ...

    async def transition(self, job_id: str, run_id: str, state: str) -> RunState: ...

    async def heartbeat(self, job_id: str, run_id: str, actions_taken: int, checkpoint_step: int) -> RunState: ...

    async def complete(self, job_id: str, run_id: str, result: RunResult) -> RunState: ...

    async def upload(self, job_id: str, run_id: str, name: str, data: bytes, sha256: str) -> bool:
        """Send a file by checksum; False if the service has it already."""

    async def close(self) -> None: ...
