"""What several parts of the lab need that stands on the inside of counterveil.

Nothing here loads the private side: whatever needs the Curator imports it where it is used, so that
`tools/bench gpu` runs on machines that can release nothing.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.demo.adult import Split, adult_schema, adult_split
from counterveil.encoding import Encoding
from counterveil.models import Rows, TargetModel
from counterveil.schema import Schema
from counterveil.search import Explainer
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import SearchOptions
from counterveil.search.paper.algorithm2 import ITERATIONS, SearchObjective, Weights, minimise
from counterveil.veil import Veil

BOXES_AT_A_TIME = 2**17


def embedded_adult(epsilon: float) -> tuple[Schema, Split, Veil]:
    """The embedded Adult with its rules: schema, people, and a veil of those to train with."""
    from counterveil.curator import Curator

    schema, people = adult_schema(), adult_split()
    return schema, people, Curator(schema).release(people.train, epsilon, progress=False)


def evenly(classes: Tensor, count: int) -> Tensor:
    """Weights of `count` classes under which each counts the same; `classes`: (rows,)."""
    return len(classes) / (count * torch.bincount(classes, minlength=count).clamp(min=1).float())


def dense_relu(sizes: list[int]) -> nn.Sequential:
    """Linear layers of these widths with a ReLU after each."""
    layers = ((nn.Linear(wide, narrow), nn.ReLU()) for wide, narrow in pairwise(sizes))
    return nn.Sequential(*(layer for pair in layers for layer in pair))


def log_proba_at(model: TargetModel, points: Tensor) -> Tensor:
    """Log-probabilities of encoded points (points, width): (points, classes)."""
    return model.ask(Rows.of_points(points, model.encoding))


def log_proba_of_rows(model: TargetModel, rows: pd.DataFrame) -> Tensor:
    """Log-probabilities of rows in original units: (rows, classes)."""
    return model.ask(Rows.of_frame(model.encoding.pick(rows), model.encoding))


def decided(model: TargetModel, rows: pd.DataFrame) -> Tensor:
    """The class that the model gives to each row, as a number."""
    return log_proba_of_rows(model, rows).argmax(dim=1)


def runner_up(model: TargetModel, rows: pd.DataFrame) -> Tensor:
    """The class that the model finds most likely after the one it gives, for each row."""
    log_proba = log_proba_of_rows(model, rows)
    first = log_proba.argmax(dim=1, keepdim=True)
    return log_proba.scatter(1, first, -torch.inf).argmax(dim=1)


def any_other(model: TargetModel, rows: pd.DataFrame, seed: int) -> Tensor:
    """A class that the model does not give, drawn evenly, for each row."""
    further = np.random.default_rng(seed).integers(1, model.classes, len(rows))
    return (decided(model, rows) + torch.as_tensor(further)) % model.classes


def nearest_legal(points: Tensor, encoding: Encoding) -> Tensor:
    """The legal row nearest to each point of the unit cube, whatever the row was before."""
    cube = Box(torch.zeros_like(points), torch.ones_like(points))
    return Snap(encoding, points.device)(points, cube)


def query_batch(points: Tensor, targets: Tensor, encoding: Encoding) -> QueryBatch:
    """Encoded queries (rows, width) with their target classes (rows,) and the box of each."""
    parts = [
        box_around(encoding, part.double().cpu().numpy()) for part in points.split(BOXES_AT_A_TIME)
    ]
    lower, upper = torch.cat([x.lower for x in parts]), torch.cat([x.upper for x in parts])
    return QueryBatch(points, targets, Box(lower, upper).to(points.device))


def last_iterates(explainer: Explainer, points: Tensor, targets: Tensor) -> Tensor:
    """The end of Algorithm 2 as published, as legal rows, whether f accepts them or not.

    `Explainer.explain` gives back the query where f does not agree; this does not ask f.
    """
    options = SearchOptions(method="iterations", iterations=ITERATIONS, keep="last", polish=False)
    batch = query_batch(points, targets, explainer.encoding)
    starts = range(0, len(points), explainer.chunk)
    parts = [batch.select(slice(start, start + explainer.chunk)) for start in starts]
    return torch.cat([explainer.answer_tensors(part, options)[0].detach() for part in parts])


def unsnapped(veil: Veil, judge: TargetModel, points: Tensor, targets: Tensor) -> Tensor:
    """The end of Algorithm 2 as the decoder gives it, not made a legal row: (queries, width)."""
    objective = SearchObjective(
        model=judge,
        autoencoder=veil.autoencoder,
        weights=Weights.of(veil.schema.family),
        queries=points,
        targets=targets,
        prototypes=veil.prototypes,
        box=Box(torch.zeros_like(points), torch.ones_like(points)),  # nothing is forbidden
    )
    delta = minimise(objective, ITERATIONS)
    with torch.no_grad():
        return objective.counterfactual(delta)
