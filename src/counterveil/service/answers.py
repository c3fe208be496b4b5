"""What is said: explanations as plain values, one record a row."""

from typing import Any

from counterveil.search import Explanations
from counterveil.search.asking import go_on
from counterveil.search.results.letters import Letters
from counterveil.search.results.refusals import Status
from counterveil.search.results.tables import or_none
from counterveil.search.results.wording import DecidedBy
from counterveil.tables import plain_rows


def records(
    result: Explanations, *, regions: bool = False, letter: str | None = None
) -> list[dict[str, Any]]:
    """One record for each query, with its ways.

    `status` is that of the first way. Numbers of a way: `probability` of the target class,
    `distance` (L2, every encoded number between 0 and 1), and `effort`, `plausibility` and
    `stability` where the veil knows the people; `veil_knows` is false where it is too noisy for
    that, `knows_pairs` where it does not know which values go together. `places`: of each number
    the share of people below it, before and after. A query without a way has a `text`, and as far
    as it is known: `asked`, how many rows the model was asked about; `closest`, the changes of the
    allowed row for which it is surest; `best_probability`, how sure; `opens`, a rule whose lifting
    opens a way. With `regions` each change has what works there, and
    each record the main `reasons`. `letter`: its language; each record then has a `letter`, and
    each change what `works` in words, or "".
    """
    letters = None if letter is None else Letters(result, letter)
    rows, valid = plain_rows(result.rows), result.valid
    asked = result.decided_by is not DecidedBy.STAND_IN
    found = []
    for query in range(len(result)):
        go_on()
        now, goal = result.classes_of(query)
        first, refusal = result.at(query, 0), result.refusal_of(query)
        record: dict[str, Any] = {
            "status": str(result.status[first]),
            "decision": now if asked else None,
            "target": goal,
            "ways": [
                _way(result, query, way, rows, regions=regions, letter=letter)
                for way in range(result.k)
                if valid[result.at(query, way)]
            ],
        }
        if result.status[first] != Status.FOUND.value:
            record["text"] = result.text(query)
        if regions:
            record["reasons"] = [reason.record for reason in result.reasons_of(query)]
        if letters is not None:
            record["letter"] = letters.text(query)
        found.append(record | (refusal.record if refusal else {}))
    return found


def _way(
    result: Explanations,
    query: int,
    way: int,
    rows: list[dict[str, Any]],
    *,
    regions: bool,
    letter: str | None,
) -> dict[str, Any]:
    answer, at = result.answer_of(query, way), result.at(query, way)
    known = {each["column"]: each for each in result.region_of(query, way)} if regions else {}
    changes = []
    for column, before, after in answer.changes:
        change = {"column": column, "from": before, "to": after, **known.get(column, {})}
        if letter is not None:
            change["works"] = answer.works((column, before, after), letter)
        if column in answer.places:
            change["places"] = [round(float(place), 4) for place in answer.places[column]]
        changes.append(change)
    return {
        "changes": changes,
        **{name: or_none(value) for name, value in answer.numbers.items()},
        "veil_knows": answer.veil_knows,
        "knows_pairs": answer.knows_pairs,
        "text": answer.text,
        "row": rows[at],
    }
