"""Figures of stored results, as SVG: the house style.

Needs matplotlib; import this where it is drawn. Nothing here touches pyplot: no window, no backend,
no figure that stays open.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
