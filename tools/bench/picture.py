"""The picture of `bench search`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from counterveil_lab.figures import (
    FADED,
    INK,
    OURS,
    SOFT,
    THEIRS,
    TITLES,
    WARM,
    Style,
    grid,
    legend,
    save,
)
from counterveil_lab.results import Row

COLOURS = {
    "counterveil": OURS,
    "counterveil-unpolished": FADED,
    "algorithm-2": WARM,
}
MILLISECONDS = "milliseconds a query"


def draw_search(rows: Sequence[Row], folder: Path) -> None:
    """The figure of `bench search`, where it measured other methods too."""
    table = pd.DataFrame(rows)
    mine = table[table.part == "peers"].dropna(axis=1, how="all")
    if len(mine):
        save(_peers(mine), folder / "bench-search-peers")


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    return grid(count, count, height=height - 0.5, share=True, size=9)


def _name(axes: Axes, title: str, x: str, y: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold", pad=10)
    axes.set_xlabel(x, fontsize=9.5, color=INK)
    axes.set_ylabel(y, fontsize=9.5, color=INK)


def _log(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _bars(axes: Axes, names: Sequence[Any], values: Any, colours: Any, words: list[str]) -> None:
    """Horizontal bars with words at their ends."""
    axes.barh(names, values, color=colours, height=0.55 if len(names) > 6 else 0.5)
    style: Style = {"textcoords": "offset points", "va": "center", "fontsize": 8.5, "color": INK}
    for place, (value, text) in enumerate(zip(values, words, strict=True)):
        axes.annotate(text, (0.0 if pd.isna(value) else value, place), (4, 0), **style)
    axes.grid(False, axis="y")


def _label(row: pd.Series[Any]) -> str:
    words = TITLES.get(row.method, row.method)
    if row.get("guidance") == "surrogate":
        words += ", surrogate"
    return words if pd.isna(row.epsilon) else f"{words}, ε {row.epsilon:g}"


def _peers(rows: pd.DataFrame) -> Figure:
    rows = rows[rows.seed == 0]
    rows = rows.assign(label=rows.apply(_label, axis=1), colour=_colours(rows))
    best = rows[rows.batch == rows.batch.max()].sort_values("seconds_per_query", ascending=False)
    order = list(best.label)
    figure, (times, nearness) = _panels(2, 5.4)
    marks = {rows.batch.max(): ("o", 42), 10: ("s", 26), 1: ("D", 26)}
    for batch, (mark, area) in marks.items():
        here = rows[rows.batch == batch]
        places = [order.index(label) for label in here.label]
        alpha = 1.0 if batch == rows.batch.max() else 0.55
        style: Style = {"marker": mark, "s": area, "linewidths": 0, "alpha": alpha}
        times.scatter(1000 * here.seconds_per_query, places, c=list(here.colour), **style)
    words = [
        "none found" if pd.isna(distance) else f"{distance:.2f}   flips {ratio:.3f}"
        for distance, ratio in zip(best.distance, best.flip_ratio, strict=True)
    ]
    _bars(nearness, range(len(order)), best.distance, list(best.colour), words)
    nearness.set_xlim(0, 1.75 * best.distance.max())
    times.set_yticks(range(len(order)), order)
    _log(times, "x")
    _name(times, "Time of an answer (Adult, one core)", MILLISECONDS)
    _name(nearness, "Distance of the answers found", "L2 in the encoding")
    keys = [
        Line2D([], [], color=SOFT, linestyle="", marker=mark, markersize=area**0.5)
        for mark, area in marks.values()
    ]
    asked = [f"{batch:,.0f} queries at once" if batch > 1 else "a single query" for batch in marks]
    legend(figure, keys, asked)
    return figure


def _colours(rows: pd.DataFrame) -> list[str]:
    return [COLOURS.get(method, THEIRS) for method in rows.method]
