"""Decides, remembers, supervises, spends. The names here are the public API; see docs/files.md for the files.

They are imported on first use: a command that only reads files starts without the event loop and what hangs on it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator
    from coordinator.errors import CoordinatorError
    from coordinator.records import (
        Attempt,
        Completion,
        CompletionResult,
        CoordinatorOptions,
        Digests,
        Entry,
        Failure,
        Permit,
        RetainedFailure,
        Review,
        Selection,
        State,
        Stop,
    )

__all__ = [
    "Attempt",
    "Completion",
    "CompletionResult",
    "Coordinator",
    "CoordinatorError",
    "CoordinatorOptions",
    "Digests",
    "Entry",
    "Failure",
    "Permit",
    "RetainedFailure",
    "Review",
    "Selection",
    "State",
    "Stop",
]

_HOMES = {"Coordinator": "coordinator.coordinator", "CoordinatorError": "coordinator.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES.get(name, "coordinator.records")), name)
    globals()[name] = found
    return found
