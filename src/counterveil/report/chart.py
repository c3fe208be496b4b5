"""A line chart as SVG text: logarithmic in x and y, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 24, 64


def line_chart(
    x: Sequence[float],
    y: Sequence[float],
    *,
    x_label: str,
    y_label: str,
    reference: tuple[str, float] | None = None,
) -> Markup:
    """y over x with points marked and labelled; `reference` is a dashed level."""
    points = sorted(zip(x, y, strict=True))
    levels = [value for _, value in points] + ([reference[1]] if reference else [])
    to_x = _log_scale([point[0] for point in points], LEFT, WIDTH - RIGHT)
    to_y = _log_scale(levels, HEIGHT - BOTTOM, TOP)
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'aria-label="{escape(y_label)} over {escape(x_label)}">'
    ]
    for tick in _decades(min(levels), max(levels)):
        parts.append(_level("grid", to_y(tick), right))
        parts.append(_text("tick", LEFT - 10, to_y(tick) + 4, f"{tick:g}", "end"))
    for value, _ in points:
        parts.append(_text("tick", to_x(value), floor + 22, f"{value:g}", "middle"))
    if reference:
        parts.append(_level("reference", to_y(reference[1]), right))
        parts.append(_text("tick", LEFT + 6, to_y(reference[1]) - 6, reference[0], "start"))
    path = " ".join(f"{to_x(a):.1f},{to_y(b):.1f}" for a, b in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    for a, b in points:
        dot = f'<circle class="dot" cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="4.5">'
        parts.append(f"{dot}<title>{b:.4g} at {a:g}</title></circle>")
    parts.append(_text("axis", (LEFT + right) / 2, HEIGHT - 12, x_label, "middle"))
    turned = f"translate(20 {(TOP + floor) / 2:.1f}) rotate(-90)"
    parts.append(f'<g transform="{turned}">{_text("axis", 0, 0, y_label, "middle")}</g>')
    parts.append("</svg>")
    return Markup("\n".join(parts))


def _level(kind: str, y: float, right: float) -> str:
    return f'<line class="{kind}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(kind: str, x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def _log_scale(values: Sequence[float], start: float, stop: float) -> Callable[[float], float]:
    low, high = math.log(min(values)) - 0.15, math.log(max(values)) + 0.15
    return lambda value: start + (math.log(value) - low) / (high - low) * (stop - start)


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between low and high."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    return [tick for tick in ticks if low * 0.9 <= tick <= high * 1.1]
