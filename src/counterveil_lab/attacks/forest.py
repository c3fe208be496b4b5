"""Forest plots of inference attacks, from stored rows. Needs matplotlib; import where drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from counterveil_lab.attacks.headlines import (
    CASE,
    NONE,
    attribute_table,
    membership_table,
    strongest,
)  # fmt: skip
from counterveil_lab.experiments.drawing import datasets_in, grid
from counterveil_lab.figures import FADED, INK, OURS, SOFT, WARM
from counterveil_lab.results import Row

TARGETS = {"f": (SOFT, "s"), "f'": (OURS, "o"), "cf": (WARM, "D")}
WHO = {"members": (OURS, "o"), "outsiders": (FADED, "s")}


def membership_figure(rows: Sequence[Row]) -> Figure:
    """AUC of the strongest attacker with its interval; faint marks are the other attackers."""
    table, lines = membership_table(rows), pd.DataFrame(strongest(rows))
    return _forest(
        lines, "auc", "target", TARGETS, 0.5,
        "AUC of membership inference: strongest attacker, picked on other people than shown; "
        "95 % over seeds (one seed: over people)",
        table.groupby([*CASE, "attack"], sort=False).auc.mean().reset_index(),
    )  # fmt: skip


def attribute_figure(rows: Sequence[Row]) -> Figure:
    """What the model's answers add to imputation, for members and for people it never saw."""
    lines = pd.DataFrame(attribute_table(rows))
    lines["defence"] = [f"{name}, {target}" for name, target in
                        zip(lines.defence, lines.target, strict=True)]  # fmt: skip
    return _forest(
        lines, "advantage", "who", WHO, 0.0,
        "balanced accuracy of inferring race, less that of imputation without a model; "
        "95 % over seeds (one seed: over people)",
    )  # fmt: skip


def _forest(
    lines: pd.DataFrame, value: str, kind: str, kinds: dict[str, tuple[str, str]], chance: float,
    words: str, others: pd.DataFrame | None = None,
) -> Figure:  # fmt: skip
    lines = lines.assign(name=_names(lines))
    names = list(dict.fromkeys(lines.sort_values("control", key=_rank, kind="stable").name))[::-1]
    datasets = datasets_in(lines)
    height = 0.24 * len(names) + 0.9
    figure, panels = grid(len(datasets), len(datasets), height=height, share=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        for number, (each, (colour, mark)) in enumerate(kinds.items()):
            shift = 0.22 * (1 - number)
            here = lines[(lines.dataset == dataset) & (lines[kind] == each)]
            places = np.array([names.index(name) for name in here.name]) + shift
            if others is not None:
                faint = others[(others.dataset == dataset) & (others[kind] == each)]
                at = [names.index(name) + shift for name in _names(faint)]
                axes.scatter(faint[value], at, s=5, color=colour, alpha=0.35, linewidth=0)
            bars = np.abs(np.nan_to_num(
                here[[f"{value}_low", f"{value}_high"]].to_numpy(float).T
                - here[value].to_numpy(float), nan=0.0,
            ))  # fmt: skip
            axes.errorbar(here[value], places, xerr=bars, fmt=mark, color=colour, markersize=4,
                          linewidth=1.2, capsize=2, label=each)  # fmt: skip
        _finish(axes, dataset, names, chance)
    figure.supxlabel(words, fontsize=8, color=INK, wrap=True)
    keys, labels = panels[0].get_legend_handles_labels()
    figure.legend(keys, labels, loc="outside upper right", ncols=len(keys), fontsize=8,
                  labelcolor=INK, frameon=False)  # fmt: skip
    return figure


def _finish(axes: Axes, dataset: str, names: list[str], chance: float) -> None:
    axes.axvline(chance, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_title(dataset, loc="left", fontsize=8, color=INK, fontweight="bold")


def _names(lines: pd.DataFrame) -> list[str]:
    return [
        defence
        + ("" if epsilon == NONE else f", ε {epsilon:g}")
        + ("" if control == "none" else f" [{control}]")
        for defence, epsilon, control in zip(
            lines.defence, lines.epsilon, lines.control, strict=True
        )
    ]


def _rank(controls: pd.Series[str]) -> pd.Series[int]:
    return controls.map({"none": 0, "disjoint": 1, "overfitted": 2, "memoriser": 3})
