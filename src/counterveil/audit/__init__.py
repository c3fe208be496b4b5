"""The audit: it tries to refute what the mechanisms promise.

A proof can be wrong, and code can differ from its proof. The audit plays the distinguishing game
against the code itself and gives lower bounds on ε at a stated confidence. It can refute a claim;
it cannot prove one. Only the command line may import this package: it holds noise that can be
repeated, which no release may ever use.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context

import torch

from counterveil.audit import checks, controls, dpsgd, functional, score
from counterveil.audit.game import Check, Effort, Game
from counterveil.audit.report import Row, failures, save
from counterveil.curator.dpsgd import check_installed, installed
from counterveil.privacy import Budget
from counterveil.terminal import Tick

__all__ = [
    "Check",
    "Effort",
    "Game",
    "Row",
    "failures",
    "games",
    "games_of_claim",
    "play_all",
    "save",
]


# Mechanisms that promise something, with the δ at which they are played, checks and games.
CLAIMED = {
    "functional": (functional.DELTAS, checks.checks, functional.games),
    "dpsgd": (dpsgd.DELTAS, dpsgd.checks, dpsgd.games),
    "score": (functional.DELTAS, score.checks, score.games),
}


def play_all(games: Sequence[Game | Check], workers: int, tick: Tick) -> list[Row]:
    """Play the games, `workers` at a time, each in a copy of this process; rows in their order."""
    torch.set_num_threads(1)  # networks of tiny tables: more threads only wait for each other
    rows = []
    with ExitStack() as stack:
        results: Iterator[Row] = (game.play() for game in games)
        if workers > 1:
            pool = ProcessPoolExecutor(workers, get_context("fork"), _remember, (games,))
            results = stack.enter_context(pool).map(_play, range(len(games)))
        for number, game in enumerate(games):
            tick(number, f"{game.mechanism}, ε = {game.claim.epsilon:g}: {game.view}, {game.pair}")
            rows.append(next(results))
    return rows


_GAMES: list[Game | Check] = []  # of a copied process: games hold functions, which cannot be sent


def _remember(games: Sequence[Game | Check]) -> None:
    _GAMES[:] = games


def _play(number: int) -> Row:
    return _GAMES[number].play()


def games(mechanism: str, epsilons: Sequence[float], effort: Effort) -> list[Game | Check]:
    """The games and checks of `functional`, `dpsgd`, `score`, `paper`, the `controls`, or `all`.

    Where Opacus is not installed, `dpsgd` is refused, and left out of `all` and the `controls`.
    """
    if mechanism == "dpsgd":
        check_installed()
    found: list[Game | Check] = []
    for epsilon in epsilons:
        for name, (deltas, *_) in CLAIMED.items():
            if mechanism in (name, "all") and (name != "dpsgd" or installed()):
                for delta in deltas:
                    found += games_of_claim(name, Budget(epsilon, delta), effort)
        if mechanism in ("paper", "all"):
            found.append(controls.paper_game(epsilon, effort))
        if mechanism in ("controls", "all"):
            found += controls.games(epsilon, effort)
    return found


def games_of_claim(mechanism: str, budget: Budget, effort: Effort) -> list[Game | Check]:
    """The games and checks of one mechanism at one (ε, δ); all share its error."""
    _, checks_of, games_of = CLAIMED[mechanism]
    same: list[Game | Check] = [*checks_of(budget), *games_of(budget, effort)]
    return [replace(game, claim=replace(game.claim, games=len(same))) for game in same]
