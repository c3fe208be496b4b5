"""Games on the noisy numbers of mechanism `dpsgd`.

The adversary sees every noisy sum of gradients of a training, and every noisy sum of codes, and
chooses the loss, as the proof of DP-SGD allows. The network is one weight, and the loss of a record
is the weight times the record's number, so that the number is the gradient. All records have
gradient 0 but one, the canary, whose gradient is far beyond the clip: it points one way in D and
the other way in D'. The mechanism's own training runs on these records, and a hook of torch writes
down the sums before and after their noise. The codes of the sums lie at opposite corners of the
unit cube. The score is the exact log-likelihood ratio of D' and D.

At a usual δ, such as 1e-6, half of the noise is barely caught in 100,000 draws at ε = 1; at δ =
0.01 it is caught with ease. So every ε is played at both.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from counterveil.audit import neighbours, releases
from counterveil.audit.checks import FAR, Dice
from counterveil.audit.fast_noise import Steps, draw_steps, log_ratio_of_steps
from counterveil.audit.functional import SHARP, Instrument, Moved, differing, likelihood_scores
from counterveil.audit.game import Check, Claim, Effort, Game, Scores
from counterveil.audit.game import Dice as Generator
from counterveil.audit.pair import Pair
from counterveil.curator import dpsgd
from counterveil.curator.dpsgd import CodeSums, NoisyTraining, Schedule
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.networks import seeded
from counterveil.privacy import Budget

DELTAS = (1e-6, SHARP)
TRAININGS = 40  # real ones of each table, to hear how they are made
STEPS = 120  # of those trainings at least, to hear their noise
GRADIENTS = (-1e3, 1e3)  # of the canary in D and in D', before they are clipped
RARE = 1e-9  # probability of a finding where there is nothing to find
LOPSIDED = 8.0  # less than the logarithm of a skewed count, more than weights reach
LATENT = 16  # numbers in a code
ROWS = 20
TINY = replace(dpsgd.ARCHITECTURES["mixed"], encoder=(4, 2), epochs=1, batch=ROWS)
SCHEDULES = {
    "a canary in every batch": Schedule.of(TINY, ROWS),
    "a canary in some batches": Schedule.of(replace(TINY, batch=5, epochs=2), ROWS),
}
CODES = "codes at opposite corners"


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    """The games against one (ε, δ). Real releases are played where they can show something.

    A release splits its budget over three steps and adds up what each of them may spend, which
    leaves more room than it needs. So each kind of step is also played alone, with all of (ε, δ).
    """
    rng = partial(effort.rng, "dpsgd", budget.epsilon, budget.delta)
    draws, few, some = effort.draws, max(20, effort.draws // 100), max(20, effort.draws // 20)
    game = partial(Game, "dpsgd", claim=Claim(budget.epsilon, budget.delta))

    def trace(pair: str) -> Scores:
        """Scores of all that a release gives away: every step of both trainings, and the sums."""
        dice, schedule = rng("trace", pair), SCHEDULES[pair]
        for_autoencoder, for_prototypes, for_surrogate = dpsgd.split(budget)
        scores = np.array(step_scores(canary_training(schedule, for_autoencoder), draws, dice))
        surrogate = canary_training(schedule, for_surrogate, dpsgd.SURROGATE_CLIP)
        scores += step_scores(surrogate, draws, dice)
        scores += likelihood_scores(moved_codes(for_prototypes), draws, dice)
        return scores[0], scores[1]

    def steps(pair: str) -> Scores:
        return step_scores(canary_training(SCHEDULES[pair], budget), draws, rng("steps", pair))

    def codes() -> Scores:
        return likelihood_scores(moved_codes(budget), draws, rng("codes"))

    def real_codes() -> Scores:
        return likelihood_scores(moved_codes(budget), some)

    def attempt(_: Pair, table: PrivateTable) -> None:
        dpsgd.release(table, budget, TINY, seed=0, device=torch.device("cpu"))

    for pair, schedule in SCHEDULES.items():
        real = partial(step_scores, canary_training(schedule, budget), few)
        yield game("all steps and sums", pair, draws=draws, scores=partial(trace, pair))
        yield game("gradients, all of ε", pair, draws=draws, scores=partial(steps, pair))
        yield game("gradients, the curator's training", pair, draws=few, scores=real)
    yield game("sums of codes, all of ε", CODES, draws=draws, scores=codes)
    yield game("sums of codes, the curator's sampler", CODES, draws=some, scores=real_codes)
    if budget.delta == SHARP:
        yield from releases.view_games("dpsgd", budget, effort, neighbours.one_feature())
        yield from releases.outcome_games("dpsgd", budget, effort.runs_for(budget.epsilon), attempt)


def checks(budget: Budget) -> Iterator[Check]:
    """The checks of one (ε, δ). Those of whole releases are made where the games are."""
    check = partial(Check, "dpsgd", claim=Claim(budget.epsilon, budget.delta))
    for pair, schedule in SCHEDULES.items():
        training = canary_training(schedule, budget)
        yield check("training is as stated", pair, find=partial(training_differs, training))
    yield check("prototypes follow from noisy sums", CODES, find=partial(codes_differ, budget))
    yield check("the shares add up", "all steps", find=shares_add_up)
    if budget.delta == SHARP:
        each = partial(releases.checks_of, "dpsgd", budget)
        views: dict[str, releases.Find] = {
            "rows are read once, after the charge": partial(releases.read_once, mechanism="dpsgd"),
            "the command": partial(releases.command_differs, mechanism="dpsgd"),
            "class counts are the noisy ones": counts_unused,
            "public parts of the veil": public_parts_differ,
        }
        yield from each(views, (neighbours.one_feature,))
        public: dict[str, releases.Find] = {"public parts of the veil": public_parts_differ}
        yield from each(public, (neighbours.unfit,))
        refused = {"no table is refused": partial(releases.refusals, mechanism="dpsgd")}
        yield from each(refused, (neighbours.last_of_its_class,))


def training_differs(training: NoisyTraining) -> Iterator[str]:
    """What is heard of the curator's trainings that is not what the proof says of them."""
    schedule, clip = training.schedule, training.clip
    repeats = max(TRAININGS, STEPS // schedule.steps)
    runs = [_train(training, table, 1.0) for table in (0, 1) for _ in range(repeats)]
    if {run.shape[1] for run in runs} != {schedule.steps}:
        yield f"a training has another number of steps than {schedule.steps}"
        return
    exact, noisy, stated = np.stack(runs, axis=1)
    if np.abs(exact).max() > clip * (1 + 1e-6):
        yield f"a record's gradient is {np.abs(exact).max():.3g} long, beyond the clip of {clip:g}"
    noise, deviation = noisy - exact, float(stated.min())
    share = float((noise**2).mean()) / deviation**2
    known = chi2(noise.size)
    if min(known.cdf(share * noise.size), known.sf(share * noise.size)) < RARE:
        yield f"the noise of a step has {share:.2f} of its stated variance"
    if len(np.unique(noise.round(5))) < noise.size / 2:
        yield "the noise of steps repeats"
    inside = exact != 0
    rate, size = schedule.rate, inside.size
    if abs(inside.mean() - rate) > FAR * math.sqrt(rate * (1 - rate) / size) + 1e-12:
        yield f"a record is in {inside.mean():.3g} of the batches, stated {rate:g}"
    elif rate < 1:
        # Poisson batches: how often a record comes varies from training to training.
        spread = inside.sum(axis=1).var() / (schedule.steps * rate * (1 - rate))
        if chi2.cdf(len(inside) * spread, len(inside) - 1) < RARE:
            yield "batches are not drawn record by record"
    spent, allowed = accounted(deviation / clip, rate, schedule.steps, training.budget)
    if spent > allowed * (1 + 1e-9):
        yield f"the noise of training gives add/remove ε = {spent:.3g}, where {allowed:.3g} is due"


def accounted(noise: float, rate: float, steps: int, budget: Budget) -> tuple[float, float]:
    """ε of add/remove by Opacus' accountant, and how much of it replace-one allows."""
    from opacus.accountants.analysis import rdp

    allowed = budget.epsilon / 2
    delta, orders = budget.delta / (1 + math.exp(allowed)), list(range(2, 513))
    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the best order is at an end of the list
        return float(rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)[0]), allowed


class Skewed(Dice):
    """A source of noise that counts nearly all records in the first class."""

    def answer_to(self, exact: Array) -> Array:
        values = np.zeros_like(exact)
        values[0, 0] = 1 << 50
        return values


def counts_unused(pair: Pair, budget: Budget) -> Iterator[str]:
    """Whether the surrogate is evened out by other class counts than the noisy ones."""
    how: Any = {"seed": 0, "device": torch.device("cpu"), "noise": Skewed()}
    made, _ = dpsgd.release(pair.tables[0], budget, TINY, **how)
    last: Any = [*made.surrogate.children()][-1]
    if float(last.bias[1] - last.bias[0]) < LOPSIDED:
        yield "the surrogate is not evened out by the noisy class counts"


def codes_differ(budget: Budget) -> Iterator[str]:
    """Whether prototypes or counts differ for other codes, with the same answers of the noise."""
    found = []
    for code in (0.0, 1.0):
        sums, dice = CodeSums(LATENT, 2), Dice()
        sums.add(np.full((3, LATENT), code), np.array([0, 0, int(code)]))
        prototypes, counts, _ = sums.release(budget, dice)
        found.append((prototypes.tolist(), counts.tolist()))
        if len(dice.asked) != 1 or dice.asked[0] != budget:
            yield "the sums of codes do not get noise for their share, once"
    if found[0] != found[1]:
        yield "with the same answers of the noise the prototypes of other codes differ"
    for part in moved_codes(budget):
        moved = float(np.linalg.norm((part.two - part.one).astype(np.float64)))
        if moved > part.measurement.sensitivity.l2 * (1 + 1e-12):
            yield "the sums of codes move further than stated"


def shares_add_up() -> Iterator[str]:
    """Whether the shares of the three steps add up to more than (ε, δ), over many of them."""
    for epsilon in np.random.default_rng(3).uniform(0.01, 4, 300).tolist():
        budget = Budget(epsilon, epsilon / 1e3)
        for name in ("epsilon", "delta"):
            parts = [Fraction(getattr(part, name)) for part in dpsgd.split(budget)]
            if sum(parts) > Fraction(getattr(budget, name)):
                yield f"the shares of {name} add up to more than {name}"


def public_parts_differ(pair: Pair, budget: Budget) -> Iterator[str]:
    """What differs between real veils of D and of D' though no noise is in it."""
    veils = [releases.release(pair, budget, "dpsgd", table) for table in (0, 1)]
    yield from releases.public_differences(*map(releases.members_of, veils))
    small, cpu = replace(TINY, batch=5), torch.device("cpu")
    told = [
        dpsgd.release(table, budget, small, seed=0, device=cpu, noise=Dice())[1]
        for table in pair.tables
    ]
    if told[0] != told[1]:
        yield "what is said of the trainings on D and D' differs"


def canary_training(schedule: Schedule, budget: Budget, clip: float = dpsgd.CLIP) -> NoisyTraining:
    """A training on records that have no gradient, except the canary."""
    return NoisyTraining("a training for the audit", schedule, budget, clip)


@cache
def heard_training(training: NoisyTraining, noise_share: float = 1.0) -> Steps:
    """The canary's clipped gradients and a step's stated noise; `noise_share` as for `_train`."""
    clipped: list[float] = []
    deviations: set[float] = set()
    for table in (0, 1):
        seen: set[float] = set()
        while not seen:  # the canary may have been in no batch
            exact, _, deviation = _train(training, table, noise_share)
            seen = set(exact.tolist()) - {0.0}
            deviations.update(deviation.tolist())
        clipped += seen
    (one, two), (deviation,) = clipped, deviations
    return Steps(one, two, deviation, training.schedule.rate, training.schedule.steps)


def real_steps(training: NoisyTraining, table: int, runs: int, noise_share: float = 1.0) -> Array:
    """Noisy sums of gradients, (runs, steps), of trainings by the mechanism itself."""
    return np.stack([_train(training, table, noise_share)[1] for _ in range(runs)])


def step_scores(
    training: NoisyTraining, draws: int, rng: Generator = None, *, noise_share: float = 1.0
) -> Scores:
    """Scores of all steps of a training: fast noise from `rng`, or real trainings without one."""
    steps = heard_training(training, noise_share)

    def noisy(table: int) -> Array:
        if rng is not None:
            return draw_steps(steps, table, draws, rng)
        return real_steps(training, table, draws, noise_share)

    return log_ratio_of_steps(steps, noisy(0)), log_ratio_of_steps(steps, noisy(1))


def moved_codes(budget: Budget) -> list[Moved]:
    """The sums of codes that differ where a record's code moves from one corner to the other."""
    heard = []
    for code in (0.0, 1.0):
        sums, instrument = CodeSums(LATENT, 2), Instrument()
        sums.add(np.full((1, LATENT), code), np.array([0]))
        sums.release(budget, instrument)
        heard.append(instrument)
    return differing(*heard)


def _train(training: NoisyTraining, table: int, noise_share: float) -> Array:
    """One training by the mechanism, (3, steps): sums before and after noise, stated deviation.

    The mechanism's own optimiser is heard, by a hook on every step of any optimiser of torch. Only
    with a `noise_share` below 1, which is a fault, it is given another one.
    """
    from opacus.optimizers import DPOptimizer

    heard: list[tuple[float, float]] = []

    class Faulty(DPOptimizer):  # type: ignore[misc]
        def __init__(self, *given: Any, noise_multiplier: float, **named: Any) -> None:
            super().__init__(*given, noise_multiplier=noise_share * noise_multiplier, **named)

    schedule = training.schedule
    private_numbers = torch.zeros(round(schedule.expected / schedule.rate), 1)
    private_numbers[-1] = GRADIENTS[table]
    network = seeded(lambda: nn.Linear(1, 1, bias=False), 0)
    weight: Any = network.weight

    def listen(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        if optimiser.param_groups[0]["params"][0] is weight:
            noisy = weight.grad.item() * schedule.expected
            summed = getattr(weight, "summed_grad", None)
            heard.append((noisy if summed is None else summed.item(), noisy))

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return network(private_numbers[rows]).sum()

    hook = register_optimizer_step_pre_hook(listen)
    try:
        faulty = None if noise_share == 1 else Faulty
        access = dpsgd.train(network, loss_of, training, optimiser_class=faulty)
    finally:
        hook.remove()
    stated = np.full(len(heard), noise_share * (access.scale or 0.0))
    return np.vstack([np.array(heard).T, stated])
