"""Games on the noisy numbers of mechanism `functional`.

The adversary sees every noisy number that the mechanism measures, or which pairs of features it
chose. The score of noisy numbers is the exact log-likelihood ratio of D' and D, and no other score
tells more. A number that is the same for D and D' before noise tells nothing after it, so only
those that differ are drawn.

The exact numbers come from a run of the mechanism itself, not from a second implementation:
`functional.measure` takes a source of noise, and the audit hands it an `Instrument`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from counterveil.audit import fast_noise, neighbours
from counterveil.audit.game import Claim, Effort, Game, Scores, by_frequency
from counterveil.audit.neighbours import Pair
from counterveil.audit.releases import outcome_games, view_games
from counterveil.curator.functional import measure
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.population import population_of
from counterveil.privacy import Budget
from counterveil.privacy.record import Measurement, Sensitivity

DELTA = 1e-6
COEFFICIENTS = "coefficients"
CHUNK = 1 << 22  # noisy numbers drawn at a time

Question = tuple[Sequence[int], int, float]  # scores, sensitivity, ε: what a choice is made by


@dataclass
class Instrument(NoiseSource):
    """A source of noise that writes down what it is given and answers without noise.

    Every answer says which noise the curator puts on such sums; its values are the exact sums. The
    first answers and choices may be told beforehand: then the mechanism gets those instead. All
    other choices are made by the curator's own noisy maximum.
    """

    told: Sequence[Measurement] = ()
    told_choices: Sequence[int] = ()
    exact: list[Array] = field(default_factory=list)
    answers: list[Measurement] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, budget: Budget
    ) -> Measurement:
        """Write down the exact sums; answer as told, or with these sums."""
        number = len(self.exact)
        if number < len(self.told):
            answer = self.told[number]
        else:
            answer = EXACT.perturb(name, what, exact, sensitivity, budget)
            answer = replace(answer, values=exact)
        self.exact.append(exact.copy())
        self.answers.append(answer)
        return answer

    def choose(self, scores: Sequence[int], sensitivity: int, epsilon: float) -> int:
        """Write down the scores; choose as told, or by the curator's own noisy maximum."""
        number = len(self.questions)
        self.questions.append((scores, sensitivity, epsilon))
        told = number < len(self.told_choices)
        choice = self.told_choices[number] if told else EXACT.choose(scores, sensitivity, epsilon)
        self.choices.append(choice)
        return choice


@dataclass(frozen=True)
class Moved:
    """The exact sums of one measurement that differ between D (`one`) and D' (`two`).

    `measurement` says how they are perturbed; its values are not used.
    """

    one: Array
    two: Array
    measurement: Measurement


def listen(table: PrivateTable, plan: Plan, **told: Any) -> Instrument:
    """What an instrument hears in one run of the mechanism; `told` as for `Instrument`."""
    instrument = Instrument(**told)
    measure(table, plan, instrument)
    return instrument


def moved_sums(pair: Pair, budget: Budget) -> list[Moved]:
    """For each measurement, what an adversary who knows both tables has to look at.

    The mechanism runs on D, and then on D' with the same answers as on D.
    """
    table_one, table_two = pair.tables
    one = listen(table_one, pair.plan(budget))
    two = listen(table_two, pair.plan(budget), told=one.answers, told_choices=one.choices)
    return differing(one, two)


def differing(one: Instrument, two: Instrument) -> list[Moved]:
    """The exact sums in which two runs of a mechanism differ."""
    return [
        Moved(exact_one[differs], exact_two[differs], answer)
        for exact_one, exact_two, answer in zip(one.exact, two.exact, one.answers, strict=True)
        if (differs := exact_one != exact_two).any()
    ]


def likelihood_scores(
    parts: Sequence[Moved], draws: int, rng: np.random.Generator | None = None
) -> Scores:
    """log P[noisy | D'] − log P[noisy | D], summed over all parts, of draws for D and for D'.

    The noise is fast noise from `rng`; without one it comes from the curator's own sampler, which
    is slow.
    """
    scores = np.zeros((2, draws))
    for part in parts:
        step = max(1, CHUNK // len(part.one))
        for table, exact in enumerate((part.one, part.two)):
            for start in range(0, draws, step):
                many = np.tile(exact, (min(step, draws - start), 1))
                noisy = _perturbed(many, part.measurement, rng)
                ratio = fast_noise.log_ratio(part.measurement, noisy, part.one, part.two)
                scores[table, start : start + step] += ratio
    return scores[0], scores[1]


def coefficient_scores(
    pair: Pair, budget: Budget, draws: int, rng: np.random.Generator | None = None
) -> Scores:
    """Scores of all noisy numbers of a pair; for `rng` see `likelihood_scores`."""
    return likelihood_scores(moved_sums(pair, budget), draws, rng)


def _perturbed(exact: Array, made: Measurement, rng: np.random.Generator | None) -> Array:
    """Exact sums with the noise of a measurement."""
    if rng is not None:
        return np.asarray(exact + fast_noise.draw(made, exact.shape, rng))
    budget = Budget(made.epsilon, made.delta)
    return EXACT.perturb(made.name, made.what, exact, made.sensitivity, budget).values


def choice_scores(pair: Pair, budget: Budget, draws: int) -> Scores:
    """Scores of the chosen tree of feature pairs, by how often the curator's sampler chooses it.

    In every draw the mechanism is told the same counts of single features, those of D.
    """
    plan = pair.plan(budget)
    first = listen(pair.tables[0], plan)

    @cache
    def question(table: int, choices: tuple[int, ...]) -> Question:
        """What the mechanism asks after these choices; it is the same in every draw."""
        told = listen(pair.tables[table], plan, told=first.answers[:1], told_choices=choices)
        return told.questions[len(choices)]

    numbers: dict[tuple[int, ...], int] = {}
    trees = np.zeros((2, draws), dtype=np.int64)
    for table, draw in np.ndindex(2, draws):
        choices: tuple[int, ...] = ()
        while len(choices) < len(first.choices):
            choices += (EXACT.choose(*question(table, choices)),)
        trees[table, draw] = numbers.setdefault(choices, len(numbers))
    return by_frequency(trees[0], trees[1])


def pure_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """The games against pure ε-DP: noisy numbers, the choice of a tree, and real releases."""
    budget, claim = Budget(epsilon), Claim(epsilon)
    for make in neighbours.PURE_PAIRS:
        yield _coefficient_game(make(), budget, effort)
    worst, draws = neighbours.one_feature(), max(2, effort.draws // 5)
    view = f"{COEFFICIENTS}, the curator's sampler"
    scores = partial(coefficient_scores, worst, budget, draws)
    yield Game("functional", view, worst.name, claim, draws, scores)
    pair, draws = neighbours.pairs_of_features(), max(2, effort.draws // 50)
    share = Claim(pair.plan(budget).epsilons[1])  # the choice of a tree spends a part of ε
    scores = partial(choice_scores, pair, budget, draws)
    yield Game("functional", "tree, its share of ε", pair.name, share, draws, scores)
    yield from view_games("functional", budget, effort)

    def attempt(pair: Pair, table: PrivateTable) -> None:
        population_of(pair.schema, measure(table, pair.plan(budget)))

    yield from outcome_games("functional", budget, 2 * effort.runs, attempt)


def approximate_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """The games against (ε, δ)-DP. The curator may choose Gaussian noise, and on `wide` it does."""
    for make in neighbours.APPROXIMATE_PAIRS:
        yield _coefficient_game(make(), Budget(epsilon, DELTA), effort)


def _coefficient_game(pair: Pair, budget: Budget, effort: Effort) -> Game:
    def scores() -> Scores:
        rng = effort.rng(pair.name, budget.epsilon, budget.delta)
        return coefficient_scores(pair, budget, effort.draws, rng)

    return Game("functional", COEFFICIENTS, pair.name, Claim.of(budget), effort.draws, scores)
