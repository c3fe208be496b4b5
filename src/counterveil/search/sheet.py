"""A sheet of paper for pictures: text and lines at places in inches, as long as it needs to be.

Needs matplotlib. Nothing here touches pyplot: no window, no backend, no figure that stays open.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.textpath import text_to_path

from counterveil.terminal import visible

INK, SOFT, FAINT, TRACK = "#1c2330", "#5b6577", "#8d96a5", "#e3e8ef"
ACCENT, GOOD, BAD = "#1f5f8b", "#1d7a4f", "#b3382c"
FONT = "DejaVu Sans"  # comes with matplotlib
WIDTH, MARGIN = 8.0, 0.4
DPI = 150


class Picture(Figure):
    """A Figure that notebooks show by themselves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dpi=DPI, facecolor="white", **options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


class Sheet:
    """Places are inches from the left and from the top; `y` is how far the sheet is filled."""

    def __init__(self) -> None:
        self.picture = Picture()
        self._axes = self.picture.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self.y = MARGIN

    def finish(self) -> Picture:
        """Cut the sheet off below what was written."""
        height = self.y + MARGIN * 0.6
        self.picture.set_size_inches(WIDTH, height)
        self._axes.set(xlim=(0.0, WIDTH), ylim=(height, 0.0))
        return self.picture

    def text(
        self, x: float, words: str, *, y: float | None = None, size: float = 9.5, color: str = INK,
        bold: bool = False, anchor: str = "left",
    ) -> float:  # fmt: skip
        """Write one line at `y`, its middle; returns where it ends."""
        self._axes.text(
            x, self.y if y is None else y, visible(words), color=color,
            fontproperties=_font(size, bold), ha=anchor, va="center_baseline",
            parse_math=False, usetex=False,
        )  # fmt: skip
        return x + width(words, size, bold)

    def paragraph(self, words: Sequence[str], *, size: float, color: str, lines: int = 99) -> None:
        """Words that stay whole, line after line, at most so many `lines`."""
        wrapped = wrap(words, WIDTH - 2 * MARGIN, size, lines)
        for line in wrapped:
            self.text(MARGIN, line, size=size, color=color)
            self.y += size / 72 * 1.55

    def dot(self, x: float, color: str, *, hollow: bool = False, marker: str = "o") -> None:
        """A mark at `y`."""
        face = "white" if hollow else color
        self._axes.add_line(
            Line2D([x], [self.y], marker=marker, markersize=7, markeredgewidth=1.8,
                   markerfacecolor=face, markeredgecolor=color, zorder=4)
        )  # fmt: skip

    def track(self, start: float, stop: float) -> None:
        """A broad light line at `y`."""
        self._axes.add_line(
            Line2D([start, stop], [self.y, self.y], color=TRACK, linewidth=4,
                   solid_capstyle="round", zorder=1)
        )  # fmt: skip

    def arrow(self, start: float, stop: float, color: str, *, gap: float = 0.0) -> None:
        """An arrow at `y` that keeps `gap` inches away from both ends."""
        if abs(stop - start) <= 2 * gap + 0.04:
            return
        self._axes.add_patch(
            FancyArrowPatch(
                (start, self.y), (stop, self.y), arrowstyle="-|>", mutation_scale=9, linewidth=1.8,
                color=color, shrinkA=gap * 72, shrinkB=gap * 72, zorder=3,
            )
        )  # fmt: skip


def width(words: str, size: float, bold: bool = False) -> float:
    """How wide a line of text is, in inches."""
    points = text_to_path.get_text_width_height_descent(visible(words), _font(size, bold), False)
    return float(points[0]) / 72


def shorten(words: str, most: float, size: float, bold: bool = False) -> str:
    """`words`, or as many of its letters as fit into `most` inches, and three dots."""
    if width(words, size, bold) <= most:
        return words
    fits, fails = 0, len(words)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if width(words[:middle] + "…", size, bold) <= most:
            fits = middle
        else:
            fails = middle
    return words[:fits].rstrip() + "…"


def wrap(words: Sequence[str], most: float, size: float, lines: int = 99) -> list[str]:
    """`words` as lines of at most so many inches; says how many did not fit into `lines`."""
    wrapped: list[str] = []
    line = ""
    for number, word in enumerate(words):
        longer = f"{line} {word}" if line else word
        if not line or width(longer, size) <= most:
            line = shorten(longer, most, size)
            continue
        wrapped.append(line)
        line = shorten(word, most, size)
        if len(wrapped) == lines:
            wrapped[-1] = shorten(wrapped[-1], most - 1.2, size)
            return [*wrapped[:-1], f"{wrapped[-1]} and {len(words) - number} more"]
    return [*wrapped, line] if line else wrapped


def apart(left: float, right: float, widths: tuple[float, float], start: float, stop: float) -> (
    tuple[float, float]
):  # fmt: skip
    """The middles of two labels near `left` and `right` that neither touch nor leave the lane."""
    room = (widths[0] + widths[1]) / 2 + 0.12
    push = max(0.0, room - (right - left)) / 2
    left = max(left - push, start + widths[0] / 2)
    right = min(max(right + push, left + room), stop - widths[1] / 2)
    return min(left, right - room), right


def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
