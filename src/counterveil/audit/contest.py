"""One game as it is planned and played: a view of a pair against a claim."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from counterveil.audit.bound import ERROR
from counterveil.audit.coefficients import Scores
from counterveil.audit.game import Claim, play
from counterveil.audit.report import Row


@dataclass(frozen=True)
class Effort:
    """How hard to look: draws of coefficients and real releases, a side; a seed for the twin."""

    draws: int = 100_000
    runs: int = 300
    seed: int = 0

    def rng(self, *names: object) -> np.random.Generator:
        """The dice of one game."""
        return np.random.default_rng((self.seed, zlib.crc32(repr(names).encode())))


@dataclass(frozen=True)
class Game:
    """One view of one pair, against the claim of one mechanism."""

    mechanism: str
    view: str
    pair: str
    claim: Claim
    draws: int
    scores: Callable[[], Scores]

    def play(self) -> Row:
        """Draw, choose, bound."""
        outcome = play(*self.scores(), self.claim)
        return Row(
            mechanism=self.mechanism,
            view=self.view,
            pair=self.pair,
            claimed_epsilon=self.claim.epsilon,
            delta=self.claim.delta,
            draws=self.draws,
            bound=outcome.bound,
            ceiling=outcome.ceiling,
            confidence=1 - ERROR,
            refuted=outcome.bound > self.claim.epsilon,
        )


def share_error(same_claim: Iterable[Game]) -> list[Game]:
    """All games against one claim together err with probability 5 % at most."""
    together = list(same_claim)
    return [replace(game, claim=replace(game.claim, games=len(together))) for game in together]
