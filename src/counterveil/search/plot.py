"""An answer as a picture: what changed in a table, in a set of bits, in an image.

Needs matplotlib; `Explanations.plot` imports this module when it is asked for.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from counterveil.schema import Feature, Pixels
from counterveil.search.sheet import (
    ACCENT,
    BAD,
    FAINT,
    FONT,
    GOOD,
    INK,
    MARGIN,
    SOFT,
    WIDTH,
    Picture,
    Sheet,
    apart,
    shorten,
    width,
    wrap,
)
from counterveil.search.words import condition, pixel_columns, show, show_both

if TYPE_CHECKING:
    from counterveil.search.result import Explanations

MOST_LINES = 40  # changes that are drawn; how many more there are is written
ROW, NAME = 0.56, 2.4  # inches: from line to line, and for a name at most
DOT = 0.07
PANEL = 2.7  # inches: the breadth of an image
EDGE = "#c9d0da"


def draw(result: Explanations, query: int, answer: int) -> Picture:
    """The picture of one answer, found or not."""
    if result.schema.images:
        return _images(result, query, answer)
    sheet = Sheet()
    _title(sheet, result, query, answer)
    if result.schema.family == "binary":
        _bits(sheet, result, query, answer)
    else:
        _table(sheet, result, query, answer)
    return sheet.finish()


def _title(sheet: Sheet, result: Explanations, query: int, answer: int) -> None:
    """The decision now and then, and how much changes."""
    changes = result.changes_of(query, answer)
    if not result.valid[result.at(query, answer)]:
        sheet.paragraph(result.text(query, answer).split(), size=12, color=INK)
        sheet.y += 0.05
        sheet.text(MARGIN, _which(result, query, answer), color=SOFT)
        sheet.y += 0.35
        return
    now, goal = (
        shorten(str(name), 2.6, 14, bold=True) for name in result.classes_of(query, answer)
    )
    end = sheet.text(MARGIN, now, size=14, color=BAD, bold=True)
    sheet.arrow(end + 0.1, end + 0.42, SOFT)
    end = sheet.text(end + 0.52, goal, size=14, color=GOOD, bold=True)
    sure = f"{result.probability[result.at(query, answer)]:.0%} sure"
    sheet.text(end + 0.14, sure, size=11, color=SOFT)
    sheet.y += 0.32
    count = f"changed: {len(changes)} of {len(result.schema.columns)} features"
    end = sheet.text(MARGIN, f"{_which(result, query, answer)} · {count}", color=SOFT)
    if result.schema.family == "mixed":
        for words, hollow in (("now", True), ("then", False)):
            sheet.dot(end + 0.3, FAINT if hollow else ACCENT, hollow=hollow)
            end = sheet.text(end + 0.42, words, color=SOFT)
    sheet.y += 0.5


def _which(result: Explanations, query: int, answer: int) -> str:
    return f"query {query}" + (f" · answer {answer}" if result.k > 1 else "")


def _table(sheet: Sheet, result: Explanations, query: int, answer: int) -> None:
    """One line a changed feature, and in small what stays."""
    changes = result.changes_of(query, answer)
    shown = changes[:MOST_LINES]
    names = [_two_lines(column) for column, _, _ in shown]
    start = MARGIN + max((width(line, 10.5) for name in names for line in name), default=0.0) + 0.35
    for name, (column, before, after) in zip(names, shown, strict=True):
        for place, line in enumerate(name):
            offset = (place - (len(name) - 1) / 2) * 0.18
            sheet.text(MARGIN, line, y=sheet.y + offset, size=10.5)
        feature = result.schema.feature(column)
        if feature.number_range is not None and None not in (before, after):
            _dumbbell(sheet, feature, before, after, start)
        else:
            _two_words(sheet, before, after, start)
    if len(changes) > MOST_LINES:
        sheet.text(MARGIN, f"… and {len(changes) - MOST_LINES} more", color=SOFT)
        sheet.y += ROW
    kept = result.kept_of(query, answer)
    fixed = _fixed(result)
    for title, group in (
        ("cannot change:", [(column, value) for column, value in kept if column in fixed]),
        ("unchanged:", [(column, value) for column, value in kept if column not in fixed]),
    ):
        if group:
            items = [f"{column} {show(value)} ·" for column, value in group]
            items[-1] = items[-1].removesuffix(" ·")
            sheet.paragraph([title, *items], size=8.5, color=FAINT, lines=6)
            sheet.y += 0.06


def _two_lines(name: str) -> list[str]:
    """A long name on two lines, the second one shortened."""
    first, *rest = wrap(name.split(" "), NAME, 10.5) or [name]
    return [first, shorten(" ".join(rest), NAME, 10.5)] if rest else [first]


def _dumbbell(sheet: Sheet, feature: Feature, before: float, after: float, start: float) -> None:
    """A number before and after on the feature's own range."""
    stop = WIDTH - MARGIN
    sheet.track(start, stop)
    lower, upper = feature.number_range or (0.0, 1.0)
    span = upper - lower
    places = [start + (float(v) - lower) / span * (stop - start) for v in (before, after)]
    sheet.arrow(places[0], places[1], ACCENT, gap=DOT)
    sheet.dot(places[0], FAINT, hollow=True)
    sheet.dot(places[1], ACCENT)
    texts = show_both(before, after)
    styles: list[dict[str, Any]] = [{"color": SOFT}, {"color": ACCENT, "bold": True}]
    order = (0, 1) if places[0] <= places[1] else (1, 0)
    widths = [width(text, 9.5, bold=bool(number)) for number, text in enumerate(texts)]
    left, right = order
    middles = apart(places[left], places[right], (widths[left], widths[right]), start, stop)
    for number, middle in zip(order, middles, strict=True):
        sheet.text(middle, texts[number], y=sheet.y - 0.17, anchor="center", **styles[number])
    for x, bound, anchor in ((start, lower, "left"), (stop, upper, "right")):
        whole = int(bound) if feature.is_whole else bound
        sheet.text(x, show(whole), y=sheet.y + 0.15, size=7.5, color=FAINT, anchor=anchor)
    sheet.y += ROW


def _two_words(sheet: Sheet, before: Any, after: Any, start: float) -> None:
    """A category before and after; long ones below each other."""
    most = WIDTH - MARGIN - start
    was, becomes = show_both(before, after)
    if width(was, 10) + width(becomes, 10, bold=True) + 0.55 <= most:
        start = sheet.text(start, was, size=10, color=SOFT) + 0.1
    else:
        sheet.text(start, shorten(was, most, 10), y=sheet.y - 0.1, size=10, color=SOFT)
        becomes = shorten(becomes, most - 0.45, 10, bold=True)
        sheet.y += 0.1
    sheet.arrow(start, start + 0.35, ACCENT)
    sheet.text(start + 0.45, becomes, size=10, color=ACCENT, bold=True)
    sheet.y += ROW - 0.08


def _bits(sheet: Sheet, result: Explanations, query: int, answer: int) -> None:
    """Which bits are switched on, which off, and how many stay."""
    on = {f.name: f.values[1] for f in result.schema.features if f.values is not None}
    changes = result.changes_of(query, answer)
    for title, color, names in (
        ("switch on", GOOD, [column for column, _, after in changes if after == on[column]]),
        ("switch off", BAD, [column for column, _, after in changes if after != on[column]]),
    ):
        if names:
            _bit_list(sheet, f"{title} ({len(names)})", color, names)
    kept = result.kept_of(query, answer)
    lit = sum(value == on[column] for column, value in kept)
    fixed = len(_fixed(result))
    words = f"{len(kept):,} bits stay: {lit:,} on, {len(kept) - lit:,} off"
    words += f"; {fixed:,} of them cannot change" if fixed else ""
    sheet.text(MARGIN, words, size=8.5, color=FAINT)
    sheet.y += 0.15


def _bit_list(sheet: Sheet, title: str, color: str, names: list[str]) -> None:
    sheet.text(MARGIN, title, size=10.5, color=color, bold=True)
    sheet.y += 0.3
    room = WIDTH - 2 * MARGIN
    shown = names[: 3 * MOST_LINES]
    widest = min(max(width(name, 9.5) for name in shown) + 0.45, room)
    columns = min(int(room // widest), 4)
    for first in range(0, len(shown), columns):
        for place, name in enumerate(shown[first : first + columns]):
            x = MARGIN + place * room / columns
            sheet.dot(x + 0.06, color, marker="s", hollow=color == BAD)
            sheet.text(x + 0.2, shorten(name, room / columns - 0.3, 9.5))
        sheet.y += 0.27
    if len(names) > len(shown):
        sheet.text(MARGIN, f"… and {len(names) - len(shown)} more", color=SOFT)
        sheet.y += 0.27
    sheet.y += 0.12


def _fixed(result: Explanations) -> set[str]:
    """The features that nobody can change."""
    always = {feature.name for feature in result.schema.features if feature.immutable}
    return always | set(result.fixed)


def _images(result: Explanations, query: int, answer: int) -> Picture:
    """Query, counterfactual and difference side by side; a line for each image of the row."""
    at, found = result.at(query, answer), bool(result.valid[result.at(query, answer)])
    images = result.schema.images
    now, goal = (textwrap.shorten(str(name), 30) for name in result.classes_of(query, answer))
    titles = [f"now: {now}"]
    if found:
        titles += [f"then: {goal} ({result.probability[at]:.0%} sure)", "difference"]
    head = textwrap.wrap(_head(result, query, answer), 100 if found else 50)
    tall = [PANEL * min(max(image.height / image.breadth, 0.3), 3.0) + 0.45 for image in images]
    size = (PANEL * len(titles) + (1.2 if found else 1.6), sum(tall) + 0.4 + 0.18 * len(head))
    picture = Picture(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.1))
    panels = picture.subplots(
        len(images), len(titles), squeeze=False, gridspec_kw={"height_ratios": tall}
    )
    for line, image in zip(panels, images, strict=True):
        before, after = (
            frame[list(image.columns)].iloc[at].to_numpy(float).reshape(_shape(image))
            for frame in (result.queries, result.rows)
        )
        drawn = (before, after, after - before)
        for panel, title, pixels in zip(line, titles, drawn, strict=False):
            panel.set_title(title, fontsize=10.5, color=INK, fontfamily=FONT, parse_math=False)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_color(EDGE)
            if title == "difference":
                _difference(picture, panel, pixels)
            else:
                panel.imshow(_shown(pixels, image), cmap="gray", vmin=0, vmax=1)
    picture.suptitle("\n".join(head), fontsize=9.5, color=SOFT, fontfamily=FONT, parse_math=False)
    return picture


def _head(result: Explanations, query: int, answer: int) -> str:
    """Which answer it is, and what changes besides the image."""
    if not result.valid[result.at(query, answer)]:
        return f"{_which(result, query, answer)}: {result.text(query, answer)}"
    pixels = pixel_columns(result.schema)
    others = [change for change in result.changes_of(query, answer) if change[0] not in pixels]
    also = f", if also {condition(result.schema, others)}" if others else ""
    return _which(result, query, answer) + also


def _shape(image: Pixels) -> tuple[int, int, int]:
    return image.height, image.breadth, image.channels


def _shown(pixels: Any, image: Pixels) -> Any:
    """Three channels are red, green and blue; of any other number the mean is shown."""
    unit = pixels / image.levels
    return unit if image.channels == 3 else unit.mean(axis=2)


def _difference(picture: Picture, panel: Any, pixels: Any) -> None:
    """Red where it gets brighter, blue where it gets darker."""
    change = pixels.mean(axis=2)
    most = float(np.abs(change).max()) or 1.0
    drawn = panel.imshow(change, cmap="RdBu_r", vmin=-most, vmax=most)
    bar = picture.colorbar(drawn, ax=panel, fraction=0.05, pad=0.04)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, labelcolor=SOFT, color=EDGE, labelfontfamily=FONT)
    bar.set_label("darker          brighter", fontsize=8, color=SOFT, fontfamily=FONT)
