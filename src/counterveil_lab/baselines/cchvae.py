"""C-CHVAE (Pawelczyk 2020): the latent space of a VAE searched in growing shells.

Around the code μ(x) of the query, `samples` points in the L1 shell from 0 to `step`, then from
`step` to 2·`step`, and so on. They are decoded, fixed features get the query's value again, and
all become legal rows. The first shell with a row that f accepts has the answer: the nearest in L1.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from counterveil.models import TargetModel
from counterveil.schema import Schema
from counterveil_lab.baselines.base import Answers, Nearest, Problem, check
from counterveil_lab.baselines.vae import EPOCHS, LAYERS, Vae, train_vae

NUMBERS_AT_A_TIME = 2**24  # decoded at once; bounds the memory


class Cchvae:
    """Queries that have an answer leave the search. f needs no gradient.

    All queries try the same random directions, so that an answer does not depend on which other
    queries were asked. Several answers are the nearest of the shell. A `vae` that is trained
    already saves the training; it then explains `layers` and `epochs` away.
    """

    def __init__(
        self,
        schema: Schema,
        model: TargetModel,
        train: pd.DataFrame,
        *,
        seed: int = 0,
        samples: int = 300,
        step: float = 0.1,
        shells: int = 1000,
        layers: tuple[int, ...] = LAYERS,
        epochs: int = EPOCHS,
        vae: Vae | None = None,
    ) -> None:
        check(schema, model, gradient=False, name="C-CHVAE")
        self.name = "cchvae"
        self.model, self.seed = model, seed
        self.samples, self.step, self.shells = samples, step, shells
        self.vae = vae or train_vae(
            train, schema, seed=seed, layers=layers, epochs=epochs, device=model.device
        )

    @torch.no_grad()
    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self.model, queries, targets, k)
        nearest = Nearest(problem)
        together = NUMBERS_AT_A_TIME // (self.samples * problem.queries.shape[1])
        for numbers in problem.numbers.split(max(1, together)):
            self._search(problem, nearest, numbers)
        return problem.answers(nearest.rows)

    def _search(self, problem: Problem, nearest: Nearest, numbers: Tensor) -> None:
        codes, _ = self.vae.encode(problem.queries)
        generator = torch.Generator().manual_seed(self.seed)
        for shell in range(self.shells):
            around = self._shell(shell, codes.shape[1], generator).to(codes.device)
            points = self.vae.decode(codes[numbers][:, None] + around)
            rows = problem.legal(points, numbers)
            accepted = problem.accepted(rows, numbers)
            nearest.look(numbers, rows, accepted)
            numbers = numbers[~accepted.any(dim=1)]
            if not len(numbers):
                break

    def _shell(self, shell: int, width: int, generator: torch.Generator) -> Tensor:
        """Offsets whose L1 norms are uniform over the shell."""
        direction = torch.randn(self.samples, width, generator=generator)
        norm = self.step * (shell + torch.rand(self.samples, 1, generator=generator))
        return direction * (norm / direction.abs().sum(dim=1, keepdim=True))
