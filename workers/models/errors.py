"""How a call of a model can fail, by what is known of its fate."""

from __future__ import annotations


class ModelError(Exception):
    """The base of everything that goes wrong between a player and its model."""


class NotSentError(ModelError):
    """The call did not reach the provider: nothing can have been charged."""


class BusyError(ModelError):
    """The provider answered that it has no room (429, 503, 529): nothing was charged; ask again later.

    `retry_after` is in seconds, None where the provider did not say.
    """

    def __init__(self, status: int, retry_after: float | None, message: str = "") -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(f"the provider is busy ({status}{': ' + message[:200] if message else ''})")


class CallRefusedError(ModelError):
    """The provider answered no, and will answer so again: a bad key, an unknown model, a request it cannot take."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(f"the provider answered {status}: {message[:300]}")


class UnknownOutcomeError(ModelError):
    """The call may have been answered and charged, but no whole answer came."""
