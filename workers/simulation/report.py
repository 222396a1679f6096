"""The report of a batch: one HTML file that asks no network and no server for anything."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from workers.simulation.fold import BatchFold
from workers.simulation.plots import NoPlotsError, Plot, draw_plots
from workers.simulation.trace import write_private

MAX_TRACES_LISTED = 200


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that a reader needs first; `warn` where something is wrong or missing."""

    text: str
    warn: bool


def write_report(
    path: Path,
    fold: BatchFold,
    summary: dict[str, Any],
    timing: dict[str, Any],
    *,
    ended: str | None,
    error: str | None,
    traces: Sequence[Path],
    plots: bool = True,
) -> None:
    """Write `report.html`. Without matplotlib it has tables only, and says so."""
    drawn: list[Plot] = []
    missing = "matplotlib is not installed (pip install playlane[simulation])"
    if plots:
        with contextlib.suppress(NoPlotsError):
            drawn = draw_plots(fold, summary)
    else:
        missing = "they were not asked for"
    timing = {**timing, "no_plots_because": "" if drawn else missing}
    data = render(summary, timing, drawn, ended=ended, error=error, traces=[trace.name for trace in traces])
    write_private(path, data.encode())


def render(
    summary: dict[str, Any],
    timing: dict[str, Any],
    plots: Sequence[Plot],
    *,
    ended: str | None,
    error: str | None,
    traces: Sequence[str],
) -> str:
    """The page as text. Everything a game or a person wrote is escaped; the plots come from us."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"share": _share, "value": _value, "median": _median}
    distinct = str(summary["distinct_traces"])
    return environment.get_template("report.html").render(
        summary=summary,
        timing=timing,
        plots=plots,
        verdicts=judge(summary, ended=ended, error=error),
        traces=list(traces)[:MAX_TRACES_LISTED],
        distinct=distinct if summary["distinct_traces_exact"] else f"more than {distinct}",
        has_metrics=any(cell["metrics"] for cell in summary["strategies"]),
        has_reasons=any(cell["reasons"] for cell in summary["strategies"]),
    )


def judge(summary: dict[str, Any], *, ended: str | None, error: str | None) -> list[Verdict]:
    """The sentences that stand first, the gravest before the others."""
    verdicts: list[Verdict] = []
    flags = summary["flags"]

    def say(text: str, *, warn: bool) -> None:
        verdicts.append(Verdict(text=text, warn=warn))

    finished, requested = summary["finished_runs"], summary["requested_runs"]
    if finished < requested or ended is not None:
        why = {None: "", "fault": f" ({error})"}.get(ended, f" ({ended})")
        say(f"Ended early{why}: {finished} of {requested} games were finished.", warn=True)
    if summary["failed_runs"]:
        say(f"{summary['failed_runs']} of {finished} games failed; the reasons are listed below.", warn=True)
    stalemates = flags["stalemates"]
    if stalemates["no_legal_action"]:
        say(
            f"In {stalemates['no_legal_action']} games a player had no legal action and the game was not over.",
            warn=True,
        )
    if stalemates["step_limit"]:
        say(f"{stalemates['step_limit']} games had not ended at the step limit.", warn=True)
    if flags["seed_has_no_effect"]:
        say(_no_effect(summary), warn=True)
    if summary["seed_control"] == "not confirmed":
        say("The game does not say its seed back: seed not confirmed.", warn=True)
    for row in flags["dominant_strategies"]:
        where = f" in variant {row['variant']}" if row["variant"] else ""
        say(f"{row['strategy']!r} is dominant{where}: better than every other strategy, clearly.", warn=True)
    if summary["objective"] is not None and not flags["dominant_strategies"] and len(summary["strategies"]) > 1:
        say("No strategy is clearly better than all others.", warn=False)
    if flags["too_few_games"]:
        say(f"Too few games to tell a share within ten points: {', '.join(flags['too_few_games'])}.", warn=True)
    if not verdicts:
        say(f"All {finished} games were played to their end.", warn=False)
    return verdicts


def _no_effect(summary: dict[str, Any]) -> str:
    checked = summary["flags"]["seed_effect"]["checked"]
    games, distinct = summary["finished_runs"], summary["distinct_traces"]
    return (
        f"The seed has no effect: {checked} games played again with the same actions under another seed were the same "
        "to the last state (the game ignores its seed, or leaves nothing to chance). "
        f"{games} games, {distinct} distinct trace{'s' if distinct != 1 else ''}."
    )


def _share(row: dict[str, Any]) -> str:
    if row["share"] is None:
        return "-"
    return f"{row['share'] * 100:.2f} % ({row['low'] * 100:.2f} to {row['high'] * 100:.2f}; {row['count']})"


def _value(values: dict[str, Any], name: str) -> str:
    return f"{values[name]:.6g}" if name in values else "-"


def _median(values: dict[str, Any]) -> str:
    return f"{values['quantiles']['50']:.6g}" if "quantiles" in values else "-"
