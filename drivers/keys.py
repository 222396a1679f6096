"""The keyboard of a terminal: what each key sends, and which keys a player is shown."""

from __future__ import annotations

import re
import string

_NAMED = {
    "Enter": "\r", "Escape": "\x1b", "Tab": "\t", "Space": " ", "Backspace": "\x7f",
    "Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D",
    "Home": "\x1b[1~", "End": "\x1b[4~", "PageUp": "\x1b[5~", "PageDown": "\x1b[6~", "Insert": "\x1b[2~",
    "Delete": "\x1b[3~",
}  # fmt: skip
"""Source: the terminfo entry `linux`."""
_CONTROL = re.compile(r"[Cc]trl\+([A-Za-z])")
KEYBOARD = (
    "Up", "Down", "Left", "Right", "Enter", "Space", "Escape", *string.ascii_lowercase, *string.digits,
    ".", ",", "?", "<", ">", "/", ";", "+", "-", "*",
)  # fmt: skip
"""The keys that a player is shown. Capital letters, other signs and ctrl+LETTER can be pressed all the same."""


def key_bytes(key: str) -> bytes | None:
    """What a key sends: a key's name, one printable character, or ctrl+LETTER; None for anything else."""
    if key in _NAMED:
        return _NAMED[key].encode()
    control = _CONTROL.fullmatch(key)
    if control is not None:
        return bytes([ord(control[1].upper()) & 0x1F])
    return key.encode() if len(key) == 1 and key.isprintable() else None
