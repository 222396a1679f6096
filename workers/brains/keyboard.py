"""How the explorer plays a game of single keys: the keys that the screen names first, then those that do something."""

from __future__ import annotations

import random
import re
from collections import Counter

import msgspec

from workers.look import PRESS, RESTART_LABEL, Look

RESTART_WORTH = 0.01
LEAVING_WORTH = 0.02

_DIRECTIONS = ("Up", "Down", "Left", "Right")
_MORE = re.compile(
    r"--more--|\(end\)|press (?:any key|space|return|enter)|hit (?:any key|space|return|enter)", re.IGNORECASE
)
_CHOICES = re.compile(r"[\[(]([A-Za-z?*](?:[-/,| ]?[A-Za-z?*]){1,11})(?: or [^\])]{1,20})?[\])]")
_ALONE = re.compile(r"(?<![\w'])([A-Za-z?<>])(?![\w'])")
_LEAVING = re.compile(
    r"(?<!\w)([A-Za-z])\s*[:=)\]-]+\s*(?:quit|exit|leave)\b|\b(?:quit|exit)\b\W{1,3}([A-Za-z])(?!\w)", re.IGNORECASE
)


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """A key's label, what pressing it is worth, and why."""

    label: str
    worth: float
    why: str


def is_keyboard(labels: tuple[str, ...]) -> bool:
    """Whether what is on offer is a keyboard."""
    keys = [label for label in labels if label != RESTART_LABEL]
    return bool(keys) and all(label.startswith(f"{PRESS} ") for label in keys)


def choose_key(look: Look, rng: random.Random) -> list[Press]:
    """Every key on offer with its worth; starting again is the last resort."""
    scene = look.scenes[-1]
    asked, named, leaving = _asked(scene.text), _named(scene.text), _leaving(scene.text)
    times: Counter[str] = Counter()
    worked: Counter[str] = Counter()
    here: Counter[str] = Counter()
    for past in look.past:
        times[past.did] += 1
        worked[past.did] += past.effect == "changed"
        here[past.did] += past.before == len(look.scenes) - 1 or look.scenes[past.before] == scene
    found = []
    for label in scene.labels:
        if label == RESTART_LABEL:
            found.append(Press(label=label, worth=RESTART_WORTH, why="nothing else works"))
            continue
        key = label.removeprefix(f"{PRESS} ")
        if key in asked:
            worth, why = 3.0 / (1 + asked.index(key)), "the game asks for it"
        elif key in leaving:
            worth, why = LEAVING_WORTH, "it leaves the game"
        elif key in named:
            worth, why = 0.9, "the screen names it"
        elif key in _DIRECTIONS:
            worth, why = 0.7, "a direction"
        else:
            worth, why = 0.3 if key.isalpha() and len(key) == 1 else 0.15, "another key"
        useful = (0.7 + worked[label]) / (0.7 + times[label])
        worth *= useful / (1 + here[label]) / (1 + times[label]) ** 0.3 * (1 + 0.5 * rng.random())
        found.append(Press(label=label, worth=worth, why=why))
    return found


def _asked(text: str) -> list[str]:
    """Keys that the screen waits for: what is between brackets at a question, and the one for the next page."""
    if _MORE.search(text):
        return ["Space", "Enter"]
    lines = [line for line in text.splitlines() if line.strip()]
    for line in (*lines[:1], *reversed(lines[-3:])):
        found = _CHOICES.search(line)
        if found is not None and "?" in line:
            letters = [one for one in found[1] if one.isalnum() or one in "?*"]
            # No before yes: a question asked in passing is oftener about leaving than about playing.
            return sorted(dict.fromkeys(letters), key=lambda one: (one == "y", one == "q"))
    return []


def _named(text: str) -> frozenset[str]:
    return frozenset(_ALONE.findall(text))


def _leaving(text: str) -> frozenset[str]:
    return frozenset(one for pair in _LEAVING.findall(text) for one in pair if one)
