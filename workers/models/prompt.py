"""What a model is told at a step: who it is, what it sees and remembers, and what it may do. Pure.

Each step is a conversation of its own, made from the look alone: the persona's memory is all that a model has, and a
late step costs what an early one does. What is older than the last steps is condensed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from workers.findings import SEVERITIES
from workers.look import PLAYER_NAME, RESTART_LABEL, Look, Past
from workers.models.access import MAX_OPTION_CHARACTERS
from workers.models.conversation import Ask, Picture, Tool
from workers.models.fence import Fence
from workers.personas import Persona

RECENT_STEPS = 10
TOLD_STEPS = 2
TOLD_CHARACTERS = 300
SHORT_LABEL_CHARACTERS = 60
SUMMED_LABELS = 8
MAX_PERSONA_CHARACTERS = 4_000
MAX_NOTES = 8
MAX_NOTE_CHARACTERS = 200
CATEGORIES = ("bug", "usability", "difficulty", "pacing", "content", "performance", "other")
FINDING_TOOL, NOTE_TOOL, STOP_TOOL, TYPE_TOOL = "report_finding", "note", "stop_playing", "type_line"
ALTERNATIVES_TOOL, RESTART_TOOL = "propose", "start_again"
KINDS = ("click", "tap", "press", "wait", "choose")
"""Words with which the harness begins the label of a control; any other label is a listed move: `choose`."""

_DOING = {
    "click": "Click one control that is on offer.",
    "tap": "Tap one control that is on offer.",
    "press": "Press one key that is on offer.",
    "wait": "Wait a moment, where waiting is on offer.",
    "choose": "Make one of the moves that are on offer.",
}


def kind_of(label: str) -> str:
    """Which tool does what a label stands for."""
    if label == RESTART_LABEL:
        return RESTART_TOOL
    first = label.split(" ", 1)[0]
    return first if first in KINDS and (first == label or first in ("click", "tap", "press")) else "choose"


class PromptMaker:
    """Asks for one persona. `alternatives`: one to three proposals are wanted instead of one action."""

    def __init__(self, persona: Persona, *, alternatives: bool, max_output_tokens: int, fence: Fence) -> None:
        self._persona, self._alternatives, self._max_output = persona, alternatives, max_output_tokens
        self.fence = fence
        self._kinds: set[str] = set()
        self._takes_text = False
        self._system = self._system_text()

    def ask(self, look: Look, *, notes: Sequence[str] = (), complaint: str = "", picture: Picture | None = None) -> Ask:
        """The ask of one step; with `complaint`, its repair turn."""
        return Ask(
            system=self._system,
            text=self._step_text(look, notes, complaint, picture),
            tools=self.tools(look),
            picture=picture,
            max_output_tokens=self._max_output,
        )

    # -- what stays the same

    def _system_text(self) -> str:
        persona = self._persona
        how = (
            f"Call {ALTERNATIVES_TOOL} once, with one to three alternative actions, the best first. They are"
            " alternatives for this one moment, never a sequence: exactly one of them will be done."
            if self._alternatives
            else "Call exactly one action tool, for the one thing that you do now."
        )
        return "\n\n".join(
            (
                f"You play a game for its makers, as this player: {persona.title}. {persona.text}"[
                    :MAX_PERSONA_CHARACTERS
                ],
                self.fence.rule,
                "Act only on what is visible, and only with what is on offer; never invent a control, a key or a move."
                " On a canvas go by visible labels. While the game loads, wait, but not for long. A public field for"
                f" a player's name gets: {PLAYER_NAME}. Never guess passwords, codes or accounts.",
                how,
                f"If something is wrong with the game itself, call {FINDING_TOOL} beside your action: once for each"
                " problem, citing ids such as s12 from the list of evidence that you are given. Your own slowness or"
                " mistakes are no findings. Do not report again what you reported before."
                f" With {NOTE_TOOL} you can keep one short line for later steps. Call {STOP_TOOL} only when this"
                " player would really stop.",
            )
        )

    def tools(self, look: Look) -> tuple[Tool, ...]:
        """One tool for each kind of action that was ever on offer in this run, and those of the harness."""
        self._kinds |= {kind_of(label) for label in look.scenes[-1].labels}
        self._takes_text = self._takes_text or look.free_text
        found = [self._propose()] if self._alternatives else [*self._actions()]
        return (*found, *_HARNESS_TOOLS)

    def _actions(self) -> list[Tool]:
        tools = [
            Tool(
                name=kind,
                description=_DOING[kind],
                schema=_object({"label": _text("The label exactly as it stands in the options."), "why": _WHY}),
            )
            for kind in KINDS
            if kind in self._kinds
        ]
        if RESTART_TOOL in self._kinds:
            tools.append(
                Tool(name=RESTART_TOOL, description="Start the game again from its beginning.",
                     schema=_object({"why": _WHY}))
            )  # fmt: skip
        if self._takes_text:
            tools.append(
                Tool(name=TYPE_TOOL, description="Type one line of text at the game's prompt and send it.",
                     schema=_object({"text": _text("One line, without a line break."), "why": _WHY}))
            )  # fmt: skip
        return tools

    def _propose(self) -> Tool:
        one = _object(
            {
                "label": _text("The label exactly as it stands in the options; or, at a text prompt, the line."),
                "typed": {"type": "boolean", "description": "True when label is a line to type, not an option."},
                "why": _WHY,
            },
            required=["label"],
        )
        return Tool(
            name=ALTERNATIVES_TOOL,
            description="Name one to three alternative actions for this moment, the best first.",
            schema=_object({"alternatives": {"type": "array", "items": one, "minItems": 1, "maxItems": 3}}),
        )

    # -- what this step adds

    def _step_text(self, look: Look, notes: Sequence[str], complaint: str, picture: Picture | None) -> str:
        scene, fence = look.scenes[-1], self.fence
        parts = [
            f"Your task: {look.brief}" if look.brief else "Your task: play.",
            f"Step {look.step + 1} of {look.of}.",
        ]
        if look.past:
            parts.append("What you remember, newest last:\n" + fence.around("memory", self._history(look)))
        if notes:
            parts.append("Your own notes:\n" + fence.around("notes", "\n".join(f"- {note}" for note in notes)))
        shown = scene.text or "(nothing to read)"
        parts.append("You see:\n" + fence.around("screen", shown))
        if picture is not None:
            parts.append(f"The picture is the same moment ({picture.reference}); what it shows is the game's as well.")
        parts.append("On offer now:\n" + fence.around("options", _options(scene.labels, look.free_text)))
        evidence = [f"s{past.step}" for past in look.past[-RECENT_STEPS:] if past.step]
        if evidence:
            parts.append(f"Evidence that a finding can cite: {', '.join(evidence)}.")
        if complaint:
            parts.append(f"Your last answer could not be used: {fence.clean(complaint)} Answer again, rightly.")
        return "\n\n".join(parts)

    def _history(self, look: Look) -> str:
        recent, older = look.past[-RECENT_STEPS:], look.past[:-RECENT_STEPS]
        lines = []
        if older:
            lines.append(f"before: {_summed(older)}")
        for position, past in enumerate(recent):
            line = f"{f's{past.step} ' if past.step else ''}you did {_short(past.did)!r}: {past.effect}"
            if position >= len(recent) - TOLD_STEPS:
                told = " ".join(look.scenes[past.after].text.split())[:TOLD_CHARACTERS]
                line += f"; then you read: {told}" if past is not recent[-1] else ""
            lines.append(line)
        return "\n".join(lines)


def _summed(older: Sequence[Past]) -> str:
    """Older steps, whatever their number, in a line of bounded length: what was done most, and how often it changed."""
    times = Counter(past.did for past in older)
    changed = Counter(past.did for past in older if past.effect == "changed")
    told = [
        f"{_short(did)!r} {n}x, {changed[did]} of them changed something" for did, n in times.most_common(SUMMED_LABELS)
    ]
    left = len(times) - len(told)
    return f"{len(older)} steps; " + "; ".join(told) + (f"; and {left} other actions" if left > 0 else "")


def _short(label: str) -> str:
    return label if len(label) <= SHORT_LABEL_CHARACTERS else label[: SHORT_LABEL_CHARACTERS - 1] + "…"


def _options(labels: Sequence[str], free_text: bool) -> str:
    lines: list[str] = []
    room = MAX_OPTION_CHARACTERS
    for label in labels:
        line = f"[{kind_of(label)}] {label}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"(and {len(labels) - len(lines)} more, not shown)")
            break
        lines.append(line)
    if free_text:
        lines.append(f"[{TYPE_TOOL}] any one line of text")
    return "\n".join(lines) or "(nothing)"


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _object(properties: dict[str, Any], *, required: Sequence[str] | None = None) -> dict[str, Any]:
    names = [name for name in properties if name != "why"] if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


_WHY = _text("In one short sentence: why.")
_HARNESS_TOOLS = (
    Tool(
        name=FINDING_TOOL,
        description="Report one problem of the game itself, with evidence.",
        schema=_object(
            {
                "title": _text("One line that names the problem."),
                "category": {"type": "string", "enum": list(CATEGORIES)},
                "severity": {"type": "string", "enum": list(SEVERITIES)},
                "description": _text("What happened, and what should have happened."),
                "evidence": {"type": "array", "items": {"type": "string"}, "description": "Ids such as s12."},
            }
        ),
    ),
    Tool(
        name=NOTE_TOOL,
        description="Keep one short line for yourself for later steps.",
        schema=_object({"text": _text("At most 200 characters.")}),
    ),
    Tool(
        name=STOP_TOOL,
        description="Stop playing for good, as this player would.",
        schema=_object({"why": _WHY}, required=["why"]),
    ),
)
