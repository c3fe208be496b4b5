"""Games on the noisy numbers of mechanism `functional`.

The adversary sees every noisy number that the mechanism measures. The score of noisy numbers is the
exact log-likelihood ratio of D' and D, and no other score tells more. A number that is the same for
D and D' before noise tells nothing after it, so only those that differ are drawn.

The exact numbers come from a run of the mechanism itself, not from a second implementation:
`functional.measure` takes a source of noise, and the audit hands it an `Instrument`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from counterveil.audit import fast_noise, neighbours
from counterveil.audit.game import Claim, Dice, Effort, Game, Scores
from counterveil.audit.pair import Pair
from counterveil.audit.releases import FIRST_VIEW, outcome_games, view_games
from counterveil.curator.functional import measure
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.population import population_of
from counterveil.privacy import Budget, Share
from counterveil.privacy.record import Measurement, Sensitivity

DELTA = 1e-6
SHARP = 1e-2  # where so many draws see what Gaussian noise leaks; see `audit.dpsgd`
DELTAS = (0.0, DELTA, SHARP)
CHUNK = 1 << 22  # noisy numbers drawn at a time


@dataclass
class Instrument(NoiseSource):
    """A source of noise that writes down what it is given, and answers with the exact sums.

    The first answers may be `told` beforehand: then the mechanism gets those instead.
    """

    told: Sequence[Measurement] = ()
    exact: list[Array] = field(default_factory=list)
    asked: list[Share] = field(default_factory=list)  # what each answer may spend
    answers: list[Measurement] = field(default_factory=list)

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

    def answer_to(self, exact: Array) -> Array:
        return exact


@dataclass(frozen=True)
class Moved:
    """The exact sums of one `measurement` that differ between D (`one`) and D' (`two`)."""

    one: Array
    two: Array
    measurement: Measurement


def listen(table: PrivateTable, plan: Plan, **told: Any) -> Instrument:
    """What an instrument hears in one run of the mechanism; `told` as for `Instrument`."""
    instrument = Instrument(**told)
    measure(table, plan, instrument)
    return instrument


def moved_sums(pair: Pair, budget: Budget) -> list[Moved]:
    """What an adversary who knows both tables looks at; D' is given the same answers as D."""
    table_one, table_two = pair.tables
    one = listen(table_one, pair.plan(budget))
    two = listen(table_two, pair.plan(budget), told=one.answers)
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


def games_on_sums(
    mechanism: str,
    moved: Callable[[Pair, Budget], list[Moved]],
    budget: Budget,
    effort: Effort,
    view: str,
    pairs: Iterable[Callable[[], Pair]],
    seed: tuple[str, ...] | None = None,
) -> Iterator[Game]:
    """Games on the sums that `moved` gives of each pair: by fast noise, of the names in `seed` too.

    Without a `seed` the noise is the curator's own, in a fifth of the draws.
    """
    draws = effort.draws if seed is not None else max(2, effort.draws // 5)

    def scores(pair: Pair) -> Scores:
        named = (*(seed or ()), pair.name, budget.epsilon, budget.delta)
        rng = None if seed is None else effort.rng(*named)
        return likelihood_scores(moved(pair, budget), draws, rng)

    claim = Claim(budget.epsilon, budget.delta)
    for pair in (make() for make in pairs):
        yield Game(mechanism, view, pair.name, claim, draws, partial(scores, pair))


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    """The games against one (ε, δ): noisy numbers, and real releases."""

    def attempt(pair: Pair, table: PrivateTable) -> None:
        population_of(pair.schema, measure(table, pair.plan(budget)))

    on_sums = partial(games_on_sums, "functional", moved_sums, budget, effort)
    yield from on_sums("coefficients", neighbours.pairs_at(budget), seed=())
    if budget.delta != DELTA:
        real = neighbours.wide if budget.delta else neighbours.one_feature
        yield from on_sums("coefficients, the curator's sampler", (real,))
    if budget.delta == SHARP:
        yield from view_games("functional", budget, effort, neighbours.wide(), FIRST_VIEW)
    if budget.delta:
        return
    yield from view_games("functional", budget, effort, neighbours.one_feature())
    for make in (neighbours.counted_pairs, neighbours.persons, neighbours.bits, neighbours.images):
        yield from view_games("functional", budget, effort, make(), FIRST_VIEW)
    yield from outcome_games("functional", budget, 2 * effort.runs_for(budget.epsilon), attempt)
