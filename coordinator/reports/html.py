"""`report.html`: one file, no server, no request. Pure but for reading the templates and the findings' pictures.

Findings, matrix and comparison are in the page itself; the timelines of the runs lie beside them as JSON, one element
a run, and are drawn when a reader opens the run: a page of ten thousand runs costs what is looked at.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.files import read_bounded
from coordinator.reports.actions import action_text, fact_text
from coordinator.reports.escaping import json_for_html, one_line, seen_data, seen_text
from coordinator.reports.evidence import relative_path, step_pictures, step_seconds
from coordinator.reports.records import SEVERITIES, Aggregate, Campaign, MergedFinding, PlannedRun, RunRow

MAX_INLINE_TIMELINE_BYTES = 24 << 20
MAX_THUMBNAIL_BYTES = 40 << 10
MAX_THUMBNAILS_BYTES = 20 << 20
MAX_FINDINGS = 500
MAX_OCCURRENCES = 50
MAX_INPUTS_IN_LINE = 8
MAX_INPUTS = 200
MAX_PLAIN_RUNS = 500
MAX_COMPARED = 200
MAX_FILM_PICTURES = 200
MAX_TOLD_CHARACTERS = 320
MAX_STEP_CHARACTERS = 240

_TEMPLATES = Path(__file__).parent / "templates"
_MAGIC = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}


class Timelines(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON elements of the page: run's position -> text; `steps` says which steps a link can lead to."""

    elements: dict[int, str]
    steps: dict[int, frozenset[int]]
    left_out: int


def render_html(aggregate: Aggregate, campaign: Campaign, report_directory: str) -> str:
    """The page. `report_directory` is where it will lie: links to evidence are relative to it."""
    positions = {row.run_id: position for position, row in enumerate(aggregate.runs)}
    timelines = _timelines(aggregate, campaign, report_directory)
    style, script = _text_of("report.css"), _text_of("report.js")
    return str(
        _template().render(
            report=aggregate,
            severities=SEVERITIES,
            findings=[
                _finding_view(finding, positions, timelines, campaign) for finding in aggregate.findings[:MAX_FINDINGS]
            ],
            pictures=_pictures(aggregate, campaign),
            more_findings=max(0, len(aggregate.findings) - MAX_FINDINGS),
            matrix=_matrix(aggregate),
            comparison=aggregate.controller_comparison,
            compared=_compared(aggregate.controller_comparison),
            max_compared=MAX_COMPARED,
            plain_runs=list(enumerate(aggregate.runs[:MAX_PLAIN_RUNS])),
            runs_json=json_for_html(seen_data([_run_data(row) for row in aggregate.runs])),
            timelines=timelines,
            style=style,
            script=script,
            style_hash=_csp_hash(style),
            script_hash=_csp_hash(script),
        )
    )


@cache
def _template() -> Any:
    # Imported here: commands that write no page should not wait for it.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every string that is put into the page passes here, so that no place can forget it.
        finalize=lambda value: seen_text(value) if type(value) is str else value,
    )
    return environment.get_template("report.html.j2")


@cache
def _text_of(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- timelines ------------------------------------------------------------------------------------------------------


def _timelines(aggregate: Aggregate, campaign: Campaign, report_directory: str) -> Timelines:
    numbers = {
        (met.run_id, met.finding_id): finding.number for finding in aggregate.findings for met in finding.occurrences
    }
    at_steps: dict[str, dict[int, list[int]]] = {}
    for finding in aggregate.findings:
        for met in finding.occurrences:
            if met.step is not None:
                at_steps.setdefault(met.run_id, {}).setdefault(met.step, []).append(finding.number)
    order = sorted(range(len(campaign.runs)), key=lambda position: not aggregate.runs[position].findings)
    elements: dict[int, str] = {}
    steps: dict[int, frozenset[int]] = {}
    left_out, used = 0, 0
    for position in order:
        run = campaign.runs[position]
        if run.report is None:
            continue
        rows = _timeline_rows(run, numbers, at_steps.get(run.run_id, {}))
        more = _run_more(aggregate.runs[position]) | _film(run, report_directory)
        text = json_for_html({**seen_data(more), "rows": rows})
        if used + len(text) > MAX_INLINE_TIMELINE_BYTES:
            left_out += 1
            continue
        used += len(text)
        elements[position] = text
        steps[position] = frozenset(row[0] for row in rows)
    return Timelines(elements=elements, steps=steps, left_out=left_out)


def _timeline_rows(
    run: PlannedRun, numbers: dict[tuple[str, str], int], at_steps: dict[int, list[int]]
) -> list[list[Any]]:
    """Rows of step, action, effect, numbers of findings."""
    rows: list[list[Any]] = []
    for row in run.report.timeline if run.report is not None else ():
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        ids = row.get("findings") or row.get("finding_ids") or []
        found = {numbers[run.run_id, name] for name in ids if (run.run_id, name) in numbers}
        found |= set(at_steps.get(step, ()))
        rows.append([step, _words(row.get("action")), _words(row.get("effect")), sorted(found)])
    return rows


def _words(value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:
        value = action_text(value)
    return one_line(value if isinstance(value, str) else fact_text(value) if value else "", MAX_STEP_CHARACTERS)


# -- views ----------------------------------------------------------------------------------------------------------


def _anchor(position: int, step: int | None, timelines: Timelines) -> str:
    if step is not None and step in timelines.steps.get(position, ()):
        return f"#run-{position}-step-{step}"
    return f"#run-{position}"


def _finding_view(
    finding: MergedFinding, positions: dict[str, int], timelines: Timelines, campaign: Campaign
) -> dict[str, Any]:
    met = [
        {
            "persona": item.persona,
            "controller": item.controller,
            "repetition": item.repetition,
            "seed": item.seed,
            "step": item.step,
            "replay": item.replay,
            "anchor": _anchor(positions[item.run_id], item.step, timelines),
            "evidence": item.evidence,
        }
        for item in finding.occurrences
    ]
    # The place shown first is the earliest step among those whose replay proved most.
    best = min(met, key=lambda item: (item["replay"] != finding.replay, item["step"] is None, item["step"] or 0))
    description = seen_text(finding.description).strip()
    told = one_line(description.split("\n", 1)[0], MAX_TOLD_CHARACTERS)
    inputs = [one_line(action_text(action), 80) for action in finding.actions]
    return {
        "finding": finding,
        "best": best,
        "met": met[:MAX_OCCURRENCES],
        "more_met": max(0, len(met) - MAX_OCCURRENCES),
        "runs": len({item.run_id for item in finding.occurrences}),
        "inputs": inputs[:MAX_INPUTS_IN_LINE],
        "more_inputs": max(0, len(inputs) - MAX_INPUTS_IN_LINE),
        "told": told,
        "full": description if " ".join(description.split()) != told else "",
        "steps": finding.repro_steps[:MAX_INPUTS] or inputs[:MAX_INPUTS],
        "stamp": _stamp(finding.replay),
    }


def _stamp(replay: str | None) -> dict[str, str]:
    if replay is None:
        return {"kind": "none", "text": "not replayed"}
    head = replay.split(",", 1)[0]
    done, _, of = head.partition("/")
    if done.isdigit() and of.isdigit():
        return {"kind": "full" if done == of != "0" else "part", "text": f"replayed {one_line(replay, 80)}"}
    return {"kind": "none", "text": one_line(replay, 120)}


def _matrix(aggregate: Aggregate) -> list[dict[str, Any]]:
    cells = {(cell.persona, cell.controller): cell for cell in aggregate.matrix}
    rows: list[dict[str, Any]] = []
    for persona in aggregate.personas:
        across = [cells.get((persona, controller)) for controller in aggregate.controllers]
        there = [cell for cell in across if cell is not None]
        rows.append(
            {
                "persona": persona,
                "cells": across,
                "asked": sum(cell.asked for cell in there),
                "played": sum(cell.played for cell in there),
            }
        )
    return rows


def _compared(comparison: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A row per compared finding; who could not report is not told as someone who did not."""
    if comparison is None:
        return []
    available = {
        (run["persona"], run["controller"])
        for run in comparison["runs"]
        if run["report_available"] and run["actions_taken"] != 0
    }
    rows: list[dict[str, Any]] = []
    for found in comparison["findings"][:MAX_COMPARED]:
        by = {met["controller"] for met in found["occurrences"]}
        words = [
            ("yes", "reported")
            if name in by
            else ("no", "not reported")
            if (found["persona"], name) in available
            else ("absent", "not played")
            for name in comparison["controllers"]
        ]
        rows.append({"found": found, "words": words})
    return rows


def _run_data(row: RunRow) -> dict[str, Any]:
    """What the list of runs is drawn and filtered from: read whole when the page opens, so it is short."""
    data: dict[str, Any] = {
        "id": row.run_id,
        "scenario": row.scenario_id,
        "persona": row.persona,
        "controller": row.controller,
        "repetition": row.repetition,
        "state": row.state,
        "end": row.end_reason,
        "played": row.played,
        "why": one_line(row.why_not_played),
        "partial": row.partial,
        "actions": row.actions_taken,
        "findings": row.findings,
        "worst": row.worst,
        "qualifying": row.qualifying,
        "summary": one_line(row.summary, 1_200),
        "report": row.report_path,
        "transcript": row.transcript_path,
        "video": row.video_path,
    }
    return {key: value for key, value in data.items() if value not in ("", [], {}, None)}


def _run_more(row: RunRow) -> dict[str, Any]:
    """What an opened run shows besides its timeline. Seeds are words: a browser's numbers do not hold all of them."""
    data: dict[str, Any] = {
        "seed": "" if row.seed is None else str(row.seed),
        "seconds": row.wall_seconds,
        "attempts": row.attempts,
        "worked": [one_line(text) for text in row.what_worked[:20]],
        "inTheWay": [one_line(text) for text in row.in_the_way[:20]],
        "keep": one_line(row.keep_playing, 600),
        "coverage": row.coverage,
        "counts": {key: count for key, count in row.counts.items() if count},
        "recording": one_line(row.recording),
    }
    return {key: value for key, value in data.items() if value not in ("", [], {}, None)}


def _film(run: PlannedRun, report_directory: str) -> dict[str, Any]:
    """The run's screenshots as [step, path], evenly chosen where there are many, and its steps' seconds of video."""
    pictures = list(step_pictures(run).items())
    stride = -(-len(pictures) // MAX_FILM_PICTURES) or 1
    shots = [[step, relative_path(run, file, report_directory)] for step, file in pictures[::stride]]
    film = {"shots": shots, "shotsInAll": len(pictures), "secondsAt": {str(k): v for k, v in step_seconds(run).items()}}
    return {key: value for key, value in film.items() if value}


# -- pictures -------------------------------------------------------------------------------------------------------


def _pictures(aggregate: Aggregate, campaign: Campaign) -> dict[int, str]:
    """Finding's number -> data URL of its first screenshot small enough to stand in the page; others are links."""
    runs = {run.run_id: run for run in campaign.runs}
    found: dict[int, str] = {}
    left = MAX_THUMBNAILS_BYTES
    for finding in aggregate.findings[:MAX_FINDINGS]:
        wanted = ((runs[met.run_id], item.ref) for met in finding.occurrences for item in met.evidence if item.present)
        for run, ref in wanted:
            names = [file for file in run.files if Path(file).stem == Path(ref).stem]
            data = _picture(run, names)
            if data is not None and len(data[1]) <= left:
                left -= len(data[1])
                found[finding.number] = f"data:image/{data[0]};base64,{base64.b64encode(data[1]).decode()}"
                break
    return found


def _picture(run: PlannedRun, names: Sequence[str]) -> tuple[str, bytes] | None:
    for name in names:
        if not name.lower().endswith((".png", ".jpg", ".jpeg")):
            continue
        try:
            data = read_bounded(str(Path(run.directory, name)), MAX_THUMBNAIL_BYTES)
        except (CoordinatorError, FileNotFoundError):
            continue
        for magic, kind in _MAGIC.items():
            if data.startswith(magic):
                return kind, data
    return None
