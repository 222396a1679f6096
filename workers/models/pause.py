"""The back-off that both lanes share: a small file that says until when nobody asks the provider again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from workers.transcript import write_private

PAUSE_NAME = "model-pause.json"
MAX_PAUSE_SECONDS = 900.0
MAX_PAUSE_BYTES = 4_096
BASE_SECONDS = 2.0
MAX_BACK_OFF_SECONDS = 60.0


class SharedPause:
    """Read before each call, so that one lane's 429 holds the other lane too. Times are seconds since 1970.

    A lost update of two lanes at once costs one call that is answered with "busy" again; a damaged file pauses nobody.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock

    @property
    def seconds_left(self) -> float:
        """How long to wait still; 0 when nobody asked for a pause."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return 0.0
        try:
            until = msgspec.json.decode(os.read(descriptor, MAX_PAUSE_BYTES), type=dict[str, float | str])["until"]
        except (OSError, KeyError, ValueError):  # msgspec's errors are ValueErrors
            return 0.0
        finally:
            os.close(descriptor)
        if not isinstance(until, float | int):
            return 0.0
        # A clock that was set back must not hold a campaign for hours.
        return float(min(max(0.0, until - self._clock()), MAX_PAUSE_SECONDS))

    def ask(self, seconds: float, why: str) -> None:
        """Nobody asks the provider for so long; a longer pause that stands is kept."""
        seconds = min(seconds, MAX_PAUSE_SECONDS)
        if seconds > self.seconds_left:
            with contextlib.suppress(OSError):
                write_private(
                    self._path, msgspec.json.encode({"until": self._clock() + seconds, "why": why[:200]}) + b"\n"
                )


def back_off(failures: int, jitter: float) -> float:
    """Seconds before the next try after so many failures in a row; `jitter` in 0..1 spreads lanes apart."""
    longest = min(MAX_BACK_OFF_SECONDS, BASE_SECONDS * float(2 ** (failures - 1)))
    return longest / 2 + jitter * longest / 2
