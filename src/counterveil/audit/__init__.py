"""The audit: it tries to refute what the mechanisms promise.

A proof can be wrong, and code can differ from its proof. The audit plays the distinguishing game
against the code itself and gives lower bounds on ε at a stated confidence. It can refute a claim;
it cannot prove one. Only the command line may import this package: it holds noise that can be
repeated, which no release may ever use.
"""

from collections.abc import Sequence
from dataclasses import replace

from counterveil.audit import controls, dpsgd, functional
from counterveil.audit.game import Effort, Game
from counterveil.audit.report import Row, failures, save
from counterveil.curator.dpsgd import check_installed, installed
from counterveil.privacy import Budget

__all__ = ["Effort", "Game", "Row", "failures", "games", "save"]


def games(mechanism: str, epsilons: Sequence[float], effort: Effort) -> list[Game]:
    """The games against `functional`, `dpsgd`, `paper`, the `controls`, or `all` of them.

    All games against one claim share its error. Where Opacus is not installed, `dpsgd` is refused,
    and left out of `all` and the `controls`.
    """
    if mechanism == "dpsgd":
        check_installed()
    found: list[Game] = []
    for epsilon in epsilons:
        claims = []
        if mechanism in ("functional", "all"):
            claims += [functional.games(Budget(epsilon, x), effort) for x in functional.DELTAS]
        if mechanism in ("dpsgd", "all") and installed():
            claims += [dpsgd.games(Budget(epsilon, x), effort) for x in dpsgd.DELTAS]
        for same in map(list, claims):
            found += [replace(game, claim=replace(game.claim, games=len(same))) for game in same]
        if mechanism in ("paper", "all"):
            found.append(controls.paper_game(epsilon, effort))
        if mechanism in ("controls", "all"):
            found += controls.games(epsilon, effort)
    return found
