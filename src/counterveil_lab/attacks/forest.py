"""Forest plots of inference attacks, from stored rows. Needs matplotlib; import where drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from counterveil_lab.attacks import headlines
from counterveil_lab.figures import FADED, INK, OURS, SOFT, WARM, grid
from counterveil_lab.figures_experiments import datasets_in
from counterveil_lab.results import Row

TARGETS = {"f": (SOFT, "s"), "f'": (OURS, "o"), "cf": (WARM, "D")}
WHO = {"members": (OURS, "o"), "outsiders": (FADED, "s")}
CONTROLS = {"none": 0, "disjoint": 1, "overfitted": 2, "memoriser": 3}  # in this order
BARS: dict[str, Any] = {"markersize": 4, "linewidth": 1.2, "capsize": 2}
INTERVALS = "95 % over seeds (one seed: over people)"


def membership_figure(rows: Sequence[Row]) -> Figure:
    """AUC of the strongest attacker with its interval; faint marks are the other attackers."""
    table, lines = headlines.membership_table(rows), pd.DataFrame(headlines.strongest(rows))
    others = table.groupby([*headlines.CASE, "attack"], sort=False).auc.mean().reset_index()
    words = "AUC of membership inference: strongest attacker, picked on other people than shown"
    return _forest(lines, "auc", "target", TARGETS, 0.5, f"{words}; {INTERVALS}", others)


def attribute_figure(rows: Sequence[Row]) -> Figure:
    """What the model's answers add to imputation, for members and for people it never saw."""
    lines = pd.DataFrame(headlines.attribute_table(rows))
    lines["defence"] = lines.defence + ", " + lines.target
    words = "balanced accuracy of inferring race, less that of imputation without a model"
    return _forest(lines, "advantage", "who", WHO, 0.0, f"{words}; {INTERVALS}", lines.head(0))


def _forest(
    lines: pd.DataFrame,
    value: str,
    kind: str,
    kinds: dict[str, tuple[str, str]],
    chance: float,
    words: str,
    others: pd.DataFrame,
) -> Figure:
    """A line for each defence, a panel for each dataset, a mark for each of `kinds`."""
    lines = lines.assign(name=lines.apply(_name, axis=1), rank=lines.control.map(CONTROLS))
    names = list(dict.fromkeys(lines.sort_values("rank", kind="stable").name))[::-1]
    datasets = datasets_in(lines)
    height = 0.24 * len(names) + 0.9
    figure, panels = grid(len(datasets), len(datasets), height=height, share=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        for number, (each, (colour, mark)) in enumerate(kinds.items()):
            shift = 0.22 * (1 - number)
            here = lines[(lines.dataset == dataset) & (lines[kind] == each)]
            places = np.array([names.index(name) for name in here.name]) + shift
            faint = others[(others.dataset == dataset) & (others[kind] == each)]
            at = [names.index(_name(line)) + shift for _, line in faint.iterrows()]
            axes.scatter(faint[value], at, s=5, color=colour, alpha=0.35, linewidth=0)
            ends = here[[f"{value}_low", f"{value}_high"]].to_numpy(float).T
            bars = np.abs(np.nan_to_num(ends - here[value].to_numpy(float), nan=0.0))
            axes.errorbar(
                here[value], places, xerr=bars, fmt=mark, label=each, **BARS, color=colour
            )
        axes.axvline(chance, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.set_title(dataset, loc="left", fontsize=8, color=INK, fontweight="bold")
    figure.supxlabel(words, fontsize=8, color=INK, wrap=True)
    keys, labels = panels[0].get_legend_handles_labels()
    style = {"ncols": len(keys), "fontsize": 8, "labelcolor": INK, "frameon": False}
    figure.legend(keys, labels, loc="outside upper right", **style)
    return figure


def _name(line: pd.Series[Any]) -> str:
    epsilon = "" if line.epsilon == headlines.NONE else f", ε {line.epsilon:g}"
    return f"{line.defence}{epsilon}" + ("" if line.control == "none" else f" [{line.control}]")
