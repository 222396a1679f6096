"""`junit.xml`: a suite per persona, a case per scenario. Pure.

The form is what CI servers read as JUnit's: `testsuites` of `testsuite` of `testcase`, with at most one `failure` or
`error` and one `system-out` each.
"""

from __future__ import annotations

from xml.etree import ElementTree

from coordinator.reports.escaping import one_line, xml_text
from coordinator.reports.records import Aggregate, MergedFinding, Occurrence, RunRow

MAX_TEXT_CHARACTERS = 20_000
MAX_LINE_CHARACTERS = 300


def render_junit(aggregate: Aggregate) -> bytes:
    """The campaign as JUnit XML, UTF-8.

    A failure is a run with findings at `fail_on`; an error is a scenario that was not played. Everything else that was
    found stands in the case's output. Text is bounded and without the characters that XML cannot hold.
    """
    by_number = {finding.number: finding for finding in aggregate.findings}
    # Ten thousand runs can share a finding: looked up by run here, never searched for each.
    met: dict[tuple[int, str], list[Occurrence]] = {}
    for finding in aggregate.findings:
        for occurrence in finding.occurrences:
            met.setdefault((finding.number, occurrence.run_id), []).append(occurrence)
    root = ElementTree.Element("testsuites", {"name": _attribute(aggregate.campaign_id or "playtest")})
    totals = [0, 0, 0]
    total_seconds = 0.0
    for persona in aggregate.personas:
        rows = [row for row in aggregate.runs if row.persona == persona]
        suite = ElementTree.SubElement(root, "testsuite", {"name": _attribute(persona)})
        counted = [len(rows), 0, 0]
        seconds = 0.0
        for row in rows:
            found = [by_number[number] for number in row.findings]
            failing = [finding for finding in found if finding.fails]
            told = {number: _told(by_number[number], met[number, row.run_id]) for number in row.findings}
            counted[1] += bool(failing) and row.played
            counted[2] += not row.played
            seconds += row.wall_seconds or 0.0
            _add_case(suite, row, found, failing, told)
        _set_counts(suite, counted, seconds)
        totals = [total + part for total, part in zip(totals, counted, strict=True)]
        total_seconds += seconds
    _set_counts(root, totals, total_seconds)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _set_counts(element: ElementTree.Element, counted: list[int], seconds: float) -> None:
    element.set("tests", str(counted[0]))
    element.set("failures", str(counted[1]))
    element.set("errors", str(counted[2]))
    element.set("time", f"{seconds:.3f}")


def _add_case(
    suite: ElementTree.Element,
    row: RunRow,
    found: list[MergedFinding],
    failing: list[MergedFinding],
    told: dict[int, str],
) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {
            "name": _attribute(row.scenario_id),
            "classname": _attribute(f"{row.persona}.{row.controller}"),
            "time": f"{row.wall_seconds or 0.0:.3f}",
        },
    )
    if not row.played:
        attributes = {"message": _attribute(row.why_not_played), "type": "not_played"}
        ElementTree.SubElement(case, "error", attributes).text = _text(row.why_not_played)
    elif failing:
        more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
        attributes = {
            "message": _attribute(f"{failing[0].severity}: {failing[0].title}{more}"),
            "type": failing[0].severity,
        }
        ElementTree.SubElement(case, "failure", attributes).text = _text("\n\n".join(told[f.number] for f in failing))
    lines = [f"run {row.run_id}, state {row.state}, ended by {row.end_reason or 'nothing'}"]
    lines += ["The run is partial: what came after its end was not seen."] if row.partial else []
    lines += [told[finding.number] for finding in found if finding not in failing or not row.played]
    ElementTree.SubElement(case, "system-out").text = _text("\n\n".join(lines))


def _told(finding: MergedFinding, occurrences: list[Occurrence]) -> str:
    lines = [f"{finding.number}. {finding.severity}: {finding.title}"]
    lines.append(f"category {finding.category}, replay {finding.replay or 'not tried'}, signature {finding.signature}")
    for met in occurrences:
        refs = ", ".join(f"{item.kind} {item.ref}" for item in met.evidence)
        lines.append(f"step {met.step if met.step is not None else 'unknown'}: {refs}")
    lines += [f"  {at}. {step}" for at, step in enumerate(finding.repro_steps[:40], start=1)]
    return "\n".join(one_line(line, 1_000) for line in lines)


def _attribute(text: str) -> str:
    return xml_text(one_line(text, MAX_LINE_CHARACTERS), MAX_LINE_CHARACTERS * 2)


def _text(text: str) -> str:
    return xml_text(text, MAX_TEXT_CHARACTERS)
