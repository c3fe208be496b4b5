"""Mechanism `paper`: Algorithm 1 of the paper, literally.

    Input: dataset D, privacy budget ε.   Output: noisy class prototypes ρ_s for every class s.

    1. Set Δ = 4(K+1) for the Laplace noise                            (Eq. case_bound)
    2. Perturb each coefficient λ_φ of the objective by Lap(Δ/ε)       (Eq. pert_coef)
    3. Construct the perturbed objective L~_D(W)                       (Theorem 2)
    4. Train the autoencoder with L~_D(W)
    5. Derive the prototypes as class means of encodings               (Eq. prot_construct)

Formal guarantee: **none**. The ε is the paper's and nominal; `WHY_NOMINAL` says why. The
mechanism is what the paper describes and what everything else is measured against.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from counterveil import networks
from counterveil.curator.noise import laplace
from counterveil.curator.table import PrivateTable
from counterveil.networks import Architecture, Autoencoder, UnitNorm
from counterveil.privacy import Access, Budget, Level, Statement
from counterveil.terminal import Tick, silent

LEARNING_RATE = 1e-3

WHY_NOMINAL = (
    "the basis functions of the objective contain the private rows themselves, so noise on the "
    "coefficients alone does not hide them",
    "4(K+1) is not the sensitivity of the coefficients that get the noise: under replace-one it is "
    "3 times the number of encoded columns for inputs in [0, 1], as here, and 4 times for inputs "
    "in [-1, 1], as in the paper",
    "the prototypes are exact class means over the private rows: who knows all other rows can "
    "tell two neighbouring tables apart with certainty",
    "the target model is trained on the same rows and is consulted by the search",
    "in the paper the scaling of the inputs is learnt from the data (here it comes from the "
    "schema, which mends this one point)",
    "the paper's proof that the search adds no bias needs a search that is affine; it is not",
)


class Tied(Autoencoder):
    """ψ with one W for both ways and no bias: h = σ(Wᵀx), x̂ = σ(hW), layer by layer."""

    def __init__(self, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__(width, hidden)
        for layer in (*_linear(self.encoder), *_linear(self.decoder)):
            nn.init.zeros_(layer.bias)
            layer.bias.requires_grad_(False)
        for layer in _linear(self.decoder):
            layer.weight.requires_grad_(False)  # `as_usual` fills them

    def decode(self, codes: Tensor) -> Tensor:
        for layer in reversed(_linear(self.encoder)):
            codes = torch.sigmoid(UnitNorm()(codes) @ layer.weight)
        return codes

    @torch.no_grad()
    def as_usual(self) -> Autoencoder:
        """The same map as an autoencoder whose decoder has weights of its own."""
        first, *_ = there = _linear(self.encoder)
        for one, other in zip(there, reversed(_linear(self.decoder)), strict=True):
            other.weight.copy_(one.weight.T)
        same = Autoencoder(first.in_features, self.hidden)
        same.load_state_dict(self.state_dict())
        return same.to(first.weight.device).requires_grad_(False).eval()


def _linear(layers: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def build_prototypes(
    table: PrivateTable,
    budget: Budget,
    architecture: Architecture,
    *,
    seed: int,
    device: torch.device,
    tick: Tick = silent,
    noise: Callable[[float, int], Tensor] = laplace,
) -> tuple[Autoencoder, Tensor]:
    """Algorithm 1: the autoencoder and the prototypes (classes, latent).

    The seed steers initial weights and batches; the noise takes none. `noise(scale, size)` draws.
    """
    points, classes_of_rows = table.private_rows()
    private_rows = torch.as_tensor(points, dtype=torch.float32, device=device)
    private_classes = torch.as_tensor(classes_of_rows, device=device)
    rows, width = private_rows.shape

    delta = sensitivity(architecture.widest)  # step 1
    eta = perturbation(width, delta, budget, noise)  # step 2
    objective = perturbed_objective(eta, rows, device)  # step 3
    kind = Tied if architecture.tied else Autoencoder
    autoencoder = networks.seeded(lambda: kind(width, architecture.encoder), seed).to(device)

    def loss_of(numbers: Tensor) -> Tensor:
        x = private_rows[numbers]
        x_hat = autoencoder(x)
        return objective(2 * x - 1, 2 * x_hat - 1) if architecture.signed else objective(x, x_hat)

    long = networks.TrainingSchedule(
        epochs=architecture.epochs, batch=architecture.batch, rate=LEARNING_RATE
    )
    networks.fit(autoencoder, loss_of, rows, seed=seed, tick=tick, **long)  # step 4
    networks.check_finite(autoencoder)
    if isinstance(autoencoder, Tied):
        autoencoder = autoencoder.as_usual()
    classes = len(table.schema.label.classes)
    means = networks.class_means(autoencoder, private_rows, private_classes, classes)  # step 5
    return autoencoder, means


def sensitivity(widest: int) -> float:
    """Step 1: Δ of Eq. case_bound, 4(K+1) for K neurons in the widest hidden layer."""
    return 4.0 * (widest + 1)


def perturbation(
    width: int, delta: float, budget: Budget, noise: Callable[[float, int], Tensor] = laplace
) -> Tensor:
    """Step 2: η0, η1, η2 of Eq. pert_coef as (3, width), one draw of Lap(Δ/ε) per coefficient.

    The draws are made once, before training: drawing anew for every batch would average them away.
    """
    if not budget.adds_noise:
        return torch.zeros(3, width, dtype=torch.float64)
    return noise(delta / budget.epsilon, 3 * width).reshape(3, width)


def perturbed_objective(
    eta: Tensor, rows: int, device: torch.device
) -> Callable[[Tensor, Tensor], Tensor]:
    """Step 3: L~_D(W) / N for squared error, where N = `rows` (Theorem 2).

    η0, η1, η2 perturb the coefficients of x̂⁰, x̂¹ and x̂². For a batch of rows x and
    reconstructions x̂: mean_i Σ_j (x²+η0/N) + (−2x+η1/N)·x̂ + (1+η2/N)·x̂².
    """
    constant, linear, square = (eta / rows).to(device, torch.float32)

    def objective(x: Tensor, x_hat: Tensor) -> Tensor:
        terms = (x * x + constant) + (linear - 2 * x) * x_hat + (1 + square) * x_hat * x_hat
        return terms.sum(dim=1).mean()

    return objective


def state(budget: Budget, architecture: Architecture) -> Statement:
    """The statement of a release: level `none`, and why."""
    training = Access(
        what="training of the autoencoder",
        mechanism="functional mechanism as published: Laplace noise on the objective, once",
        sensitivity=f"claimed Δ = 4(K+1) with K = {architecture.widest}",
        scale=sensitivity(architecture.widest) / budget.epsilon if budget.adds_noise else None,
    )
    means, unbounded = "exact class means of encodings", "not bounded by noise"
    prototypes = Access(what="class prototypes", mechanism=means, sensitivity=unbounded)
    return Statement(
        level=Level.NONE,
        mechanism="paper",
        epsilon=budget.epsilon if budget.adds_noise else None,
        accesses=(training, prototypes),
        reasons=WHY_NOMINAL,
        exclusions=("the target model and everything it reveals",),
    )
