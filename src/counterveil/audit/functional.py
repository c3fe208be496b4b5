"""Games on the noisy numbers of mechanism `functional`.

The adversary sees every noisy number that the mechanism measures, or which pairs of features it
chose. The score of noisy numbers is the exact log-likelihood ratio of D' and D, and no other score
tells more. A number that is the same for D and D' before noise tells nothing after it, so only
those that differ are drawn.

The exact numbers come from a run of the mechanism itself, not from a second implementation:
`functional.measure` takes a source of noise, and the audit hands it an `Instrument`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from counterveil.audit import fast_noise, neighbours
from counterveil.audit.concentrated import epsilon_of
from counterveil.audit.game import Claim, Dice, Effort, Game, Scores, by_frequency
from counterveil.audit.neighbours import Pair
from counterveil.audit.releases import FIRST_VIEW, outcome_games, view_games
from counterveil.curator.functional import measure
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.population import population_of
from counterveil.privacy import Budget, Rho, Share
from counterveil.privacy.record import Measurement, Sensitivity

DELTA = 1e-6
SHARP = 1e-2  # where so many draws see what Gaussian noise leaks; see `audit.dpsgd`
DELTAS = (0.0, DELTA, SHARP)
CHUNK = 1 << 22  # noisy numbers drawn at a time
FEWEST_TREES = 1000  # draws of a tree, whose share of ε is small; fewer tell too little apart

Question = tuple[Sequence[int], int, Share]  # scores, sensitivity, share: what decides a choice


@dataclass
class Instrument(NoiseSource):
    """A source of noise that writes down what it is given and answers without noise.

    Every answer says which noise the curator puts on such sums; its values are the exact sums.
    Choices are made by the curator's own noisy maximum. The first answers and choices may be told
    beforehand: then the mechanism gets those instead.
    """

    told: Sequence[Measurement] = ()
    told_choices: Sequence[int] = ()
    exact: list[Array] = field(default_factory=list)
    asked: list[Share] = field(default_factory=list)  # what each answer may spend
    answers: list[Measurement] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, share: Share
    ) -> Measurement:
        if len(self.exact) < len(self.told):
            answer = self.told[len(self.exact)]
        else:
            noisy = EXACT.perturb(name, what, exact, sensitivity, share)
            answer = replace(noisy, values=self.answer_to(exact))
        self.exact.append(exact.copy())
        self.asked.append(share)
        self.answers.append(answer)
        return answer

    def choose(self, scores: Sequence[int], sensitivity: int, share: Share) -> int:
        if len(self.choices) < len(self.told_choices):
            choice = self.told_choices[len(self.choices)]
        else:
            choice = self.choice_of(scores, sensitivity, share)
        self.questions.append((scores, sensitivity, share))
        self.choices.append(choice)
        return choice

    def answer_to(self, exact: Array) -> Array:
        """The values of an answer."""
        return exact

    def choice_of(self, *question: Any) -> int:
        """The answer to a `Question`."""
        return EXACT.choose(*question)


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
    parts: Sequence[Moved], draws: int, rng: Dice = None, *, noise_share: float = 1.0
) -> Scores:
    """log P[noisy | D'] − log P[noisy | D], summed over all parts, of draws for D and for D'.

    The noise is fast noise from `rng`; without one it comes from the curator's own sampler, which
    is slow. A `noise_share` below 1 is a fault: the fast noise is this share of what is due.
    """
    scores = np.zeros((2, draws))
    for part in parts:
        made = replace(part.measurement, scale=noise_share * part.measurement.scale)
        step = max(1, CHUNK // len(part.one))
        for table, exact in enumerate((part.one, part.two)):
            for start in range(0, draws, step):
                noisy = np.tile(exact, (min(step, draws - start), 1))
                if rng is not None:
                    noisy += fast_noise.draw(made, noisy.shape, rng)
                else:
                    of = made.sensitivity, made.share
                    noisy = EXACT.perturb(made.name, made.what, noisy, *of).values
                ratio = fast_noise.log_ratio(made, noisy, part.one, part.two)
                scores[table, start : start + step] += ratio
    return scores[0], scores[1]


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


def tree_claim(pair: Pair, budget: Budget) -> Claim:
    """What the choice of a tree alone promises: a part of ε, or at the same δ what its ρ gives."""
    share = pair.plan(budget).shares[2]
    if isinstance(share, Rho):
        return Claim(epsilon_of(share.rho, budget.delta), budget.delta)
    return Claim(0.0 if share is None else share.epsilon)


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    """The games against one (ε, δ).

    Pure ε-DP: noisy numbers, the choice of a tree, and real releases of every family. With δ > 0:
    noisy numbers, for which the curator may choose Gaussian noise, and real releases where it does;
    at the sharp δ also the choice of a tree, which then spends ρ.
    """
    claim = Claim(budget.epsilon, budget.delta)
    some = max(2, effort.draws // 5)
    few = max(min(effort.draws, FEWEST_TREES), effort.draws // 50)
    real = neighbours.wide if budget.delta else neighbours.one_feature

    def coefficients(pair: Pair) -> Scores:
        rng = effort.rng(pair.name, budget.epsilon, budget.delta)
        return likelihood_scores(moved_sums(pair, budget), effort.draws, rng)

    def real_coefficients(pair: Pair) -> Scores:
        return likelihood_scores(moved_sums(pair, budget), some)

    def attempt(pair: Pair, table: PrivateTable) -> None:
        population_of(pair.schema, measure(table, pair.plan(budget)))

    game = partial(Game, "functional")
    for make in neighbours.APPROXIMATE_PAIRS if budget.delta else neighbours.PURE_PAIRS:
        pair = make()
        scores = partial(coefficients, pair)
        yield game("coefficients", pair.name, claim, effort.draws, scores)
    if budget.delta != DELTA:
        view, pair = "coefficients, the curator's sampler", real()
        yield game(view, pair.name, claim, some, partial(real_coefficients, pair))
    if budget.delta == SHARP:
        yield from view_games("functional", budget, effort, neighbours.wide(), FIRST_VIEW)
    if budget.delta != DELTA:
        for tree in (neighbours.pairs_of_features(), neighbours.near_tie()):
            share = tree_claim(tree, budget)
            scores = partial(choice_scores, tree, budget, few)
            yield game("tree, its share of ε", tree.name, share, few, scores)
    if budget.delta:
        return
    yield from view_games("functional", budget, effort, neighbours.one_feature())
    for make in (neighbours.near_tie, neighbours.persons, neighbours.bits, neighbours.images):
        yield from view_games("functional", budget, effort, make(), FIRST_VIEW)
    yield from outcome_games("functional", budget, 2 * effort.runs_for(budget.epsilon), attempt)
