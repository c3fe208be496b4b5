"""A page to draw on: texts, dots and arrows at places in inches, as long as it needs to be.

Needs matplotlib. Nothing here touches pyplot: no window, no backend, no figure that stays open.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch
from matplotlib.textpath import text_to_path

from counterveil.terminal import visible

INK, SOFT, FAINT, TRACK = "#1c2330", "#5b6577", "#8d96a5", "#e3e8ef"
ACCENT, GOOD, BAD = "#1f5f8b", "#1d7a4f", "#b3382c"
FONT = "DejaVu Sans"  # comes with matplotlib
WIDTH, MARGIN = 8.0, 0.4  # inches


class Picture(Figure):
    """A Figure that notebooks show by themselves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dpi=150, facecolor="white", **options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


class Canvas:
    """A page that is filled from the top. Places are inches from its left and upper edge.

    Everything is drawn at height `y`; whoever draws moves `y` down for the next line.
    """

    def __init__(self) -> None:
        self.picture = Picture()
        self._axes = self.picture.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self.y = MARGIN

    def finish(self) -> Picture:
        """Cut the page off below what was drawn."""
        height = self.y + MARGIN * 0.6
        self.picture.set_size_inches(WIDTH, height)
        self._axes.set(xlim=(0.0, WIDTH), ylim=(height, 0.0))
        return self.picture

    def text(
        self, x: float, words: str, size: float = 9.5, *, bold: bool = False, **options: Any
    ) -> float:
        """Write one line in `size` points with options of matplotlib; returns where it ends."""
        style: dict[str, Any] = {"y": self.y, "color": INK, "va": "center_baseline"} | options
        style |= {"fontproperties": _font(size, bold), "parse_math": False, "usetex": False}
        self._axes.text(x, s=visible(words), **style)
        return x + width(words, size, bold)

    def paragraph(self, words: Sequence[str], *, size: float, color: str, lines: int = 99) -> None:
        """Write words, none of them split, on at most `lines` lines, and move below them."""
        for line in wrap(words, WIDTH - 2 * MARGIN, size, lines):
            self.text(MARGIN, line, size, color=color)
            self.y += size / 72 * 1.55

    def dot(self, x: float, color: str, *, hollow: bool = False, marker: str = "o") -> None:
        """Draw a dot, or another marker of matplotlib."""
        face = "white" if hollow else color
        style: dict[str, Any] = {"markersize": 7, "markeredgewidth": 1.8, "zorder": 4}
        self._axes.plot(x, self.y, marker, mfc=face, mec=color, **style)

    def track(self, start: float, stop: float) -> None:
        """Draw a broad light line from `start` to `stop`."""
        ends = [start, stop], [self.y, self.y]
        self._axes.plot(*ends, color=TRACK, linewidth=4, solid_capstyle="round", zorder=1)

    def arrow(self, start: float, stop: float, color: str, *, gap: float = 0.0) -> None:
        """Draw an arrow that stays `gap` inches away from both ends; none where it is too short."""
        if abs(stop - start) > 2 * gap + 0.04:
            ends = (start, self.y), (stop, self.y)
            arrow = FancyArrowPatch(*ends, arrowstyle="-|>", shrinkA=gap * 72, shrinkB=gap * 72)
            arrow.set(mutation_scale=9, linewidth=1.8, color=color, zorder=3)
            self._axes.add_patch(arrow)


def width(words: str, size: float, bold: bool = False) -> float:
    """How wide a line of text of `size` points is, in inches."""
    font = _font(size, bold)
    return float(text_to_path.get_text_width_height_descent(visible(words), font, False)[0]) / 72


def shorten(words: str, most: float, size: float, bold: bool = False) -> str:
    """`words`, or as many of their letters as fit into `most` inches, and three dots."""
    if width(words, size, bold) <= most:
        return words
    lengths = range(1, len(words))
    fits = bisect_right(lengths, most, key=lambda n: width(words[:n] + "…", size, bold))
    return words[:fits].rstrip() + "…"


def wrap(words: Sequence[str], most: float, size: float, lines: int = 99) -> list[str]:
    """`words` as lines of at most `most` inches; the last line tells how many did not fit."""
    wrapped: list[str] = []
    for number, word in enumerate(words):
        longer = f"{wrapped[-1]} {word}" if wrapped else word
        if wrapped and width(longer, size) <= most:
            wrapped[-1] = longer
        elif len(wrapped) == lines:
            last = shorten(wrapped[-1], most - 1.2, size)
            return [*wrapped[:-1], f"{last} and {len(words) - number} more"]
        else:
            wrapped.append(shorten(word, most, size))
    return wrapped


def keep_apart(
    middles: tuple[float, float], widths: tuple[float, float], start: float, stop: float
) -> tuple[float, float]:
    """Move the middles of a left and a right label until they neither touch nor leave the lane.

    `widths` are those of the labels, and the lane goes from `start` to `stop`; all in inches.
    """
    room = (widths[0] + widths[1]) / 2 + 0.12
    push = max(0.0, room - (middles[1] - middles[0])) / 2
    left = max(middles[0] - push, start + widths[0] / 2)
    right = min(max(middles[1] + push, left + room), stop - widths[1] / 2)
    return min(left, right - room), right


def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
