"""Whether a game asks for something that only its owner may give."""

from __future__ import annotations

import re

from drivers.base import Observation

_PROMPT = re.compile(
    r"(?:pass ?(?:word|phrase|code)|\bpin\b|access code|activation (?:code|key)|licen[cs]e key|api key|user ?name"
    r"|log ?in|e-?mail(?: address)?|credit card(?: number)?)(?: \w+){0,3}\s*[:?>]\s*$",
    re.IGNORECASE,
)
_FIELD = re.compile(r"pass ?word|passcode|access code|licen[cs]e key|api key|card number", re.IGNORECASE)


def asks_for_credentials(observation: Observation) -> bool:
    """True at a free-text prompt, or with an enabled field, for a password, code or account.

    A game that lists its moves asks for nothing: a password in its story is a move like others.
    """
    if observation.done:
        return False
    if observation.moves is None and not observation.controls:
        return bool(_PROMPT.search(observation.text.rstrip()[-200:]))
    return any(
        control.enabled and control.role in ("textbox", "password") and _FIELD.search(control.name)
        for control in observation.controls
    )
