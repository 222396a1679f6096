"""Every refusal and failure of the coordinator: the class says which kind, the message what to do about it."""

from __future__ import annotations


class CoordinatorError(Exception):
    """Base of every error that leaves this package."""


class InvalidInputError(CoordinatorError):
    """An argument, selection, completion or document does not have its form."""


class RefusedError(CoordinatorError):
    """A rule says no; nothing was changed and the coordinator stays usable."""


class StoppedError(RefusedError):
    """A stop stands: nothing more is admitted or launched in this batch."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(
            f"stopped: the batch has the stop {reason} ({detail}); to go on is a new batch (coordinate retry)"
        )


class LanesTakenError(RefusedError):
    """As many attempts are open as there are lanes."""

    def __init__(self, open_lanes: int, max_lanes: int, foreign: int) -> None:
        self.open_lanes, self.max_lanes, self.foreign = open_lanes, max_lanes, foreign
        others = f", {foreign} of them rows of other batches that are still running" if foreign else ""
        name = "Two lanes are" if max_lanes == 2 else "The one lane is"
        super().__init__(
            f"{name} taken (Two lanes at most; this batch has {max_lanes}): {open_lanes} attempts are open{others};"
            " complete one, or end an uncertain one with coordinate recover --end"
        )


class NotAdmissibleError(RefusedError):
    """A permit is not the one that was handed out, or its launch was begun before."""

    def __init__(self, reservation_id: object, why: str) -> None:
        self.reservation_id, self.why = reservation_id, why
        super().__init__(f"permit {reservation_id!r} is not admissible: {why}")


class ReservedAttemptChangedError(RefusedError):
    """The ledger's row of a reservation is not what was reserved."""

    def __init__(self, scenario_id: str, ordinal: int, found: str) -> None:
        self.scenario_id, self.ordinal = scenario_id, ordinal
        super().__init__(
            f"Reserved attempt changed: attempt {ordinal} of {scenario_id!r} is not the row that was reserved"
            f" ({found}); put the reserved row back (it stands in state.json) or end the reservation with"
            " coordinate recover --end"
        )


class ContentConflictError(RefusedError):
    """A completed reservation was completed again with something else."""

    def __init__(self, scenario_id: str, ordinal: int, what: str) -> None:
        super().__init__(
            f"content conflict: attempt {ordinal} of {scenario_id!r} is completed already, with another {what}"
        )


class ReceiptError(RefusedError):
    """A receipt does not fit what it is the receipt of."""


class QualifyingError(RefusedError):
    """A closure review is not about the digests that were reserved, or changes nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Invalid qualifying review: {why}")


class InFlightError(RefusedError):
    """Something that this coordinator started has not returned."""

    def __init__(self, what: str) -> None:
        super().__init__(f"in flight: {what}; wait for it or stop it, then close")


class LockedError(RefusedError):
    """The manifest has an owner already; a lock is never stolen."""

    def __init__(self, path: str, facts: str) -> None:
        self.path = path
        super().__init__(
            f"{path} exists: the manifest is owned ({facts}). A lock is never taken away by opening; look with"
            " coordinate recover --manifest"
        )


class LockLostError(CoordinatorError):
    """The lock is missing or somebody else's: nothing is written or launched any more."""

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        super().__init__(
            f"lock lost: {path} {found}; somebody recovered this batch or removed its lock, so nothing more is written"
        )


class OutsideCoordinatorError(CoordinatorError):
    """The manifest was changed between the reading and the writing of one commit."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was changed outside coordinator during a commit; everything is left as it is for a person:"
            " coordinate recover shows it"
        )


class UnrecognizedManifestError(CoordinatorError):
    """A pending change meets a manifest that is neither its before nor its after."""

    def __init__(self, path: str, found: str, before: str, after: str) -> None:
        self.found = found
        super().__init__(
            f"Unrecognized manifest: {path} has SHA-256 {found}, the pending change goes from {before} to {after};"
            " the lock is kept: coordinate recover --accept-manifest after a look at the file"
        )


class DamagedError(CoordinatorError):
    """A control file is not what this program wrote; the lock is kept so that nobody builds on it."""


class OlderControlDirectoryError(RefusedError):
    """Claims beside the manifest know of launches that this control directory does not."""

    def __init__(self, control: str, reservation_id: str) -> None:
        super().__init__(
            f"{control} is an older control directory: {reservation_id} was launched (its claim exists beside the"
            " manifest) but stands here as not launched; put the newer directory back"
        )


class StorageError(CoordinatorError):
    """The operating system refused a file operation."""

    def __init__(self, what: str, path: str, error: OSError) -> None:
        self.what, self.path, self.errno = what, path, error.errno
        super().__init__(f"{what} {path}: {error.strerror or error}")


class PoisonedError(CoordinatorError):
    """A commit began and did not end; the disk decides at recovery."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"a commit began and did not end ({cause}); this coordinator does nothing more and its lock stays:"
            " coordinate recover"
        )


class ClosedError(CoordinatorError):
    """The coordinator was closed."""

    def __init__(self) -> None:
        super().__init__("this coordinator is closed; open the batch again")


class CanceledError(CoordinatorError):
    """The user asked to end; what was started for this question was stopped."""
