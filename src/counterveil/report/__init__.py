"""The report of the demo, and explanations and statements as tables of the terminal."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from counterveil.pages import TEMPLATES
from counterveil.search.action_summary import ActionSummary
from counterveil.search.results.answer import card
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.fairness import Fairness
from counterveil.search.results.wording import pixel_columns, told
from counterveil.signature import signer_line
from counterveil.terminal import cell

MOST_LINES = 20  # changes of one answer on the terminal
LEFT, RIGHT, TOP, BOTTOM = 84, 736, 24, 316  # edges of the chart's field, in pixels


class VeilScore(NamedTuple):
    """How well the rows of the demo were explained with one veil: a line of its table."""

    mechanism: str
    noise: str
    promise: str
    reconstruction: float
    flip_ratio: float
    distance: float
    legal: float
    seconds_per_query: float


class Curve(NamedTuple):
    """Reconstruction error of mechanism `paper` for each ε, and without noise."""

    epsilons: tuple[float, ...]
    errors: tuple[float, ...]
    without_noise: float


def demo_page(
    scores: Sequence[VeilScore],
    curve: Curve,
    result: Explanations,
    facts: dict[str, str],
    actions: ActionSummary,
    fairness: Fairness,
) -> str:
    """The report of `counterveil demo`: scores, curve, and every explanation of `result`.

    `facts`: names and values shown at the top. `actions` and `fairness`: of people of the veil.
    """
    return TEMPLATES.get_template("demo.html").render(
        title="counterveil demo: counterfactuals that do not leak the training rows",
        scores=scores,
        chart=_chart(curve),
        cards=[card(result.answers_of(query)) for query in range(len(result))],
        statement=result.statement,
        signed=signer_line(result.signer),
        facts=facts,
        letter=result.letter(0),
        actions=actions,
        fairness=fairness,
        fixed=[result.schema.shown_name(name) for name in result.schema.immutable_names],
    )


def _chart(curve: Curve) -> dict[str, Any]:
    """The curve in pixels; both axes are logarithmic."""
    levels = (*curve.errors, curve.without_noise)
    to_x = _log_scale(curve.epsilons, LEFT, RIGHT)
    to_y = _log_scale(levels, BOTTOM, TOP)
    points = sorted(zip(curve.epsilons, curve.errors, strict=True))
    powers = range(math.floor(math.log10(min(levels))), math.ceil(math.log10(max(levels))) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return {
        "edges": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        "points": [(to_x(epsilon), to_y(error), epsilon, error) for epsilon, error in points],
        "ticks": [(to_y(t), t) for t in ticks if min(levels) * 0.9 <= t <= max(levels) * 1.1],
        "without_noise": to_y(curve.without_noise),
    }


def _log_scale(values: Sequence[float], start: float, stop: float) -> Callable[[float], float]:
    """A map from numbers to pixels that puts all `values` between `start` and `stop`."""
    low, high = math.log(min(values)) - 0.15, math.log(max(values)) + 0.15
    return lambda value: start + (math.log(value) - low) / (high - low) * (stop - start)


def score_table(scores: Sequence[VeilScore], title: str) -> Table:
    """How well the demo's rows were explained with each veil."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("mechanism", "noise", "promise"):
        table.add_column(heading, no_wrap=True)
    for heading in ("flip ratio", "distance", "legal", "ms/query"):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in scores:
        numbers = f"{score.flip_ratio:.3f}", f"{score.distance:.2f}", f"{score.legal:.3f}"
        milliseconds = f"{1000 * score.seconds_per_query:.2f}"
        table.add_row(score.mechanism, score.noise, score.promise, *numbers, milliseconds)
    return table


def explanation_table(result: Explanations, query: int) -> RenderableType:
    """What would have to change for one query, answer by answer: column, from, to."""
    answers = result.answers_of(query)
    found = [each for each in answers if each.is_found]
    if not found:
        return cell(f"{answers[0].whose}: {answers[0].text}")
    parts: list[RenderableType] = []
    for answer in found:
        now, goal = answer.classes
        title = f"{answer.name.replace(' ·', ',')}: {now} → {goal} ({answer.measures})"
        if pixel_columns(result.schema):
            parts += [cell(title), cell(answer.text)]
            continue
        table = Table("change", "from", "to")
        for change in answer.changes[:MOST_LINES]:
            name, before, after = told(result.schema, change)
            table.add_row(cell(name), cell(before), cell(after, "bold"))
        if len(answer.changes) > MOST_LINES:
            table.add_row(f"… and {len(answer.changes) - MOST_LINES} more", "", "")
        parts += [cell(title, "bold"), table]
    if found[0].warning:
        parts.append(cell(found[0].warning))
    return Group(*parts)
