"""How a player is asked to end: a flag that is set once and read between two steps."""

from __future__ import annotations

from workers.contract import EndReason


class StopFlag:
    """`requested` is None until somebody asks; then it is the end reason that the run is to give.

    `interrupted` and `canceled` come from people, `wall_clock` and `harness_fault` (no progress, too much output) from
    the supervisor. The first request stands.
    """

    def __init__(self) -> None:
        self.requested: EndReason | None = None

    def request(self, reason: EndReason) -> None:
        """Ask the player to end after the turn in flight; a later request changes nothing."""
        if self.requested is None:
            self.requested = reason
