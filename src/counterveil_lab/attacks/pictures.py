"""Figures of the attacks, from stored rows. Needs matplotlib; import this where it is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from counterveil_lab.attacks.extraction import BASES
from counterveil_lab.experiments.drawing import grid
from counterveil_lab.figures import FADED, INK, OURS, SOFT, THEIRS, WARM
from counterveil_lab.results import Row

STYLES = {
    "functional-model": (OURS, "-", "o"),
    "functional-surrogate": (FADED, "-", "s"),
    "no-noise": (WARM, "-", "o"),
    "no-noise-published": (WARM, ":", "x"),
    "paper": (WARM, "--", "s"),
    "random-labels": (SOFT, ":", "x"),
    "random-labels-surrogate": (SOFT, ":", "+"),
    "dp-model": (THEIRS, "-", "^"),
    "cf-k": (THEIRS, "--", "v"),
    "dice-kdtree": (INK, "--", "D"),
    "dice-gradient": (INK, "-", "D"),
}


def extraction_figure(rows: Sequence[Row]) -> Figure:
    """Fidelity of the strongest attacker over queries; the band is predictions alone, n to 2n.

    dp-model is left out: its f is another one, and so is its base.
    """
    table = pd.DataFrame(rows)
    table = table[(table.architecture == "known") & (table.defence != "dp-model")]
    names = list(dict.fromkeys(table.dataset))
    kinds = ("probabilities", "labels")
    figure, panels = grid(2 * len(names), 2, height=2.6)
    for number, name in enumerate(names):
        for axes, kind in zip(panels[2 * number :], kinds, strict=False):
            here = table[(table.dataset == name) & (table.predictions == kind)]
            base = here.groupby(["attacker", "queries"]).fidelity.mean()
            low, high = (base[which] for which in BASES)
            axes.fill_between(low.index, low, high.reindex(low.index), color=SOFT, alpha=0.25,
                              linewidth=0, label="predictions alone, n to 2n")  # fmt: skip
            attacks = here[~here.attacker.isin(BASES)]
            for (defence, epsilon), part in attacks.groupby(["defence", "epsilon"], dropna=False):
                colour, line, mark = STYLES[defence]
                means = part.groupby(["queries", "attacker"]).fidelity.mean()
                best = means.groupby("queries").max()
                small = pd.notna(epsilon) and epsilon < 0.5
                words = defence if pd.isna(epsilon) else f"{defence}, ε {epsilon:g}"
                axes.plot(best.index, best, color=colour, linestyle=line, marker=mark, markersize=4,
                          linewidth=1.3, alpha=0.55 if small else 1.0, label=words)  # fmt: skip
            axes.set_xscale("log")
            ticks = sorted(here.queries.unique())
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            title = f"{name}: f answers with {kind}"
            axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")
            axes.set_xlabel("queries" if name == names[-1] else "", fontsize=8, color=INK)
    figure.supylabel("fidelity on test rows, strongest attacker", fontsize=8, color=INK)
    keys, words = panels[0].get_legend_handles_labels()
    figure.legend(keys, words, loc="outside lower center", ncols=3, fontsize=7, labelcolor=INK,
                  frameon=False)  # fmt: skip
    return figure


def tradeoff_figure(rows: Sequence[Row]) -> Figure:
    """Gain of the strongest attacker against the share of answers that f accepts."""
    table = pd.DataFrame(rows)
    figure, panels = grid(2, 2, height=3.4)
    for axes, kind in zip(panels, ("probabilities", "labels"), strict=True):
        here = table[table.predictions == kind]
        for guidance, colour, mark in (("model", OURS, "o"), ("surrogate", WARM, "s")):
            part = here[(here.guidance == guidance) & ~here.attacker.isin(BASES)]
            if part.empty:
                continue
            best = part.groupby(["margin", "attacker"]).agg(
                fidelity=("fidelity", "mean"), flip_ratio=("flip_ratio", "mean")
            )
            best = best.loc[best.groupby("margin").fidelity.idxmax()].reset_index()
            axes.plot(best.flip_ratio, best.fidelity, color=colour, marker=mark, markersize=5,
                      linewidth=1, label=f"guidance {guidance}")  # fmt: skip
            for _, point in best.iterrows():
                axes.annotate(f"{point.margin:g}", (point.flip_ratio, point.fidelity), (4, 4),
                              textcoords="offset points", fontsize=7, color=SOFT)  # fmt: skip
        base = here[here.attacker.isin(BASES)].groupby("attacker").fidelity.mean()
        axes.axhspan(base["base-n"], base["base-2n"], color=SOFT, alpha=0.25, linewidth=0,
                     label="predictions alone, n to 2n")  # fmt: skip
        title = f"f answers with {kind}"
        axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")
        axes.set_xlabel("share of answers that f accepts; numbers: margin", fontsize=8, color=INK)
    panels[0].set_ylabel("fidelity, strongest attacker", fontsize=8, color=INK)
    keys, words = panels[0].get_legend_handles_labels()
    figure.legend(keys, words, loc="outside lower center", ncols=3, fontsize=8, labelcolor=INK,
                  frameon=False)  # fmt: skip
    return figure
