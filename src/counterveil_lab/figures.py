"""Figures of stored results, as SVG: the house style, and the search benchmark.

Needs matplotlib; import this where it is drawn. Nothing here touches pyplot: no window, no backend,
no figure that stays open.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from counterveil_lab.results import Row

INK, SOFT, LINES = "#1c2330", "#5b6577", "#e3e8ef"
OURS, FADED, THEIRS, WARM = "#1f5f8b", "#7fa8c4", "#9aa3b0", "#c2672a"
WIDTH, DPI = 8.54, 150  # inches and dots an inch: 1280 pixels
TITLES = {
    "counterveil": "counterveil",
    "counterveil-unpolished": "counterveil, not polished",
    "algorithm-2": "Algorithm 2, 300 iterations",
    "cadex-0": "CADEX, threshold 0",
    "cadex-0.5": "CADEX, threshold .5",
    "cchvae": "C-CHVAE",
    "revise": "REVISE",
    "dice-random": "dice-ml, random",
    "dice-gradient": "dice-ml, gradient",
}
COLOURS = {
    "counterveil": OURS,
    "counterveil-unpolished": FADED,
    "algorithm-2": WARM,
}
MILLISECONDS = "milliseconds a query"
DIGITS = re.compile(r"(\d\.\d\d)\d+")  # more than are needed
Style = dict[str, Any]


def save(figure: Figure, stem: Path) -> Path:
    """Write `figure` as SVG; the same rows give the same file."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.parent / f"{stem.name}.svg"
    drawn = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "counterveil", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    bare = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", drawn.getvalue(), flags=re.DOTALL)
    # Hundredths of a point are enough for whatever is drawn; words stay as they are.
    short = re.sub(r"<[^>]*>", lambda tag: DIGITS.sub(r"\1", tag[0]), bare)
    path.write_text(short, "utf-8")
    return path


def grid(
    panels: int,
    columns: int,
    height: float,
    width: float = WIDTH,
    share: bool = False,
    size: int = 7,
) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels in rows of `columns`, each row `height` inches high.

    Panels left over are hidden; `size` is that of the numbers at the axes, in points.
    """
    lines = ceil(panels / columns)
    figure = Figure((width, height * lines + 0.5), DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    every = list(figure.subplots(lines, columns, squeeze=False, sharey=share).flat)
    for number, axes in enumerate(every):
        axes.set_visible(number < panels)
        axes.grid(True, which="major", color=LINES, linewidth=0.7 if size < 9 else 0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=SOFT, labelsize=size, length=0, which="both")
        for side in axes.spines.values():
            side.set_visible(False)
    return figure, every


def legend(
    figure: Figure, keys: Iterable[Any], words: Iterable[str], size: float = 9, **more: Any
) -> None:
    """One legend for all panels, below them unless `loc` says otherwise."""
    keys = list(keys)
    style: Style = {"fontsize": size, "labelcolor": INK, "frameon": False, "ncols": len(keys)}
    figure.legend(keys, list(words), **{"loc": "outside lower center", **style, **more})


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
