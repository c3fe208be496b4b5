"""Self-contained HTML pages: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np

from counterveil.report.chart import line_chart
from counterveil.search.explanations import Explanations, Status
from counterveil.search.wording import pixel_columns, show, show_both

MOST_COLUMNS = 40  # of one row on a page

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("counterveil", "report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


@dataclass(frozen=True)
class Measurement:
    """One line of the demo's table: a mechanism at an ε, and what is promised about it."""

    mechanism: str
    name: str
    promise: str
    epsilon: float
    reconstruction: float
    flip_ratio: float
    distance: float
    legal: float
    seconds_per_query: float


@dataclass(frozen=True)
class Curve:
    """Reconstruction error over ε, and without noise."""

    epsilons: tuple[float, ...]
    errors: tuple[float, ...]
    without_noise: float


def demo_page(
    measurements: list[Measurement],
    curve: Curve,
    result: Explanations,
    facts: dict[str, str],
    fixed: tuple[str, ...],
) -> str:
    """The report of `counterveil demo`."""
    chart = line_chart(
        curve.epsilons,
        curve.errors,
        reference=("without noise", curve.without_noise),
        x_label="ε (smaller: more noise)",
        y_label="reconstruction error (MSE)",
    )
    return _TEMPLATES.get_template("demo.html").render(
        title="counterveil demo: counterfactuals that do not leak the training rows",
        measurements=measurements,
        chart=chart,
        cards=[card(result, query) for query in range(len(result))],
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
        cards=[card(result, query) for query in asked[:most]],
        asked=len(asked),
        already=already,
        result=result,
        counts={status.value: result.count(status) for status in Status},
        statement=result.statement,
    )


def card(result: Explanations, query: int) -> dict[str, Any]:
    """What a template needs to show the answers to one query."""
    now, goal = result.classes_of(query)
    ranks = result.ranks_of(query)
    stay = [dict(result.kept_of(query, rank)) for rank in ranks]
    pixels = pixel_columns(result.schema)
    kept = [
        {"column": column, "value": show(value)}
        for column, value in (stay[0] if stay else {}).items()
        if column not in pixels and all(column in other for other in stay)
    ]
    missing = [rank for rank in range(result.k) if rank not in ranks]
    return {
        "number": query,
        "several": result.k > 1,
        "answers": [_answer(result, query, rank) for rank in ranks],
        "missing": result.text(query, missing[0]) if missing else "",
        "now": now,
        "goal": goal,
        "kept": kept[:MOST_COLUMNS],
        "kept_more": len(kept[MOST_COLUMNS:]),
    }


def _answer(result: Explanations, query: int, rank: int) -> dict[str, Any]:
    at = result.at(query, rank)
    changes = result.changes_of(query, rank)
    image = bool(pixel_columns(result.schema))
    lines = [] if image else [(column, *show_both(*values)) for column, *values in changes]
    return {
        "rank": rank,
        "text": result.text(query, rank) if image else "",
        "probability": float(result.probability[at]),
        "distance": float(result.distance[at]),
        "changes": lines[:MOST_COLUMNS],
        "more": len(lines[MOST_COLUMNS:]),
    }
