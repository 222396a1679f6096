"""Findings: signatures, evidence ids, merging, suppression."""

from __future__ import annotations

import pytest

from workers.contract import Evidence
from workers.findings import Event, EvidenceBook, Findings, at_or_above, normalised, signature


def _event(message: str = "boom", title: str = "It crashed") -> Event:
    return Event(
        oracle="crash", category="crash", severity="critical", title=title, description="d", message=message, place="p"
    )


def _add(findings: Findings, event: Event, step: int, evidence: list[Evidence]) -> bool:
    return findings.add(event, step=step, evidence=evidence, actions=[], steps_in_words=[])[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no item 17 in slot 3", "no item 4 in slot 99"),
        ("object at 0x7f3a22", "object at 0x1b"),
        ("cannot open /home/a/save.json", "cannot open /srv/b/c/save.json"),
        ("unknown word 'xyzzy'", 'unknown word "plugh"'),
        ("at 2026-01-02T03:04:05.678Z", "at 2027-11-12T13:14:15.1Z"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-0000-0000-000000000001"),
    ],
)
def test_what_differs_from_run_to_run_does_not_change_the_signature(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert signature("crash", one, "") == signature("crash", other, "")


def test_oracle_message_and_place_each_change_the_signature() -> None:
    marks = {
        signature("crash", "a", "x"), signature("error", "a", "x"), signature("crash", "b", "x"),
        signature("crash", "a", "y"),
    }  # fmt: skip
    assert len(marks) == 4


def test_a_signature_is_version_and_sixteen_hex_digits_of_sha256() -> None:
    assert signature("crash", "boom", "p") == "v1:" + _first_16("crash\nboom\np")


def _first_16(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_equal_signatures_merge_and_keep_both_evidences() -> None:
    book = EvidenceBook()
    findings = Findings(book, {})
    assert _add(findings, _event("slot 1"), 3, [book.issue("transcript", 3)])
    assert not _add(findings, _event("slot 2"), 9, [book.issue("transcript", 9)])
    (finding,) = findings.all()
    assert [item.ref for item in finding.evidence] == ["s3", "s9"] and finding.step == 3
    assert findings.repeats[finding.signature] == 2


def test_evidence_that_was_not_issued_drops_the_finding() -> None:
    findings = Findings(EvidenceBook(), {})
    _add(findings, _event(), 1, [Evidence(kind="transcript", ref="s1", step=1)])
    (finding,) = findings.all()
    assert finding.evidence == [] and finding.dropped is not None and findings.standing() == []


def test_an_issued_id_does_not_vouch_for_another_step() -> None:
    book = EvidenceBook()
    book.issue("transcript", 4)
    assert not book.knows(Evidence(kind="transcript", ref="s4", step=5))
    assert book.knows(Evidence(kind="transcript", ref="s4", step=4))


@pytest.mark.parametrize("by", ["signature", "title"])
def test_a_known_finding_is_suppressed_by_name_and_kept(by: str) -> None:
    key = signature("crash", "boom", "p") if by == "signature" else "It crashed"
    book = EvidenceBook()
    findings = Findings(book, {key: "the bell"})
    _add(findings, _event(), 1, [book.issue("transcript", 1)])
    assert findings.all()[0].suppressed_by == "the bell" and findings.standing() == []


def test_fail_on_levels_are_ordered() -> None:
    assert at_or_above("critical", "major") and at_or_above("major", "major") and at_or_above("minor", "new:minor")
    assert not at_or_above("minor", "major") and not at_or_above("critical", "never")


def test_texts_and_numbers_of_findings_are_bounded() -> None:
    book = EvidenceBook()
    findings = Findings(book, {})
    _add(findings, _event(title="x" * 10_000), 1, [book.issue("transcript", 1)])
    assert len(findings.all()[0].title) == 160
    for index in range(300):
        _add(findings, _event("m" + "abcdefghij"[index % 10] * (index + 1)), 1, [book.issue("transcript", 1)])
    assert len(findings) == 200 and findings.overflow == 101
