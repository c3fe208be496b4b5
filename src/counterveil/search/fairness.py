"""Fairness by groups: of people drawn from the veil's population P~, or of people who are given.

The model decides on people of every group, and some of those whom it refuses get an answer. A
number of a group of P~ may be off for four reasons:

| reason | how far |
|---|---|
| so many people were asked | the spread of what they were told |
| so many stand behind the veil | the same, for their number by P~ |
| noise in the record | the record gets noise of its scale once more, and P~ is built again |
| P~ does not know all that goes together within a group | as if so few were known: `LIKE` |

In the third nobody is asked again: what people were told is laid on the cells of their rows by
least squares, and the rows of every new P~ are judged by that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.hints import named
from counterveil.models import Rows
from counterveil.population import MixedPopulation
from counterveil.population.again import noise_again
from counterveil.population.groups import Groups
from counterveil.search.results.fairness import (
    ALL,
    ANSWERS,
    MEASURES,
    REFUSED,
    Cell,
    Fairness,
    GroupFigures,
    Known,
)
from counterveil.search.results.refusals import Status
from counterveil.search.results.wording import DecidedBy
from counterveil.signature import signer_line
from counterveil.terminal import progress_bar

if TYPE_CHECKING:
    from counterveil.search.explainer import Explainer

DRAWN, DRAWS = 10_000, 6  # rows of P~ at a time, and how often at most
DECIDED, ANSWERED = 500, 200  # of a group, at most: who are decided on, and who get an answer
AGAIN = 20  # how often the record gets noise once more
COARSE = 8  # bins of a number, for least squares
RIDGE = 3.0  # people of no effect in each cell, for least squares
SEED = 0
# People. Shares: groups that were named; else where it was measured what goes together, or not.
LIKE_NAMED, LIKE_TOGETHER, LIKE_ALONE = 80, 50, 10
LIKE_OF_MEANS = 25  # at most


@dataclass(frozen=True)
class Group:
    """Values of some of the columns that tell groups: (column, position of the value) each."""

    values: tuple[tuple[int, int], ...]

    def holds(self, codes: Array) -> Array:
        """Which rows are in it, (rows,), by their values' positions, (rows, columns)."""
        return np.all([codes[:, column] == code for column, code in self.values], axis=0)

    def named(self, columns: Groups) -> dict[str, Any]:
        """Its values as people call them, by column."""
        return {columns.names[column]: columns.value(column, code) for column, code in self.values}


@dataclass(frozen=True, eq=False)
class People:
    """People to ask about. `groups`: the positions of the members of each group, (members,) each.

    `shares`: of all people in each group; `rows`: how many stand behind the veil, infinite where
    people are given. `most`: members of a group who get an answer.
    """

    frame: pd.DataFrame
    groups: list[Array]
    shares: Array
    rows: float = np.inf
    most: int | None = None


def fairness_of(
    explainer: Explainer,
    names: Sequence[str],
    target: Any,
    given: Any,
    *,
    immutable: Collection[str],
    progress: bool,
    **choices: Any,
) -> Fairness:
    """As `Explainer.fairness` says."""
    schema = explainer.veil.schema
    columns, wanted = Groups.named(schema, names), schema.label.class_called(target)
    if wanted not in schema.label.classes:
        raise RequestError(f"target: say which class people want: {named(schema.label.classes)}")
    if explainer.decided_by is DecidedBy.STAND_IN:
        raise RequestError("fairness is of a model that is asked: guidance must be 'model'")
    every = every_group(columns)
    noise, like = np.zeros((len(every), len(MEASURES))), np.inf
    population = _population(explainer) if given is None else None
    if population is None:
        people, codes = _given(explainer, columns, every, given), np.empty(0)
    else:
        people, codes = _drawn(explainer, population, columns, every)
    held = {*immutable, *columns.names}
    values, answered = _told(
        explainer, people, wanted, immutable=held, progress=progress, **choices
    )
    if population is not None:
        noise = noise_errors(population, columns, every, codes, values, progress=progress)
        like = LIKE_TOGETHER if population.copula else LIKE_ALONE
        like = LIKE_NAMED if _knows(population, columns) else like
    figures = []
    for number, group in enumerate(every):
        share, some = float(people.shares[number]), [people.groups[number], answered[number]]
        told = [values[some[place > 0], place] for place in range(len(MEASURES))]
        told = [each[~np.isnan(each)] for each in told]
        cells = _cells(told, share * people.rows, noise[number], like)
        figures.append(GroupFigures(group.named(columns), share, cells))
    return Fairness(
        table=schema.name,
        target=str(schema.label.shown_value(wanted)),
        decided_by=explainer.decided_by,
        statement=explainer.statement,
        exact=given is not None,
        groups=tuple(figures),
        signed=signer_line(explainer.veil.signer),
    )


def _population(explainer: Explainer) -> MixedPopulation:
    """P~ of the veil, if people with groups can be drawn from it."""
    veil = explainer.veil
    population = None if veil.record is None else veil.population()
    if not isinstance(population, MixedPopulation):
        raise RequestError("this veil knows no people of groups: give a table of people")
    return population


def every_group(columns: Groups) -> list[Group]:
    """Every value of each column, and every two values of two columns."""
    return [
        Group(tuple(zip(some, codes, strict=True)))
        for size in (1, 2)
        for some in combinations(range(len(columns.places)), size)
        for codes in product(*(range(columns.sizes[column]) for column in some))
    ]


def _given(explainer: Explainer, columns: Groups, every: list[Group], table: Any) -> People:
    """All people of a table."""
    encoding = explainer.encoding
    compact = encoding.compact(Rows.of_frame(table, encoding).encoded)
    codes = np.stack([compact[place] for place in columns.places], axis=1)
    groups = [np.flatnonzero(group.holds(codes)) for group in every]
    shares = np.array([len(members) / len(codes) for members in groups])
    return People(encoding.pick(table), groups, shares)


def _drawn(
    explainer: Explainer, population: MixedPopulation, columns: Groups, every: list[Group]
) -> tuple[People, Array]:
    """People of P~, the first that are drawn of each group, and the cells of their features."""
    rng, source = np.random.default_rng(SEED), _source(population, columns)
    codes = draw(source, SEED)
    for number in range(1, DRAWS):
        sizes = [group.holds(codes[:, columns.places]).sum() for group in every]
        if min(sizes) >= DECIDED:
            break
        codes = np.concatenate([codes, draw(source, SEED + number)])
    held = [group.holds(codes[:, columns.places]) for group in every]
    groups = [np.flatnonzero(each)[:DECIDED] for each in held]
    asked = np.unique(np.concatenate(groups))
    groups = [np.searchsorted(asked, members) for members in groups]
    frame = explainer.encoding.decode(population.grid.points(codes[asked], rng))
    shares = np.array([each.mean() for each in held])
    people = People(frame, groups, shares, float(population.totals.sum()), ANSWERED)
    return people, codes[asked]


def _knows(population: MixedPopulation, columns: Groups) -> bool:
    """Whether these columns were named as groups at release."""
    return population.groups is not None and {*columns.places} <= {*population.groups.places}


def _source(population: MixedPopulation, columns: Groups) -> MixedPopulation:
    """P~ to draw people from: that of groups, where these were named."""
    return population.by_groups() if _knows(population, columns) else population


def draw(population: MixedPopulation, seed: int) -> Array:
    """The cells of the features of some rows of P~, (rows, features)."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(len(population.class_share), DRAWN, p=population.class_share)
    return population.codes(classes, rng)


def _told(
    explainer: Explainer, people: People, wanted: Any, **how: Any
) -> tuple[Array, list[Array]]:
    """What the model says of all people, and of answers to the first refused of each group.

    (people, measures), NaN where a measure is not about them; and the positions of those who were
    answered for the sake of each group.
    """
    number = explainer.veil.schema.label.classes.index(wanted)
    values = np.full((len(people.frame), len(MEASURES)), np.nan)
    refused = explainer.decide(people.frame).argmax(axis=1) != number
    answered = [members[refused[members]][: people.most] for members in people.groups]
    some = np.unique(np.concatenate(answered))
    values[:, 0] = refused
    if len(some):
        queries = people.frame.iloc[some].reset_index(drop=True)
        result = explainer.explain(queries, wanted, **how)
        valid = result.valid
        of_answers = [result.effort, result.changed, result.stability]
        if explainer.decided_by is DecidedBy.MODEL and explainer.veil.surrogate is not None:
            said = explainer.veil.model().predict_proba(result.rows)
            of_answers.append(said.argmax(axis=1) == number)
        values[some, 1], values[some, 2] = valid, result.status == Status.IMPOSSIBLE.value
        for place, told in enumerate(of_answers, 3):
            if told is not None:
                values[some, place] = np.where(valid, told, np.nan)
    return values, answered


def _cells(told: list[Array], people: float, noise: Array, like: float) -> tuple[Cell, ...]:
    """What is known of a group; `people`: how many of it stand behind the veil."""
    shares = [float(values.mean()) if len(values) else 0.0 for values in told[:2]]
    of = {ALL: people, REFUSED: people * shares[0], ANSWERS: people * shares[0] * shares[1]}
    of_means = like if np.isinf(like) else min(like, LIKE_OF_MEANS)
    cells = []
    for measure, values, error in zip(MEASURES, told, noise, strict=True):
        as_if = like if measure.is_share else of_means
        known = Known.of(measure, values, of[measure.of], float(error), as_if)
        cells.append(Cell.of(measure, known))
    return tuple(cells)


def noise_errors(
    population: MixedPopulation,
    columns: Groups,
    every: list[Group],
    codes: Array,
    told: Array,
    *,
    progress: bool,
) -> Array:
    """By how much noise in the record may move each measure of each group: (groups, measures).

    `codes`: the cells of the people who were asked, and `told` what they were told. The root of the
    mean square: that P~ believes less the more noise there is counts, too.
    """
    schema, rng = population.grid.schema, np.random.default_rng(SEED)
    judge = LeastSquares(population, codes, told)

    def judged(other: MixedPopulation) -> Array:
        rows = draw(_source(other, columns), SEED)
        held = np.stack([group.holds(rows[:, columns.places]) for group in every])
        return judge.means(rows, held)

    now, squares = judged(population), []
    with progress_bar("seeing what noise does", AGAIN, show=progress) as tick:
        for number in range(AGAIN):
            other = MixedPopulation(schema, noise_again(population.record, rng))
            squares.append((judged(other) - now) ** 2)
            tick(number + 1)
    return np.asarray(np.sqrt(np.mean(squares, axis=0)))


class LeastSquares:
    """What people are told, laid on the cells of their rows: a number for each cell and measure."""

    def __init__(self, population: MixedPopulation, codes: Array, told: Array) -> None:
        self._coarse = population.grid.merged(COARSE)
        sizes = [int(cells.max()) + 1 for cells in self._coarse]
        self._starts = np.cumsum([0, *sizes[:-1]])
        width = sum(sizes)
        places, self._effects = self._places(codes), np.zeros((width, told.shape[1]))
        self._means = np.zeros(told.shape[1])
        for measure, values in enumerate(told.T):
            known = ~np.isnan(values)
            if not known.any():
                continue
            rows = np.zeros((int(known.sum()), width))
            np.put_along_axis(rows, places[known], 1.0, axis=1)
            self._means[measure] = values[known].mean()
            left = rows.T @ (values[known] - self._means[measure])
            self._effects[:, measure] = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(width), left)

    def _places(self, codes: Array) -> Array:
        columns = [cells[codes[:, place]] for place, cells in enumerate(self._coarse)]
        return np.stack(columns, axis=1) + self._starts

    def means(self, codes: Array, held: Array) -> Array:
        """The mean of every measure in each group, (groups, measures); `held` (groups, rows).

        A measure of the refused, or of answers, weighs rows by how likely they are among them.
        """
        found = self._means + self._effects[self._places(codes)].sum(axis=1)
        refused = np.clip(found[:, 0], 0.001, 1)
        answered = refused * np.clip(found[:, 1], 0.001, 1)
        of = {ALL: np.ones(len(codes)), REFUSED: refused, ANSWERS: answered}
        weights = np.stack([of[measure.of] for measure in MEASURES], axis=1)
        total = np.maximum(held @ weights, 1e-9)
        return np.asarray(held @ (weights * found) / total)
