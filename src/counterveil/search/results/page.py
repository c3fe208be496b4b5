"""The page of explanations: one HTML file for people, with a card for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from counterveil.pages import TEMPLATES
from counterveil.search.results.answers import Status
from counterveil.search.results.wording import pixel_columns, told, told_value
from counterveil.signature import signer_line

if TYPE_CHECKING:
    from counterveil.search.results.explanations import Explanations

MOST_COLUMNS = 40  # of one row on a page


def explanations_page(result: Explanations, *, most: int) -> str:
    """A card for each of the first `most` queries, and what is promised.

    Queries that are of the target class already come last, in one line.
    """
    is_already = result.status[:: result.k] == Status.ALREADY.value
    asked, already = (np.flatnonzero(part).tolist() for part in (~is_already, is_already))
    return TEMPLATES.get_template("explanations.html").render(
        title=f"Explanations: {result.schema.name}",
        cards=[card(result, query) for query in asked[:most]],
        asked=len(asked),
        already=[query + 1 for query in already],
        result=result,
        counts={status.value: result.count(status) for status in Status},
        statement=result.statement,
        signed=signer_line(result.signer),
    )


def card(result: Explanations, query: int) -> dict[str, Any]:
    """The answers to one query for a template: changed columns, or a sentence for an image."""
    now, goal = result.shown_classes(query)
    pixels = pixel_columns(result.schema)
    ranks = [rank for rank in range(result.k) if result.valid[result.at(query, rank)]]
    missing = [rank for rank in range(result.k) if rank not in ranks]
    unchanged = [dict(result.kept_of(query, rank)) for rank in ranks]
    in_all = [
        told_value(result.schema, column, value)
        for column, value in (unchanged[0] if unchanged else {}).items()
        if column not in pixels and all(column in other for other in unchanged)
    ]
    answers = []
    for rank in ranks:
        changes = [] if pixels else result.changes_of(query, rank)
        shown = [told(result.schema, change) for change in changes[:MOST_COLUMNS]]
        answers.append(
            {
                "rank": rank + 1,
                "text": result.text(query, rank) if pixels else "",
                "measures": result.measures(query, rank),
                "worth": result.worth_in_words(query, rank),
                "changes": shown,
                "more": len(changes[MOST_COLUMNS:]),
            }
        )
    return {
        "number": query + 1,
        "now": now,
        "goal": goal,
        "several": result.k > 1,
        "answers": answers,
        "missing": result.text(query, missing[0]) if missing else "",
        "unchanged": in_all[:MOST_COLUMNS],
        "more": len(in_all[MOST_COLUMNS:]),
    }
