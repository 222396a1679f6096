"""The report's plots, drawn by matplotlib into SVG that stands inside the page. Matplotlib is imported on use."""

from __future__ import annotations

import functools
import importlib
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from workers.simulation.fold import BatchFold, CellFold, ValueFold
from workers.simulation.statistics import edge_of
from workers.simulation.summary import ALPHA, QUANTILES

MAX_ROWS = 32
MAX_PAIRS = 20
MAX_PANELS = 4
MAX_METRICS = 6
MAX_HISTOGRAMS = 8
HISTOGRAM_BARS = 40
LABEL_CHARACTERS = 34
_INK, _BLUE, _ORANGE, _GREY, _LIGHT = "#1f2933", "#1f6fb2", "#c2571a", "#8a94a0", "#d9e2ec"


class NoPlotsError(Exception):
    """Matplotlib is not installed; the report says so and has its tables."""


class Plot:
    """One picture: what it is called, one sentence on how to read it, and its SVG."""

    def __init__(self, title: str, reading: str, svg: str) -> None:
        self.title, self.reading, self.svg = title, reading, svg


def draw_plots(fold: BatchFold, summary: dict[str, Any]) -> list[Plot]:
    """All plots that this batch has something to show for. Raises `NoPlotsError` without matplotlib."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError as error:
        raise NoPlotsError from error
    style: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "playlane",
        "font.family": ["sans-serif"],
        "font.size": 10.5,
        "text.color": _INK,
        "text.parse_math": False,  # a strategy may be called $x$
        "axes.edgecolor": _GREY,
        "axes.labelcolor": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    plots = []
    with matplotlib.rc_context(style):
        for draw in (_draw_shares, _draw_pairs, _draw_metrics, _draw_lengths):
            plot = draw(fold, summary)
            if plot is not None:
                plots.append(plot)
    return plots


def _figure(width: float, height: float, **options: Any) -> tuple[Any, Any]:
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(squeeze=False, **options)


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _label(names: Sequence[str]) -> str:
    text = " / ".join(name for name in names if name)
    return text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"


def _draw_shares(fold: BatchFold, summary: dict[str, Any]) -> Plot | None:
    """A panel an outcome, a row a strategy: the share of its games, with its interval."""
    cells = [cell for cell in summary["strategies"] if cell["completed"] + cell["truncated"]["count"]][:MAX_ROWS]
    if not cells:
        return None
    panels: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any] | None]]] = []
    if "win" in cells[0]:
        panels.append(("games won (the objective)", lambda cell: cell["win"]))
    totals: dict[str, int] = {}
    for cell in cells:
        for row in cell["outcomes"]:
            totals[row["outcome"]] = totals.get(row["outcome"], 0) + row["count"]
    objective = fold.configuration.objective
    if objective is not None and len(objective.win) == 1:
        totals.pop(objective.win[0], None)  # the panel of the objective is the same
    common = sorted(totals, key=lambda outcome: (-totals[outcome], outcome))[: MAX_PANELS - len(panels)]
    panels += [(f'outcome "{_label([name])}"', functools.partial(_outcome, name)) for name in common]
    if any(cell["truncated"]["count"] for cell in cells):
        panels.append(("stopped by us (truncated)", lambda cell: cell["truncated"]))
    if not panels:
        return None
    rows = range(len(cells))
    figure, axes = _figure(
        2.4 + 2.5 * len(panels), 1.1 + 0.36 * max(2, len(cells)), ncols=len(panels), sharey=True, sharex=True
    )
    for axis, (title, pick) in zip(axes[0], panels, strict=True):
        axis.set_title(title, fontsize=10.5, loc="left")
        axis.axvline(0.5, color=_LIGHT, linewidth=1, zorder=0)
        for row, cell in zip(rows, cells, strict=True):
            share = pick(cell)
            if share is None or share["share"] is None:
                continue
            axis.plot([share["low"], share["high"]], [row, row], color=_BLUE, linewidth=2.4, solid_capstyle="butt")
            axis.plot(share["share"], row, "o", color=_BLUE, markersize=5.5)
            right = share["high"] < 0.72
            place = share["high"] + 0.03 if right else share["low"] - 0.03
            axis.text(
                place, row, f"{share['share'] * 100:.1f} %", va="center", ha="left" if right else "right", fontsize=9.5
            )
        axis.set_xlim(-0.02, 1.02)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
    axes[0][0].set_yticks(list(rows), [_label([cell["strategy"], cell["variant"]]) for cell in cells])
    axes[0][0].set_ylim(len(cells) - 0.4, -0.6)
    return Plot(
        "How games end",
        "Each dot is a strategy's share of games with this outcome; the bar is its 95 % interval: "
        "the true share lies in it for 95 of 100 such bars.",
        _svg(figure),
    )


def _outcome(name: str, cell: dict[str, Any]) -> dict[str, Any] | None:
    return next((row for row in cell["outcomes"] if row["outcome"] == name), None)


def _draw_pairs(fold: BatchFold, summary: dict[str, Any]) -> Plot | None:
    """A row a pair: the difference on equal seeds, with its interval; dark where it is clear after adjustment."""
    measures = [row["measure"] for row in summary["pairs"]]
    if not measures:
        return None
    measure = measures[0]
    rows = [row for row in summary["pairs"] if row["measure"] == measure]
    rows.sort(key=lambda row: -abs(row["difference"]))
    shown = rows[:MAX_PAIRS]
    is_share = measure in fold.measures
    factor = 100 if is_share else 1
    figure, axes = _figure(8.6, 1.2 + 0.36 * max(2, len(shown)))
    axis = axes[0][0]
    axis.axvline(0, color=_INK, linewidth=1)
    for place, row in enumerate(shown):
        clear = row["p_adjusted"] < ALPHA
        colour = _ORANGE if clear else _GREY
        axis.plot([row["low"] * factor, row["high"] * factor], [place, place], color=colour, linewidth=2.4)
        axis.plot(row["difference"] * factor, place, "o", color=colour, markersize=5.5)
        axis.annotate(
            f"{row['difference'] * factor:+.3g}" + ("" if clear else "  (not clear)"),
            (row["high"] * factor, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
        )
    axis.set_yticks(range(len(shown)), [f"'{_label(row['a'])}' minus '{_label(row['b'])}'" for row in shown])
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.margins(x=0.18)
    what = f'share of "{measure}", in points' if is_share else f"mean of {measure}"
    axis.set_xlabel(f"difference in {what}   (right of 0: the first is higher)")
    more = "" if len(rows) == len(shown) else f" The {len(shown)} largest of {len(rows)} pairs."
    return Plot(
        "Which strategy does better on the same seeds",
        "Each row compares two strategies game by game on equal seeds. Orange: the difference is clear even though "
        "many pairs were looked at (Holm-adjusted p below 0.05). Grey bars may well be no difference." + more,
        _svg(figure),
    )


def _draw_metrics(fold: BatchFold, summary: dict[str, Any]) -> Plot | None:
    """A panel a metric, a box a strategy."""
    names = sorted({name for cell in fold.cells for name in cell.metrics})[:MAX_METRICS]
    cells = [cell for cell in fold.cells if cell.metrics][:MAX_ROWS]
    if not names or not cells:
        return None
    columns = min(2, len(names))
    lines = math.ceil(len(names) / columns)
    figure, axes = _figure(
        4.6 * columns + 1.2, lines * (1.0 + 0.36 * max(2, len(cells))), nrows=lines, ncols=columns, sharey=True
    )
    for place, axis in enumerate(axes.flat):
        if place >= len(names):
            axis.set_visible(False)
            continue
        axis.set_title(names[place], fontsize=10.5, loc="left")
        boxes = [(row, cell.metrics[names[place]]) for row, cell in enumerate(cells) if names[place] in cell.metrics]
        _draw_boxes(axis, boxes)
        axis.set_yticks(range(len(cells)), [_label([cell.strategy, cell.variant]) for cell in cells])
        axis.set_ylim(len(cells) - 0.4, -0.6)
    return Plot(
        "What the games' metrics look like",
        "Half of all games lie in the box, the line in it is the median, nine games of ten lie between the whiskers; "
        "the diamond is the mean.",
        _svg(figure),
    )


def _draw_boxes(axis: Any, boxes: list[tuple[int, ValueFold]]) -> None:
    described = []
    for _, values in boxes:
        quantiles = values.bins.quantiles(QUANTILES, values.low, values.high)
        names = ("whislo", "q1", "med", "q3", "whishi")
        described.append({**dict(zip(names, quantiles, strict=True)), "mean": values.mean, "fliers": []})
    axis.bxp(
        described,
        positions=[row for row, _ in boxes],
        orientation="horizontal",
        widths=0.5,
        showmeans=True,
        patch_artist=True,
        boxprops={"facecolor": "#cfe3f5", "edgecolor": _BLUE},
        medianprops={"color": _BLUE, "linewidth": 2},
        whiskerprops={"color": _BLUE},
        capprops={"color": _BLUE},
        meanprops={"marker": "D", "markerfacecolor": _ORANGE, "markeredgecolor": _ORANGE, "markersize": 4.5},
    )


def _draw_lengths(fold: BatchFold, summary: dict[str, Any]) -> Plot | None:
    """A histogram a strategy on one scale."""
    cells = [cell for cell in fold.cells if cell.steps.n][:MAX_HISTOGRAMS]
    if not cells:
        return None
    low, high = min(cell.steps.low for cell in cells), max(cell.steps.high for cell in cells)
    width = max(1, math.ceil((high - low + 1) / HISTOGRAM_BARS))
    figure, axes = _figure(8.6, 0.9 + 0.95 * len(cells), nrows=len(cells), sharex=True)
    for axis, cell in zip(axes[:, 0], cells, strict=True):
        _draw_histogram(axis, cell, low, width)
    axes[-1][0].set_xlabel("steps in a game" + (f" (each bar: {width} lengths)" if width > 1 else ""))
    axes[0][0].set_xlim(low - 0.5 - width * 0.5, high + width * 1.5)
    left_out = sum(1 for cell in fold.cells if cell.steps.n) - len(cells)
    more = f" {left_out} more are in the table." if left_out else ""
    return Plot(
        "How long games take",
        "The height of a bar is the share of a strategy's games of that length; the dashed line is the median." + more,
        _svg(figure),
    )


def _draw_histogram(axis: Any, cell: CellFold, low: float, width: int) -> None:
    heights: dict[int, float] = {}
    for place, count in cell.steps.bins.counts.items():
        bar = int((edge_of(place) - low) // width)
        heights[bar] = heights.get(bar, 0.0) + count / cell.steps.n
    left = [low + bar * width - 0.5 for bar in heights]
    axis.bar(left, list(heights.values()), width=width * 0.92, align="edge", color=_BLUE)
    median = cell.steps.bins.quantiles((0.5,), cell.steps.low, cell.steps.high)[0]
    axis.axvline(median, color=_ORANGE, linestyle="--", linewidth=1.4)
    axis.set_title(f"{_label([cell.strategy, cell.variant])}: median {median:g} steps", fontsize=10, loc="left")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    axis.locator_params(axis="y", nbins=2)
