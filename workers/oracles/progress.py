"""Progress is lower after loading a saved game than it was when it was saved."""

from __future__ import annotations

import re
from collections.abc import Iterable

from drivers.base import Observation
from workers.findings import Event
from workers.oracles.base import StepFacts

_SAVE = re.compile(r"\b(?:quick ?)?save\b", re.IGNORECASE)
_LOAD = re.compile(r"\b(?:quick ?)?(?:load|restore|reload)\b", re.IGNORECASE)


def is_save(label: str) -> bool:
    """Whether an input's label says that it saves the game."""
    return bool(_SAVE.search(label)) and not _LOAD.search(label)


def is_load(label: str) -> bool:
    """Whether an input's label says that it brings a saved game back."""
    return bool(_LOAD.search(label))


class ProgressLost:
    """Remembers the progress at the last accepted save and compares it with the progress after a load.

    Starting the session again is a new game, not a load: its progress rightly begins anew.
    """

    name = "progress_lost"

    def __init__(self) -> None:
        self._saved: float | None = None

    def at_start(self, observation: Observation) -> Iterable[Event]:
        return ()

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        after = facts.after
        if after is None or facts.status != "done":
            return
        if facts.given.restart:
            self._saved = None
        elif is_save(facts.label):
            self._saved = after.progress
        elif is_load(facts.label) and self._saved is not None and after.progress is not None:
            if after.progress < self._saved:
                yield Event(
                    oracle=self.name,
                    category="progress_lost",
                    severity="major",
                    title=f"Progress is lost on {facts.label!r}",
                    description=f"Progress was {self._saved:g} when the game was saved and is {after.progress:g} after"
                    " loading it.",
                    message="progress lower after load",
                    place=facts.label,
                )
            self._saved = after.progress
