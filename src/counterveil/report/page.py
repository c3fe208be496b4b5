"""Self-contained HTML pages: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jinja2

from counterveil.report.chart import line_chart
from counterveil.search.result import Explanations, Status, show

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("counterveil", "report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


@dataclass(frozen=True)
class Measurement:
    """One line of the demo's table."""

    name: str
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
        title="counterveil demo: counterfactuals under the functional mechanism",
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
    changes = [
        {"column": column, "before": show(before), "after": show(after)}
        for column, before, after in result.changes_of(query)
    ]
    kept = [
        {"column": column, "value": show(result.queries.iloc[query][column])}
        for column in result.schema.columns
        if all(change["column"] != column for change in changes)
    ]
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
