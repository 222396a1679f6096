"""One input, or one fact, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def action_text(action: Mapping[str, Any]) -> str:
    """A recorded action (`drivers.base.Action` as decoded JSON) in a few words, as it was: nothing is escaped here."""
    kind = str(action.get("kind", "?"))
    # What a player of a text game does is the move or the line itself.
    for said, key in (("choose", "move"), ("command", "text")):
        if kind == said and action.get(key) is not None:
            return str(action.get("label") or action[key])
    for key in ("label", "move", "text", "key"):
        if (value := action.get(key)) is not None:
            return f"{kind} {value}"
    if (ref := action.get("ref")) is not None:
        return f"{kind} {ref}"
    if action.get("x") is not None:
        to = f" to {action['to_x']}, {action.get('to_y')}" if action.get("to_x") is not None else ""
        return f"{kind} at {action['x']}, {action.get('y')}{to}"
    if action.get("milliseconds") is not None:
        return f"{kind} {action['milliseconds']} ms"
    return kind


def fact_text(value: Any) -> str:
    """A fact of "what was tested" in words: nested values in one line, truth as yes and no."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {fact_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(fact_text(item) for item in value) or "none"
    return str(value)
