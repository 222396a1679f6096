"""Numbered menus in a text that is typed at: read as the lists of moves that they are."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from workers.look import MAX_LABEL_CHARACTERS, Look, Scene

_LINE = re.compile(r"^\s{0,4}(\d{1,2})[.):]\s+(\S.*)$", re.MULTILINE)


@lru_cache(maxsize=8_192)
def menu_of(text: str) -> dict[str, str]:
    """What a text lists by number: label to number. Empty where it lists nothing, or numbers without a first one."""
    found: dict[str, str] = {}
    for number, label in _LINE.findall(text):
        shown = " ".join(label.split())[:MAX_LABEL_CHARACTERS]
        found.setdefault(shown if shown not in found else f"{shown} ({number})", number)
    return found if "1" in found.values() else {}


def with_menus(look: Look) -> Look:
    """The same look with the menus of its scenes as labels, and with what was chosen named by its label."""
    scenes = tuple(_with_menu(scene) for scene in look.scenes)
    past = tuple(
        msgspec.structs.replace(step, did=_label(look.scenes[step.before].text, step.did)) for step in look.past
    )
    return msgspec.structs.replace(look, scenes=scenes, past=past)


def _with_menu(scene: Scene) -> Scene:
    menu = {} if scene.done else menu_of(scene.text)
    return msgspec.structs.replace(scene, labels=(*scene.labels, *menu)) if menu else scene


def _label(text: str, did: str) -> str:
    return next((label for label, number in menu_of(text).items() if number == did), did)
