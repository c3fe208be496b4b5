"""Figures of the experiments and of the attacks, from stored rows. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from counterveil.encoding import Array
from counterveil_lab import figures
from counterveil_lab.attacks import headlines
from counterveil_lab.attacks.extraction import ATTACKERS
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.attacks.verdicts import NONE, gains
from counterveil_lab.experiments.answers import ORDER, name_of
from counterveil_lab.experiments.releases import NO_NOISE, Epsilon
from counterveil_lab.figures import FADED, INK, OURS, SOFT, THEIRS, WARM, Style, grid, legend
from counterveil_lab.results import Row

COLOURS = {"paper": WARM, "functional": OURS, "dpsgd": FADED}
NO_NOISE_AT = 5.0  # right of every ε that is measured
CLOSE = 1.5  # times as large: ticks nearer than that share a word
STYLES = {  # colour, line and mark of a defence
    "functional-model": (OURS, "-", "o"),
    "functional-believable": (OURS, "--", "D"),
    "functional-surrogate": (FADED, "-", "s"),
    "elsewhere-surrogate": (FADED, ":", "x"),
    "no-noise": (WARM, "-", "o"),
    "no-noise-published": (WARM, ":", "x"),
    "paper": (WARM, "--", "s"),
    "random-labels": (SOFT, ":", "x"),
    "random-labels-surrogate": (SOFT, ":", "+"),
    "dp-model": (THEIRS, "-", "^"),
    "dice-kdtree": (INK, "--", "D"),
    "dice-gradient": (INK, "-", "D"),
    "dice-random": (INK, ":", "D"),
}
TARGETS = {"f": (SOFT, "s"), "f'": (OURS, "o"), "cf": (WARM, "D")}
WHO = {"members": (OURS, "o"), "outsiders": (FADED, "s")}
CONTROLS = {"none": 0, "disjoint": 1, "overfitted": 2, "memoriser": 3}  # in this order
BARS: Style = {"markersize": 4, "linewidth": 1.2, "capsize": 2}
INTERVALS = "95 % over seeds (one seed: over people)"
GAINED = "fidelity gained over as many predictions alone, strongest attacker"


def place_of(epsilon: Epsilon) -> float:
    """Where an ε comes in an order."""
    return float("inf") if epsilon == NO_NOISE else float(epsilon)


def words_of(row: Row) -> str:
    """Mechanism and ε in words."""
    noise = "no noise" if row["epsilon"] == NO_NOISE else f"ε {row['epsilon']:g}"
    return f"{row['mechanism']}, {noise}"


def datasets_in(table: pd.DataFrame) -> list[str]:
    """The datasets of a table, in the order of the paper."""
    found = list(dict.fromkeys(table.dataset))
    return sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def errors_over_epsilon(rows: Sequence[Row]) -> Figure:
    """Reconstruction error over ε, a panel a dataset; bars from the least to the most of seeds."""
    table = pd.DataFrame(rows)
    names = datasets_in(table)
    figure, panels = grid(len(names), min(4, len(names)), height=2.3)
    for axes, dataset in zip(panels, names, strict=False):
        here = table[table.dataset == dataset]
        for mechanism in ("paper", "functional"):
            _line(axes, here[here.mechanism == mechanism], "mse", mechanism)
        style: Style = {"color": SOFT, "linestyle": ":", "linewidth": 1.2}
        axes.axhline(here.mse_of_pooled_mean.mean(), label="mean of all rows", **style)
        axes.set_yscale("log")
        _epsilon_axis(axes, here)
        _title(axes, dataset)
    epochs = table[table.mechanism == "paper"].groupby("dataset").epochs.first()
    trained = ", ".join(f"{name} {epochs[name]:.0f}" for name in names if name in epochs)
    words = "Reconstruction error on held-out rows over ε (∞: no noise). Epochs of `paper`: "
    _caption(figure, panels[0], words + trained)
    return figure


def times(rows: Sequence[Row]) -> Figure:
    """Seconds for ten queries, means over seeds; whiskers from the fastest to the slowest run."""
    rows = [row for row in rows if row.get("seconds_for_ten") is not None]
    table = pd.DataFrame(rows)
    methods = [name_of({**row, "epsilon": None}) for row in rows]
    table["name"] = [figures.TITLES.get(name, name) for name in methods]
    names = datasets_in(table)
    methods = list(dict.fromkeys(table.name))[::-1]
    figure, panels = grid(len(names), len(names), height=0.36 * len(methods) + 1.4, share=True)
    for axes, dataset in zip(panels, names, strict=False):
        seeds = table[table.dataset == dataset].groupby("name")
        here = seeds.agg(
            mechanism=("mechanism", "first"),
            mean=("seconds_for_ten", "mean"),
            least=("least_seconds_for_ten", "min"),
            most=("most_seconds_for_ten", "max"),
        ).reindex(methods)
        colours = [COLOURS.get(mechanism, THEIRS) for mechanism in here.mechanism]
        spread = [here["mean"] - here["least"], here["most"] - here["mean"]]
        style: Style = {"height": 0.6, "ecolor": INK, "error_kw": {"linewidth": 1}}
        axes.barh(methods, here["mean"], xerr=spread, color=colours, **style)
        axes.set_xscale("log")
        axes.grid(False, axis="y")
        _title(axes, dataset)
    figure.supxlabel("seconds for 10 queries, one thread", fontsize=9, color=INK)
    return figure


def strips(lines: Sequence[tuple[str, Array]]) -> Figure:
    """Rows of pictures, each with its words."""
    most = max(len(pictures) for _, pictures in lines)
    figure, panels = grid(len(lines) * most, most, height=0.75)
    for number, (words, pictures) in enumerate(lines):
        for axes, picture in zip(panels[number * most :], pictures, strict=False):
            _picture(axes, picture)
        _beside(panels[number * most], words)
    return figure


def case_study(lines: Sequence[tuple[str, Array, Array, Array]]) -> Figure:
    """Query, counterfactual, what changed, and GradCAM over the counterfactual, a row a way."""
    figure, panels = grid(4 * len(lines), 4, height=1.1, width=6.0)
    for axes, title in zip(panels, ("query", "counterfactual", "change", "GradCAM"), strict=False):
        axes.set_title(title, fontsize=8, color=INK)
    for number, (words, query, answer, seen) in enumerate(lines):
        asked, found, change, looked = panels[4 * number : 4 * number + 4]
        _picture(asked, query)
        _picture(found, answer)
        _picture(change, answer.astype(float) - query, cmap="coolwarm", vmin=-255)
        _picture(looked, answer)
        looked.imshow(seen, cmap="inferno", vmin=0, vmax=255, alpha=0.6, interpolation="none")
        _beside(asked, words)
    return figure


def extraction_figure(rows: Sequence[Row]) -> Figure:
    """What the strongest attacker gains over as many predictions alone, over queries."""
    table = gains(rows)
    table = table[(table.architecture == "known") & table.attacker.isin(ATTACKERS)]
    names = datasets_in(table)
    figure, panels = grid(2 * len(names), 2, height=2.6)
    shown = [(name, kind) for name in names for kind in ("probabilities", "labels")]
    for axes, (name, kind) in zip(panels, shown, strict=True):
        here = table[(table.dataset == name) & (table.predictions == kind)]
        for key, part in here.groupby(["defence", "epsilon"], sort=False):
            defence, epsilon = str(key[0]), float(str(key[1]))
            colour, line, mark = STYLES[defence]
            best = part.groupby(["queries", "attacker"]).gain.mean().groupby("queries").max()
            words = defence if epsilon == NONE else f"{defence}, ε {epsilon:g}"
            style: Style = {"color": colour, "linestyle": line, "marker": mark, "markersize": 4}
            alpha = 0.55 if 0 < epsilon < 0.5 else 1.0
            axes.plot(best.index, best, linewidth=1.3, alpha=alpha, label=words, **style)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xscale("log")
        ticks = sorted(here.queries.unique())
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        _title(axes, f"{name}: f answers with {kind}")
        axes.set_xlabel("queries" if name == names[-1] else "", fontsize=8, color=INK)
    figure.supylabel(GAINED, fontsize=8, color=INK)
    handles = (axes.get_legend_handles_labels() for axes in panels)
    keys = {label: key for pair in handles for key, label in zip(*pair, strict=True)}
    legend(figure, keys.values(), keys.keys(), 7, ncols=3)
    return figure


def tradeoff_figure(rows: Sequence[Row]) -> Figure:
    """Gain of the strongest attacker against what answers are worth: accepted by f, and near."""
    ways: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        ways.setdefault((row["guidance"], row["margin"]), []).append(row)
    table = pd.concat([gains(way) for way in ways.values()])  # each with its own base
    table = table[table.attacker.isin(ATTACKERS)]
    figure, panels = grid(4, 2, height=2.6)
    usefulness = {
        "flip_ratio": "share of answers that f accepts",
        "distance": "distance from query to answer",
    }
    places = [(worth, kind) for worth in usefulness for kind in ("probabilities", "labels")]
    for axes, (worth, kind) in zip(panels, places, strict=True):
        for guidance, colour, mark in (("model", OURS, "o"), ("surrogate", WARM, "s")):
            part = table[(table.predictions == kind) & (table.guidance == guidance)]
            if part.empty:
                continue
            best = best_gains(part, worth)
            style: Style = {"color": colour, "marker": mark, "markersize": 5, "linewidth": 1}
            style |= {"elinewidth": 0.7, "label": f"guidance {guidance}"}
            axes.errorbar(best[worth], best.gain, best.half_width, **style)
            near: Style = {"textcoords": "offset points", "fontsize": 7, "color": colour}
            for _, point in best.iterrows():
                axes.annotate(f"{point.margin:g}", (point[worth], point.gain), (4, 4), **near)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        _title(axes, f"f answers with {kind}")
        axes.set_xlabel(usefulness[worth], fontsize=8, color=INK)
    figure.supylabel(GAINED, fontsize=8, color=INK)
    words: Style = {"title": "numbers: margin; bars: 95 % over seeds", "title_fontsize": 7}
    legend(figure, *panels[0].get_legend_handles_labels(), 8, **words)
    return figure


def best_gains(part: pd.DataFrame, worth: str) -> pd.DataFrame:
    """For every margin the attacker with the highest mean gain, with its interval over seeds."""
    lines = []
    for margin, group in part.groupby("margin"):
        ways = group.groupby(["attacker", "queries", "architecture"])
        chosen = ways.get_group(ways.gain.mean().idxmax())
        mean, low, _ = seeds_interval(chosen.gain.tolist())
        half = 0.0 if isnan(low) else mean - low
        lines.append((margin, mean, half, chosen[worth].mean()))
    return pd.DataFrame(lines, columns=["margin", "gain", "half_width", worth])


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
    lines = lines.assign(name=lines.apply(_defence, axis=1), rank=lines.control.map(CONTROLS))
    names = list(dict.fromkeys(lines.sort_values("rank", kind="stable").name))[::-1]
    count = len(datasets := datasets_in(lines))
    figure, panels = grid(count, count, height=0.24 * len(names) + 0.9, share=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        for number, (each, (colour, mark)) in enumerate(kinds.items()):
            shift = 0.22 * (1 - number)
            here = lines[(lines.dataset == dataset) & (lines[kind] == each)]
            places = np.array([names.index(name) for name in here.name]) + shift
            faint = others[(others.dataset == dataset) & (others[kind] == each)]
            at = [names.index(_defence(line)) + shift for _, line in faint.iterrows()]
            axes.scatter(faint[value], at, s=5, color=colour, alpha=0.35, linewidth=0)
            ends = here[[f"{value}_low", f"{value}_high"]].to_numpy(float).T
            bars = np.abs(np.nan_to_num(ends - here[value].to_numpy(float), nan=0.0))
            style = {**BARS, "fmt": mark, "color": colour}
            axes.errorbar(here[value], places, xerr=bars, label=each, **style)
        axes.axvline(chance, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.7, len(names) - 0.3)
        _title(axes, dataset)
    figure.supxlabel(words, fontsize=8, color=INK, wrap=True)
    legend(figure, *panels[0].get_legend_handles_labels(), 8, loc="outside upper right")
    return figure


def _defence(line: pd.Series[Any]) -> str:
    epsilon = "" if line.epsilon == NONE else f", ε {line.epsilon:g}"
    return f"{line.defence}{epsilon}" + ("" if line.control == "none" else f" [{line.control}]")


def _line(axes: Axes, rows: pd.DataFrame, column: str, mechanism: str) -> None:
    """Means over seeds with the range of them, on a logarithmic ε axis."""
    rows = rows.dropna(subset=[column])
    if rows.empty:
        return
    spread = rows.groupby("epsilon")[column].agg(["mean", "min", "max"])
    spread = spread.loc[sorted(spread.index, key=place_of)]
    places = [min(place_of(epsilon), NO_NOISE_AT) for epsilon in spread.index]
    bars = np.stack([spread["mean"] - spread["min"], spread["max"] - spread["mean"]])
    style: Style = {"color": COLOURS[mechanism], "marker": "o", "markersize": 3, "linewidth": 1.4}
    axes.errorbar(places, spread["mean"], bars, capsize=2, label=mechanism, **style)


def _epsilon_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """A logarithmic axis with the ε that were measured."""
    measured = sorted(rows.epsilon.unique(), key=place_of)
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    places = [min(place_of(epsilon), NO_NOISE_AT) for epsilon in measured]
    words = ["∞" if epsilon == NO_NOISE else f"{epsilon:g}" for epsilon in measured]
    for at in range(1, len(places)):
        if places[at] < CLOSE * places[at - 1]:  # one word for both, or they overlap
            words[at - 1 : at + 1] = "", f"{words[at - 1]}, {words[at]}"
    axes.set_xticks(places, words, rotation=45)


def _title(axes: Axes, title: str) -> None:
    title = title.replace("-substitute", "\nsubstitute")  # or it runs into the next one
    axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")


def _caption(figure: Figure, first: Axes, words: str) -> None:
    figure.suptitle(words, fontsize=8, color=SOFT, x=0.01, ha="left", wrap=True)
    legend(figure, *first.get_legend_handles_labels(), 8)


def _picture(axes: Axes, picture: Array, cmap: str = "gray", vmin: int = 0) -> None:
    axes.imshow(picture, cmap=cmap, vmin=vmin, vmax=255, interpolation="none")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def _beside(axes: Axes, words: str) -> None:
    axes.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8, color=INK)
