"""Details: everything that is known about the answers to one query, for whoever looks into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from counterveil.search.results.regions import value_text

if TYPE_CHECKING:
    from counterveil.search.results.explanations import Explanations


def details(result: Explanations, query: int) -> str:
    """Answers, measures, regions, reasons, calls of the model, rules and statement of one query."""
    answers, names = result.answers_of(query), result.schema.shown_name
    lines = [result.explain(query), ""]
    for each in answers:
        if not each.is_found:
            continue
        lines.append(f"{each.name.capitalize()}: {each.measures}")
        for column, region in each.regions.items():
            told = region.values or dict.fromkeys((region.low, region.high))
            values = [value_text(result.schema.shown_value(column, value)) for value in told]
            works = (", " if region.values else " to ").join(values)
            lines.append(f"  {names(column)} works: {works} (checked: {region.checked})")
    lines += ["", *result.meanings]
    lines.append("A region is about one change, while the others are as said.")
    if reasons := result.reasons_of(query):
        lines += ["", "Reasons, and by how much each lowers the log-odds of the other decision:"]
        for reason in reasons:
            value = value_text(result.schema.shown_value(reason.feature, reason.value))
            lines.append(f"  {reason.text}: {value} ({reason.gain:.2f})")
    lines += ["", *_rules(result, query)]
    if result.asked is not None:
        lines.append(f"Rows that the search asked about: {result.asked[query]:,}")
    lines += [result.decided_by.meaning, f"Statement: {result.statement.headline}"]
    return "\n".join(lines)


def _rules(result: Explanations, query: int) -> Iterator[str]:
    """What may not change, and all other rules of a query."""
    held = [*result.schema.immutable_names, *result.fixed]
    yield f"Fixed: {', '.join(map(result.schema.shown_name, dict.fromkeys(held))) or 'nothing'}"
    rules = result.rules_of(query)
    for name, said in rules or ():
        if said:
            yield f"Rule {name}: {sorted(said) if isinstance(said, frozenset) else said}"
