"""Cards of pages: the answers to one query for a template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterveil.search.results.answer import Answer
from counterveil.search.results.wording import Change, pixel_columns, told, told_value

MOST_COLUMNS = 40  # of one row on a page


def card(answers: Sequence[Answer]) -> dict[str, Any]:
    """All answers to one query, as the macro `explanation` of pages/parts.html takes them.

    Changed columns are a table; an image is a sentence. A query without an answer shows the closest
    allowed row.
    """
    first, schema = answers[0], answers[0].schema
    pixels = pixel_columns(schema)
    found = [each for each in answers if each.is_found]
    missing = [each for each in answers if not each.is_found]
    closest = first.refusal if first.refusal and first.refusal.changes and not pixels else None

    def table(changes: Sequence[Change]) -> dict[str, Any]:
        shown = [] if pixels else [told(schema, change) for change in changes]
        return {"changes": shown[:MOST_COLUMNS], "more": len(shown[MOST_COLUMNS:])}

    kept = [dict(each.kept) for each in found]
    in_all = [
        told_value(schema, column, value)
        for column, value in (kept[0] if kept else {}).items()
        if column not in pixels and all(column in other for other in kept)
    ]
    return {
        "number": first.query + 1,
        "now": first.classes[0],
        "goal": first.classes[1],
        "several": first.several,
        "answers": [
            {
                "rank": each.rank + 1,
                "text": each.text if pixels else "",
                "measures": each.measures,
                "quality": each.quality_in_words,
                **table(each.changes),
            }
            for each in found
        ],
        "missing": first.verdict if closest else missing[0].text if missing else "",
        "closest": closest and {"probability": closest.probability, **table(closest.changes)},
        "opens": first.opens,
        "unchanged": in_all[:MOST_COLUMNS],
        "more": len(in_all[MOST_COLUMNS:]),
    }
