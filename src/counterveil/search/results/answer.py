"""One answer as people see it: what sentences, pictures and cards are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from counterveil.hints import either, short
from counterveil.schema import Category, Schema
from counterveil.search.results import regions, wording
from counterveil.search.results.refusals import UNCONVINCED, Opening, Status
from counterveil.search.results.regions import Region
from counterveil.search.results.wording import Change, DecidedBy

MOST_CARRIED = 3  # further columns beside the number of a query
MOST_COLUMNS = 40  # of one row on a page
LIFTED = {  # what a rule forbids, to be read after "if"
    "immutable": "{name} might change",
    "direction": "{name} might change in the other direction",
    "allowed": "{name} might change beyond the allowed values",
    "transitions": "{name} might change in other steps",
    "max_changes": "more than {limit} {features} might change",
    "only_one": "more than one feature of a group might change",
}


@dataclass(frozen=True)
class Refusal:
    """What is known about a query without an answer.

    - `asked`: how many rows the model was asked about.
    - `probability`: of the target class for the closest allowed row.
    - `changes`: what is different in that row.
    - `opening`: a rule whose lifting opens a way; None if none is known.
    - `opened`: what is different in the row that is then accepted.
    """

    asked: int
    probability: float
    changes: list[Change]
    opening: Opening | None = None
    opened: list[Change] = field(default_factory=list)

    @property
    def record(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        opening, after = self.opening, {column: value for column, _, value in self.opened}
        return {
            "asked": self.asked,
            "best_probability": self.probability,
            "closest": as_records(self.changes),
            "opens": opening
            and {
                "rule": opening.rule,
                "feature": opening.feature,
                "to": after.get(opening.feature or ""),
                "probability": float(opening.probability),
                "changes": as_records(self.opened),
            },
        }


@dataclass(frozen=True)
class Answer:
    """One of the answers to a query; `query` and `rank` are positions from 0.

    - `carried`: further columns of the query, such as a key.
    - `several`: whether each query was to have more than one answer.
    - `has_others`: whether the query has an answer, this one or another.
    - `classes`: what people call the class now, and the one asked for.
    - `kept`: the columns that stay, with their values.
    - `fixed`: features held besides those of the schema.
    - `numbers`: probability, distance and the measures of `AnswerQuality`, by name.
    - `beyond`, `places`: of numbers, by feature; see `AnswerQuality`.
    - `find_regions`: gives the `Region` of each change.
    - `refusal`: of the first answer of a query that has none.
    - `veil_knows`: whether the veil knows people well enough to compare with them; None where there
      is nothing to compare. `knows_pairs`: whether it knows which values go together.
    """

    schema: Schema
    decided_by: DecidedBy
    query: int
    carried: Mapping[str, Any]
    rank: int
    several: bool
    has_others: bool
    status: Status
    classes: tuple[Category, Category]
    changes: list[Change]
    kept: list[tuple[str, Any]]
    fixed: tuple[str, ...]
    numbers: Mapping[str, float]
    beyond: Mapping[str, float]
    places: Mapping[str, tuple[float, float]]
    reason: str
    find_regions: Callable[[], list[Region]]
    refusal: Refusal | None
    veil_knows: bool | None = None
    knows_pairs: bool | None = None

    @property
    def is_found(self) -> bool:
        """Whether this is a counterfactual."""
        return self.status is Status.FOUND

    @property
    def name(self) -> str:
        """Which answer to which query, counted from 1."""
        return f"{self.whose}{f' · answer {self.rank + 1}' if self.several else ''}"

    @property
    def whose(self) -> str:
        """Which query, counted from 1, with the first of its further columns: "query 3 (id 17)"."""
        told = [f"{name} {short(str(value))}" for name, value in self.carried.items()]
        words = f" ({', '.join(told[:MOST_CARRIED])})" if told else ""
        return f"query {self.query + 1}{words}"

    @property
    def condition(self) -> str:
        """What would have to be different, to be read after "if"."""
        return wording.condition(self.schema, self.changes)

    @property
    def sure(self) -> str:
        """How sure the model is of the target class, as "75% sure"."""
        return f"{self.numbers['probability']:.0%} sure"

    @property
    def measures(self) -> str:
        """The numbers in a line."""
        return " · ".join(f"{name} {value:.2f}" for name, value in self.numbers.items())

    @property
    def quality_in_words(self) -> list[str]:
        """How the answer compares with people of the target class, and how stable it is."""
        goal, share = self.classes[1], self.numbers.get("stability")
        if share is None:
            return []
        if self.schema.family == "image":
            return [wording.steadiness(share, goal)]
        told = [
            wording.compared(self.schema, change, self.beyond.get(change[0]))
            for change in self.changes
        ]
        people = [wording.people_with(goal, [*filter(None, told)])] if any(told) else []
        return [*people, wording.agreement(share)]

    @property
    def warning(self) -> str:
        """What the veil cannot tell about the answer."""
        return wording.warning(self.veil_knows, self.knows_pairs)

    @cached_property
    def regions(self) -> dict[str, Region]:
        """Which values of each change work, by column."""
        return {region.column: region for region in self.find_regions()}

    def works(self, change: Change, language: str = "en") -> str:
        """Which values of a change work, in words; "" where there is nothing to add."""
        region = self.regions.get(change[0])
        return "" if region is None else regions.in_words(self.schema, region, change, language)

    @property
    def regions_in_words(self) -> list[str]:
        """Which other values work, and which change could be left out, as sentences."""
        told = {self.schema.shown_name(each[0]): self.works(each) for each in self.changes}
        unneeded = [name for name, words in told.items() if words == regions.WORDS["en"]["stays"]]
        parts = [f"{name} {told[name]}" for name in told if told[name] and name not in unneeded]
        start = "What works" if len(told) == 1 else "What works, one at a time"
        said = [f"{start}: {'; '.join(parts)}."] if parts else []
        if unneeded:
            which = "one of these" if len(unneeded) > 1 else unneeded[0]
            names = f": {either(unneeded)}" if len(unneeded) > 1 else ""
            opening = f"{self.decided_by.asked.capitalize()} would {self.decided_by.verb}"
            said.append(f"{opening} the same if {which} stayed as it is{names}.")
        return said

    @property
    def also(self) -> list[str]:
        """What else works, and how the answer compares, for a case worker."""
        return [*(self.regions_in_words if self.is_found else []), *self.quality_in_words]

    @property
    def text(self) -> str:
        """What has to be different, in one sentence; without an answer why, and the closest row."""
        now, goal = self.classes
        if not self.is_found:
            return " ".join(filter(None, (self.verdict, self.closest, self.opens)))
        start = wording.opening(now, goal, self.decided_by)
        return f"{start} ({self.sure}) if {self.condition}."

    @property
    def verdict(self) -> str:
        """Why there is no answer."""
        (now, goal), by, refusal = self.classes, self.decided_by, self.refusal
        if self.status is Status.ALREADY:
            return f"{by.asked.capitalize()} already says {goal}; nothing needs to change."
        if self.status is Status.IMPOSSIBLE:
            who = "it" if by.says(now) else by.asked
            said = f"Proved: no row within the rules makes {who} {by.verb} {goal}"
            why = "" if self.reason.startswith("proved") else f": {self.reason}"
        else:
            said = f"No {'other way' if self.has_others else 'way'} to {goal} was found"
            why = f": {self.reason}" if self.reason else " within the rules"
            if refusal and refusal.asked:
                why = "" if self.reason.startswith(UNCONVINCED) else why
                rows = "1 row" if refusal.asked == 1 else f"{refusal.asked:,} rows"
                why += f"; {by.asked} was asked about {rows}"
        return f"{by.says(now)}{said}{why}."

    @property
    def closest(self) -> str:
        """The allowed row for which the model is surest, as a sentence; "" if it is not known."""
        refusal, proved = self.refusal, self.status is Status.IMPOSSIBLE
        if refusal is None:
            return ""
        sure = f"{refusal.probability:.0%} sure"
        if not refusal.changes:
            return f"No allowed change makes {self.decided_by.asked} surer than now ({sure})."
        given = wording.given(self.schema, refusal.changes)
        if proved:
            return f"Even with {given}, it would be only {sure}."
        return f"The closest allowed: with {given}, it would be {sure}."

    @property
    def opens(self) -> str:
        """Which rule, if lifted, opens a way, as a sentence; "" if none is known."""
        if self.refusal is None or self.refusal.opening is None:
            return ""
        opening, changes = self.refusal.opening, self.refusal.opened
        name = None if opening.feature is None else self.schema.shown_name(opening.feature)
        lifted = LIFTED.get(opening.rule, "the rule {rule} did not hold")
        if name is None and "{name}" in lifted:
            lifted = "the rule {rule} did not hold"
        limit = "so many" if opening.limit is None else opening.limit
        features = "feature" if limit == 1 else "features"
        lifted = lifted.format(name=name, limit=limit, features=features, rule=opening.rule)
        example = ""
        if [column for column, *_ in changes] == [opening.feature]:
            example = f", for example to {wording.told(self.schema, changes[0])[2]}"
        elif changes:
            example = f", for example with {wording.given(self.schema, changes)}"
        return f"It would become possible if {lifted}{example} ({opening.probability:.0%} sure)."


def as_records(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Changes as plain values for JSON."""
    return [{"column": name, "from": before, "to": after} for name, before, after in changes]


def in_sentences(answers: Sequence[Answer]) -> str:
    """The answers to one query in sentences, and how they compare with other people."""
    first, found = answers[0], [each for each in answers if each.is_found]
    if len(found) < 2:
        return " ".join(filter(None, [first.text, *first.also, first.warning]))
    lines = [wording.opening(*first.classes, first.decided_by)]
    for each in found:
        start = "if" if len(lines) == 1 else "Or: if"
        line = f"  ({each.rank + 1}) {start} {each.condition} ({each.sure})."
        lines.append(" ".join([line, *each.also]))
    return "\n".join(filter(None, [*lines, first.warning]))


def card(answers: Sequence[Answer]) -> dict[str, Any]:
    """All answers to one query, as the macro `explanation` of pages/parts.html takes them.

    Changed columns are a table; an image is a sentence. A query without an answer shows the closest
    allowed row.
    """
    first, schema = answers[0], answers[0].schema
    pixels = wording.pixel_columns(schema)
    found = [each for each in answers if each.is_found]
    missing = [each for each in answers if not each.is_found]
    closest = first.refusal if first.refusal and first.refusal.changes and not pixels else None

    def table(changes: Sequence[Change], of: Answer | None = None) -> dict[str, Any]:
        shown = [] if pixels else changes[:MOST_COLUMNS]
        rows = [(*wording.told(schema, each), of.works(each) if of else "") for each in shown]
        more = 0 if pixels else len(changes[MOST_COLUMNS:])
        return {"changes": rows, "more": more, "works": any(row[-1] for row in rows)}

    kept = [dict(each.kept) for each in found] or [{}]
    in_all = [
        wording.told_value(schema, column, value)
        for column, value in kept[0].items()
        if column not in pixels and all(column in other for other in kept)
    ]
    return {
        "whose": first.whose,
        "now": first.classes[0],
        "goal": first.classes[1],
        "several": first.several,
        "answers": [
            {
                "rank": each.rank + 1,
                "text": each.text if pixels else "",
                "measures": each.measures,
                "quality": [*each.quality_in_words, *filter(None, [each.warning])],
                **table(each.changes, each),
            }
            for each in found
        ],
        "missing": first.verdict if closest else missing[0].text if missing else "",
        "closest": closest and {"probability": closest.probability, **table(closest.changes)},
        "opens": first.opens,
        "unchanged": in_all[:MOST_COLUMNS],
        "more": len(in_all[MOST_COLUMNS:]),
    }
