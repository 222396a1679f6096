"""From a finding's evidence to files and places in them. Pure: what exists was listed when the campaign was read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coordinator.reports.findings import step_of
from coordinator.reports.records import Evidence, EvidenceLink, Finding, PlannedRun

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")
VIDEO_SUFFIXES = (".webm", ".mp4")
TRANSCRIPT = "transcript.jsonl"
_STEP_PICTURE = re.compile(r"(?:screenshots/)?step-(\d{1,9})(-marked)?\.(?:png|jpe?g)", re.IGNORECASE)


def relative_path(run: PlannedRun, file: str, report_directory: str) -> str:
    """`file` of the run's folder as a URL path relative to the report's folder; "" if it is not there."""
    if not file or file not in run.files:
        return ""
    return url_path(os.path.relpath(Path(run.directory, file), report_directory))


def url_path(path: str) -> str:
    """A relative file path as a URL path. A first segment with a colon would read as a scheme."""
    quoted = quote(path.replace(os.sep, "/"), safe="/")
    return quoted if quoted.startswith(".") else "./" + quoted


def video_of(run: PlannedRun) -> str:
    """The run's video within its folder, "" for none."""
    named = run.report.recording.get("path") if run.report is not None else None
    if isinstance(named, str):
        for file in (named, Path(named).name):
            if file in run.files:
                return file
    return next((file for file in run.files if file.lower().endswith(VIDEO_SUFFIXES)), "")


def step_pictures(run: PlannedRun) -> dict[int, str]:
    """Step -> its screenshot within the run's folder (`screenshots/step-N.jpg`), the marked copy where there is one."""
    found: dict[int, str] = {}
    for file in run.files:
        named = _STEP_PICTURE.fullmatch(file)
        if named is not None and (named[2] or int(named[1]) not in found):
            found[int(named[1])] = file
    return dict(sorted(found.items()))


def step_seconds(run: PlannedRun) -> dict[int, float]:
    """Step -> its second in the run's video, for the steps whose timeline tells it."""
    rows = run.report.timeline if run.report is not None and video_of(run) else ()
    return {
        row["step"]: second
        for row in rows
        if isinstance(row.get("step"), int) and (second := _number(row.get("at_seconds"))) is not None
    }


def locate_evidence(run: PlannedRun, finding: Finding, report_directory: str) -> list[EvidenceLink]:
    """Each piece of a finding's evidence with its file, whether that is there, and the place in it."""
    return [_locate(run, item, finding, report_directory) for item in finding.evidence]


def _locate(run: PlannedRun, item: Evidence, finding: Finding, report_directory: str) -> EvidenceLink:
    step = item.step if item.step is not None else step_of(finding)
    line: int | None = None
    second: float | None = None
    if item.kind == "screenshot":
        file = _picture(run, item.ref) or (step_pictures(run).get(step, "") if step is not None else "")
    elif item.kind == "video":
        file = video_of(run)
        second = _number(_timeline_row(run, step).get("at_seconds"))
    else:
        # Console lines, states and traces stand in the transcript's line of their step.
        file = TRANSCRIPT
        line = run.transcript_lines.get(step) if step is not None else None
    path = relative_path(run, file, report_directory)
    if path and second is not None:
        path = f"{path}#t={second:g}"
    return EvidenceLink(
        kind=item.kind, ref=item.ref, step=step, path=path, present=bool(path), line=line, second=second
    )


def _picture(run: PlannedRun, ref: str) -> str:
    wanted = {ref, f"screenshots/{ref}"}
    wanted |= {f"{folder}{ref}{suffix}" for folder in ("", "screenshots/") for suffix in PICTURE_SUFFIXES}
    return next((file for file in run.files if file in wanted), "")


def _timeline_row(run: PlannedRun, step: int | None) -> dict[str, Any]:
    if run.report is None or step is None:
        return {}
    return next((row for row in run.report.timeline if row.get("step") == step), {})


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
