"""Which games are played against which mechanism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from counterveil.audit import suite_dpsgd, worlds
from counterveil.audit.coefficients import (
    Scores,
    by_curator,
    by_twin,
    choice_scores,
    heard_in_both,
    likelihood_scores,
    moved,
)
from counterveil.audit.contest import Effort, Game, share_error
from counterveil.audit.controls import halved_sensitivity, learnt_bounds, unnoised_prototypes
from counterveil.audit.game import Claim
from counterveil.audit.releases import VIEWS, KnownRows, outcome_scores, release_pair, view_scores
from counterveil.curator import dpsgd, functional
from counterveil.privacy import Budget

DELTA = 1e-6
COEFFICIENTS = "coefficients"


def games(mechanism: str, epsilons: Sequence[float], effort: Effort) -> list[Game]:
    """The games against `functional`, `dpsgd`, `paper`, the `controls`, or `all` of them.

    Where Opacus is not installed, `dpsgd` is refused, and left out of `all` and the `controls`.
    """
    if mechanism == "dpsgd":
        dpsgd.check_installed()
    found: list[Game] = []
    for epsilon in epsilons:
        if mechanism in ("functional", "all"):
            found += share_error(_pure_games(epsilon, effort))
            found += share_error(_approximate_games(epsilon, effort))
        if mechanism in ("dpsgd", "all") and dpsgd.installed():
            for delta in suite_dpsgd.DELTAS:
                found += share_error(suite_dpsgd.games(Budget(epsilon, delta), effort))
        if mechanism in ("paper", "all"):
            found += share_error(_paper_games(epsilon, effort))
        if mechanism in ("controls", "all"):
            for game in _control_games(epsilon, effort):
                found += share_error([game])
    return found


def _pure_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    for pair in (
        worlds.one_feature(), worlds.wide(), worlds.pairs_of_features(), worlds.persons(),
        worlds.bits(), worlds.crowded_bits(), worlds.images(),
    ):  # fmt: skip
        yield _coefficient_game(pair, Budget(epsilon), effort)
    worst = worlds.one_feature()
    yield _own_sampler_game(worst, Budget(epsilon), effort)
    yield _choice_game(worlds.pairs_of_features(), Budget(epsilon), effort)
    released = cache(partial(view_scores, worst, Budget(epsilon), "functional", effort.runs))
    for view in VIEWS:
        yield Game("functional", view, worst.name, Claim(epsilon), effort.runs,
                   partial(_seen, released, view))  # fmt: skip
    for pair in (worlds.last_of_its_class(), worlds.last_of_its_kind()):
        yield Game("functional", "outcome", pair.name, Claim(epsilon), 2 * effort.runs,
                   partial(_outcomes, pair, Budget(epsilon), 2 * effort.runs))  # fmt: skip


def _approximate_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    """Where δ > 0 the curator may choose Gaussian noise; on these pairs it does."""
    for pair in (worlds.wide(), worlds.pairs_of_features(), worlds.bits(), worlds.images()):
        yield _coefficient_game(pair, Budget(epsilon, DELTA), effort)


def _paper_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    pair = worlds.one_feature()

    def scores() -> Scores:
        return KnownRows(pair).scores(release_pair(pair, Budget(epsilon), "paper", effort.runs))

    yield Game("paper", "autoencoder + prototypes", pair.name, Claim(epsilon), effort.runs, scores)


def _control_games(epsilon: float, effort: Effort) -> Iterator[Game]:
    pair, budget, claim = worlds.one_feature(), Budget(epsilon), Claim(epsilon)
    rng = partial(effort.rng, epsilon)
    yield Game("control: halved sensitivity", COEFFICIENTS, pair.name, claim, effort.draws,
               partial(halved_sensitivity, pair, budget, effort.draws, rng("half")))  # fmt: skip
    bounds = partial(learnt_bounds, budget, effort.draws, rng("bounds"))
    yield Game("control: data-dependent min/max", COEFFICIENTS, "one far number", claim,
               effort.draws, bounds)  # fmt: skip
    yield Game("control: un-noised prototypes", "autoencoder + prototypes", pair.name, claim,
               effort.runs, partial(unnoised_prototypes, pair, budget, effort.runs))  # fmt: skip
    if dpsgd.installed():
        yield from suite_dpsgd.control_games(epsilon, effort)


def _coefficient_game(pair: worlds.Pair, budget: Budget, effort: Effort) -> Game:
    def scores() -> Scores:
        parts = moved(*heard_in_both(pair, budget))
        rng = effort.rng(pair.name, budget.epsilon, budget.delta)
        return likelihood_scores(parts, effort.draws, by_twin(rng))

    claim = Claim(budget.epsilon, budget.delta)
    return Game("functional", COEFFICIENTS, pair.name, claim, effort.draws, scores)


def _own_sampler_game(pair: worlds.Pair, budget: Budget, effort: Effort) -> Game:
    draws = max(2, effort.draws // 5)

    def scores() -> Scores:
        return likelihood_scores(moved(*heard_in_both(pair, budget)), draws, by_curator)

    view = f"{COEFFICIENTS}, the curator's sampler"
    return Game("functional", view, pair.name, Claim(budget.epsilon, budget.delta), draws, scores)


def _choice_game(pair: worlds.Pair, budget: Budget, effort: Effort) -> Game:
    """The choice of a tree claims less than the whole release: its share of ε."""
    draws = max(2, effort.draws // 50)

    def scores() -> Scores:
        return choice_scores(*heard_in_both(pair, budget), draws)

    share = pair.plan(budget).epsilons[1]
    return Game("functional", "tree, its share of ε", pair.name, Claim(share), draws, scores)


def _outcomes(pair: worlds.Pair, budget: Budget, runs: int) -> Scores:
    plan = pair.plan(budget)
    return outcome_scores(pair, lambda table: functional.measure(table, plan), runs)


def _seen(released: Callable[[], dict[str, Scores]], view: str) -> Scores:
    return released()[view]
