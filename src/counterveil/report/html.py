"""Self-contained HTML pages: one file each, with no script and nothing loaded from elsewhere.

The words and the layout are in the templates beside this file; here is what they are filled with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np

from counterveil.search.explanations import Explanations, Status
from counterveil.search.wording import pixel_columns, show, show_both

MOST_COLUMNS = 40  # of one row on a page
LEFT, RIGHT, TOP, BOTTOM = 84, 736, 24, 316  # edges of the chart's field, in pixels

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("counterveil", "report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


@dataclass(frozen=True)
class VeilScore:
    """How well the rows of the demo were explained with one veil: a line of its table."""

    mechanism: str
    noise: str
    promise: str
    reconstruction: float
    flip_ratio: float
    distance: float
    legal: float
    seconds_per_query: float


@dataclass(frozen=True)
class Curve:
    """Reconstruction error of mechanism `paper` for each ε, and without noise."""

    epsilons: tuple[float, ...]
    errors: tuple[float, ...]
    without_noise: float


def demo_page(
    scores: Sequence[VeilScore],
    curve: Curve,
    result: Explanations,
    facts: dict[str, str],
    fixed: tuple[str, ...],
) -> str:
    """The report of `counterveil demo`: scores, curve, and every explanation of `result`.

    `facts` are names and values shown at the top; `fixed` are the features held fixed.
    """
    return _TEMPLATES.get_template("demo.html").render(
        title="counterveil demo: counterfactuals that do not leak the training rows",
        scores=scores,
        chart=_chart(curve),
        cards=[_card(result, query) for query in range(len(result))],
        statement=result.statement,
        facts=facts,
        fixed=fixed,
    )


def explanations_page(result: Explanations, *, most: int = 100) -> str:
    """The report of `counterveil explain`: a card for each of the first `most` queries.

    Queries that are of the target class already come last, in one line.
    """
    is_already = result.status[:: result.k] == Status.ALREADY.value
    asked, already = (np.flatnonzero(part).tolist() for part in (~is_already, is_already))
    return _TEMPLATES.get_template("explanations.html").render(
        title=f"Explanations: {result.schema.name}",
        cards=[_card(result, query) for query in asked[:most]],
        asked=len(asked),
        already=already,
        result=result,
        counts={status.value: result.count(status) for status in Status},
        statement=result.statement,
    )


def _card(result: Explanations, query: int) -> dict[str, Any]:
    """What a template needs to show the answers to one query."""
    now, goal = result.classes_of(query)
    ranks = [rank for rank in range(result.k) if result.valid[result.at(query, rank)]]
    missing = [rank for rank in range(result.k) if rank not in ranks]
    pixels = pixel_columns(result.schema)
    unchanged = [dict(result.kept_of(query, rank)) for rank in ranks]
    in_all = [
        f"{column} {show(value)}"
        for column, value in (unchanged[0] if unchanged else {}).items()
        if column not in pixels and all(column in other for other in unchanged)
    ]
    return {
        "number": query,
        "now": now,
        "goal": goal,
        "several": result.k > 1,
        "answers": [_answer(result, query, rank) for rank in ranks],
        "missing": result.text(query, missing[0]) if missing else "",
        "unchanged": in_all[:MOST_COLUMNS],
        "more": len(in_all[MOST_COLUMNS:]),
    }


def _answer(result: Explanations, query: int, rank: int) -> dict[str, Any]:
    """One answer on a card: changed columns, or a sentence where the columns are pixels."""
    at = result.at(query, rank)
    image = bool(pixel_columns(result.schema))
    changes = [] if image else result.changes_of(query, rank)
    return {
        "rank": rank,
        "text": result.text(query, rank) if image else "",
        "probability": float(result.probability[at]),
        "distance": float(result.distance[at]),
        "changes": [(column, *show_both(*both)) for column, *both in changes[:MOST_COLUMNS]],
        "more": len(changes[MOST_COLUMNS:]),
    }


def _chart(curve: Curve) -> dict[str, Any]:
    """The curve in pixels; both axes are logarithmic."""
    levels = (*curve.errors, curve.without_noise)
    to_x = _log_scale(curve.epsilons, LEFT, RIGHT)
    to_y = _log_scale(levels, BOTTOM, TOP)
    points = sorted(zip(curve.epsilons, curve.errors, strict=True))
    return {
        "edges": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        "points": [(to_x(epsilon), to_y(error), epsilon, error) for epsilon, error in points],
        "ticks": [(to_y(level), level) for level in _round_numbers(min(levels), max(levels))],
        "without_noise": to_y(curve.without_noise),
    }


def _log_scale(values: Sequence[float], start: float, stop: float) -> Callable[[float], float]:
    """A map from numbers to pixels that puts all `values` between `start` and `stop`."""
    low, high = math.log(min(values)) - 0.15, math.log(max(values)) + 0.15
    return lambda value: start + (math.log(value) - low) / (high - low) * (stop - start)


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between `low` and `high`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return [number for number in numbers if low * 0.9 <= number <= high * 1.1]
