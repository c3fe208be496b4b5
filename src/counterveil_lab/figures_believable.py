"""The figure of `believable`: how far answers can be believed, over ε. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from counterveil_lab.figures import INK, OURS, SOFT, THEIRS, WARM, Style, grid, legend
from counterveil_lab.results import Row

COLUMNS = {  # of the rows, and what they mean
    "twins": "twins of f agree",
    "boosted": "another model agrees",
    "rare": "values hardly met together",
    "near": "way to accepted people",
}
WAYS = {"believable": (OURS, "o", "-"), "nearest": (WARM, "s", "--")}
DONOR = "nice-sparsity"  # the peer that hands out values of real people


def quality_over_epsilon(rows: Sequence[Row]) -> Figure:
    """A line of panels for each table: means over the kinds of f and the seeds, over ε."""
    table = pd.DataFrame(rows)
    table = table[table["kind"] != "private model"]
    ours = table[(table["method"] == "counterveil") & (table["guidance"] == "model")]
    names = list(dict.fromkeys(ours["dataset"]))
    figure, panels = grid(len(COLUMNS) * len(names), len(COLUMNS), height=2.0)
    every = [(name, column) for name in names for column in COLUMNS]
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
        title = f"{name}: {COLUMNS[column]}"
        axes.set_title(title, loc="left", fontsize=6.5, color=INK, fontweight="bold")
    legend(figure, *panels[len(COLUMNS) - 1].get_legend_handles_labels(), 8)
    return figure
