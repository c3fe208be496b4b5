"""Figures of stored results, as SVG: the house style, and the search benchmark.

Needs matplotlib; import this where it is drawn. Nothing here touches pyplot: no window, no backend,
no figure that stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    "counterveil-nearest": "nearest",
    "counterveil-believable": "believable",
    "algorithm-2": "Algorithm 2, 300 iterations",
    "cadex-0": "CADEX, threshold 0",
    "cadex-0.5": "CADEX, threshold .5",
    "cchvae": "C-CHVAE",
    "revise": "REVISE",
    "dice-random": "dice-ml, random",
    "dice-gradient": "dice-ml, gradient",
    "tensors-unpolished": "tensors to tensors, not polished",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
COLOURS = {
    "counterveil": OURS,
    "counterveil-believable": OURS,
    "counterveil-unpolished": FADED,
    "counterveil-nearest": FADED,
    "algorithm-2": WARM,
}
MILLISECONDS = "milliseconds a query"
Style = dict[str, Any]


def save(figure: Figure, stem: Path) -> Path:
    """Write `figure` as SVG; the same rows give the same file."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.parent / f"{stem.name}.svg"
    with mpl.rc_context({"svg.hashsalt": "counterveil", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
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


def draw_search(rows: Sequence[Row], folder: Path) -> list[Path]:
    """A figure for every part of `bench search` that has rows; returns the files."""
    table = pd.DataFrame(rows)
    written = []
    for part, paint in PAINTERS.items():
        mine = table[table.part == part].dropna(axis=1, how="all")
        if len(mine):
            written += save(paint(mine, table), folder / f"bench-search-{part}")
    return written


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


def _peers(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
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


def _lines(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    for method, here in rows.sort_values(x, kind="stable").groupby("method", sort=False):
        style: Style = {"color": COLOURS.get(str(method), THEIRS), "marker": "o", "markersize": 5}
        label = TITLES.get(str(method), str(method))
        axes.plot(here[x], 1000 * here.seconds_per_query, linewidth=1.8, label=label, **style)
    _log(axes, "x")
    _log(axes, "y")
    axes.set_xticks(sorted(rows[x].unique()))


def _believable(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    batches = sorted(rows.batch.unique(), reverse=True)
    figure, panels = _panels(len(batches) + 1, 2.6)
    once = rows[rows.batch == batches[0]]
    shown = [(once.warm_up_seconds, "Warm-up", "seconds")]
    for batch in batches:
        title = f"{batch:,} queries at once" if batch > 1 else "A single query"
        shown.append((1000 * rows[rows.batch == batch].seconds_per_query, title, MILLISECONDS))
    for axes, (values, title, unit) in zip(panels, shown, strict=True):
        names = [TITLES[name] for name in once.method]
        _bars(axes, names, values, _colours(once), [f"{value:.3g}" for value in values])
        axes.set_xlim(0, 1.35 * values.max())
        _name(axes, title, unit)
    return figure


def _warm_up(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    figure, panels = _panels(rows.dataset.nunique(), 4.2)
    marks = {"milliseconds_of_500": "o", "milliseconds_of_50000": "D"}
    order = list(dict.fromkeys(rows.apply(_label, axis=1)))[::-1]
    for axes, (dataset, here) in zip(panels, rows.groupby("dataset", sort=False), strict=True):
        places = [order.index(label) for label in here.apply(_label, axis=1)]
        for column, mark in marks.items():
            style: Style = {"marker": mark, "s": 34, "linewidths": 0}
            axes.scatter(here[column], places, c=_colours(here), **style)
        axes.set_yticks(range(len(order)), order)
        _log(axes, "x")
        _name(axes, str(dataset), MILLISECONDS)
    keys = [Line2D([], [], color=SOFT, linestyle="", marker=mark) for mark in marks.values()]
    legend(figure, keys, ["learning shared by 500 queries", "by 50,000"])
    return figure


def _single(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    figure, (axes,) = _panels(1, 2.8)
    values = 1000 * rows.cpu_seconds_per_query
    labels = [f"{value:.3g} ({share:.0%})" for value, share in zip(values, rows.share, strict=True)]
    _bars(axes, list(rows.stage), values, OURS, labels)
    axes.set_xlim(0, 1.35 * values.max())
    title = "A single believable answer (Adult, one core)"
    _name(axes, title, "milliseconds of the processor, median")
    return figure


def _batch(rows: pd.DataFrame, everything: pd.DataFrame) -> Figure:
    figure, (axes,) = _panels(1, 4.6)
    _lines(axes, rows, "batch")
    floor = everything[everything.part == "floor"]
    if len(floor):
        least = 1000 * floor.floor_seconds.iloc[0]
        axes.axhline(least, color=SOFT, linestyle=":", linewidth=1.4)
        style: Style = {"textcoords": "offset points", "fontsize": 9, "color": SOFT, "ha": "right"}
        axes.annotate("matrix products alone", (rows.batch.max(), least), (0, 5), **style)
    title = "Time over the number of queries asked at once (Adult, one core)"
    _name(axes, title, "queries at once", MILLISECONDS)
    axes.legend(loc="best", fontsize=9, labelcolor=INK, framealpha=0.9, edgecolor="white")
    return figure


def _features(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    kinds = sorted(rows.dataset.unique())
    figure, panels = _panels(len(kinds), 4.6)
    for axes, kind in zip(panels, kinds, strict=True):
        here = rows[rows.dataset == kind]
        _lines(axes, here, "features")
        top = here[(here.features == here.features.max()) & (here.method == "counterveil")].iloc[0]
        ends = (here.features.min(), top.features)
        through = [1000 * top.seconds_per_query * end / top.features for end in ends]
        style: Style = {"color": SOFT, "linestyle": ":", "linewidth": 1.4}
        axes.plot(ends, through, label="in proportion to the features", **style)
        numbers = {"binary": "binary", "mixed": "numbers and categories"}.get(kind, kind)
        _name(axes, f"Features: {numbers}", "features", MILLISECONDS if axes is panels[0] else "")
    legend(figure, *panels[0].get_legend_handles_labels())
    return figure


def _floor(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    batches = sorted(rows.batch.unique())
    figure, panels = _panels(len(batches), 3.2)
    for axes, batch in zip(panels, batches, strict=True):
        here = rows[rows.batch == batch].sort_values("times_floor", ascending=False)
        names = [TITLES[name] for name in here.method]
        words = [f"{times:,.3g}×" for times in here.times_floor]
        _bars(axes, names, here.times_floor, _colours(here), words)
        _log(axes, "x")
        axes.set_xlim(1, 12 * rows.times_floor.max())
        _name(axes, f"{batch:,} queries at once", "times the matrix products alone")
    return figure


def _boosted(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    figure, panels = _panels(3, 2.8)
    labels = [_label(row) for _, row in rows.iterrows()]
    shown = (
        (1000 * rows.seconds_per_query, "Time", MILLISECONDS),
        (rows.flip_ratio, "Flip ratio", f"of {rows.batch.iloc[0]:.0f} queries"),
        (rows.distance, "Distance", "L2 in the encoding"),
    )
    for axes, (values, title, unit) in zip(panels, shown, strict=True):
        _bars(axes, labels, values, OURS, [f"{value:.3g}" for value in values])
        axes.set_xlim(0, 1.35 * values.max())
        _name(axes, title, unit)
    return figure


PAINTERS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], Figure]] = {
    "peers": _peers,
    "warm-up": _warm_up,
    "believable": _believable,
    "single": _single,
    "batch": _batch,
    "features": _features,
    "floor": _floor,
    "boosted": _boosted,
}
