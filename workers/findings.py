"""Findings of a run: evidence ids, signatures, merging, suppression.

Evidence ids are issued by `EvidenceBook` alone; a finding whose evidence was not issued is kept as dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from workers.contract import Evidence, Finding, Severity

SIGNATURE_VERSION = "v1"
SEVERITIES: tuple[Severity, ...] = ("critical", "major", "minor", "note")
MAX_FINDINGS = 200
MAX_TITLE_CHARACTERS = 160
MAX_DESCRIPTION_CHARACTERS = 2_000
MAX_REPRO_STEPS = 300
MAX_EVIDENCE = 20
CLAIM_STEPS = 2
NO_EVIDENCE = "no evidence with an id that the harness issued"

EvidenceKind = Literal["screenshot", "video", "transcript", "console", "state", "trace"]
_PREFIX: dict[EvidenceKind, str] = {
    "screenshot": "p", "video": "v", "transcript": "s", "console": "c", "state": "h", "trace": "t",
}  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What an oracle says at a step. `message` and `place` identify the fault; title and description are for people.

    `console` are lines of the game's own output that show it.
    """

    oracle: str
    category: str
    severity: Severity
    title: str
    description: str
    message: str
    place: str = ""
    console: tuple[str, ...] = ()


_NORMALISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?Z?)?\b"), "<time>"),
    (re.compile(r"\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b"), "<time>"),
    (re.compile(r"\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|`[^`\n]{0,400}`"), "<quote>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@~+ -]+)*[\\/][\w.@~+-]+"), "<path>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{6,}\b"), "<hex>"),
    (re.compile(r"-?\d+(?:\.\d+)?"), "<n>"),
)


def normalised(message: str) -> str:
    """A message without what differs from run to run: ids, times, quotes, paths, hex, numbers; white space folded."""
    for pattern, word in _NORMALISE:
        message = pattern.sub(word, message)
    return " ".join(message.split())


def signature(oracle: str, message: str, place: str) -> str:
    """`v1:` and 16 hex digits of SHA-256 over oracle, normalised message and place (top frame, scene or URL path)."""
    digest = hashlib.sha256("\n".join((oracle, normalised(message), normalised(place))).encode())
    return f"{SIGNATURE_VERSION}:{digest.hexdigest()[:16]}"


def at_or_above(severity: Severity, level: str) -> bool:
    """Whether a severity reaches a `fail_on` level; `never` is reached by none, `new:LEVEL` counts as LEVEL here."""
    level = level.removeprefix("new:")
    order: tuple[str, ...] = SEVERITIES
    return level in order and order.index(severity) <= order.index(level)


class EvidenceBook:
    """Issues the ids that a finding may refer to; nothing else can make one."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[EvidenceKind, int | None]] = {}
        self._numbers: dict[str, int] = {}

    def issue(self, kind: EvidenceKind, step: int | None) -> Evidence:
        """A new id; a transcript line's or a state's is its step (`s12`, `h12`), others are numbered."""
        prefix = _PREFIX[kind]
        if kind in ("transcript", "state") and step is not None:
            ref = f"{prefix}{step}"
        else:
            self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
            ref = f"{prefix}{self._numbers[prefix]}"
        self._issued[ref] = (kind, step)
        return Evidence(kind=kind, ref=ref, step=step)

    def find(self, ref: str) -> Evidence | None:
        """What was issued under this id."""
        found = self._issued.get(ref)
        return None if found is None else Evidence(kind=found[0], ref=ref, step=found[1])

    def knows(self, evidence: Evidence) -> bool:
        """Whether this very evidence was issued."""
        return self._issued.get(evidence.ref) == (evidence.kind, evidence.step)


class Findings:
    """The findings of one run, one for each signature.

    `known` maps a signature or a title to the name under which a person marked it as intended.
    """

    def __init__(self, book: EvidenceBook, known: Mapping[str, str]) -> None:
        self._book = book
        self._known = dict(known)
        self._by_signature: dict[str, Finding] = {}
        self.repeats: dict[str, int] = {}
        self.overflow = 0
        self.last_event: tuple[int, str] | None = None
        """Step and signature of the oracles' last event."""

    def __len__(self) -> int:
        return len(self._by_signature)

    def all(self) -> list[Finding]:
        """Ranked by severity, then by the step at which they were first seen."""
        return sorted(
            self._by_signature.values(), key=lambda f: (SEVERITIES.index(f.severity), f.step or 0, f.signature)
        )

    def standing(self) -> list[Finding]:
        """Those that count: neither dropped nor suppressed."""
        return [finding for finding in self.all() if finding.dropped is None and finding.suppressed_by is None]

    def add(
        self,
        event: Event,
        *,
        step: int,
        evidence: Sequence[Evidence],
        actions: Sequence[dict[str, Any]],
        steps_in_words: Sequence[str],
    ) -> tuple[Finding | None, bool]:
        """Record an oracle's event; returns the finding (None beyond `MAX_FINDINGS`) and whether it is new."""
        mark = signature(event.oracle, event.message, event.place)
        self.last_event = (step, mark)
        valid = [item for item in evidence if self._book.knows(item)]
        seen = self._by_signature.get(mark)
        if seen is not None:
            self.repeats[mark] = self.repeats.get(mark, 1) + 1
            merged = msgspec.structs.replace(seen, evidence=[*seen.evidence, *valid][:MAX_EVIDENCE])
            self._by_signature[mark] = merged
            return merged, False
        if len(self._by_signature) >= MAX_FINDINGS:
            self.overflow += 1
            return None, False
        finding = Finding(
            id=f"f{len(self._by_signature) + 1}",
            title=event.title[:MAX_TITLE_CHARACTERS],
            category=event.category,
            severity=event.severity,
            description=event.description[:MAX_DESCRIPTION_CHARACTERS],
            repro_steps=list(steps_in_words)[-MAX_REPRO_STEPS:],
            evidence=valid[:MAX_EVIDENCE],
            origin="oracle",
            signature=mark,
            dropped=None if valid else NO_EVIDENCE,
            suppressed_by=self._known.get(mark) or self._known.get(event.title),
            step=step,
            oracle=event.oracle,
            actions=list(actions),
        )
        self._by_signature[mark] = finding
        return finding, True

    def replace(self, finding: Finding) -> None:
        """Put a finding back with its replay stamp or a shorter input list."""
        self._by_signature[finding.signature] = finding

    def claim(
        self,
        *,
        title: str,
        category: str,
        severity: Severity,
        description: str,
        cited: Sequence[str],
        place: str,
        step: int,
        actions: Sequence[dict[str, Any]],
        steps_in_words: Sequence[str],
    ) -> Finding | None:
        """Record what the player itself reports at `step`; None beyond `MAX_FINDINGS`.

        It takes the signature of the oracles' event within two steps, and is merged with it; else it has one of its
        own, from category, place and title, and is marked weak. Ids that were not issued are no evidence.
        """
        known = [found for ref in dict.fromkeys(cited) if (found := self._book.find(ref)) is not None]
        event = self.last_event
        near = event is not None and abs(step - event[0]) <= CLAIM_STEPS and bool(known)
        mark = event[1] if near and event is not None else signature(f"player:{category}", title, place)
        seen = self._by_signature.get(mark)
        if seen is not None:
            self.repeats[mark] = self.repeats.get(mark, 1) + 1
            merged = list(dict.fromkeys([(item.kind, item.ref, item.step) for item in [*seen.evidence, *known]]))
            evidence = [Evidence(kind=kind, ref=ref, step=at) for kind, ref, at in merged][:MAX_EVIDENCE]
            dropped = None if known and seen.dropped == NO_EVIDENCE else seen.dropped
            self._by_signature[mark] = msgspec.structs.replace(seen, evidence=evidence, dropped=dropped)
            return self._by_signature[mark]
        if len(self._by_signature) >= MAX_FINDINGS:
            self.overflow += 1
            return None
        finding = Finding(
            id=f"f{len(self._by_signature) + 1}",
            title=title[:MAX_TITLE_CHARACTERS],
            category=category,
            severity=severity,
            description=description[:MAX_DESCRIPTION_CHARACTERS],
            repro_steps=list(steps_in_words)[-MAX_REPRO_STEPS:],
            evidence=known[:MAX_EVIDENCE],
            origin="persona",
            signature=mark,
            dropped=None if known else NO_EVIDENCE,
            suppressed_by=self._known.get(mark) or self._known.get(title),
            weak=True,
            step=step,
            actions=list(actions),
        )
        self._by_signature[mark] = finding
        return finding
