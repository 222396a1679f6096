"""What people see while a batch plays and when it ended; `run` and `demo` share it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator.campaign import BatchOrder, CampaignEnd, conclude, play_batch
from coordinator.cli.console import Console, plain, shown
from coordinator.outcome import CANCELED
from coordinator.project import Campaign
from coordinator.records import Entry, State
from coordinator.reports.records import RunRow
from coordinator.status import read_progress

BAR_CELLS = 24
_SEVERITY_STYLE = {"critical": "bad", "major": "bad", "minor": "uneasy", "note": "dim"}


def play_and_show(console: Console, campaign: Campaign, order: BatchOrder) -> tuple[int, dict[str, Any]]:
    """Play a batch, show it, build the reports; return exit code and the document of `run --json`."""
    scenarios = {scenario["id"]: scenario for scenario in campaign.read_manifest()["scenarios"]}
    view = View(console, scenarios, order.control_directory)
    state = asyncio.run(play_batch(order, view.watch))
    view.finish(state)
    end = conclude(order, state)
    show_end(console, end, ["nothing was charged"])
    if end.exit_code == CANCELED:
        console.say(f"to go on with what was not played: {retry_line(campaign)}")
    return end.exit_code, describe_end(campaign, order, end)


class View:
    """Two lanes, live on a terminal; a line at each start and end elsewhere."""

    def __init__(self, console: Console, scenarios: dict[str, dict[str, Any]], control: Path) -> None:
        self._console, self._scenarios, self._control = console, scenarios, control
        self._phases: dict[str, str] = {}
        self._stop: str | None = None

    def watch(self, state: State) -> None:
        for run_id, entry in state.entries.items():
            before = self._phases.get(run_id)
            if entry.phase == before:
                continue
            self._phases[run_id] = entry.phase
            if entry.phase == "completed":
                self._console.say(self._ended(run_id, entry))
            elif entry.phase == "launched" and not self._console.is_live:
                self._console.say(f"  playing  {self._name(entry)}")
        if state.stop is not None and self._stop is None:
            self._stop = state.stop.reason
            self._console.say(self._console.uneasy(f"  stopping: {plain(state.stop.detail)}; runs finish their turn"))
        if self._console.is_live:
            self._console.live(self._lanes(state))

    def finish(self, state: State) -> None:
        self.watch(state)
        self._console.clear_live()

    def _lanes(self, state: State) -> list[str]:
        playing = [(run, entry) for run, entry in state.entries.items() if entry.phase in ("launching", "launched")]
        done = sum(entry.phase == "completed" for entry in state.entries.values())
        lines = [self._lane(run, entry) for run, entry in playing]
        lines.append(self._console.dim(f"  {done} of {len(self._scenarios)} done"))
        return lines

    def _lane(self, run_id: str, entry: Entry) -> str:
        progress = read_progress(str(self._control), run_id)
        if progress is None:
            return f"  {'':{BAR_CELLS}}  {self._name(entry)}  starting"
        share = min(1.0, progress.actions_taken / progress.of) if progress.of else 0.0
        full = round(share * BAR_CELLS)
        bar = self._console.good("━" * full) + self._console.dim("─" * (BAR_CELLS - full))
        found = f"  {progress.findings} found" if progress.findings else ""
        word = "reporting" if progress.state == "reporting" else f"{progress.actions_taken} of {progress.of}"
        return f"  {bar}  {self._name(entry)}  {word}{found}"

    def _ended(self, run_id: str, entry: Entry) -> str:
        completion = entry.receipt.completion
        outcome = completion.get("outcome", "") if isinstance(completion, dict) else ""
        mark = {"passed": self._console.good("done    ")}.get(outcome, self._console.uneasy(f"{outcome:<8}"))
        progress = read_progress(str(self._control), run_id)
        told = f"  {progress.actions_taken} actions" if progress is not None else ""
        if progress is not None and progress.findings:
            told += f", {progress.findings} finding{'s' * (progress.findings != 1)}"
        return f"  {mark} {self._name(entry)}{self._console.dim(told)}"

    def _name(self, entry: Entry) -> str:
        playtest = self._scenarios[entry.permit.scenario_id]["playtest"]
        repeated = f" #{playtest['repetition']}" if playtest["repetition"] > 1 else ""
        return plain(f"{playtest['persona']} / {playtest['controller']}{repeated}")


def show_end(console: Console, end: CampaignEnd, money: Sequence[str]) -> None:
    """What was found and what it cost; `money` are the lines on that."""
    aggregate = end.aggregate
    console.say(f"\n{console.bold(plain(aggregate.verdict.headline))}")
    console.say(console.dim(f"  {aggregate.verdict.detail}"))
    for finding in aggregate.findings[:12]:
        style = getattr(console, _SEVERITY_STYLE.get(finding.severity, "dim"))
        stamp = console.dim(f"  replayed {finding.replay}") if finding.replay else ""
        console.say(f"  {style(f'{finding.severity:<8}')}  {plain(finding.title)}{stamp}")
    if len(aggregate.findings) > 12:
        console.say(console.dim(f"  and {len(aggregate.findings) - 12} more in the report"))
    for row in aggregate.runs:
        if not row.played:
            console.say(f"  {console.uneasy('not played')}  {plain(row.scenario_id)}: {plain(row.why_not_played)}")
    for failure in end.state.failures:
        kept = f" ({failure.evidence_path})" if failure.evidence_path else ""
        console.say(f"  {console.bad('failure')}  {plain(failure.summary)}{kept}")
    for warning in end.warnings:
        console.say(f"  {console.uneasy('note')}  {plain(warning)}")
    console.say()
    for line in money:
        console.say(line)
    for reason in end.reasons:
        console.say(f"exit {reason.exit_code}: {plain(reason.what)}")
    console.say(f"\nreport  {console.bold(shown(end.reports.html))}")


def retry_line(campaign: Campaign) -> str:
    """The command that writes the next attempts for review."""
    named = "" if campaign.manifest_path.name == "manifest.json" else f" --manifest {shown(campaign.manifest_path)}"
    return f"coordinate retry{named}"


def describe_end(campaign: Campaign, order: BatchOrder, end: CampaignEnd) -> dict[str, Any]:
    """The document of `run --json`; paths are absolute, an empty string where a file is missing."""
    stop = end.state.stop
    return {
        "campaign": str(campaign.folder),
        "batch": order.batch_id,
        "control": str(order.control_directory),
        "job_id": None,
        "replayed": False,
        "job_url": None,
        "report": str(end.reports.html),
        "aggregate": str(end.reports.aggregate_json),
        "runs": [_describe_run(row, end.reports.html.parent) for row in end.aggregate.runs],
        "stop": msgspec.to_builtins(stop) if stop is not None else None,
        "warnings": end.warnings,
        "reasons": [msgspec.to_builtins(reason) for reason in end.reasons],
        "exit_code": end.exit_code,
    }


def _describe_run(row: RunRow, report_directory: Path) -> dict[str, Any]:
    def absolute(path: str) -> str:
        return os.path.normpath(report_directory / path) if path else ""

    # The report links the run's report.md; its report.json and transcript.jsonl lie beside it.
    written = absolute(row.report_path)
    return {
        "scenario": row.scenario_id,
        "run_id": row.run_id,
        "persona": row.persona,
        "controller": row.controller,
        "repetition": row.repetition,
        "state": row.state,
        "outcome": row.outcome,
        "end_reason": row.end_reason,
        "actions_taken": row.actions_taken,
        "findings": len(row.findings),
        "report": os.path.join(os.path.dirname(written), "report.json") if row.report_available and written else "",
        "video": absolute(row.video_path),
    }


def show_plan(console: Console, runs: Sequence[dict[str, Any]], lanes: int, price: str = "free") -> None:
    """What will be played and what it costs, before it is."""
    personas = list(dict.fromkeys(run["playtest"]["persona"] for run in runs))
    controllers = list(dict.fromkeys(run["playtest"]["controller"] for run in runs))
    targets = list(dict.fromkeys(run["playtest"]["target"] for run in runs))
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    console.say(f"{console.bold(plain(', '.join(targets)))}  {count}, {lanes} at a time, {price}")
    console.say(console.dim(f"  {', '.join(personas)} x {', '.join(controllers)}"))
    if len(controllers) > 1:
        console.say(
            console.dim(
                "  each controller plays a session of its own; progress and chance on the game's side may differ, so a"
                " comparison is evidence, not proof of equal starts"
            )
        )
