"""Mechanism `dpsgd`: networks trained by noisy gradients. Needs the extra `counterveil[dpsgd]`.

    1. Train the autoencoder by DP-SGD: Poisson batches, each record's gradient cut to a fixed
       norm, Gaussian noise on the sum of every batch (Opacus).
    2. Release class sums of codes and class counts with exact integer noise: the prototypes.
    3. Train the surrogate by DP-SGD; the noisy counts of step 2 make its classes count alike.

**No formal guarantee: the level of its statement is `none`.** With noise of real numbers, where the
code has floats, the output of `release` would be (ε, δ)-DP under replace-one of one record, N
public, by basic composition of the three shares of `split`; each step reads the rows and the
outputs of the steps before it. What follows is the proof of that.

Training (`calibrate_training`): sampling rate, steps, clip and the divisor of the gradient are
public and fixed, so the training is a mechanism on tables of any size. Opacus' RDP accountant
(Mironov, Talwar & Zhang 2019: both directions of add/remove, integer orders alone, whose sums are
finite) gives (ε', δ') for one record added *or* removed. Replacing a record is one removal and one
addition, and for every event S

    P[M(D) ∈ S] ≤ e^ε'·P[M(D−x) ∈ S] + δ' ≤ e^2ε'·P[M(D−x+y) ∈ S] + (1 + e^ε')·δ',

so ε' = ε/2 and δ' = δ/(1 + e^ε') give the (ε, δ) of the share.

Prototypes (`CodeSums`): calibrated for replace-one directly, by the certified integer noise of
`noise`.

**The noise of training is floating point from torch's generator: not exact, not cryptographic.**
The sum of a gradient and such noise is rounded: some values can be reached from one table and not
from its neighbour, and what the low bits of weights tell has no bound (Mironov 2012). Clipped norms
are sums of floats as well, and Opacus' accountant computes in floats. `functional` has neither
weakness. What can be done is: for every step the whole state of the generator comes anew from the
operating system (a seed would leave 2³² streams to try), and batches are drawn by a generator with
128 bits of the same entropy, as amplification by sampling needs secret batches. `seed` steers
initial weights alone.
"""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil import networks
from counterveil.build import TRAININGS, Networks, reconstruction_loss
from counterveil.curator.coefficients import EmbeddingSums
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import InternalError, RequestError
from counterveil.networks import Architecture, Autoencoder, Network, check_finite, seeded
from counterveil.privacy import Access, Budget
from counterveil.privacy.budget import rest_of
from counterveil.schema import Family
from counterveil.terminal import Tick, silent


@dataclass(frozen=True)
class DpsgdArchitecture(Architecture):
    """The layers of both networks, and for how long and in which batches they train."""

    surrogate: tuple[int, ...]  # neurons of each hidden layer


EPOCHS: dict[Family, int] = {"mixed": 20, "image": 5, "binary": 5}
ARCHITECTURES: dict[Family, DpsgdArchitecture] = {
    family: DpsgdArchitecture(usual.encoder, EPOCHS[family], 1024, TRAININGS[family].surrogate)
    for family, usual in networks.ARCHITECTURES.items()
}
SHARES = (0.5, 0.1)  # autoencoder, prototypes; the rest is for the surrogate
MOST_EPSILON = 500.0  # more protects nothing and overflows the accountants
CLIP = 1.0  # of a record's gradient, autoencoder
SURROGATE_CLIP = 4.0  # a tighter one makes the larger class win
RATE = 1e-2  # Adam's
FIXED_POINT = 1 << 12  # steps from the middle of a code to its end
ORDERS = (*range(2, 33), 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 512)
TOLERANCE = 5e-4  # of ε: the noise may be that much more than the least
AT_ONCE = 1 << 23  # numbers that the gradients of one part of a batch may take: fits a cache
TWISTER = slice(24, 24 + 8 * 624)  # the words of the Mersenne twister in torch's CPU generator
NO_PROOF = (
    "the proof of mechanism dpsgd is about real numbers, and its training adds noise of floating "
    "point from torch's generator: what the low bits of the weights tell is not bounded"
)
FLOATS = "floating-point noise of torch's generator, not exact and not cryptographic"


@dataclass(frozen=True)
class Schedule:
    """Public numbers that fix a training but for its noise."""

    rate: float  # the probability that a record is in a batch
    steps_per_epoch: int
    epochs: int
    expected: float  # records in a batch, on average

    @classmethod
    def of(cls, architecture: Architecture, rows: int) -> Schedule:
        """Batches of the architecture's size on average, from a table of `rows` rows."""
        rate = min(1.0, architecture.batch / rows)
        return cls(rate, math.ceil(1 / rate), architecture.epochs, rate * rows)

    @property
    def steps(self) -> int:
        """Batches in all."""
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True)
class NoisyTraining:
    """One training: what it is of, its schedule, its share of the budget, the gradients' clip."""

    what: str
    schedule: Schedule
    budget: Budget
    clip: float


def installed() -> bool:
    return find_spec("opacus") is not None


def check_installed() -> None:
    """Refuse in one line where Opacus is not there."""
    if not installed():
        raise RequestError("mechanism dpsgd needs: pip install 'counterveil[dpsgd]'")


def check(table: PrivateTable, budget: Budget) -> None:
    """Refuse what this mechanism cannot do. Reads no row: call it before the ledger is charged."""
    check_installed()
    if table.unit_column is not None or table.records > 1:
        raise RequestError(
            "mechanism dpsgd protects single records; for people with several records "
            "use mechanism functional"
        )
    if budget.epsilon > MOST_EPSILON:
        raise RequestError(
            f"epsilon must be at most {MOST_EPSILON:g} for mechanism dpsgd, for example 3"
        )
    if budget.delta <= 0:
        raise RequestError(
            "mechanism dpsgd needs a delta above 0: give one well below 1 over the number of rows, "
            "for example 1e-6, or use mechanism functional"
        )


def split(budget: Budget) -> tuple[Budget, Budget, Budget]:
    """Shares of autoencoder, prototypes and surrogate; their sums do not exceed the budget."""
    budget = budget.rounded_down()
    first, second = (Budget(budget.epsilon * share, budget.delta * share) for share in SHARES)
    epsilon = rest_of(budget.epsilon, first.epsilon, second.epsilon)
    return first, second, Budget(epsilon, rest_of(budget.delta, first.delta, second.delta))


def release(
    table: PrivateTable,
    budget: Budget,
    architecture: DpsgdArchitecture,
    *,
    seed: int,
    device: torch.device,
    tick: Tick = silent,
    noise: NoiseSource = EXACT,
) -> tuple[Networks, tuple[Access, ...]]:
    """The networks of a veil, and the readings of the rows they cost; see the module.

    `tick` counts to twice the epochs. The seed steers initial weights alone. `noise`: for codes.
    """
    check(table, budget)
    for_autoencoder, for_prototypes, for_surrogate = split(budget)
    schedule = Schedule.of(architecture, table.size)
    points, private_classes = table.private_rows()
    private_rows = torch.as_tensor(points, dtype=torch.float32, device=device)
    private_labels = torch.as_tensor(private_classes, dtype=torch.long, device=device)
    width, classes = table.encoding.width, len(table.schema.label.classes)
    autoencoder = Autoencoder.new(width, architecture.encoder, seed).to(device)
    first = train(
        autoencoder,
        lambda numbers: reconstruction_loss(autoencoder, private_rows[numbers]).sum(),
        NoisyTraining("training of the autoencoder", schedule, for_autoencoder, CLIP),
        rows=len(private_rows),
        tick=tick,
    )
    sums = CodeSums(autoencoder.latent, classes)
    for part, labels in zip(private_rows.split(65536), private_labels.split(65536), strict=True):
        with torch.no_grad():
            sums.add(autoencoder.encode(part).cpu().double().numpy(), labels.cpu().numpy())
    prototypes, counts, second = sums.release(for_prototypes, noise)

    surrogate = seeded(lambda: networks.classifier(width, architecture.surrogate, classes), seed)
    surrogate, entropy = surrogate.to(device), nn.CrossEntropyLoss(reduction="sum")
    third = train(
        surrogate,
        lambda numbers: entropy(surrogate(private_rows[numbers]), private_labels[numbers]),
        NoisyTraining("training of the surrogate", schedule, for_surrogate, SURROGATE_CLIP),
        rows=len(private_rows),
        tick=lambda done, words="": tick(architecture.epochs + done, words),
    )
    _even_out(surrogate, counts)
    found = torch.as_tensor(prototypes, dtype=torch.float32)
    return Networks(autoencoder.cpu(), found, surrogate.cpu()), (first, second, third)


class CodeSums:
    """Class sums of codes in whole numbers, and the class counts beside them.

    A code has L numbers in [0, 1]; each becomes a whole number in [−S, S], S = FIXED_POINT. The
    count of a record weighs w ≤ S·√L. Replacing a record moves the sums

    - inside a class by the difference of two codes: L1 ≤ 2SL, L2 ≤ 2S√L;
    - from class to class by two codes and two counts: L1 ≤ 2(SL + w), L2² ≤ 2(S²L + w²) ≤ 4S²L.
    """

    def __init__(self, latent: int, classes: int) -> None:
        self.weight = math.isqrt(FIXED_POINT**2 * latent)
        norms = FIXED_POINT * latent, FIXED_POINT**2 * latent
        self._sums = EmbeddingSums(latent, classes, *norms, self.weight)
        self.sensitivity = self._sums.sensitivity(records=1)
        self.exact = self._sums.sums  # (class, 1 + latent): private

    def add(self, private_codes: Array, private_classes: Array) -> None:
        bounded = np.clip(np.nan_to_num(private_codes, nan=0.5), 0, 1)
        whole = np.rint((2 * bounded - 1) * FIXED_POINT).astype(np.int64)
        self._sums.add(whole, private_classes)

    def release(self, budget: Budget, noise: NoiseSource = EXACT) -> tuple[Array, Array, Access]:
        """Prototypes and class counts from the noisy sums, (ε, δ)-DP under replace-one."""
        what = "class sums of codes and class counts"
        measured = noise.perturb("codes", what, self.exact, self.sensitivity, budget)
        noisy = measured.values.astype(np.float64)
        # A count below the deviation of its noise says nothing: its mean shrinks to the middle.
        floor = max(1.0, math.sqrt(measured.variance) / self.weight)
        counts = np.maximum(noisy[:, 0] / self.weight, floor)
        means = noisy[:, 1:] / FIXED_POINT / counts[:, None]
        return (np.clip(means, -1, 1) + 1) / 2, counts, measured.access


def training_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """ε at δ of DP-SGD under **add/remove**, by Opacus' RDP accountant."""
    from opacus.accountants.analysis import rdp

    orders = list(ORDERS)
    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    with _quiet():
        epsilon, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(epsilon)


def add_remove(budget: Budget) -> Budget:
    """What add/remove must satisfy so that replace-one satisfies `budget`: see the module."""
    epsilon = budget.epsilon / 2  # exactly
    return Budget(epsilon, budget.delta / (1 + math.exp(epsilon)) * (1 - 1e-12))  # rounded down


@lru_cache(maxsize=256)  # of public numbers alone
def calibrate_training(schedule: Schedule, budget: Budget) -> float:
    """The least noise, in units of the clip, that makes the training `budget`-DP, replace-one.

    Opacus searches for it, over our integer orders; the accountant is asked once more at the end.
    """
    from opacus.accountants.utils import get_noise_multiplier

    asked = add_remove(budget)
    try:
        with _quiet():
            noise: float = get_noise_multiplier(
                target_epsilon=asked.epsilon,
                target_delta=asked.delta,
                sample_rate=schedule.rate,
                steps=schedule.steps,
                accountant="rdp",
                epsilon_tolerance=TOLERANCE * asked.epsilon,
                alphas=list(ORDERS),
            )
    except ValueError:
        raise RequestError("no noise is enough for this epsilon and delta; raise them") from None
    spent = training_epsilon(noise, schedule.rate, schedule.steps, asked.delta)
    if not 0 <= spent <= asked.epsilon:
        raise InternalError("the noise of training does not give the privacy that was promised")
    return noise


def train(
    network: Network,
    loss_of: Callable[[Tensor], Tensor],
    training: NoisyTraining,
    *,
    rows: int | None = None,
    tick: Tick = silent,
    optimiser_class: Callable[..., Any] | None = None,
) -> Access:
    """Minimise the sum of `loss_of(row numbers)`, a sum over records, by DP-SGD; ends frozen.

    `rows`: to draw from, where that is not what the schedule is for. In real numbers the weights
    are `training.budget`-DP under replace-one, if the loss of a record depends on that record
    alone. An audit may give a subclass of Opacus' `DPOptimizer`.
    """
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    schedule, clip = training.schedule, training.clip
    noise = calibrate_training(schedule, training.budget)
    device = next(network.parameters()).device
    rows = round(schedule.expected / schedule.rate) if rows is None else rows
    at_once = max(1, AT_ONCE // sum(weights.numel() for weights in network.parameters()))
    wrapped = GradSampleModule(network, loss_reduction="sum")
    generator = torch.Generator(device)
    batches = np.random.default_rng()  # 128 bits of the operating system's entropy
    optimiser = (optimiser_class or DPOptimizer)(
        torch.optim.Adam(network.parameters(), RATE),
        noise_multiplier=noise,
        max_grad_norm=clip,
        expected_batch_size=schedule.expected,
        generator=generator,
    )
    for epoch in range(schedule.epochs):
        for _ in range(schedule.steps_per_epoch):
            renew(generator)
            chosen = np.flatnonzero(batches.random(rows) < schedule.rate)
            parts = torch.as_tensor(chosen, device=device).split(at_once)  # one, if it is empty
            for number, part in enumerate(parts, 1):
                optimiser.signal_skip_step(do_skip=number < len(parts))
                with _quiet():
                    loss_of(part).backward()
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
        tick(epoch + 1, "epochs")
    wrapped.to_standard_module()
    network.requires_grad_(False).eval()
    check_finite(network)
    words = f"DP-SGD, {schedule.steps} Poisson batches at rate {schedule.rate:.4g}, Gaussian"
    return Access(
        what=training.what,
        mechanism=f"{words}; {FLOATS}",
        sensitivity=f"each record's gradient cut to L2 {clip:g}",
        scale=noise * clip,
        epsilon=training.budget.epsilon,
        delta=training.budget.delta,
    )


def renew(generator: torch.Generator) -> None:
    """Fill the whole state of `generator` from the operating system's entropy."""
    generator.manual_seed(secrets.randbits(64))
    if generator.device.type == "cpu":
        state = generator.get_state().numpy()
        words = state[TWISTER].view(np.uint64)
        words[:] = np.frombuffer(secrets.token_bytes(4 * len(words)), dtype=np.uint32)
        generator.set_state(torch.from_numpy(state))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without two warnings of Opacus that mean nothing here."""
    with warnings.catch_warnings():
        # Where the best order is the first or last of the list, ε is only stated larger.
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
        # Opacus hooks every layer, and the first one's input needs no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


def _even_out(surrogate: nn.Sequential, counts: Array) -> None:
    """Take the log of the noisy class shares off the logits: all classes then count alike.

    Weights on the loss would do the same, were gradients not cut to one length afterwards.
    """
    last = surrogate[-1]
    if not isinstance(last, nn.Linear):
        raise InternalError("the surrogate does not end in a linear layer")
    shares = torch.as_tensor(np.log(counts / counts.sum()), dtype=torch.float32)
    last.bias.sub_(shares.to(last.bias.device))
