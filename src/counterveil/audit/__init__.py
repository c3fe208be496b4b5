"""The audit: try to refute what the mechanisms promise.

A proof can be wrong, and code can differ from its proof. The audit plays the distinguishing game
against the code itself and gives lower bounds on ε at a stated confidence. It can refute a claim;
it cannot prove one. Only the command line may import this package: it holds noise that can be
repeated, which no release may ever use.

    bound        counts of an event in two worlds -> a lower bound on ε, and its ceiling
    game         scores in two worlds -> threshold on one half, bound on the other
    worlds       pairs of neighbouring tables
    tap          the exact numbers and the noise of a run of the mechanism
    twin         fast noise with the mechanism's distribution
    coefficients games on all noisy numbers of `functional`
    gradients    games on all noisy gradients and sums of `dpsgd`
    releases     games on real veils and answers
    controls     known faults that must be caught
    contest      one game as it is planned and played
    suite        which games are played; those against `dpsgd` in suite_dpsgd
    report       rows, verdicts, files
"""

from counterveil.audit.contest import Effort, Game
from counterveil.audit.report import Row, failures, save
from counterveil.audit.suite import games

__all__ = ["Effort", "Game", "Row", "failures", "games", "save"]
