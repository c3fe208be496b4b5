"""Figures of stored results, as SVG: the house style, and those of `believable`(`-images`).

Needs matplotlib; import this where it is drawn. Nothing here touches pyplot: no window, no backend,
no figure that stays open.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from counterveil.encoding import Array
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
DIGITS = re.compile(r"(\d\.\d\d)\d+")  # more than are needed
Style = dict[str, Any]
COLUMNS = {  # of the rows, and what they mean
    "twins": "twins of f agree",
    "boosted": "another model agrees",
    "rare": "values hardly met together",
    "odd": "odd pairs of values",
    "near": "way to accepted people",
}
WAYS = {"believable": (OURS, "o", "-"), "nearest": (WARM, "s", "--")}
DONOR = "nice-sparsity"  # the peer that hands out values of real people


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


def quality_over_epsilon(rows: Sequence[Row]) -> Figure:
    """A line of panels for each table: means over the kinds of f and the seeds, over ε."""
    table = pd.DataFrame(rows)
    table = table[table["kind"] != "private model"]
    ours = table[(table["method"] == "counterveil") & (table["guidance"] == "model")]
    names = list(dict.fromkeys(ours["dataset"]))
    columns = [column for column in COLUMNS if column in table]  # older rows have fewer
    figure, panels = grid(len(columns) * len(names), len(columns), height=2.0)
    every = [(name, column) for name in names for column in columns]
    for axes, (name, column) in zip(panels, every, strict=True):
        mine = ours[(ours["dataset"] == name) & (ours["mechanism"] == "functional")]
        for prefer, (colour, mark, line) in WAYS.items():
            part = mine[mine["prefer"] == prefer].dropna(subset=[column])
            means = part.groupby("epsilon")[column].mean()
            style: Style = {"color": colour, "marker": mark, "markersize": 3.5, "linestyle": line}
            axes.plot(means.index, means.to_numpy(), linewidth=1.5, label=prefer, **style)
        donors = table[(table["dataset"] == name) & (table["method"] == DONOR)][column].dropna()
        if len(donors):
            axes.axhline(donors.mean(), color=THEIRS, linewidth=1.2, label="NICE: pieces of people")
        if column == "near" and len(mine):
            level = mine["near_queries"].mean()
            axes.axhline(level, color=SOFT, linestyle=":", linewidth=1.2, label="the person asking")
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = sorted(mine["epsilon"].unique())
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_ylim(0, max(1.02, axes.get_ylim()[1]))
        axes.set_title(COLUMNS[column], loc="left", fontsize=6.5, color=INK, fontweight="bold")
        if column == columns[0]:
            axes.set_ylabel(name, fontsize=8, color=INK, fontweight="bold")
    legend(figure, *panels[len(columns) - 1].get_legend_handles_labels(), 8)
    return figure


def image_answers(dataset: str, stored: Mapping[str, Array], only: Sequence[str] = ()) -> Figure:
    """The first queries of a dataset, and below them their answers at every ε and the differences.

    `stored`: bytes of shape (answers, height, breadth), called "DATASET EPSILON GUIDANCE PREFER";
    beside them "DATASET queries" and "DATASET targets". Of the nearest answers, which hardly
    depend on ε, those at the largest one are shown. `only`: the answers to show, by what their line
    says.
    """
    queries, targets = (stored[f"{dataset} {each}"] for each in ("queries", "targets"))
    strips: list[tuple[str, Array, bool]] = [("query", queries, False)]
    answers = [each for each in stored if each.startswith(f"{dataset} ") and each.count(" ") == 3]
    for name in sorted(answers, key=_place):
        _, epsilon, guidance, prefer = name.split()
        words = f"{prefer}, ε {float(epsilon):g}"
        words += "\nthe veil alone" if guidance == "surrogate" else ""
        if prefer != "nearest":
            strips.append((words, stored[name], False))
        elif all(prefer not in line[0] for line in strips):
            strips.append((prefer, stored[name], False))
        if guidance == "model" and prefer == "believable":
            change = stored[name].astype(np.int64) - queries
            strips.append(("difference", change, True))
    strips = [strip for strip in strips if not only or strip[0] in {"query", *only}]
    figure, panels = grid(len(strips), 1, height=0.46)
    gap = queries.shape[2] // 8 + 1
    for axes, (words, pictures, is_change) in zip(panels, strips, strict=True):
        apart = np.pad(pictures.astype(float), ((0, 0), (0, 0), (0, gap)), constant_values=np.nan)
        colours: Style = {"cmap": "gray", "vmin": 0, "vmax": 255}
        if is_change:
            colours = {"cmap": "RdBu_r", "vmin": -255, "vmax": 255}
        axes.imshow(np.concatenate(list(apart), axis=1), interpolation="none", **colours)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.grid(False)
        axes.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=7, color=INK)
    breadth = queries.shape[2]
    middles = [(breadth + gap) * number + breadth / 2 for number in range(len(targets))]
    panels[0].set_xticks(middles, [f"→ {target}" for target in targets], fontsize=7, color=INK)
    panels[0].xaxis.tick_top()
    return figure


def _place(name: str) -> tuple[bool, bool, float]:
    """The model's answers first, believable before nearest, the largest ε first."""
    _, epsilon, guidance, prefer = name.split()
    return guidance == "surrogate", prefer == "nearest", -float(epsilon)
