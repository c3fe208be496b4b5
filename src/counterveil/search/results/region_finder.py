"""Regions: the values of a changed feature that work, while the rest of the answer stays as it is.

Of a number it is the interval around the answer's value in which the model gives the target class,
of a category the list of values for which it does. The rules of the query hold for all of them, by
the function that checks answers. A region is about one feature: two numbers that both move within
their regions may leave the target class.

The model is asked about values on a grid, and where it changes its mind the boundary is narrowed
down to the last value. All answers are asked about together, in a handful of calls. What the model
was not asked about lies between two values that it accepts:

- "exact": every value was asked about; or the model adds up over features
  (`counterveil.models.additive`) and was asked about all places where a number's line bends.
- "on a grid of N points": any other number.

A model whose calls are counted (`calls_left`) is not asked: a region is the answer's own value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from counterveil.encoding import Array, Block
from counterveil.models import Rows, TargetModel
from counterveil.population import MixedPopulation
from counterveil.schema import Link
from counterveil.schema.columns import numbers_of
from counterveil.search.asking import go_on, wherever_it_can
from counterveil.search.components import SearchComponents
from counterveil.search.constraints.bounds import Box, ManyRules, distinct_rules
from counterveil.search.constraints.rules import Rules
from counterveil.search.results.interval import Line
from counterveil.search.results.regions import EXACT, Region

QUANTILES = 32  # of P~ that are looked at
AT_ONCE = 1 << 15  # rows for one call of the model
ITSELF = "the answer's own value"

Legal = Callable[[Rows, Rows, ManyRules, Box], Array]


# A search gives values to try, gets back which of them work, and in the end the region.
Search = Generator[Sequence[Any], Array, Region]


@dataclass(frozen=True, eq=False)
class RegionFinder:
    """Finds the regions of answers, whose positions it is given.

    `legal`: the function that checks answers. `queries`, `answers`: rows in original units, one an
    answer. `rules`: for all, or a sequence with one an answer. `box`: of every answer. `targets`:
    class numbers; `found`: whether there is an answer; `probability`: of the target class,
    (answers,). `least`: how probable that class must be; an answer that is less so is enough.
    """

    components: SearchComponents
    legal: Legal
    queries: Rows
    answers: Rows
    rules: ManyRules
    box: Box
    targets: Array
    found: Array
    probability: Array
    least: float

    def __call__(self, at: Array) -> list[list[Region]]:
        """The regions of the answers at these positions, one for each changed feature."""
        lines = [(int(each), place) for each in at for place in self._changed(int(each))]
        searches = [self._search(answer, place) for answer, place in lines]
        regions: dict[int, list[Region]] = {int(each): [] for each in at}
        for (answer, _), region in zip(lines, self._together(lines, searches), strict=True):
            regions[answer].append(region)
        return [regions[int(each)] for each in at]

    def _changed(self, answer: int) -> list[int]:
        """The numbers of the features that an answer changes, but for pixels."""
        if not self.found[answer]:
            return []
        moved = self.answers.encoded[answer] != self.queries.encoded[answer]
        return [
            number
            for number, block in enumerate(self._blocks)
            if moved[block.at].any() and len(block.feature.columns) == 1
        ]

    @property
    def model(self) -> TargetModel:
        return self.components.model

    @property
    def _blocks(self) -> tuple[Block, ...]:
        return self.model.encoding.blocks

    @cached_property
    def _links(self) -> dict[str, list[Link]]:
        links = self.model.schema.links
        return {each.source: [one for one in links if one.source == each.source] for each in links}

    def _rules_of(self, answers: Sequence[int]) -> ManyRules:
        rules = self.rules
        return rules if rules is None or isinstance(rules, Rules) else [rules[n] for n in answers]

    def _search(self, answer: int, place: int) -> Search:
        feature, own = self._blocks[place].feature, self._cell(self.answers, answer, place)
        derived_from = {link.derived: link.source for link in self.model.schema.links}
        if feature.name in derived_from:
            return _only(feature.name, own, f"follows {derived_from[feature.name]}")
        if self.model.calls_left is not None:
            return _only(feature.name, own, ITSELF)
        if feature.is_one_number:
            return self._interval(answer, place, float(own))
        before = self._cell(self.queries, answer, place)
        return _listed(feature.name, own, before, feature.values or ())

    def _cell(self, rows: Rows, answer: int, place: int) -> Any:
        """A single cell as a plain value; NaN where a number is missing."""
        column = rows.cells[self._blocks[place].places.start]
        if self._blocks[place].feature.is_one_number:
            return float(numbers_of(column[answer : answer + 1])[0][0])
        value = column[answer]
        return value.item() if isinstance(value, np.generic) else value

    def _interval(self, answer: int, place: int, own: float) -> Search:
        """The interval around a number, from side to side."""
        (rules,), _ = distinct_rules(self._rules_of([answer]), 1)
        feature: Any = rules.tighten_feature(self._blocks[place].feature)
        line = Line.of(feature, own, self._cell(self.queries, answer, place))
        is_additive = self.model.additive is not None
        low, high, told, asked = yield from line.search(self._looked_at(place))
        checked = EXACT if is_additive or line.is_short else f"on a grid of {asked} points"
        return Region(feature.name, low, high, checked=checked, told=told)

    def _looked_at(self, place: int) -> Array:
        """Values of a number to look at besides those of the grid: bends of the model; of P~."""
        block = self._blocks[place]
        low, high = block.feature.number_range or (0.0, 1.0)
        found = self.model.kinks.get(block.start, np.empty(0))
        population = self.components.population
        if self.model.additive is None and isinstance(population, MixedPopulation):
            places, shares = population.percentiles(place)
            found = np.interp((np.arange(QUANTILES) + 0.5) / QUANTILES, shares, places)
        return low + found * (high - low)

    def _together(self, lines: Sequence[tuple[int, int]], searches: list[Search]) -> list[Region]:
        """Lead all searches to their end; what they want to know next is asked together."""
        regions: dict[int, Region] = {}
        known: dict[int, Array | None] = dict.fromkeys(range(len(searches)))
        while known:
            tries: dict[int, Sequence[Any]] = {}
            for number, works in known.items():
                try:
                    search = searches[number]
                    tries[number] = next(search) if works is None else search.send(works)
                except StopIteration as ended:
                    regions[number] = ended.value
            known = self._which_work(lines, tries)  # type: ignore[assignment]
        return [regions[number] for number in range(len(searches))]

    def _which_work(
        self, lines: Sequence[tuple[int, int]], tries: dict[int, Sequence[Any]]
    ) -> dict[int, Array]:
        """Which of the values work that are tried in some of the lines, by the line's number."""
        counts = [len(values) for values in tries.values()]
        which = np.repeat(list(tries), counts).astype(int)
        values = [value for some in tries.values() for value in some]
        works = np.zeros(len(values), dtype=bool)
        for start in range(0, len(values), AT_ONCE):
            go_on()
            some = slice(start, start + AT_ONCE)
            works[some] = self._accepts(np.array(lines)[which[some]], values[some])
        parts = np.split(works, np.cumsum(counts)[:-1])
        return dict(zip(tries, parts, strict=True)) if tries else {}

    def _accepts(self, lines: Array, values: Sequence[Any]) -> Array:
        """Whether rows keep the rules and have the target class, (rows,).

        They are answers in which one feature has another of the `values`. `lines`: the position of
        the answer and the number of the feature, (rows, 2).
        """
        whose, places = lines.T
        answers, queries = self.answers.select(whose), self.queries.select(whose)
        cells = list(answers.cells)
        for place in np.unique(places).tolist():
            block, here = self._blocks[place], np.flatnonzero(places == place)
            told = [values[each] for each in here.tolist()]
            changed = {block.places.start: told}
            for link in self._links.get(block.feature.name, ()):
                follower = self.model.schema.columns.index(link.derived)
                changed[follower] = [link.values[each] for each in told]
            for column, some in changed.items():
                cells[column] = cells[column].copy()
                cells[column][here] = some
        rows, rules = answers.with_cells(cells), self._rules_of(whose.tolist())
        works = self.legal(queries, rows, rules, self.box.select(torch.from_numpy(whose)))
        if works.any():
            asked = np.flatnonzero(works)
            # A value that the model cannot take does not work; the numbers of a feature are one.
            pairs = zip(places.tolist(), values, strict=True)
            told = [(place, "" if isinstance(each, float) else str(each)) for place, each in pairs]
            numbers = {each: number for number, each in enumerate(dict.fromkeys(told))}
            groups = np.array([numbers[each] for each in told])[asked]
            model = self.model
            said = wherever_it_can(
                lambda some: model.ask(rows.select(asked[some])), groups, model.classes
            ).numpy()
            goals, here = self.targets[whose[asked]], np.arange(len(asked))
            least = np.minimum(self.least, self.probability[whose[asked]])
            sure = np.exp(said[here, goals]) >= least * (1 - 1e-9)
            works[asked] = (said.argmax(axis=1) == goals) & sure
        return works


def _only(column: str, own: Any, checked: str) -> Search:
    """The region that is the answer's own value."""
    yield []
    if isinstance(own, float):
        return Region(column, own, own, checked=checked, told=(own, own))
    return Region(column, values=(own,), checked=checked)


def _listed(column: str, own: Any, before: Any, values: Sequence[Any]) -> Search:
    """The values of a category that work; all are tried."""
    others = [value for value in values if value != own]
    works = yield others
    found = {own, *(value for value, fine in zip(others, works, strict=True) if fine)}
    kept = tuple(value for value in values if value in found - {before})
    return Region(column, values=kept, stays=before in found)
