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

COLOURS = {"counterveil": OURS, "counterveil-unpolished": FADED, "algorithm-2": WARM}


def draw_search(rows: Sequence[Row], folder: Path) -> None:
    """The figure of `bench search`, where it measured other methods too."""
    table = pd.DataFrame(rows)
    mine = table[table.part == "peers"].dropna(axis=1, how="all")
    if len(mine):
        save(_peers(mine), folder / "bench-search-peers")


def _name(axes: Axes, title: str, x: str, y: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold", pad=10)
    axes.set_xlabel(x, fontsize=9.5, color=INK)
    axes.set_ylabel(y, fontsize=9.5, color=INK)


def _label(row: pd.Series[Any]) -> str:
    words = TITLES.get(row.method, row.method)
    if row.get("guidance") == "surrogate":
        words += ", surrogate"
    return words if pd.isna(row.epsilon) else f"{words}, ε {row.epsilon:g}"


def _peers(rows: pd.DataFrame) -> Figure:
    rows = rows[rows.seed == 0]
    rows = rows.assign(label=rows.apply(_label, axis=1))
    rows["colour"] = [COLOURS.get(method, THEIRS) for method in rows.method]
    best = rows[rows.batch == rows.batch.max()].sort_values("seconds_per_query", ascending=False)
    order = list(best.label)
    figure, (times, nearness) = grid(2, 2, height=4.9, share=True, size=9)
    marks = {rows.batch.max(): ("o", 42), 10: ("s", 26), 1: ("D", 26)}
    for batch, (mark, area) in marks.items():
        here = rows[rows.batch == batch]
        places = [order.index(label) for label in here.label]
        alpha = 1.0 if batch == rows.batch.max() else 0.55
        style: Style = {"marker": mark, "s": area, "linewidths": 0, "alpha": alpha}
        times.scatter(1000 * here.seconds_per_query, places, c=list(here.colour), **style)
    height = 0.55 if len(order) > 6 else 0.5
    nearness.barh(range(len(order)), best.distance, color=list(best.colour), height=height)
    style = {"textcoords": "offset points", "va": "center", "fontsize": 8.5, "color": INK}
    for place, (value, ratio) in enumerate(zip(best.distance, best.flip_ratio, strict=True)):
        words, end = "none found", 0.0
        if not pd.isna(value):
            words, end = f"{value:.2f}   flips {ratio:.3f}", value
        nearness.annotate(words, (end, place), (4, 0), **style)
    nearness.grid(False, axis="y")
    nearness.set_xlim(0, 1.75 * best.distance.max())
    times.set_yticks(range(len(order)), order)
    times.set_xscale("log")
    times.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    times.xaxis.set_minor_formatter(NullFormatter())
    _name(times, "Time of an answer (Adult, one core)", "milliseconds a query")
    _name(nearness, "Distance of the answers found", "L2 in the encoding")
    keys = [
        Line2D([], [], color=SOFT, linestyle="", marker=mark, markersize=area**0.5)
        for mark, area in marks.values()
    ]
    asked = [f"{batch:,.0f} queries at once" if batch > 1 else "a single query" for batch in marks]
    legend(figure, keys, asked)
    return figure
