"""A picture of one answer: what changes in a table, in a set of bits, or in an image.

Needs matplotlib; `Explanations.plot` imports this module when it is asked for a picture.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from counterveil.encoding import Array
from counterveil.schema import Category, Pixels, Schema
from counterveil.search import canvas, wording
from counterveil.search.canvas import ACCENT, BAD, FAINT, FONT, GOOD, INK, MARGIN, SOFT, WIDTH
from counterveil.search.wording import Change, show, show_both

MOST_LINES = 40  # changes that are drawn; of the others the number is written
ROW_HEIGHT, NAME_WIDTH, DOT, IMAGE_WIDTH = 0.56, 2.4, 0.07, 2.7  # inches
EDGE = "#c9d0da"


@dataclass(frozen=True)
class Answer:
    """One answer to one query, with all that its picture shows."""

    schema: Schema
    name: str  # which query and which answer
    text: str  # the answer as a sentence
    found: bool
    now: Category
    goal: Category
    probability: float
    changes: list[Change]
    kept: list[tuple[str, Any]]  # the columns that stay, with their values
    fixed: set[str]  # the features that cannot change


def draw(answer: Answer) -> canvas.Picture:
    """The picture of an answer, found or not."""
    if answer.schema.images:
        return _draw_images(answer)
    page = canvas.Canvas()
    if answer.found:
        _draw_title(page, answer)
    else:
        page.paragraph(answer.text.split(), size=12, color=INK)
        page.y += 0.05
        page.text(MARGIN, answer.name, color=SOFT)
        page.y += 0.35
    if answer.schema.family == "binary":
        _draw_bits(page, answer)
    else:
        _draw_changes(page, answer)
    return page.finish()


def _draw_title(page: canvas.Canvas, answer: Answer) -> None:
    """The decision now and then, and how many features change."""
    now, goal = (canvas.shorten(str(name), 2.6, 14, True) for name in (answer.now, answer.goal))
    end = page.text(MARGIN, now, 14, color=BAD, bold=True)
    page.arrow(end + 0.1, end + 0.42, SOFT)
    end = page.text(end + 0.52, goal, 14, color=GOOD, bold=True)
    page.text(end + 0.14, f"{answer.probability:.0%} sure", 11, color=SOFT)
    page.y += 0.32
    count = f"changed: {len(answer.changes)} of {len(answer.schema.columns)} features"
    end = page.text(MARGIN, f"{answer.name} · {count}", color=SOFT)
    if answer.schema.family == "mixed":
        page.dot(end + 0.3, FAINT, hollow=True)
        end = page.text(end + 0.42, "now", color=SOFT)
        page.dot(end + 0.3, ACCENT)
        page.text(end + 0.42, "then", color=SOFT)
    page.y += 0.5


def _draw_changes(page: canvas.Canvas, answer: Answer) -> None:
    """A line for each changed feature, and below in small letters what stays."""
    shown = answer.changes[:MOST_LINES]
    names = [_on_two_lines(column) for column, _, _ in shown]
    widest = max((canvas.width(line, 10.5) for name in names for line in name), default=0.0)
    start = MARGIN + widest + 0.35
    for name, (column, before, after) in zip(names, shown, strict=True):
        for place, line in enumerate(name):
            page.text(MARGIN, line, 10.5, y=page.y + (place - (len(name) - 1) / 2) * 0.18)
        bounds = wording.bounds_of(answer.schema, column)
        if bounds is None or before is None or after is None:
            _draw_two_texts(page, before, after, start)
        else:
            _draw_two_numbers(page, bounds, (before, after), start)
    if len(answer.changes) > MOST_LINES:
        page.text(MARGIN, f"… and {len(answer.changes) - MOST_LINES} more", color=SOFT)
        page.y += ROW_HEIGHT
    for title, is_fixed in (("cannot change:", True), ("unchanged:", False)):
        items = [
            f"{column} {show(value)} ·"
            for column, value in answer.kept
            if (column in answer.fixed) == is_fixed
        ]
        if items:
            items[-1] = items[-1].removesuffix(" ·")
            page.paragraph([title, *items], size=8.5, color=FAINT, lines=6)
            page.y += 0.06


def _on_two_lines(name: str) -> list[str]:
    """A long name on two lines, the second one shortened."""
    first, *rest = canvas.wrap(name.split(" "), NAME_WIDTH, 10.5)
    return [first, canvas.shorten(" ".join(rest), NAME_WIDTH, 10.5)] if rest else [first]


def _draw_two_numbers(
    page: canvas.Canvas, bounds: tuple[float, float], numbers: tuple[float, float], start: float
) -> None:
    """A number before and after as two dots on the range of the feature."""
    stop = WIDTH - MARGIN
    page.track(start, stop)
    before, after = np.interp([float(number) for number in numbers], bounds, (start, stop)).tolist()
    page.arrow(before, after, ACCENT, gap=DOT)
    page.dot(before, FAINT, hollow=True)
    page.dot(after, ACCENT)
    texts = show_both(*numbers)
    labels = [(before, texts[0], SOFT, False), (after, texts[1], ACCENT, True)]
    left, right = sorted(labels, key=lambda label: label[0])
    widths = canvas.width(left[1], 9.5, left[3]), canvas.width(right[1], 9.5, right[3])
    middles = canvas.keep_apart((left[0], right[0]), widths, start, stop)
    for x, (_, text, color, bold) in zip(middles, (left, right), strict=True):
        page.text(x, text, y=page.y - 0.17, ha="center", color=color, bold=bold)
    page.text(start, show(bounds[0]), 7.5, y=page.y + 0.15, color=FAINT)
    page.text(stop, show(bounds[1]), 7.5, y=page.y + 0.15, color=FAINT, ha="right")
    page.y += ROW_HEIGHT


def _draw_two_texts(page: canvas.Canvas, before: Any, after: Any, start: float) -> None:
    """A category before and after; long ones below each other."""
    most = WIDTH - MARGIN - start
    was, becomes = show_both(before, after)
    if canvas.width(was, 10) + canvas.width(becomes, 10, bold=True) + 0.55 <= most:
        start = page.text(start, was, 10, color=SOFT) + 0.1
    else:
        page.text(start, canvas.shorten(was, most, 10), 10, y=page.y - 0.1, color=SOFT)
        becomes = canvas.shorten(becomes, most - 0.45, 10, bold=True)
        page.y += 0.1
    page.arrow(start, start + 0.35, ACCENT)
    page.text(start + 0.45, becomes, 10, color=ACCENT, bold=True)
    page.y += ROW_HEIGHT - 0.08


def _draw_bits(page: canvas.Canvas, answer: Answer) -> None:
    """Which bits are switched on, which are switched off, and how many stay."""
    yes = {each.name: (each.values or ())[1] for each in answer.schema.features}
    switched_on = [name for name, _, after in answer.changes if after == yes[name]]
    switched_off = [name for name, _, after in answer.changes if after != yes[name]]
    _draw_bit_names(page, "switch on", GOOD, switched_on)
    _draw_bit_names(page, "switch off", BAD, switched_off)
    on = sum(value == yes[name] for name, value in answer.kept)
    fixed = sum(name in answer.fixed for name, _ in answer.kept)
    words = f"{len(answer.kept):,} bits stay: {on:,} on, {len(answer.kept) - on:,} off"
    words += f"; {fixed:,} of them cannot change" if fixed else ""
    page.text(MARGIN, words, 8.5, color=FAINT)
    page.y += 0.15


def _draw_bit_names(page: canvas.Canvas, title: str, color: str, names: list[str]) -> None:
    """A title and below it the names of bits, in up to four columns; nothing without names."""
    if not names:
        return
    page.text(MARGIN, f"{title} ({len(names)})", 10.5, color=color, bold=True)
    page.y += 0.3
    room = WIDTH - 2 * MARGIN
    shown = names[: 3 * MOST_LINES]
    widest = min(max(canvas.width(name, 9.5) for name in shown) + 0.45, room)
    columns = min(int(room // widest), 4)
    for number, name in enumerate(shown):
        place = number % columns
        page.y += 0.27 if number and place == 0 else 0.0
        x = MARGIN + place * room / columns
        page.dot(x + 0.06, color, marker="s", hollow=color == BAD)
        page.text(x + 0.2, canvas.shorten(name, room / columns - 0.3, 9.5))
    page.y += 0.27
    if len(names) > len(shown):
        page.text(MARGIN, f"… and {len(names) - len(shown)} more", color=SOFT)
        page.y += 0.27
    page.y += 0.12


def _draw_images(answer: Answer) -> canvas.Picture:
    """Query, counterfactual and difference side by side; a line for each image of the row."""
    images = answer.schema.images
    now, goal = (textwrap.shorten(str(name), 30) for name in (answer.now, answer.goal))
    then = f"then: {goal} ({answer.probability:.0%} sure)"
    titles = [f"now: {now}", then, "difference"] if answer.found else [f"now: {now}"]
    head = textwrap.wrap(_head(answer), 100 if answer.found else 50)
    shapes = [min(max(image.height / image.breadth, 0.3), 3.0) for image in images]
    heights = [IMAGE_WIDTH * shape + 0.45 for shape in shapes]
    size = (
        IMAGE_WIDTH * len(titles) + (1.2 if answer.found else 1.6),
        sum(heights) + 0.4 + 0.18 * len(head),
    )
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.1)
    picture = canvas.Picture(figsize=size, layout=layout)
    panels = picture.subplots(len(images), len(titles), squeeze=False, height_ratios=heights)
    old = dict(answer.kept) | {column: before for column, before, _ in answer.changes}
    new = old | {column: after for column, _, after in answer.changes}
    for line, image in zip(panels, images, strict=True):
        before, after = _pixels(image, old), _pixels(image, new)
        drawn = (before, after, after - before)
        for panel, title, pixels in zip(line, titles, drawn, strict=False):
            panel.set_title(title, fontsize=10.5, color=INK, fontfamily=FONT, parse_math=False)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_color(EDGE)
            if title == "difference":
                _draw_difference(picture, panel, pixels.mean(axis=2))
            else:  # three channels are red, green and blue; of any other number the mean is shown
                shown = pixels if image.channels == 3 else pixels.mean(axis=2)
                panel.imshow(shown / image.levels, cmap="gray", vmin=0, vmax=1)
    picture.suptitle("\n".join(head), fontsize=9.5, color=SOFT, fontfamily=FONT, parse_math=False)
    return picture


def _head(answer: Answer) -> str:
    """Which answer it is, and what changes besides the image."""
    if not answer.found:
        return f"{answer.name}: {answer.text}"
    pixels = wording.pixel_columns(answer.schema)
    others = [change for change in answer.changes if change[0] not in pixels]
    also = f", if also {wording.condition(answer.schema, others)}" if others else ""
    return answer.name + also


def _pixels(image: Pixels, values: dict[str, Any]) -> Array:
    """The (height, breadth, channels) array of an image, from the values of a row by column."""
    flat = np.array([values[column] for column in image.columns], dtype=float)
    return flat.reshape(image.height, image.breadth, image.channels)


def _draw_difference(picture: canvas.Picture, panel: Any, change: Array) -> None:
    """A (height, breadth) array of changes: red where it gets brighter, blue where darker."""
    most = float(np.abs(change).max()) or 1.0
    drawn = panel.imshow(change, cmap="RdBu_r", vmin=-most, vmax=most)
    bar = picture.colorbar(drawn, ax=panel, fraction=0.05, pad=0.04)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=SOFT, color=EDGE, labelfontfamily=FONT)
    bar.set_label("darker          brighter", fontsize=8, color=SOFT, fontfamily=FONT)
