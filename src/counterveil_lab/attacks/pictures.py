"""Figures of the attacks, from stored rows. Needs matplotlib; import this where it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from counterveil_lab.attacks.extraction import ATTACKERS
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.attacks.verdicts import NONE, gains
from counterveil_lab.experiments.drawing import datasets_in, grid
from counterveil_lab.figures import FADED, INK, OURS, SOFT, THEIRS, WARM
from counterveil_lab.results import Row

STYLES = {
    "functional-model": (OURS, "-", "o"),
    "functional-surrogate": (FADED, "-", "s"),
    "elsewhere-surrogate": (FADED, ":", "x"),
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
    """What the strongest attacker gains over as many predictions alone, over queries."""
    table = gains(rows)
    table = table[(table.architecture == "known") & table.attacker.isin(ATTACKERS)]
    names = datasets_in(table)
    figure, panels = grid(2 * len(names), 2, height=2.6)
    for number, name in enumerate(names):
        for axes, kind in zip(panels[2 * number :], ("probabilities", "labels"), strict=False):
            here = table[(table.dataset == name) & (table.predictions == kind)]
            for _, part in here.groupby(["defence", "epsilon"], sort=False):
                defence, epsilon = str(part.defence.iloc[0]), float(part.epsilon.iloc[0])
                colour, line, mark = STYLES[defence]
                best = part.groupby(["queries", "attacker"]).gain.mean().groupby("queries").max()
                words = defence if epsilon == NONE else f"{defence}, ε {epsilon:g}"
                axes.plot(best.index, best, color=colour, linestyle=line, marker=mark, markersize=4,
                          linewidth=1.3, alpha=0.55 if 0 < epsilon < 0.5 else 1.0,
                          label=words)  # fmt: skip
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_xscale("log")
            ticks = sorted(here.queries.unique())
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            title = f"{name}: f answers with {kind}"
            axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")
            axes.set_xlabel("queries" if name == names[-1] else "", fontsize=8, color=INK)
    words = "fidelity gained over as many predictions alone, strongest attacker"
    figure.supylabel(words, fontsize=8, color=INK)
    shown = {label: key for axes in panels
             for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, fontsize=7,
                  labelcolor=INK, frameon=False)  # fmt: skip
    return figure


def tradeoff_figure(rows: Sequence[Row]) -> Figure:
    """Gain of the strongest attacker against what answers are worth: accepted by f, and near."""
    ways: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        ways.setdefault((row["guidance"], row["margin"]), []).append(row)
    table = pd.concat([gains(way) for way in ways.values()])  # each with its own base
    table = table[table.attacker.isin(ATTACKERS)]
    figure, panels = grid(4, 2, height=2.6)
    usefulness = {"flip_ratio": "share of answers that f accepts",
                  "distance": "distance from query to answer"}  # fmt: skip
    places = [(worth, kind) for worth in usefulness for kind in ("probabilities", "labels")]
    for axes, (worth, kind) in zip(panels, places, strict=True):
        for guidance, colour, mark in (("model", OURS, "o"), ("surrogate", WARM, "s")):
            part = table[(table.predictions == kind) & (table.guidance == guidance)]
            if part.empty:
                continue
            best = best_gains(part, worth)
            axes.errorbar(best[worth], best.gain, yerr=best.half_width, color=colour, marker=mark,
                          markersize=5, linewidth=1, elinewidth=0.7,
                          label=f"guidance {guidance}")  # fmt: skip
            for _, point in best.iterrows():
                axes.annotate(f"{point.margin:g}", (point[worth], point.gain), (4, 4),
                              textcoords="offset points", fontsize=7, color=colour)  # fmt: skip
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_title(f"f answers with {kind}", loc="left", fontsize=8, color=INK,
                       fontweight="bold")  # fmt: skip
        axes.set_xlabel(usefulness[worth], fontsize=8, color=INK)
    words = "fidelity gained over as many predictions alone, strongest attacker"
    figure.supylabel(words, fontsize=8, color=INK)
    keys, labels = panels[0].get_legend_handles_labels()
    figure.legend(keys, labels, loc="outside lower center", ncols=2, fontsize=8, labelcolor=INK,
                  title="numbers: margin; bars: 95 % over seeds", title_fontsize=7,
                  frameon=False)  # fmt: skip
    return figure


def best_gains(part: pd.DataFrame, worth: str) -> pd.DataFrame:
    """For every margin the attacker with the highest mean gain, with its interval over seeds."""
    lines = []
    for margin, group in part.groupby("margin"):
        ways = group.groupby(["attacker", "queries", "architecture"])
        chosen = ways.get_group(ways.gain.mean().idxmax())
        mean, low, _ = seeds_interval(chosen.gain.tolist())
        half = 0.0 if isnan(low) else mean - low
        lines.append({"margin": margin, "gain": mean, "half_width": half,
                      worth: chosen[worth].mean()})  # fmt: skip
    return pd.DataFrame(lines)
