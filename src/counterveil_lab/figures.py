"""Pictures of stored results, as PNG and SVG. Needs matplotlib; import this where it is drawn.

Nothing here touches pyplot: no window, no backend, no figure that stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from counterveil_lab.results import Row

INK, SOFT, LINES = "#1c2330", "#5b6577", "#e3e8ef"
OURS, FADED, THEIRS, WARM = "#1f5f8b", "#7fa8c4", "#9aa3b0", "#c2672a"
WIDTH, DPI = 8.54, 150  # 1280 pixels
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
    "tensors-unpolished": "tensors to tensors, not polished",
    "amortised": "amortised",
    "amortised, refined": "amortised, refined",
    "amortised, whole": "amortised, whole answer",
    "algorithm-2, whole": "Algorithm 2, whole answer",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
Painter = Callable[[pd.DataFrame, pd.DataFrame], Figure]


def draw_search(rows: Sequence[Row], folder: Path) -> list[Path]:
    """A picture for every part of `bench search` that has rows; returns the files."""
    table = pd.DataFrame(rows)
    written = []
    for part, paint in PAINTERS.items():
        mine = table[table.part == part].dropna(axis=1, how="all")
        if len(mine):
            written += save(paint(mine, table), folder / f"bench-search-{part}")
    return written


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `figure` as PNG and SVG; the same rows give the same files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.parent / f"{stem.name}.{kind}" for kind in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": "counterveil", "svg.fonttype": "none"}):
        figure.savefig(paths[0])
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def sheet(
    panels: int = 1, *, height: float = 4.6, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty figure of the house's style with panels side by side."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False, sharey=share)[0]
    for each in axes:
        each.grid(True, which="major", color=LINES, linewidth=0.8)
        each.set_axisbelow(True)
        each.tick_params(colors=SOFT, labelsize=9, length=0, which="both")
        for side in each.spines.values():
            side.set_visible(False)
    return figure, list(axes)


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


def _legend(axes: Axes) -> None:
    axes.legend(loc="best", fontsize=9, labelcolor=INK, framealpha=0.9, edgecolor="white")


def _legend_below(figure: Figure, keys: Sequence[Artist], words: Sequence[str]) -> None:
    figure.legend(keys, words, loc="outside lower center", ncols=len(keys), fontsize=9,
                  labelcolor=INK, frameon=False)  # fmt: skip


def _write(axes: Axes, x: float, y: float, words: str) -> None:
    """Words at the end of a bar."""
    axes.annotate(words, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=8.5,
                  color=INK)  # fmt: skip


def _peers(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    rows = rows[rows.seed == 0]
    largest = rows.batch.max()
    labels = rows.apply(_label, axis=1)
    order = list(
        rows.assign(label=labels)[rows.batch == largest]
        .sort_values("seconds_per_query", ascending=False)
        .label
    )
    figure, (times, nearness) = sheet(2, height=5.4, share=True)
    marks = {largest: ("o", 42), 10: ("s", 26), 1: ("D", 26)}
    for batch, (mark, area) in marks.items():
        here = rows[rows.batch == batch]
        times.scatter(
            1000 * here.seconds_per_query, [order.index(label) for label in labels[here.index]],
            c=[_colour(method) for method in here.method], marker=mark, s=area, linewidths=0,
            alpha=1.0 if batch == largest else 0.55,
        )  # fmt: skip
    best = rows[rows.batch == largest]
    places = [order.index(label) for label in labels[best.index]]
    nearness.barh(places, best.distance, color=[_colour(name) for name in best.method], height=0.55)
    for place, distance, ratio in zip(places, best.distance, best.flip_ratio, strict=True):
        nothing = pd.isna(distance)
        found = "none found" if nothing else f"{distance:.2f}   flips {ratio:.3f}"
        _write(nearness, 0.0 if nothing else distance, place, found)
    nearness.set_xlim(0, 1.75 * best.distance.max())
    nearness.grid(False, axis="y")
    times.set_yticks(range(len(order)), order)
    _log(times, "x")
    _name(times, "Time of an answer (Adult, one core)", "milliseconds a query")
    _name(nearness, "Distance of the answers found", "L2 in the encoding")
    keys = [Line2D([], [], color=SOFT, linestyle="", marker=mark, markersize=area**0.5)
            for mark, area in marks.values()]  # fmt: skip
    words = [f"{batch:,.0f} queries at once" if batch > 1 else "a single query" for batch in marks]
    _legend_below(figure, keys, words)
    return figure


def _label(row: pd.Series[Any]) -> str:
    words = TITLES.get(row.method, row.method)
    if row.get("guidance") == "surrogate":
        words += ", surrogate"
    return words if pd.isna(row.epsilon) else f"{words}, ε {row.epsilon:g}"


def _colour(method: str) -> str:
    known = {"counterveil": OURS, "counterveil-unpolished": FADED, "algorithm-2": WARM}
    return known.get(method, THEIRS)


def _batch(rows: pd.DataFrame, everything: pd.DataFrame) -> Figure:
    figure, (axes,) = sheet()
    _lines(axes, rows, "batch", "method")
    floor = everything[everything.part == "floor"]
    if len(floor):
        least = 1000 * floor.floor_seconds.iloc[0]
        axes.axhline(least, color=SOFT, linestyle=":", linewidth=1.4)
        axes.annotate("matrix products alone", (rows.batch.max(), least), (0, 5), ha="right",
                      textcoords="offset points", fontsize=9, color=SOFT)  # fmt: skip
    axes.set_xticks(sorted(rows.batch.unique()))
    _name(axes, "Time over the number of queries asked at once (Adult, one core)",
          "queries at once", "milliseconds a query")  # fmt: skip
    _legend(axes)
    return figure


def _features(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    kinds = sorted(rows.dataset.unique())
    figure, panels = sheet(len(kinds), share=True)
    for axes, kind in zip(panels, kinds, strict=True):
        here = rows[rows.dataset == kind]
        _lines(axes, here, "features", "method")
        top = here[(here.features == here.features.max()) & (here.method == "counterveil")].iloc[0]
        through = [1000 * top.seconds_per_query * x / top.features for x in
                   (here.features.min(), top.features)]  # fmt: skip
        axes.plot([here.features.min(), top.features], through, color=SOFT, linestyle=":",
                  linewidth=1.4, label="in proportion to the features")  # fmt: skip
        axes.set_xticks(sorted(here.features.unique()))
        numbers = {"binary": "binary", "mixed": "numbers and categories"}.get(kind, kind)
        _name(axes, f"Features: {numbers}", "features",
              "milliseconds a query" if axes is panels[0] else "")  # fmt: skip
    _legend_below(figure, *panels[0].get_legend_handles_labels())
    return figure


def _lines(axes: Axes, rows: pd.DataFrame, x: str, by: str) -> None:
    for method in dict.fromkeys(rows[by]):
        here = rows[rows[by] == method].sort_values(x)
        axes.plot(here[x], 1000 * here.seconds_per_query, color=_colour(method), marker="o",
                  markersize=5, linewidth=1.8, label=TITLES.get(method, method))  # fmt: skip
    _log(axes, "x")
    _log(axes, "y")


def _floor(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    batches = sorted(rows.batch.unique())
    figure, panels = sheet(len(batches), height=3.2, share=True)
    for axes, batch in zip(panels, batches, strict=True):
        here = rows[rows.batch == batch].sort_values("times_floor", ascending=False)
        axes.barh([TITLES[name] for name in here.method], here.times_floor,
                  color=[_colour(name) for name in here.method], height=0.5)  # fmt: skip
        for place, times in enumerate(here.times_floor):
            _write(axes, times, place, f"{times:,.3g}×")
        _log(axes, "x")
        axes.set_xlim(1, 12 * rows.times_floor.max())
        axes.grid(False, axis="y")
        _name(axes, f"{batch:,} queries at once", "times the matrix products alone")
    return figure


def _boosted(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    figure, panels = sheet(3, height=2.8, share=True)
    labels = [_label(row) for _, row in rows.iterrows()]
    shown = {"seconds_per_query": ("Time", "milliseconds a query", 1000.0),
             "flip_ratio": ("Flip ratio", f"of {rows.batch.iloc[0]:.0f} queries", 1.0),
             "distance": ("Distance", "L2 in the encoding", 1.0)}  # fmt: skip
    for axes, (column, (title, unit, scale)) in zip(panels, shown.items(), strict=True):
        values = scale * rows[column]
        axes.barh(labels, values, color=OURS, height=0.5)
        for place, value in enumerate(values):
            _write(axes, value, place, f"{value:.3g}")
        axes.set_xlim(0, 1.35 * values.max())
        axes.grid(False, axis="y")
        _name(axes, title, unit)
    return figure


def _objective(rows: pd.DataFrame, _: pd.DataFrame) -> Figure:
    figure, panels = sheet(3, height=0.42 * rows.dataset.nunique() + 1.6, share=True)
    shown = {"objective": ("Objective", "mean L_cs"),
             "flip_ratio": ("Flip ratio", "share of queries, nothing repaired"),
             "distance": ("Distance", "L2 in the encoding")}  # fmt: skip
    names = list(dict.fromkeys(rows.dataset))[::-1]
    for axes, (column, (title, unit)) in zip(panels, shown.items(), strict=True):
        for method, colour, mark in (("algorithm-2", WARM, "s"), ("amortised", OURS, "o")):
            here = rows[rows.method == method].groupby("dataset")[column].mean().reindex(names)
            axes.scatter(here, range(len(names)), color=colour, marker=mark, s=40, zorder=3,
                         label=TITLES[method])  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlim(left=0)
        _name(axes, title, unit)
    _legend_below(figure, *panels[0].get_legend_handles_labels())
    return figure


PAINTERS: dict[str, Painter] = {
    "peers": _peers,
    "batch": _batch,
    "features": _features,
    "floor": _floor,
    "boosted": _boosted,
    "objective": _objective,
}
