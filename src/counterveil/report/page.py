"""Self-contained HTML pages: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jinja2

from counterveil.report.chart import line_chart
from counterveil.search.result import Explanations, Status, show, show_both

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
    """The report of `counterveil explain`: a card for each of the first `most` queries."""
    counts = {status.value: int((result.status == status.value).sum()) for status in Status}
    return _TEMPLATES.get_template("explanations.html").render(
        title=f"Explanations: {result.schema.name}",
        cards=[card(result, query) for query in range(min(most, len(result)))],
        total=len(result),
        counts=counts,
        flip_ratio=result.flip_ratio,
        distance=result.mean_distance,
        statement=result.statement,
    )


def card(result: Explanations, query: int) -> dict[str, Any]:
    """What a template needs to show one answer."""
    classes = result.schema.label.classes
    shown = [(column, *show_both(*values)) for column, *values in result.changes_of(query)]
    changes = [dict(zip(("column", "before", "after"), change, strict=True)) for change in shown]
    kept = [{"column": column, "value": show(value)} for column, value in result.kept_of(query)]
    return {
        "number": query,
        "found": result.status[query] == Status.FOUND.value,
        "text": result.text(query),
        "now": classes[result.predicted[query]],
        "goal": classes[result.target[query]],
        "probability": float(result.probability[query]),
        "distance": float(result.distance[query]),
        "changes": changes[:40],
        "kept": kept[:40],
    }
