"""When two situations of a game count as the same: texts and states without what ticks at every step.

Used on the unfiltered observation, by the harness and its oracles; brains have their own view.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from drivers.base import Observation

MIN_STEPS_TO_CALL_A_VALUE_VOLATILE = 6
VOLATILE_SHARE = 0.9
MAX_LEAVES = 2_000

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def folded(text: str) -> str:
    """A text without its numbers and surplus space."""
    return " ".join(_NUMBER.sub("#", text).split())


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


class Situations:
    """Learns which values of the state hook change at (nearly) every step, such as a turn counter, and leaves them out.

    `key` may name one situation differently before and after such a value was recognised; comparisons that must hold
    over time use `same`.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._changes: dict[str, int] = {}

    def learn(self, before: Observation, after: Observation) -> None:
        """Count what changed in a step that the game accepted."""
        self._steps += 1
        old = dict(_bounded(before.state))
        for path, value in _bounded(after.state):
            if old.get(path) != value and isinstance(value, int | float) and not isinstance(value, bool):
                self._changes[path] = self._changes.get(path, 0) + 1

    def volatile(self) -> frozenset[str]:
        """Paths of numbers that tick."""
        if self._steps < MIN_STEPS_TO_CALL_A_VALUE_VOLATILE:
            return frozenset()
        return frozenset(path for path, count in self._changes.items() if count >= VOLATILE_SHARE * self._steps)

    def place(self, observation: Observation) -> str:
        """State, moves and scene, without the text and without the progress, which only says how one came here."""
        ticking = self.volatile()
        state = [(path, value) for path, value in _bounded(observation.state) if path not in ticking]
        moves = None if observation.moves is None else sorted(move.id for move in observation.moves)
        facts = [
            state, moves, observation.scene, observation.url, observation.goal, observation.done,
            [(c.role, c.name, c.enabled, c.value) for c in observation.controls],
        ]  # fmt: skip
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]

    def key(self, observation: Observation) -> str:
        """The situation with its text, numbers folded."""
        text = hashlib.sha256(folded(observation.text).encode()).hexdigest()[:8]
        return f"{self.place(observation)}-{text}"

    def same(self, one: Observation, other: Observation) -> bool:
        """Whether nothing but ticking values differs, text aside."""
        return one.progress == other.progress and self.place(one) == self.place(other)


def _bounded(state: Any) -> list[tuple[str, Any]]:
    found = []
    for leaf in _leaves(state):
        found.append(leaf)
        if len(found) >= MAX_LEAVES:
            break
    return found
