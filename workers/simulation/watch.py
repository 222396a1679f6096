"""What a game in play listens to: whether its batch goes on, and to whom it shows that it lives."""

from __future__ import annotations

import time
from typing import Protocol

from workers.simulation.play import CANCELED, WALL_CLOCK

BEAT_SECONDS = 0.25


class Channel(Protocol):
    """The line from a pool process to its owner."""

    def tick(self, games: int, steps: int) -> None:
        """Say that work goes on, and how far it is."""

    def stop_requested(self) -> bool:
        """Whether the owner asked for the end of the batch."""


class Watch:
    """Beats four times a second while games are played; `reason` is set once the batch is to end.

    `deadline` is a time of the monotonic clock, in seconds, which all processes of a machine share.
    """

    def __init__(self, deadline: float | None, channel: Channel | None) -> None:
        self._deadline = deadline
        self._channel = channel
        self.games = 0
        self.steps = 0
        self.reason: str | None = None
        self.next_beat = 0.0
        self.beat(time.monotonic(), 0)

    def is_due(self) -> bool:
        return time.monotonic() >= self.next_beat

    def beat(self, now: float, steps_in_play: int) -> str | None:
        """Show a sign of life; give the reason to end (`wall clock`, `canceled`) or None."""
        self.next_beat = now + BEAT_SECONDS
        if self._channel is not None:
            self._channel.tick(self.games, self.steps + max(steps_in_play, 0))
            if self.reason is None and self._channel.stop_requested():
                self.reason = CANCELED
        if self._deadline is not None:
            if self.reason is None and now >= self._deadline:
                self.reason = WALL_CLOCK
            self.next_beat = min(self.next_beat, max(self._deadline, now + 0.01))
        return self.reason
