"""Brains by name."""

from __future__ import annotations

from collections.abc import Callable

from workers.brains.base import Brain
from workers.brains.offline import OfflineBrain
from workers.brains.random import RandomBrain
from workers.brains.scripted import ScriptedBrain, is_scripted
from workers.purse import Purse

_BRAINS: dict[str, Callable[[], Brain]] = {"offline": OfflineBrain, "random": RandomBrain}

FREE_BRAINS = tuple(_BRAINS)


class UnknownBrainError(ValueError):
    """`name` is no brain of this version."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no brain named {name!r}; use one of {', '.join(_BRAINS)}")


def make_brain(name: str, purse: Purse | None = None) -> Brain:
    """A brain by name; one that costs needs the run's purse. Raises `UnknownBrainError`."""
    if is_scripted(name) and purse is not None:
        return ScriptedBrain(name, purse)
    if name not in _BRAINS:
        raise UnknownBrainError(name)
    return _BRAINS[name]()
