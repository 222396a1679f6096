"""Brains by name."""

from __future__ import annotations

from collections.abc import Callable

from workers.brains.base import Brain
from workers.brains.offline import OfflineBrain
from workers.brains.random import RandomBrain

_BRAINS: dict[str, Callable[[], Brain]] = {"offline": OfflineBrain, "random": RandomBrain}

FREE_BRAINS = tuple(_BRAINS)


class UnknownBrainError(ValueError):
    """`name` is no brain of this version."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no brain named {name!r}; use one of {', '.join(_BRAINS)}")


def make_brain(name: str) -> Brain:
    """A brain by name; raises `UnknownBrainError`."""
    if name not in _BRAINS:
        raise UnknownBrainError(name)
    return _BRAINS[name]()
