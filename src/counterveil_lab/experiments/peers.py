"""Published methods in the experiments: which are asked, and how many questions they get.

C-CHVAE searches a thousand shells for a query that it cannot answer: on wide data it gets fewer
questions, and a row says how many (`queries`). dice-ml goes row by row and gets as many as a limit
of time allows (`answers.DICE_SECONDS`).

dice-ml does not know missing values. Where values may be missing it is given the same numbers under
a schema without missing values (`complete`): a missing category is one more category, and that a
number is missing is a feature of its own. Both schemas encode alike, so f is the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Encoding
from counterveil.models import CallableModel, TargetModel, adapt
from counterveil.schema import Binary, Categorical, Feature, Numeric, Schema
from counterveil_lab.baselines import Answers, Baseline, Cadex, Cchvae, Dice, Revise
from counterveil_lab.baselines.base import Problem
from counterveil_lab.baselines.dice import Method
from counterveil_lab.evaluation import Evaluation
from counterveil_lab.experiments.releases import vae_for
from counterveil_lab.results import Row

PARTS = ("cadex", "vae", "dice")
GRADIENT_WIDTH = 200  # encoded numbers
WIDE_SHELLS = 200  # of C-CHVAE; the last has an L1 norm of 20 where codes are standard normal
ABSENT = "(missing)"


@dataclass(frozen=True)
class Asked:
    """How many questions each method gets."""

    cadex: int
    cchvae: int
    revise: int
    dice: int


ONE_ANSWER = {
    "mixed": Asked(cadex=500, cchvae=500, revise=500, dice=500),
    "image": Asked(cadex=200, cchvae=40, revise=100, dice=500),
    "binary": Asked(cadex=200, cchvae=40, revise=100, dice=500),
}
TEN_ANSWERS = {
    "mixed": Asked(cadex=100, cchvae=100, revise=100, dice=100),
    "image": Asked(cadex=25, cchvae=25, revise=25, dice=50),
    "binary": Asked(cadex=25, cchvae=25, revise=25, dice=50),
}
QUICK = Asked(cadex=5, cchvae=2, revise=2, dice=1)


def peers(
    evaluation: Evaluation, part: str, seed: int, asked: Asked, *, quick: bool
) -> Iterator[tuple[Baseline, int, Row]]:
    """Each method of a part with the number of its questions, and what its row must say of it."""
    data, schema = evaluation.data, evaluation.data.schema
    given = schema, evaluation.judge, data.train
    if part == "cadex":
        for threshold in (0.0, 0.5) if schema.family == "mixed" else (0.0,):  # of categories
            yield Cadex(*given, threshold=threshold), asked.cadex, {}
    if part == "vae":
        vae, epochs = vae_for(data, seed, quick=quick)
        shells = 20 if quick else 1000 if schema.family == "mixed" else WIDE_SHELLS
        cchvae = Cchvae(*given, seed=seed, vae=vae, shells=shells)
        yield cchvae, asked.cchvae, {"vae_epochs": epochs, "shells": shells}
        revise = Revise(*given, seed=seed, vae=vae, iterations=50 if quick else 1000)
        yield revise, asked.revise, {"vae_epochs": epochs}
    if part == "dice":
        yield dice(evaluation, dice_methods(schema)[0], seed), asked.dice, {}


def dice_methods(schema: Schema) -> tuple[Method, ...]:
    """The methods of dice-ml to ask, best first; its gradient takes minutes a query if wide."""
    return ("gradient", "random") if schema.width <= GRADIENT_WIDTH else ("random",)


def dice(evaluation: Evaluation, method: Method, seed: int) -> Baseline:
    """dice-ml asked about the f of an evaluation."""
    given = evaluation.data.schema, evaluation.judge, evaluation.data.train, evaluation.model
    return any_dice(*given, seed=seed, method=method)


def any_dice(
    schema: Schema, model: TargetModel, train: pd.DataFrame, raw: Any, **options: Any
) -> Baseline:
    """dice-ml, also where values may be missing; `raw`: f as it was trained."""
    if any(getattr(feature, "missing", False) for feature in schema.features):
        return CompleteDice(schema, raw, train, **options)
    return Dice(schema, model, train, **options)


def why_no_dice() -> str | None:
    """Why dice-ml cannot be asked."""
    missing = find_spec("dice_ml") is None
    return "without dice-ml: it needs pip install 'counterveil[lab]'" if missing else None


def complete(schema: Schema) -> Schema:
    """The schema with nothing missing that encodes to the same places."""
    features: list[Feature] = []
    for feature in schema.features:
        known = feature.model_copy(update={"missing": False})
        if not getattr(feature, "missing", False):
            features.append(feature)
        elif isinstance(feature, Numeric):
            features += [known, Binary(name=f"{feature.name} {ABSENT}")]
        elif isinstance(feature, Categorical):
            categories = (*feature.categories, ABSENT)
            features.append(known.model_copy(update={"categories": categories}))
    return Schema(name=schema.name, note=schema.note, label=schema.label, features=tuple(features))


class CompleteDice:
    """`Dice` on the complete schema; its answers are made legal rows of the real one.

    `model`: a torch module over the encoding, or an estimator over rows of the real schema.
    """

    def __init__(self, schema: Schema, model: Any, train: pd.DataFrame, **options: Any) -> None:
        self._real, self._complete = Encoding(schema), Encoding(complete(schema))
        self._judge = adapt(model, schema)
        label = train[[schema.label.name]].reset_index(drop=True)
        rows = pd.concat([self._same(train), label], axis=1)
        other, same_model = self._complete.schema, model
        if not isinstance(model, nn.Module):
            proba = lambda points: model.predict_proba(self._real.decode(points))  # noqa: E731
            same_model = CallableModel(proba, other, inputs="encoding")
        self._dice = Dice(other, adapt(same_model, other), rows, **options)
        self.name = self._dice.name

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        problem = Problem.pose(self._judge, queries, targets, k)
        found = self._dice.explain(self._same(queries), targets, k=k)
        points = torch.as_tensor(self._complete.encode(found.rows)).reshape(len(queries), k, -1)
        return problem.answers(problem.legal(points.to(problem.queries), problem.numbers))

    def _same(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The same rows in the words of the complete schema."""
        return self._complete.decode(self._real.encode(frame))
