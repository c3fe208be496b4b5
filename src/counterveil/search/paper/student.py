"""A student of a model without a gradient: a small network that answers as the model does.

Algorithm 2 and repair follow its gradient; the model itself decides on every answer. It learns from
rows that the veil alone gives, so it is post-processing of the veil and the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from counterveil.errors import CallLimitError
from counterveil.models import Rows, TargetModel, TorchModel
from counterveil.networks import Adam, classifier, one_thread, seeded
from counterveil.search.constraints.bounds import Box
from counterveil.search.constraints.projection import Snap
from counterveil.terminal import Tick, progress_bar, silent
from counterveil.veil import Veil

STUDENT_ROWS = 8_000  # that the model classifies
FEWEST_ROWS = 200
HIDDEN = (64, 64)
EPOCHS, BATCH, RATE = 20, 256, 4e-3  # the rate falls
LATENT_SPREAD = 0.5  # of the codes of drawn rows; codes are sigmoids in (0, 1)


def learn_student(veil: Veil, model: TargetModel, snap: Snap, *, show: bool) -> TorchModel:
    """A student of `model`, on the device of `snap`; `show`: a bar."""
    rows = legal_rows(veil, snap, _row_count(model), seed=0)
    log_proba = model.ask(Rows.of_points(rows, model.encoding))
    with progress_bar("learning a student of the model", EPOCHS, show=show) as tick:
        return distil(model, rows, log_proba, seed=0, tick=tick)


def _row_count(model: TargetModel) -> int:
    """How many rows a student may learn from; where calls are counted, half are for answers."""
    left, batch = model.calls_left, model.batch
    if left is None:
        return STUDENT_ROWS
    rows = (batch or STUDENT_ROWS) * (left // 2)
    if rows < FEWEST_ROWS:
        raise CallLimitError(
            f"{left} calls of at most {batch} rows are too few to learn how the model answers; "
            "allow more calls or larger batches"
        )
    return min(STUDENT_ROWS, rows)


@torch.no_grad()
def legal_rows(veil: Veil, snap: Snap, count: int, *, seed: int) -> Tensor:
    """`count` legal rows drawn from the Veil alone, (count, width), on the device of `snap`.

    What matters lies between the classes, so codes are mixtures of two prototypes plus noise. A
    random share of the features of each row is then drawn anew, which spreads the rows over the
    whole cube.
    """
    device = snap.part_of_column.device
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator).to(device)

    prototypes = veil.prototypes.to(device)
    first, second = torch.randint(len(prototypes), (2, count), generator=generator).to(device)
    share = uniform(count, 1)
    codes = share * prototypes[first] + (1 - share) * prototypes[second]
    noise = torch.randn(codes.shape, generator=generator).to(device)
    decoded = veil.autoencoder.to(device).decode(codes + LATENT_SPREAD * uniform(count, 1) * noise)
    drawn_anew = uniform(count, len(veil.schema.features)) < uniform(count, 1)
    columns = snap.columns_of_features(drawn_anew)
    blend = torch.where(columns, uniform(*decoded.shape), decoded)
    return snap(blend, Box(torch.zeros_like(blend), torch.ones_like(blend)))


@one_thread()
def distil(
    model: TargetModel, points: Tensor, log_proba: Tensor, *, seed: int, tick: Tick = silent
) -> TorchModel:
    """A student that answers on `points`, (rows, width), as `model` did: (rows, classes)."""
    answers = log_proba.exp().to(points.device)
    network = seeded(lambda: classifier(points.shape[1], HIDDEN, model.classes), seed)
    weights = list(network.to(points.device).parameters())
    adam, generator = Adam(weights, RATE), torch.Generator().manual_seed(seed)
    for epoch in range(EPOCHS):
        adam.rate = RATE * (1 - epoch / EPOCHS)
        for rows in torch.randperm(len(points), generator=generator).to(points.device).split(BATCH):
            loss = nn.functional.cross_entropy(network(points[rows]), answers[rows])
            adam.step(torch.autograd.grad(loss, weights))
        tick(epoch + 1, "epochs")
    return TorchModel(network.requires_grad_(False).eval(), model.schema, outputs="logits")
