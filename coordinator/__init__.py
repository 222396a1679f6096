"""Decides, remembers, supervises, spends. The names here are the public API; see docs/files.md for the files."""

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
