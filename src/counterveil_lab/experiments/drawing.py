"""Figures of the experiments, from stored rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isnan

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from counterveil.encoding import Array
from counterveil_lab.experiments.releases import NO_NOISE, Epsilon
from counterveil_lab.experiments.tables import ORDER, name_of
from counterveil_lab.figures import (
    DPI,
    FADED,
    INK,
    LINES,
    OURS,
    SOFT,
    THEIRS,
    TITLES,
    WARM,
    WIDTH,
    save,
)  # fmt: skip
from counterveil_lab.results import Row

__all__ = ["case_study", "errors_over_epsilon", "frontier", "place_of", "save", "strips", "times",
           "words_of"]  # fmt: skip

COLOURS = {"paper": WARM, "functional": OURS, "dpsgd": FADED}
NO_NOISE_AT = 5.0  # right of every ε that is measured


def place_of(epsilon: Epsilon) -> float:
    """Where an ε comes in an order."""
    return float("inf") if epsilon == NO_NOISE else float(epsilon)


def words_of(row: Row) -> str:
    """Mechanism and ε in words."""
    noise = "no noise" if row["epsilon"] == NO_NOISE else f"ε {row['epsilon']:g}"
    return f"{row['mechanism']}, {noise}"


def errors_over_epsilon(rows: Sequence[Row]) -> Figure:
    """Reconstruction error over ε, a panel a dataset; bars from the least to the most of seeds."""
    table = pd.DataFrame(rows)
    names = datasets_in(table)
    figure, panels = grid(len(names), min(4, len(names)), height=2.3)
    for axes, dataset in zip(panels, names, strict=False):
        here = table[table.dataset == dataset]
        for mechanism in ("paper", "functional"):
            _line(axes, here[here.mechanism == mechanism], "mse", mechanism)
        axes.axhline(here.mse_of_pooled_mean.mean(), color=SOFT, linestyle=":", linewidth=1.2,
                     label="mean of all rows")  # fmt: skip
        axes.set_yscale("log")
        _epsilon_axis(axes, here)
        _label(axes, dataset)
    epochs = table[table.mechanism == "paper"].groupby("dataset").epochs.first()
    _caption(figure, panels[0], "Reconstruction error on held-out rows over ε (∞: no noise). "
             "Epochs of `paper`: " + ", ".join(f"{name} {epochs[name]:.0f}" for name in names
                                               if name in epochs))  # fmt: skip
    return figure


def frontier(rows: Sequence[Row]) -> Figure:
    """Flip ratio, distance, plausibility, flip ratio of the surrogate over ε; a line a dataset."""
    table = pd.DataFrame(rows)
    table = table[table.asked_order.isna()]
    names = datasets_in(table)
    shown: tuple[tuple[str, str, Callable[[pd.DataFrame], pd.DataFrame]], ...] = (
        ("flip_ratio", "flip ratio", lambda part: part[part.guidance == "model"]),
        ("distance", "distance", lambda part: part[part.guidance == "model"]),
        ("plausibility", "to the nearest real row", lambda part: part[part.guidance == "model"]),
        ("flip_ratio", "flip ratio, surrogate", lambda part: part[part.guidance == "surrogate"]),
    )
    figure, panels = grid(len(names) * len(shown), len(shown), height=1.75)
    for number, dataset in enumerate(names):
        for axes, (column, title, choose) in zip(
            panels[number * len(shown) :], shown, strict=False
        ):
            here = choose(table[table.dataset == dataset])
            for mechanism in COLOURS:
                _line(axes, here[here.mechanism == mechanism], column, mechanism)
            if len(here):
                _epsilon_axis(axes, here)
            if column == "flip_ratio":
                axes.set_ylim(-0.05, 1.05)
            else:
                axes.set_ylim(bottom=0)
            if number == 0:
                _label(axes, title)
        panels[number * len(shown)].set_ylabel(dataset, fontsize=8, color=INK, fontweight="bold")
    _caption(figure, panels[0], "Held-out queries over ε; bars from the least to the most of seeds")
    return figure


def times(rows: Sequence[Row]) -> Figure:
    """Seconds for ten queries; whiskers from the fastest to the slowest run."""
    table = pd.DataFrame(rows)
    table["name"] = [_method(row) for row in rows]
    names = datasets_in(table)
    methods = list(dict.fromkeys(table.name))[::-1]
    figure, panels = grid(len(names), len(names), height=0.36 * len(methods) + 1.4, share=True)
    for axes, dataset in zip(panels, names, strict=False):
        here = table[table.dataset == dataset].set_index("name").reindex(methods)
        mean = here.seconds_for_ten
        colours = [COLOURS.get(mechanism, THEIRS) for mechanism in here.mechanism]
        spread = [mean - here.least_seconds_for_ten, here.most_seconds_for_ten - mean]
        axes.barh(methods, mean, xerr=spread, color=colours, height=0.6, ecolor=INK,
                  error_kw={"linewidth": 1})  # fmt: skip
        axes.set_xscale("log")
        axes.grid(False, axis="y")
        _label(axes, dataset)
    figure.supxlabel("seconds for 10 queries, one thread", fontsize=9, color=INK)
    return figure


def strips(lines: Sequence[tuple[str, Array]]) -> Figure:
    """Rows of pictures, each with its words."""
    most = max(len(pictures) for _, pictures in lines)
    figure, panels = grid(len(lines) * most, most, height=0.75)
    for number, (words, pictures) in enumerate(lines):
        first = panels[number * most]
        for axes, picture in zip(panels[number * most :], pictures, strict=False):
            _picture(axes, picture)
        first.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8, color=INK)
    return figure


def case_study(lines: Sequence[tuple[str, Array, Array, Array]]) -> Figure:
    """Query, counterfactual, what changed, and GradCAM over the counterfactual, a row a way."""
    figure, panels = grid(4 * len(lines), 4, height=1.1, width=6.0)
    titles = ("query", "counterfactual", "change", "GradCAM")
    for number, (words, query, answer, seen) in enumerate(lines):
        four = panels[4 * number : 4 * number + 4]
        _picture(four[0], query)
        _picture(four[1], answer)
        four[2].imshow(answer.astype(float) - query, cmap="coolwarm", vmin=-255, vmax=255)
        _picture(four[3], answer)
        four[3].imshow(seen, cmap="inferno", vmin=0, vmax=255, alpha=0.6)
        four[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8, color=INK)
        if number == 0:
            for axes, title in zip(four, titles, strict=True):
                axes.set_title(title, fontsize=8, color=INK)
        for axes in four:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
    return figure


def grid(
    panels: int, columns: int, *, height: float, width: float = WIDTH, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels in rows of `columns`, each row `height` inches high; those left over are hidden."""
    lines = ceil(panels / columns)
    figure = Figure(figsize=(width, height * lines + 0.5), dpi=DPI, layout="constrained",
                    facecolor="white")  # fmt: skip
    FigureCanvasAgg(figure)
    every = list(figure.subplots(lines, columns, squeeze=False, sharey=share).flat)
    for number, axes in enumerate(every):
        axes.set_visible(number < panels)
        axes.grid(True, which="major", color=LINES, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(colors=SOFT, labelsize=7, length=0, which="both")
        for side in axes.spines.values():
            side.set_visible(False)
    return figure, every


def datasets_in(table: pd.DataFrame) -> list[str]:
    """Those of a table, in the order of the paper."""
    found = dict.fromkeys(table.dataset)
    return [*(name for name in ORDER if name in found),
            *(name for name in found if name not in ORDER)]  # fmt: skip


def _line(axes: Axes, rows: pd.DataFrame, column: str, mechanism: str) -> None:
    """Means over seeds with the range of them, on a logarithmic ε axis."""
    rows = rows.dropna(subset=[column])
    if rows.empty:
        return
    spread = rows.groupby("epsilon")[column].agg(["mean", "min", "max"])
    spread = spread.loc[sorted(spread.index, key=place_of)]
    places = [_at(each) for each in spread.index]
    bars = np.stack([spread["mean"] - spread["min"], spread["max"] - spread["mean"]])
    axes.errorbar(places, spread["mean"], bars, color=COLOURS[mechanism], marker="o", markersize=3,
                  linewidth=1.4, capsize=2, label=mechanism)  # fmt: skip


def _epsilon_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """A logarithmic axis with the ε that were measured."""
    measured = sorted(rows.epsilon.unique(), key=place_of)
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks([_at(each) for each in measured],
                    ["∞" if each == NO_NOISE else f"{each:g}" for each in measured],
                    rotation=45)  # fmt: skip


def _at(epsilon: Epsilon) -> float:
    """Where an ε is drawn."""
    return NO_NOISE_AT if epsilon == NO_NOISE else float(epsilon)


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")


def _caption(figure: Figure, first: Axes, words: str) -> None:
    figure.suptitle(words, fontsize=8, color=SOFT, x=0.01, ha="left", wrap=True)
    keys, names = first.get_legend_handles_labels()
    figure.legend(keys, names, loc="outside lower center", ncols=len(keys), fontsize=8,
                  labelcolor=INK, frameon=False)  # fmt: skip


def _picture(axes: Axes, picture: Array) -> None:
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def _method(row: Row) -> str:
    mechanism = row.get("mechanism")
    if isinstance(mechanism, float) and isnan(mechanism):
        mechanism = None
    named = name_of({**row, "epsilon": None, "mechanism": mechanism})
    return TITLES.get(named, named)
