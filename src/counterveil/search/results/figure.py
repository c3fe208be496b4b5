"""A picture of one answer: what changes in a table, in a set of bits, or in an image.

Needs matplotlib; `Explanations.plot` imports this module when it is asked for a picture. Nothing
here touches pyplot: no window, no backend, no figure that stays open.
"""

from __future__ import annotations

import io
import textwrap
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyArrowPatch
from matplotlib.textpath import text_to_path

from counterveil.schema import Category, Schema
from counterveil.search.results import wording
from counterveil.search.results.wording import Change, show
from counterveil.terminal import visible

MOST_LINES = 40  # changes that are drawn; of the others the number is written
WIDTH, MARGIN, ROW_HEIGHT, NAME_WIDTH, IMAGE_WIDTH = 8.0, 0.4, 0.56, 2.4, 2.7  # inches
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


@dataclass(frozen=True)
class Answer:
    """What the picture of one answer shows."""

    schema: Schema
    name: str  # which query and which answer
    text: str  # the answer as a sentence
    found: bool
    classes: tuple[Category, Category]  # now, and asked for
    probability: float
    changes: list[Change]
    kept: list[tuple[str, Any]]  # the columns that stay, with their values
    fixed: tuple[str, ...]  # features held besides those of the schema
    places: Mapping[str, tuple[float, float]]  # of numbers, among all people: before and after


def draw(answer: Answer) -> Picture:
    """The picture of one answer, found or not."""
    with rc_context(STYLE):
        return _draw_images(answer) if answer.schema.images else _draw_page(answer)


def _draw_page(answer: Answer) -> Picture:
    """The decision now and then, and below it what changes and what stays."""
    page, schema, changes, kept = _Page(), answer.schema, answer.changes, answer.kept
    fixed = {*answer.fixed, *schema.immutable_names}
    is_bits = schema.family == "binary"
    if not answer.found:
        page.paragraph(answer.text.split(), 12, INK)
        page.text(MARGIN, answer.name, color=SOFT)
    else:
        now, goal = (shorten(str(name), 2.6, 14, True) for name in answer.classes)
        end = page.text(MARGIN, now, 14, bold=True, color=BAD)
        page.arrow(end + 0.1, end + 0.42, SOFT)
        end = page.text(end + 0.52, goal, 14, bold=True, color=GOOD)
        page.text(end + 0.14, f"{answer.probability:.0%} sure", 11, color=SOFT)
        page.y += 0.32
        count = f"changed: {len(changes)} of {len(schema.columns)} features"
        end = page.text(MARGIN, f"{answer.name} · {count}", color=SOFT)
        for word, color, face in (("now", FAINT, "white"), ("then", ACCENT, ACCENT)):
            if not is_bits:
                page.dot(end + 0.3, color, face)
                end = page.text(end + 0.42, word, color=SOFT)
    page.y += 0.5
    if is_bits:
        _draw_bits(page, schema, changes, kept, fixed)
    else:
        _draw_changes(page, schema, changes, answer.places)
        for title, is_fixed in (("cannot change:", True), ("unchanged:", False)):
            those = [each for each in kept if (each[0] in fixed) == is_fixed]
            items = [f"{wording.told_value(schema, *each)} ·" for each in those]
            if items:
                items[-1] = items[-1].removesuffix(" ·")
                page.paragraph([title, *items], 8.5, FAINT, lines=6)
    return page.finish()


def _draw_changes(
    page: _Page,
    schema: Schema,
    changes: list[Change],
    places: Mapping[str, tuple[float, float]],
) -> None:
    """A line for each changed feature; a long name is on two, the second one shortened."""
    shown = changes[:MOST_LINES]
    wrapped = [wrap(schema.shown_name(column).split(" "), NAME_WIDTH, 10.5) for column, *_ in shown]
    names = [
        [first, shorten(" ".join(rest), NAME_WIDTH, 10.5)] if rest else [first]
        for first, *rest in wrapped
    ]
    widest = max((width(line, 10.5) for name in names for line in name), default=0.0)
    start = MARGIN + widest + 0.35
    for name, (column, *values) in zip(names, shown, strict=True):
        for place, line in enumerate(name):
            page.text(MARGIN, line, 10.5, y=page.y + (place - (len(name) - 1) / 2) * 0.18)
        bounds = wording.bounds_of(schema, column)
        if bounds is None or None in values:
            _draw_two_texts(page, *wording.told(schema, (column, *values))[1:], start)
        else:
            texts = wording.told(schema, (column, *values))[1:]
            _draw_two_numbers(page, bounds, values, texts, start, places.get(column))
        page.y += ROW_HEIGHT
    if len(changes) > MOST_LINES:
        page.text(MARGIN, f"… and {len(changes) - MOST_LINES} more", color=SOFT)
        page.y += ROW_HEIGHT


def _draw_two_numbers(
    page: _Page,
    bounds: tuple[float, float],
    numbers: list[Any],
    texts: Sequence[str],
    start: float,
    places: tuple[float, float] | None,
) -> None:
    """A number before and after, written as `texts`, as two dots.

    They stand at their places among all people where those are known, else on the range of the
    feature: with far bounds most of that is empty.
    """
    stop = WIDTH - MARGIN
    track: dict[str, Any] = {"linewidth": 4, "solid_capstyle": "round", "zorder": 1}
    page.axes.plot([start, stop], [page.y, page.y], color=TRACK, **track)
    shares = places or np.interp([float(number) for number in numbers], bounds, (0, 1)).tolist()
    before, after = (start + share * (stop - start) for share in shares)
    page.arrow(before, after, ACCENT, gap=0.07)
    page.dot(before, FAINT, "white")
    page.dot(after, ACCENT, ACCENT)
    was, becomes = texts
    left, right = sorted([(before, was, False, SOFT), (after, becomes, True, ACCENT)])
    widths = width(left[1], 9.5, left[2]), width(right[1], 9.5, right[2])
    middles = keep_apart((left[0], right[0]), widths, start, stop)
    for x, (_, words, bold, color) in zip(middles, (left, right), strict=True):
        page.text(x, words, bold=bold, color=color, y=page.y - 0.17, ha="center")
    if places:
        lowest, highest = "lowest of all people", "highest"
        page.text((start + stop) / 2, "half of all", 7.5, color=FAINT, y=page.y + 0.15, ha="center")
    else:
        lowest, highest = (show(bound) for bound in bounds)
    page.text(start, lowest, 7.5, color=FAINT, y=page.y + 0.15)
    page.text(stop, highest, 7.5, color=FAINT, y=page.y + 0.15, ha="right")


def _draw_two_texts(page: _Page, before: str, after: str, start: float) -> None:
    """A category before and after; long ones below each other."""
    room, middle = WIDTH - MARGIN - start, page.y
    if width(before, 10) + width(after, 10, True) + 0.55 <= room:
        start = page.text(start, before, 10, color=SOFT) + 0.1
    else:
        page.text(start, shorten(before, room, 10), 10, color=SOFT, y=middle - 0.1)
        page.y += 0.1
    page.arrow(start, start + 0.35, ACCENT)
    page.text(start + 0.45, shorten(after, room - 0.45, 10, True), 10, bold=True, color=ACCENT)
    page.y = middle


def _draw_bits(
    page: _Page, schema: Schema, changes: list[Change], kept: list[Any], fixed: set[str]
) -> None:
    """Which bits are switched on, which are switched off, and how many stay."""
    yes = {each.name: (each.values or ())[1] for each in schema.features}
    for title, color, square in (("switch on", GOOD, "■"), ("switch off", BAD, "□")):
        is_on = title == "switch on"
        names = [name for name, _, after in changes if (after == yes[name]) == is_on]
        if names:
            page.text(MARGIN, f"{title} ({len(names)})", 10.5, bold=True, color=color)
            page.y += 0.27
            bits = [f"{square} {schema.shown_name(name)}  " for name in names]
            page.paragraph(bits, 9.5, color, MOST_LINES)
            page.y += 0.15
    on = sum(value == yes[name] for name, value in kept)
    immutable = sum(name in fixed for name, _ in kept)
    words = f"{len(kept):,} bits stay: {on:,} on, {len(kept) - on:,} off"
    words += f"; {immutable:,} of them cannot change" if immutable else ""
    page.paragraph(words.split(), 8.5, FAINT)


def _draw_images(answer: Answer) -> Picture:
    """Query, counterfactual and difference side by side; a line for each image of the row."""
    images, found, changes = answer.schema.images, answer.found, answer.changes
    now, goal = (textwrap.shorten(str(name), 30) for name in answer.classes)
    titles, head = [f"now: {now}"], answer.name
    if found:
        titles += [f"then: {goal} ({answer.probability:.0%} sure)", "difference"]
        pixels = wording.pixel_columns(answer.schema)
        others = [change for change in changes if change[0] not in pixels]
        head += f", if also {wording.condition(answer.schema, others)}" if others else ""
    else:
        head += f": {answer.text}"
    lines = textwrap.wrap(head, 100 if found else 50)
    shapes = [min(max(image.height / image.breadth, 0.3), 3.0) for image in images]
    heights = [IMAGE_WIDTH * shape + 0.45 for shape in shapes]
    breadth = IMAGE_WIDTH * len(titles) + (1.2 if found else 1.6)
    size = breadth, sum(heights) + 0.4 + 0.18 * len(lines)
    picture = Picture(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.1))
    panels = picture.subplots(len(images), len(titles), squeeze=False, height_ratios=heights)
    old = {name: before for name, before, _ in changes} | dict(answer.kept)
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
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=8, labelcolor=SOFT, color=EDGE, labelfontfamily=FONT)
            bar.set_label("darker          brighter", fontsize=8, color=SOFT)
    picture.suptitle("\n".join(lines), fontsize=9.5, color=SOFT)
    return picture


class _Page:
    """A page that is filled from the top: everything is drawn at height `y`, in inches."""

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
        return x + width(words, size, bold)

    def paragraph(self, words: Sequence[str], size: float, color: str, lines: int = 99) -> None:
        """Write words, none of them split, on at most `lines` lines, and move below them."""
        for line in wrap(words, WIDTH - 2 * MARGIN, size, lines):
            self.text(MARGIN, line, size, color=color)
            self.y += size / 72 * 1.55
        self.y += 0.06

    def dot(self, x: float, edge: str, face: str) -> None:
        style: dict[str, Any] = {"markersize": 7, "markeredgewidth": 1.8, "zorder": 4}
        self.axes.plot(x, self.y, "o", mec=edge, mfc=face, **style)

    def arrow(self, start: float, stop: float, color: str, gap: float = 0.0) -> None:
        """Draw an arrow that stays `gap` inches away from both ends; none where it is too short."""
        if abs(stop - start) > 2 * gap + 0.04:
            ends = (start, self.y), (stop, self.y)
            arrow = FancyArrowPatch(*ends, arrowstyle="-|>", shrinkA=gap * 72, shrinkB=gap * 72)
            arrow.set(mutation_scale=9, linewidth=1.8, color=color, zorder=3)
            self.axes.add_patch(arrow)


def width(words: str, size: float, bold: bool = False) -> float:
    """How wide a line of text of `size` points is, in inches."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
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
    middles: Sequence[float], widths: Sequence[float], start: float, stop: float
) -> tuple[float, float]:
    """The middles of a left and a right label, moved until they fit between start and stop."""
    room = sum(widths) / 2 + 0.12
    left = min(max(middles[0], start + widths[0] / 2), stop - widths[1] / 2 - room)
    return left, max(min(middles[1], stop - widths[1] / 2), left + room)
