"""A campaign read from its files: manifest, state, claims, and the folders of its runs. Nothing is written here."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from coordinator.documents import DocumentError, decode
from coordinator.errors import CoordinatorError, DamagedError, InvalidInputError
from coordinator.files import read_bounded, read_document
from coordinator.manifest import Ledger
from coordinator.paths import RESERVATION_ID
from coordinator.reports.records import Campaign, Finding, OtherScenario, PlannedRun, RunRecord
from coordinator.reports.states import STATE_OF_END

MAX_REPORT_BYTES = 64 << 20
MAX_FILES_LISTED = 5_000
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")
VIDEO_SUFFIXES = (".webm", ".mp4")
RUN_FILES = ("report.json", "report.md", "transcript.jsonl", "usage.json")


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Which reservation an attempt had, and the control directory it lies in."""

    reservation_id: str
    control_directory: Path
    phase: str


def read_campaign(control_directory: Path, manifest_path: Path) -> Campaign:
    """Everything a report needs. The denominator is the manifest: each of its playthroughs is one run, played or not.

    A scenario's run is its last attempt with a readable report, else its last attempt; attempts of earlier batches are
    found through the claims beside the manifest. Raises `CoordinatorError` when the manifest cannot be read; a damaged
    run is a run that says so.
    """
    try:
        document, _ = read_document(os.path.realpath(manifest_path))
    except FileNotFoundError as error:
        raise InvalidInputError(f"{manifest_path}: there is no manifest; plan the campaign first") from error
    ledger = Ledger.read(document)
    state = _read_state(control_directory)
    places = _places(control_directory, manifest_path, state)
    runs: list[PlannedRun] = []
    others: list[OtherScenario] = []
    for scenario in ledger.scenarios:
        playtest = scenario.get("playtest")
        kind = playtest.get("kind", "play") if isinstance(playtest, dict) else "other"
        if isinstance(playtest, dict) and kind == "play":
            runs.append(_planned_run(scenario, playtest, places))
            continue
        rows = scenario["attempts"]
        outcome = _text(rows[-1].get("outcome")) if rows else "not attempted"
        others.append(OtherScenario(scenario_id=scenario["id"], kind=_text(kind), outcome=outcome, attempts=len(rows)))
    stop = state.get("stop")
    failures = state.get("failures")
    return Campaign(
        campaign_id=_text(document.get("campaignId")),
        batch_id=_text(state.get("batchId")),
        build=_text(document.get("baselineRevision")),
        runs=runs,
        others=others,
        stop=f"{_text(stop.get('reason'))}: {_text(stop.get('detail'))}" if isinstance(stop, dict) else "",
        failures=[
            f"{_text(row.get('scenarioId')) or 'batch'} ({_text(row.get('phase'))}): {_text(row.get('summary'))}"
            for row in (failures if isinstance(failures, list) else ())
            if isinstance(row, dict)
        ],
    )


def read_run_record(path: Path) -> RunRecord:
    """A run's report, tolerantly: unknown keys are passed over, a finding that does not decode is kept as dropped.

    Raises `FileNotFoundError`, and `DamagedError` saying why it cannot be read.
    """
    data = read_bounded(str(path), MAX_REPORT_BYTES)
    try:
        document = decode(data, limit_bytes=MAX_REPORT_BYTES)
        findings = document.get("findings")
        if isinstance(findings, list):
            document["findings"] = [_tolerant_finding(item, at) for at, item in enumerate(findings, start=1)]
        return msgspec.convert(document, RunRecord)
    except (DocumentError, msgspec.ValidationError) as error:
        raise DamagedError(f"{path.name} cannot be read: {error}") from error


def list_run_files(directory: Path) -> Iterator[str]:
    """Evidence in a run's folder, relative, sorted: its reports, pictures and videos.

    Regular files only, never through a symbolic link, and nothing else: the game's private home lies there too.
    """
    left = MAX_FILES_LISTED
    for root, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            relative = path.relative_to(directory)
            top = len(relative.parts) == 1 and name in RUN_FILES
            if (top or name.lower().endswith(PICTURE_SUFFIXES + VIDEO_SUFFIXES)) and stat.S_ISREG(path.lstat().st_mode):
                if left == 0:
                    return
                left -= 1
                yield relative.as_posix()


class _Line(msgspec.Struct):
    """The one field of a transcript's line that is looked for here."""

    step: int | None = None


def find_transcript_lines(path: Path, steps: Collection[int]) -> dict[int, int]:
    """Step -> line, from 1, for the steps asked for. Lines that do not decode are counted and passed over."""
    found: dict[int, int] = {}
    if not steps:
        return found
    try:
        data = read_bounded(str(path), MAX_REPORT_BYTES)
    except (FileNotFoundError, CoordinatorError):
        return found
    decoder = msgspec.json.Decoder(_Line)
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            step = decoder.decode(line).step
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if step is not None and step in steps:
            found.setdefault(step, number)
    return found


def _tolerant_finding(item: Any, at: int) -> Any:
    try:
        return msgspec.convert(item, Finding)
    except msgspec.ValidationError as error:
        told = item if isinstance(item, dict) else {}
        return Finding(
            id=_text(told.get("id")) or f"unreadable-{at}",
            title=_text(told.get("title")) or "a finding that cannot be read",
            category=_text(told.get("category")) or "unknown",
            severity="note",
            description="",
            repro_steps=[],
            evidence=[],
            origin="oracle",
            signature=_text(told.get("signature")),
            dropped=f"it cannot be read: {error}",
        )


def _read_state(control_directory: Path) -> dict[str, Any]:
    """The batch's state, or nothing: a report of a damaged batch still tells what its manifest and claims tell."""
    try:
        state, _ = read_document(str(control_directory / "state.json"))
    except (FileNotFoundError, CoordinatorError):
        return {}
    return state


def _places(control_directory: Path, manifest_path: Path, state: dict[str, Any]) -> dict[tuple[str, int], _Place]:
    """Scenario and ordinal -> where that attempt's run lies. This batch's state outranks the claims."""
    found: dict[tuple[str, int], _Place] = {}
    claims = Path(os.path.realpath(manifest_path) + ".coordinator-claims")
    for path in sorted(claims.iterdir()) if claims.is_dir() else ():
        try:
            claim, _ = read_document(str(path))
        except (FileNotFoundError, CoordinatorError):
            continue
        _add_place(found, claim.get("reservationId"), claim, Path(_text(claim.get("controlDirectory"))), "launched")
    entries = state.get("entries")
    for reservation_id, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("permit"), dict):
            _add_place(found, reservation_id, entry["permit"], control_directory, _text(entry.get("phase")))
    return found


def _add_place(
    found: dict[tuple[str, int], _Place], reservation_id: Any, permit: dict[str, Any], control: Path, phase: str
) -> None:
    scenario, ordinal = permit.get("scenarioId"), permit.get("ordinal")
    # The id becomes a folder's name: anything but an id of ours could lead out of the control directory.
    if isinstance(reservation_id, str) and RESERVATION_ID.fullmatch(reservation_id) and isinstance(ordinal, int):
        found[_text(scenario), ordinal] = _Place(reservation_id=reservation_id, control_directory=control, phase=phase)


def _planned_run(
    scenario: dict[str, Any], playtest: dict[str, Any], places: dict[tuple[str, int], _Place]
) -> PlannedRun:
    rows: list[dict[str, Any]] = scenario["attempts"]
    chosen, record, fault, unreadable = len(rows), None, "", False
    for ordinal in range(len(rows), 0, -1):
        place = places.get((scenario["id"], ordinal))
        read, why, damaged = _read_attempt(rows[ordinal - 1], place)
        if ordinal == len(rows):
            record, fault, unreadable = read, why, damaged
        if read is not None and (read.steps or ordinal == len(rows)):
            chosen, record, fault, unreadable = ordinal, read, why, damaged
            if read.steps:
                break
    row = rows[chosen - 1] if chosen else {}
    place = places.get((scenario["id"], chosen))
    directory = place.control_directory / "runs" / place.reservation_id if place is not None else None
    digests = (scenario.get("qualifyingDefinitionDigest"), scenario.get("qualifyingGraderDigest"))
    return PlannedRun(
        run_id=place.reservation_id if place is not None else scenario["id"],
        scenario_id=scenario["id"],
        persona=_name(playtest.get("persona")),
        controller=_name(playtest.get("controller")),
        repetition=_integer(playtest.get("repetition")) or 1,
        target=_name(playtest.get("target")),
        brain=_name(playtest.get("brain")),
        driver=_name(playtest.get("driver")),
        seed=record.seed if record is not None else _integer(playtest.get("seed")),
        limits=playtest["limits"] if isinstance(playtest.get("limits"), dict) else {},
        ordinal=chosen,
        attempts=len(rows),
        outcome=_text(row.get("outcome")),
        observed_failure=_text(row.get("observedFailure")),
        ledger_state=_ledger_state(row, place),
        report=record,
        report_fault=fault or ("" if record is not None else _never(scenario)),
        unreadable=unreadable,
        directory=str(directory) if directory is not None else "",
        files=list(list_run_files(directory)) if directory is not None and directory.is_dir() else [],
        transcript_lines=find_transcript_lines(directory / "transcript.jsonl", _steps_of_findings(record))
        if directory is not None
        else {},
        usage=[used for used in (attempt.get("usage") for attempt in rows) if isinstance(used, dict)],
        grader_digest=_text(row.get("graderDigest") or scenario.get("qualifyingGraderDigest")),
        definition_digest=_text(row.get("definitionDigest") or scenario.get("qualifyingDefinitionDigest")),
        qualifying=not row or digests == (row.get("definitionDigest"), row.get("graderDigest")),
    )


def _steps_of_findings(record: RunRecord | None) -> set[int]:
    findings = record.findings if record is not None else []
    named = {finding.step for finding in findings} | {item.step for finding in findings for item in finding.evidence}
    return {step for step in named if step is not None}


def _read_attempt(row: dict[str, Any], place: _Place | None) -> tuple[RunRecord | None, str, bool]:
    """The attempt's report, or why there is none, and whether one is there that cannot be read."""
    ended = _text(row.get("observedFailure")) or f"the attempt is {_text(row.get('outcome')) or 'unknown'}"
    if place is None:
        return None, f"its folder is not known here; {ended}", False
    path = place.control_directory / "runs" / place.reservation_id / "report.json"
    try:
        return read_run_record(path), "", False
    except FileNotFoundError:
        return None, f"no report was written; {ended}", False
    except CoordinatorError as error:
        return None, str(error), True


def _ledger_state(row: dict[str, Any], place: _Place | None) -> str | None:
    outcome = row.get("outcome")
    if not row:
        return "skipped"
    if outcome == "running":
        return "queued" if place is None or place.phase == "reserved" else "playing"
    # "passed" and "failed" are judgements on the game as much as on the run: the report's end reason decides there.
    return STATE_OF_END.get(
        {"interrupted": "interrupted", "canceled": "canceled", "budget_exceeded": "budget"}.get(_text(outcome), "")
    )


def _never(scenario: dict[str, Any]) -> str:
    blocker = scenario.get("blocker")
    return f"blocked: {_text(blocker)}" if blocker is not None else "it was not attempted"


def _name(value: Any) -> str:
    if isinstance(value, dict):
        return _text(value.get("name") or value.get("id") or value.get("path") or value.get("kind"))
    return _text(value)


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
