"""A picture of one answer: what changes in a table, or in an image.

Needs matplotlib; `Explanations.plot` imports this module when it is asked for a picture. Nothing
here touches pyplot: no window, no backend, no figure that stays open. Lengths are in inches.
"""

from __future__ import annotations

import io
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import text_to_path

from counterveil.search.results import wording
from counterveil.search.results.answer import Answer
from counterveil.search.results.wording import Change, show
from counterveil.terminal import visible

MOST_LINES = 40  # changes that are drawn; of the others the number is written
WIDTH, MARGIN, NAME_WIDTH, IMAGE_WIDTH = 8.0, 0.4, 2.4, 2.7
INK, SOFT, FAINT, TRACK, EDGE = "#1c2330", "#5b6577", "#8d96a5", "#e3e8ef", "#c9d0da"
ACCENT, GOOD, BAD = "#1f5f8b", "#1d7a4f", "#b3382c"
FONT = "DejaVu Sans"  # comes with matplotlib
STYLE: dict[Any, Any] = {"font.family": FONT, "text.color": INK}
STYLE |= {"text.usetex": False, "text.parse_math": False}


class Picture(Figure):
    """A Figure that notebooks show by themselves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dpi=150, facecolor="white", **options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def draw(answer: Answer) -> Picture:
    """The picture of one answer; where there is none, of the closest allowed row."""
    changes = answer.refusal.changes if answer.refusal else answer.changes
    changed = {column for column, *_ in changes}
    kept = [each for each in answer.kept if each[0] not in changed]
    with rc_context(STYLE):
        if answer.schema.images:
            return _draw_images(answer, changes, kept)
        return _draw_table(answer, changes, kept)


def _draw_table(answer: Answer, changes: list[Change], kept: list[tuple[str, Any]]) -> Picture:
    """The decision now and then, and below it what changes and what stays."""
    page, schema = _Page(), answer.schema
    said = f"changed: {len(changes)} of {len(schema.columns)} features"
    if answer.is_found:
        now, goal = (shorten(str(name), 2.6, 14, bold=True) for name in answer.classes)
        end = page.text(MARGIN, now, 14, bold=True, color=BAD)
        end = page.text(end + 0.1, "→", 14, color=SOFT)
        end = page.text(end + 0.1, goal, 14, bold=True, color=GOOD)
        page.text(end + 0.14, answer.sure, 11, color=SOFT)
        page.y += 0.32
    else:
        page.paragraph(answer.text.split(), 12, INK)
        said = "the closest allowed row" if changes else ""
    page.text(MARGIN, " · ".join(filter(None, (answer.name, said))), color=SOFT)
    page.y += 0.5
    if answer.warning:
        page.paragraph(answer.warning.split(), 8.5, SOFT)
    fixed = {*answer.fixed, *schema.immutable_names}
    for change in changes[:MOST_LINES]:
        _draw_change(page, answer, change)
    if len(changes) > MOST_LINES:
        page.text(MARGIN, f"… and {len(changes) - MOST_LINES} more", color=SOFT)
        page.y += 0.5
    for title, is_fixed in (("cannot change:", True), ("unchanged:", False)):
        those = [each for each in kept if (each[0] in fixed) == is_fixed]
        items = [f"{wording.told_value(schema, *each)} ·" for each in those]
        if items:
            items[-1] = items[-1].removesuffix(" ·")
            page.paragraph([title, *items], 8.5, FAINT, lines=6)
    return page.finish()


def _draw_change(page: _Page, answer: Answer, change: Change) -> None:
    """The name of a feature, its value before and after, and of a number its place on a line.

    Numbers stand at their places among all people where those are known, else on the range of the
    feature.
    """
    column, *values = change
    name, before, after = wording.told(answer.schema, change)
    start, stop = MARGIN + NAME_WIDTH + 0.3, WIDTH - MARGIN
    first, *rest = wrap(name.split(" "), NAME_WIDTH, 10.5)
    page.text(MARGIN, first, 10.5)
    if rest:
        rest_of_name = shorten(" ".join(rest), NAME_WIDTH, 10.5)
        page.text(MARGIN, rest_of_name, 10.5, y=page.y + 0.19)
    arrow = f"{before}  →"
    if width(arrow, 10) + width(after, 10, bold=True) + 0.1 <= stop - start:
        end = page.text(start, arrow, 10, color=SOFT) + 0.1
    else:  # below each other
        page.text(start, shorten(before, stop - start - 0.3, 10) + "  →", 10, color=SOFT)
        page.y, end = page.y + 0.19, start
    page.text(end, shorten(after, stop - end, 10, bold=True), 10, bold=True, color=ACCENT)
    feature = answer.schema.feature(column)
    bounds = feature.number_range
    if bounds is not None and None not in values:
        page.y += 0.19
        places = answer.places.get(column)
        shares = places or np.interp([float(each) for each in values], bounds, (0, 1))
        was, becomes = (start + 0.06 + share * (stop - start - 0.12) for share in shares)
        for line, color, thick in (((start, stop), TRACK, 4), ((was, becomes), ACCENT, 2)):
            page.axes.plot(line, [page.y] * 2, color, linewidth=thick, solid_capstyle="round")
        for x, edge, face in ((was, FAINT, "white"), (becomes, ACCENT, ACCENT)):
            page.axes.plot(x, page.y, "o", mec=edge, mfc=face, markersize=7, markeredgewidth=1.8)
        low, high = (
            ("lowest of all people", "highest")
            if places
            else (show(int(end) if feature.is_whole else end) for end in bounds)
        )
        page.text(start, low, 7.5, color=FAINT, y=page.y + 0.16)
        page.text(stop, high, 7.5, color=FAINT, y=page.y + 0.16, ha="right")
        page.y += 0.1
    page.y += 0.42


def _draw_images(answer: Answer, changes: list[Change], kept: list[tuple[str, Any]]) -> Picture:
    """Query, other image and difference side by side; a line for each image of the row."""
    images, pixels = answer.schema.images, wording.pixel_columns(answer.schema)
    now, goal = (textwrap.shorten(str(name), 30) for name in answer.classes)
    titles, head = [f"now: {now}"], answer.name
    if answer.is_found:
        titles += [f"then: {goal} ({answer.sure})", "difference"]
        others = [change for change in changes if change[0] not in pixels]
        head += f", if also {wording.condition(answer.schema, others)}" if others else ""
    else:
        head += f": {answer.text}"
        if changes and answer.refusal:
            titles += [f"closest ({answer.refusal.probability:.0%} sure)", "difference"]
    lines = textwrap.wrap(head, 40 * len(titles))
    heights = [IMAGE_WIDTH * min(max(each.height / each.breadth, 0.3), 3) + 0.45 for each in images]
    size = IMAGE_WIDTH * len(titles) + 1.4, sum(heights) + 0.4 + 0.18 * len(lines)
    picture = Picture(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.1))
    panels = picture.subplots(len(images), len(titles), squeeze=False, height_ratios=heights)
    old = {name: before for name, before, _ in changes} | dict(kept)
    new = old | {name: after for name, _, after in changes}
    for row, image in zip(panels, images, strict=True):
        shape = image.height, image.breadth, image.channels
        before, after = (
            np.array([values[column] for column in image.columns], dtype=float).reshape(shape)
            for values in (old, new)
        )
        for panel, title, pixel in zip(row, titles, (before, after, after - before), strict=False):
            panel.set_title(title, fontsize=10.5)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_color(EDGE)
            # Three channels are red, green and blue; of any other number the mean is shown.
            mean = pixel.mean(axis=2)
            if title != "difference":
                shown = pixel if image.channels == 3 else mean
                panel.imshow(shown / image.levels, cmap="gray", vmin=0, vmax=1)
                continue
            most = float(np.abs(mean).max()) or 1.0
            drawn = panel.imshow(mean, cmap="RdBu_r", vmin=-most, vmax=most)
            bar = picture.colorbar(drawn, ax=panel, fraction=0.05, pad=0.04)
            bar.ax.tick_params(labelsize=8, labelcolor=SOFT, color=EDGE, labelfontfamily=FONT)
            bar.set_label("darker          brighter", fontsize=8, color=SOFT)
    picture.suptitle("\n".join(lines), fontsize=9.5, color=SOFT)
    return picture


class _Page:
    """A page that is filled from the top: everything is drawn at height `y`."""

    def __init__(self) -> None:
        self._picture = Picture()
        self.axes = self._picture.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.y = MARGIN

    def finish(self) -> Picture:
        """The picture, cut off below what was drawn."""
        height = self.y + MARGIN * 0.6
        self._picture.set_size_inches(WIDTH, height)
        self.axes.set(xlim=(0.0, WIDTH), ylim=(height, 0.0))
        return self._picture

    def text(
        self, x: float, words: str, size: float = 9.5, *, bold: bool = False, **options: Any
    ) -> float:
        """Write one line in `size` points with options of matplotlib; returns where it ends."""
        style: dict[str, Any] = {"y": self.y, "va": "center_baseline", "fontsize": size} | options
        self.axes.text(x, s=visible(words), weight="bold" if bold else "normal", **style)
        return x + width(words, size, bold=bold)

    def paragraph(self, words: Sequence[str], size: float, color: str, lines: int = 99) -> None:
        """Write words, none of them split, on at most `lines` lines, and move below them."""
        for line in wrap(words, WIDTH - 2 * MARGIN, size, lines):
            self.text(MARGIN, line, size, color=color)
            self.y += size / 72 * 1.55
        self.y += 0.06


def width(words: str, size: float, *, bold: bool = False) -> float:
    """How wide a line of text of `size` points is."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return float(text_to_path.get_text_width_height_descent(visible(words), font, False)[0]) / 72


def shorten(words: str, most: float, size: float, *, bold: bool = False) -> str:
    """`words`, or as many of their letters as fit into the width `most`, and three dots."""
    if width(words, size, bold=bold) <= most:
        return words
    lengths = range(1, len(words))
    fits = bisect_right(lengths, most, key=lambda n: width(words[:n] + "…", size, bold=bold))
    return words[:fits].rstrip() + "…"


def wrap(words: Sequence[str], most: float, size: float, lines: int = 99) -> list[str]:
    """`words` as lines no wider than `most`; the last line tells how many did not fit."""
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
