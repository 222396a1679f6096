"""The brief's `goal_when`: one comparison of one path, such as `state.level >= 3`."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from drivers.base import Observation

_FORM = re.compile(
    r"\s*(?P<root>state|progress|scene|url|outcome|metrics|goal)(?P<path>(?:\.[A-Za-z_][\w-]*|\[\d+\])*)\s*"
    r"(?:(?P<sign>==|!=|>=|<=|>|<)\s*(?P<value>.+?))?\s*"
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


class GoalError(ValueError):
    """`goal_when` cannot be read: `text` is what was found."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"goal_when {text[:120]!r} is not one comparison: write PATH, or PATH SIGN VALUE, where PATH begins with"
            " state, progress, scene, url, outcome, metrics or goal (state.level, state.rooms[0]), SIGN is ==, !=, >=,"
            ' <=, > or <, and VALUE is a number, true, false, null or "text"'
        )


def goal_test(text: str | None) -> Callable[[Observation], bool | None]:
    """The test for an observation: True or False, None where the game tells nothing. Raises `GoalError`.

    Without a text the game's own goal flag decides. A path that does not exist, or values that cannot be compared, are
    False.
    """
    if text is None:
        return lambda observation: observation.goal
    match = _FORM.fullmatch(text)
    if match is None:
        raise GoalError(text)
    steps = [key or int(index) for key, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", match["path"])]
    sign, wanted = match["sign"], None
    if sign is not None:
        try:
            wanted = json.loads(match["value"])
        except ValueError:
            raise GoalError(text) from None
    root = match["root"]

    def test(observation: Observation) -> bool:
        value: Any = getattr(observation, root)
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return False
        if sign is None:
            return bool(value)
        try:
            return bool(_SIGNS[sign](value, wanted))
        except TypeError:
            return False

    return test
