"""How a purchase can end short of its end: nothing was bought, or it is open and goes on with a command."""

from __future__ import annotations

from coordinator.errors import CoordinatorError
from coordinator.outcome import AUTHENTICATION, ENVIRONMENT, FAILURE

__all__ = ["AUTHENTICATION", "ENVIRONMENT", "FAILURE", "NothingBoughtError", "PriceMovedError", "PurchaseOpenError"]


class PurchaseOpenError(CoordinatorError):
    """Something failed after the registration was durable; the purchase goes on with the line that the message has."""

    def __init__(self, what: str, *, path: str, key: str, exit_code: int = FAILURE) -> None:
        self.path, self.key, self.exit_code = path, key, exit_code
        super().__init__(f"{what}\nThe purchase is kept in {path}; go on with: coordinate resume {key}")


class NothingBoughtError(CoordinatorError):
    """The service said no, or does not know the key: nothing was registered or charged, and the journal is closed."""

    def __init__(self, what: str, *, exit_code: int = ENVIRONMENT) -> None:
        self.exit_code = exit_code
        super().__init__(what)


class PriceMovedError(NothingBoughtError):
    """The price is not the one that was confirmed any more: to be shown and asked again, under a new key."""
