"""Counter-examples to the published proof, each run on the mechanism `paper` as it is.

`docs/soundness.md` numbers the holes; `counterveil-lab holes` prints what is measured here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch

from counterveil import Explainer
from counterveil.curator import Curator, paper
from counterveil.encoding import Array, Encoding
from counterveil.networks import Autoencoder, fit
from counterveil.schema import Label, Numeric, Schema
from counterveil.search.results.refusals import Status

LOW, HIGH = "refused", "granted"


@dataclass(frozen=True)
class Finding:
    """What a hole lets through: the claim, and what was measured against it."""

    hole: str
    claim: str
    measured: str
    holds: bool  # whether the claim stands; a hole is open where it does not


def basis_holds_data(seed: int = 0) -> Finding:
    """Hole 1: two neighbours with the very same noisy coefficients still train different weights.

    If the noisy coefficients were all that training sees, equal ones would give equal weights.
    """
    generator = torch.Generator().manual_seed(seed)
    shared = torch.rand(40, 4, generator=generator)
    tables = [torch.cat([shared, torch.full((1, 4), value)]) for value in (0.0, 1.0)]
    noise = 20 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    # The noise of the second table makes up for what its own sums differ by.
    sums = [torch.stack([x.square().sum(0), -2 * x.sum(0), torch.full((4,), 41.0)]) for x in tables]
    noises = noise, noise + (sums[0] - sums[1]).double()
    weights = []
    for rows, eta in zip(tables, noises, strict=True):
        objective = paper.perturbed_objective(eta, len(rows), torch.device("cpu"))
        network = Autoencoder.new(4, (3, 2), seed)
        loss = partial(_loss, objective, network, rows)
        fit(network, loss, len(rows), epochs=10, batch=len(rows), rate=1e-3, seed=seed)
        weights.append(torch.cat([part.flatten() for part in network.parameters()]))
    apart = float((weights[0] - weights[1]).abs().max())
    return Finding(
        "1. the basis contains data",
        "training sees the rows through the noisy coefficients alone",
        f"with equal noisy coefficients, the weights after ten steps differ by up to {apart:.2g}",
        apart == 0,
    )


def _loss(
    objective: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    network: Autoencoder,
    rows: torch.Tensor,
    numbers: torch.Tensor,
) -> torch.Tensor:
    return objective(rows[numbers], network(rows[numbers]))


def sensitivity_readings(inputs: int = 784, widest: int = 256) -> tuple[Finding, ...]:
    """Hole 2: how far the coefficients move when a record is replaced, in both readings of K.

    One column at the corners and the middle of its range decides; columns add up. In the first
    reading the coefficients are those of the reconstruction, x̂⁰, x̂¹ and x̂² of each column, as this
    package perturbs them; in the second, each of K hidden neurons has the coefficient −2x of its
    own for every column.
    """
    found = []
    for low in (0.0, -1.0):
        values = np.array([low, 0.0, 1.0])
        pairs = list(product(values, values))
        of_reconstruction = max(abs(x * x - y * y) + 2 * abs(x - y) for x, y in pairs) * inputs
        linear = max(2 * abs(x - y) for x, y in pairs) * inputs
        of_neurons = widest * linear
        for reading, true, known in (
            ("of the reconstruction", of_reconstruction, ("K neurons", widest)),
            ("of the reconstruction", of_reconstruction, ("K inputs", inputs)),
            ("of K hidden neurons", of_neurons, ("K neurons", widest)),
        ):
            claimed = paper.sensitivity(known[1])
            found.append(
                Finding(
                    f"2. sensitivity, inputs in [{low:g}, 1]",
                    f"4(K+1) = {claimed:,.0f} with {known[0]} (K = {known[1]})",
                    f"coefficients {reading} move by {true:,.0f}",
                    true <= claimed,
                )
            )
    return tuple(found)


def model_tells(runs: int = 5) -> Finding:
    """Hole 4: whoever asks for one answer learns the replaced record from the target model.

    The model is the nearest neighbour of the rows, which memorises them; the veil has ε = 0.01.
    """
    values, asked = np.linspace(0.0, 0.4, 40), pd.DataFrame({"income": [0.9]})
    right = 0
    for run, replaced in product(range(runs), (LOW, HIGH)):
        labels = [LOW, HIGH] * 20 + [replaced]
        rows = pd.DataFrame({"income": [*values, 0.9], "decision": labels})
        veil = Curator(_schema(1.0)).release(rows, 0.01, epochs=1, seed=run, progress=False)
        explainer = Explainer(veil, partial(_nearest, rows))
        result = explainer.explain(asked, HIGH, method="iterations", iterations=5, progress=False)
        right += result.count(Status.ALREADY) == (replaced == HIGH)
    return Finding(
        "4. the target model",
        "an answer adds at most ε = 0.01 to what is known of a record",
        f"the replaced record was told from one answer in {right} of {2 * runs} cases",
        right < 2 * runs,
    )


def _nearest(rows: pd.DataFrame, asked: pd.DataFrame) -> Array:
    """The nearest neighbour's decision as two probabilities a row."""
    known = rows["income"].to_numpy()
    nearest = np.abs(asked["income"].to_numpy()[:, None] - known).argmin(axis=1)
    granted = (rows["decision"].to_numpy()[nearest] == HIGH).astype(float)
    return np.stack([1 - granted, granted], axis=1)


def scaling_tells(seed: int = 0) -> Finding:
    """Hole 5: with bounds read off the rows, a decoded answer shows the largest value exactly."""
    richest = 1_234_567.0
    incomes = [*np.random.default_rng(seed).uniform(0, 90_000, 40).round(), richest]
    schema = _schema(max(incomes), min(incomes))  # min–max scaling, as published
    rows = pd.DataFrame({"income": incomes, "decision": [LOW, HIGH] * 20 + [HIGH]})
    veil = Curator(schema).release(rows, 0.025, mechanism="paper", epochs=1, progress=False)
    shown = float(Encoding(veil.schema).decode(np.ones((1, 1)))["income"].iloc[0])
    return Finding(
        "5. scaling learnt from data",
        "what is released depends on one record by a factor of at most exp(ε)",
        f"the end of the decoder's range, {shown:,.0f}, is the largest income of all rows",
        shown != richest,
    )


def _schema(upper: float, lower: float = 0.0) -> Schema:
    income = Numeric(name="income", lower=lower, upper=upper)
    return Schema(features=(income,), label=Label(name="decision", classes=(LOW, HIGH)))


def findings() -> tuple[Finding, ...]:
    """All counter-examples, in the order of the holes. The third one is a game of the audit."""
    return (basis_holds_data(), *sensitivity_readings(), model_tells(), scaling_tells())
