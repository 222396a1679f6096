"""When a player is stopped, why, and how hard: pure, the clock is an argument."""

from __future__ import annotations

from typing import Literal

from workers.contract import EndReason, Limits

Step = Literal["request", "terminate", "kill"]
_STEPS: tuple[Step, ...] = ("request", "terminate", "kill")
TERMINATE_SECONDS_MOST = 5.0


class Ladder:
    """Watches one player's limits and climbs request, SIGTERM, SIGKILL. Times are seconds of one monotonic clock.

    `reason` is None until the first request; later ones change nothing but may climb faster (`hurry`). `why` is a
    sentence for people.
    """

    def __init__(self, limits: Limits, *, now: float) -> None:
        self.limits = limits
        self.reason: EndReason | None = None
        self.why = ""
        self._wall_at = now + limits.wall_seconds
        self._silent_at = now + limits.silence_seconds
        self._climbed = 0
        self._next_at: float | None = None

    def progressed(self, *, now: float) -> None:
        """The progress file changed."""
        self._silent_at = now + self.limits.silence_seconds

    def ask(self, reason: EndReason, why: str, *, now: float) -> None:
        """Somebody or some limit wants the end; the first reason stands."""
        if self.reason is None:
            self.reason, self.why, self._next_at = reason, why, now

    def hurry(self, *, now: float) -> None:
        """Climb the next step at once instead of waiting for it."""
        if self.reason is not None and self._climbed < len(_STEPS):
            self._next_at = now

    def printed(self, output_bytes: int, *, now: float) -> None:
        """So much output came so far."""
        if output_bytes > self.limits.output_bytes:
            self.ask("harness_fault", f"more than {self.limits.output_bytes} bytes of output", now=now)

    def due(self, *, now: float) -> Step | None:
        """The step to do now, told once, or None."""
        if now >= self._wall_at:
            self.ask("wall_clock", f"the wall clock limit of {self.limits.wall_seconds:g} s passed", now=now)
        if now >= self._silent_at:
            self.ask("harness_fault", f"no progress for {self.limits.silence_seconds:g} s", now=now)
        if self._next_at is None or now < self._next_at:
            return None
        step = _STEPS[self._climbed]
        self._climbed += 1
        grace = (
            self.limits.grace_seconds if step == "request" else min(self.limits.grace_seconds, TERMINATE_SECONDS_MOST)
        )
        self._next_at = now + grace if self._climbed < len(_STEPS) else None
        return step

    def wait_seconds(self, *, now: float, most: float) -> float:
        """How long nothing falls due, at most `most`."""
        points = [self._wall_at, self._silent_at] if self.reason is None else []
        if self._next_at is not None:
            points.append(self._next_at)
        return max(0.0, min([most, *(point - now for point in points)]))
