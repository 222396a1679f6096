"""What an answer of a model means: proposals, findings, notes, the wish to stop, or a complaint. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from workers.brains.base import MAX_PROPOSALS, Claim, Proposal
from workers.findings import SEVERITIES
from workers.look import RESTART_LABEL, Look
from workers.models.conversation import Call, Reply
from workers.models.prompt import (
    ALTERNATIVES_TOOL,
    CATEGORIES,
    FINDING_TOOL,
    KINDS,
    MAX_NOTE_CHARACTERS,
    NOTE_TOOL,
    RESTART_TOOL,
    STOP_TOOL,
    TYPE_TOOL,
)

MAX_PROPOSALS_READ = 8
MAX_FINDINGS_A_STEP = 5
MAX_WHY_CHARACTERS = 500
MAX_QUOTED = 80


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply says. `complaint` is empty when it can be acted upon; claims and notes count also when it is not.

    `given_up`: the player wants to stop, and there are no proposals. `read` counts the proposals that were looked at.
    """

    proposals: tuple[Proposal, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    given_up: str | None = None
    complaint: str = ""
    read: int = 0


def read_answer(reply: Reply, look: Look, *, alternatives: bool, tools: tuple[str, ...]) -> Answer:
    """Read one reply to the ask of `look`, in which `tools` could be called. A refusal is looked for before."""
    reader = _Reader(look, alternatives, tools)
    if reply.stop == "length":
        return Answer(complaint="it was cut off at the limit of its length; answer with a tool call, in few words.")
    actions: list[Call] = []
    for call in reply.calls:
        if call.name in (FINDING_TOOL, NOTE_TOOL) and call.name in tools:
            reader.take_beside(call)
        else:
            actions.append(call)
    if not reply.calls:
        said = "it was empty" if not reply.text.strip() else "it was prose without a tool call"
        return Answer(complaint=f"{said}; call one of the tools: {', '.join(tools)}.")
    if not actions:
        reader.complain("what you reported is kept, but no action was called; call exactly one action tool.")
    elif len(actions) > 1:
        names = ", ".join(call.name[:MAX_QUOTED] for call in actions[:8])
        reader.complain(f"it called {len(actions)} actions at once ({names}); call exactly one.")
    else:
        reader.take_action(actions[0])
    return reader.answer()


class _Reader:
    def __init__(self, look: Look, alternatives: bool, tools: tuple[str, ...]) -> None:
        self._look, self._alternatives, self._tools = look, alternatives, tools
        self._labels = {" ".join(label.split()).casefold(): label for label in look.scenes[-1].labels}
        self._proposals: list[Proposal] = []
        self._claims: list[Claim] = []
        self._notes: list[str] = []
        self._given_up: str | None = None
        self._complaints: list[str] = []
        self._read = 0

    def answer(self) -> Answer:
        complaint = " ".join(self._complaints)
        return Answer(
            proposals=() if complaint else tuple(self._proposals[:MAX_PROPOSALS]),
            claims=tuple(self._claims),
            notes=tuple(self._notes),
            given_up=None if complaint else self._given_up,
            complaint=complaint,
            read=self._read,
        )

    def complain(self, what: str) -> None:
        self._complaints.append(what)

    # -- beside the action

    def take_beside(self, call: Call) -> None:
        """A finding or a note; a bad one is told in the complaint, if there is a repair anyway, and else dropped."""
        given = self._arguments(call)
        if given is None:
            return
        if call.name == NOTE_TOOL:
            text = " ".join(str(given.get("text", "")).split())[:MAX_NOTE_CHARACTERS]
            if text:
                self._notes.append(text)
        elif len(self._claims) < MAX_FINDINGS_A_STEP:
            claim = _claim(given)
            if claim is None:
                self.complain(f"{FINDING_TOOL} needs a title.")
            else:
                self._claims.append(claim)

    # -- the action

    def take_action(self, call: Call) -> None:
        if call.name not in self._tools:
            self.complain(f"there is no tool {call.name[:MAX_QUOTED]!r}; call one of: {', '.join(self._tools)}.")
            return
        given = self._arguments(call)
        if given is None:
            return
        if call.name == STOP_TOOL:
            self._given_up = _why(given) or "the player wants to stop"
        elif call.name == ALTERNATIVES_TOOL:
            self._take_alternatives(given.get("alternatives"))
        elif call.name == RESTART_TOOL:
            self._propose({"label": RESTART_LABEL, "why": given.get("why")})
        elif call.name == TYPE_TOOL:
            self._propose({"label": given.get("text"), "typed": True, "why": given.get("why")})
        elif call.name in KINDS:
            self._propose(given)

    def _take_alternatives(self, given: Any) -> None:
        if not isinstance(given, list) or not given:
            self.complain(f"{ALTERNATIVES_TOOL} needs a list of one to {MAX_PROPOSALS} alternatives.")
            return
        for one in given[:MAX_PROPOSALS_READ]:
            self._read += 1
            if isinstance(one, dict):
                self._propose(one)
            else:
                self.complain("an alternative is no object.")
        if self._proposals:
            # One that can be done is enough: the others are only left out.
            self._complaints = []

    def _propose(self, given: dict[str, Any]) -> None:
        label = given.get("label")
        if not isinstance(label, str) or not label.strip():
            self.complain("it names no label.")
            return
        known = self._labels.get(" ".join(label.split()).casefold())
        if known is not None and given.get("typed") is not True:
            proposal = Proposal(label=known, why=_why(given))
        elif (given.get("typed") is True or self._alternatives) and self._look.free_text:
            if "\n" in label or "\r" in label:
                self.complain("a line of text has no line break; type one line at a time.")
                return
            proposal = Proposal(label=label, typed=True, why=_why(given))
        elif given.get("typed") is True:
            self.complain("the game takes no free text now; choose one of the options.")
            return
        else:
            self.complain(f"{label[:MAX_QUOTED]!r} is not on offer; use a label exactly as it stands in the options.")
            return
        if all(proposal.label != other.label for other in self._proposals):
            self._proposals.append(proposal)

    def _arguments(self, call: Call) -> dict[str, Any] | None:
        try:
            given = msgspec.json.decode(call.arguments)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self.complain(f"the arguments of {call.name[:MAX_QUOTED]} are not whole JSON ({error}).")
            return None
        if not isinstance(given, dict):
            self.complain(f"the arguments of {call.name[:MAX_QUOTED]} are no object.")
            return None
        return given


def _claim(given: dict[str, Any]) -> Claim | None:
    title = " ".join(str(given.get("title") or "").split())
    if not title:
        return None
    evidence = given.get("evidence")
    category = str(given.get("category", ""))
    given_severity, severity = given.get("severity"), SEVERITIES[-1]
    for one in SEVERITIES:
        severity = one if one == given_severity else severity
    return Claim(
        title=title[:200],
        category=category if category in CATEGORIES else "other",
        severity=severity,
        description=str(given.get("description") or "")[:2_000],
        evidence=tuple(str(one)[:40] for one in evidence[:20]) if isinstance(evidence, list) else (),
    )


def _why(given: dict[str, Any]) -> str:
    return " ".join(str(given.get("why") or "").split())[:MAX_WHY_CHARACTERS]
