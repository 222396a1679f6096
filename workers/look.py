"""What a brain is handed: one object of bytes, made from an observation by the limits of a persona.

Everything a brain may know passes through `Eyes.look`: brains keep nothing between two looks, so the memory window is
as hard a limit as the reading budget. Hidden values (state, progress, goal, violations) never enter.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from drivers.base import Action, ActionKind, Control, Observation
from workers.contract import Brief
from workers.personas import Device, Persona

LOOK_VERSION = 1
MAX_LABEL_CHARACTERS = 160
MAX_OFFERS = 200
MAX_BRIEF_CHARACTERS = 1_000
RESTART_LABEL = "(start again)"
PLAYER_NAME = "Playlane Playtester"
PRESS = "press"
CUT_MARK = " […]"

Effect = Literal["changed", "nothing", "refused", "restarted", "ended"]

DEVICES: dict[ActionKind, tuple[Device, ...]] = {
    "click": ("pointer",),
    "double_click": ("pointer",),
    "move": ("pointer",),
    "drag": ("pointer", "touch"),
    "scroll": ("pointer", "touch", "keyboard"),
    "tap": ("touch",),
    "swipe": ("touch",),
    "type": ("keyboard",),
    "press": ("keyboard",),
    "hold": ("keyboard",),
    "gamepad_button": ("gamepad",),
    "gamepad_axis": ("gamepad",),
    "choose": ("text",),
    "command": ("text",),
    "wait": (),
    "note": (),
    "quit": (),
}
"""Which device performs an input; one of them is enough, and an empty tuple needs none."""


class Input(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be done at a step: an action of the driver, or starting the session again."""

    action: Action | None = None
    restart: bool = False

    def as_data(self) -> dict[str, object]:
        """The plain form kept in a finding's input list; `input_from_data` reads it back."""
        if self.action is None:
            return {"kind": "restart"}
        built: dict[str, object] = msgspec.to_builtins(self.action)
        return built


def action_in_words(action: Action) -> str:
    """An action as people read it."""
    return action.move or action.text or action.key or action.kind


def input_from_data(data: dict[str, object]) -> Input:
    """Read one entry of a finding's input list; raises `msgspec.ValidationError`."""
    if data.get("kind") == "restart":
        return Input(restart=True)
    return Input(action=msgspec.convert(data, Action))


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that can be done now: what this player reads, and the input that it stands for. Labels are distinct."""

    label: str
    input: Input


class Scene(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen at one time: the text as read, and the labels that were on offer."""

    text: str
    labels: tuple[str, ...] = ()
    done: bool = False


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One remembered step: `before` and `after` are positions in `Look.scenes`, `did` is the label of what was done.

    `step` is its number in the run, by which evidence of it is cited; 0 where it is not known.
    """

    before: int
    did: str
    effect: Effect
    after: int
    step: int = 0


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the brain sees and remembers at one step. `at_ms` is game time, reaction delays included.

    The last of `scenes` is the present one; its labels are what can be done now. A brain names an input by its label:
    the game's own ids stay outside, since they may tell what the label does not.
    """

    version: int = LOOK_VERSION
    persona: str
    brief: str
    step: int
    of: int
    at_ms: int
    free_text: bool
    vocabulary: tuple[str, ...]
    scenes: tuple[Scene, ...]
    past: tuple[Past, ...]


_DECODER = msgspec.json.Decoder(Look)


def read_look(raw: bytes) -> Look:
    """Decode the bytes that `Eyes.look` made."""
    return _DECODER.decode(raw)


_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_SMALL_PRINT = re.compile(r"\([^()\n]{0,400}\)|\[[^\[\]\n]{0,400}\]")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def readable(text: str, persona: Persona) -> str:
    """The text as this player's senses take it in, before the reading budget.

    Terminal colours become words such as `<red>` for who sees colour and vanish for who does not; a bell becomes
    `<bell>` for who hears. Blurred sight loses small print: what stands in round or square brackets. All other control
    characters are removed for everybody.
    """
    text = _SGR.sub(_colour_word if persona.senses.colour else "", text)
    text = _ESCAPES.sub("", text)
    text = text.replace("\x07", "<bell>" if persona.senses.audio else "").replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub("", text)
    if persona.senses.blur_pixels > 0:
        text = _SMALL_PRINT.sub("", text)
    return text


def _colour_word(match: re.Match[str]) -> str:
    for code in match.group(1).split(";"):
        if code.isdigit() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97):
            return f"<{_COLOURS[int(code) % 10]}>"
    return ""


def budgeted(text: str, characters: int) -> str:
    """The start of a text, at most `characters` long; a cut falls between words and is marked where there is room."""
    if len(text) <= characters:
        return text
    room = characters - len(CUT_MARK)
    if room <= 0:
        return text[:characters]
    cut = text.rfind(" ", 0, room + 1)
    return text[: cut if cut > room // 2 else room] + CUT_MARK


def permitted(action: Action, persona: Persona) -> bool:
    """Whether this player has a device for the action."""
    needed = DEVICES[action.kind]
    return not needed or any(device in persona.inputs.devices for device in needed)


class Eyes:
    """Turns observations into looks for one persona in one run, and holds what this player remembers."""

    def __init__(
        self,
        persona: Persona,
        *,
        brief: Brief,
        kinds: Sequence[ActionKind],
        can_restart: bool,
        vocabulary: Sequence[str] = (),
        of: int = 0,
    ) -> None:
        self._persona = persona
        self._kinds = frozenset(kinds)
        self._can_restart = can_restart
        self._vocabulary = tuple(word[:MAX_LABEL_CHARACTERS] for word in vocabulary[:500])
        self._of = of
        told = [*(f"goal: {goal}" for goal in brief.goals), brief.success, brief.controls, brief.start]
        self._brief = "; ".join(part for part in told if part)[:MAX_BRIEF_CHARACTERS]
        self._memory: deque[tuple[Scene, str, Effect, Scene, int]] = deque(maxlen=persona.limits.memory_steps)

    def scene(self, observation: Observation) -> tuple[Scene, tuple[Offer, ...]]:
        """What this player takes in of an observation, and what may be done about it."""
        pieces = [observation.text, *observation.dialogs]
        if observation.outcome is not None:
            pieces.append(f"The end: {observation.outcome}")
        whole = "\n".join(piece for piece in pieces if piece)
        text = budgeted(readable(whole, self._persona), self._persona.limits.reading_characters)
        offers = self._offers(observation)
        return Scene(text=text, labels=tuple(offer.label for offer in offers), done=observation.done), offers

    def look(self, scene: Scene, *, step: int, at_ms: int, free_text: bool) -> bytes:
        """The very bytes for the brain."""
        places: dict[Scene, int] = {}
        past = [
            Past(
                before=places.setdefault(before, len(places)),
                did=did,
                effect=effect,
                after=places.setdefault(after, len(places)),
                step=number,
            )
            for before, did, effect, after, number in self._memory
        ]
        scenes = [*places, scene]
        return msgspec.json.encode(
            Look(
                persona=self._persona.name,
                brief=self._brief,
                step=step,
                of=self._of,
                at_ms=at_ms,
                free_text=free_text,
                vocabulary=self._vocabulary if free_text else (),
                scenes=tuple(scenes),
                past=tuple(past),
            )
        )

    def remember(self, before: Scene, did: str, effect: Effect, after: Scene, *, step: int = 0) -> None:
        """Keep a step; the oldest beyond the memory window is forgotten."""
        self._memory.append((before, did[:MAX_LABEL_CHARACTERS], effect, after, step))

    def takes_text(self, observation: Observation) -> bool:
        """Whether a line of free text is an input now, for this player."""
        return (
            observation.moves is None
            and not observation.done
            and all(control.role != "key" for control in observation.controls)
            and "command" in self._kinds
            and "text" in self._persona.inputs.devices
        )

    def _offers(self, observation: Observation) -> tuple[Offer, ...]:
        found: list[tuple[str, Input]] = []
        if not observation.done and observation.your_turn:
            found += [
                (move.label or move.id, Input(action=Action(kind="choose", move=move.id)))
                for move in observation.moves or ()
            ]
            for control in observation.controls:
                found += self._control_offers(control)
        if not observation.your_turn and not observation.done and "wait" in self._kinds:
            found.append(("wait", Input(action=Action(kind="wait", milliseconds=500))))
        allowed = [
            (label, given)
            for label, given in found
            if given.action is None or (given.action.kind in self._kinds and permitted(given.action, self._persona))
        ][: MAX_OFFERS - 1]
        offers = []
        if self._can_restart:
            offers.append(Offer(label=RESTART_LABEL, input=Input(restart=True)))
        used = {RESTART_LABEL: 1}
        for label, given in allowed:
            shown = " ".join(readable(label, self._persona).split())[:MAX_LABEL_CHARACTERS] or "(no label)"
            used[shown] = used.get(shown, 0) + 1
            name = shown if used[shown] == 1 else f"{shown} ({used[shown]})"
            offers.append(Offer(label=name, input=given))
        return tuple(offers)

    def _control_offers(self, control: Control) -> list[tuple[str, Input]]:
        if not control.enabled:
            return []
        name = control.name or control.role
        if control.role == "key":
            return [(f"{PRESS} {name}", Input(action=Action(kind="press", key=name)))]
        kind: ActionKind = "click" if "pointer" in self._persona.inputs.devices else "tap"
        return [(f"{kind} {name}", Input(action=Action(kind=kind, ref=control.ref)))]
