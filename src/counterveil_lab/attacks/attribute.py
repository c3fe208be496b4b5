"""Attribute inference: a sensitive value of a person whose other values and label are known.

The attacker asks the model about the person with each candidate value and gives the answers, with
all he knows, to a classifier that learnt from shadows of the model. Each number stands beside that
of the same classifier with the model's answers blanked out (imputation), and beside people who were
not in the training set; what the model gives away about its members is what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.networks import classifier
from counterveil.schema import Categorical, Schema
from counterveil_lab.attacks.batched_training import train_classifiers
from counterveil_lab.attacks.protocol import FEWEST, Arena
from counterveil_lab.attacks.scores import CONFIDENCE, RESAMPLES
from counterveil_lab.attacks.shadows import Ask
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe, encoded

SENSITIVE = "race"
RECIPE = Recipe(epochs=12, batch=128)
HIDDEN = (64, 32)
CLASSIFIERS = 3  # averaged; one alone moves more by its start than by what it is told
SURE = 12.0


@dataclass(frozen=True, eq=False)
class HiddenValues:
    """Rows with the value hidden, what each would be with every candidate value, and the truth.

    `known`: (rows, other columns and the one-hot label); `versions`: (rows, values, width).
    """

    known: Tensor
    versions: Tensor
    truth: Tensor

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, feature: Categorical) -> HiddenValues:
        """Those of `frame` whose value is not missing."""
        frame = frame[frame[feature.name].notna()]
        points, classes = encoded(frame, schema)
        block = next(b for b in Encoding(schema).blocks if b.feature.columns == (feature.name,))
        truth = points[:, block.at].argmax(dim=1)
        values = len(feature.categories)
        versions = points[:, None].repeat(1, values, 1)
        versions[:, :, block.at] = torch.eye(feature.width)[:values]
        others = torch.ones(points.shape[1], dtype=torch.bool)
        others[block.at] = False
        label = functional.one_hot(classes, len(schema.label.classes)).float()
        return cls(torch.cat([points[:, others], label], dim=1), versions, truth)

    def told(self, ask: Ask) -> Tensor:
        """What the model says of each version, and by how much the true label gains by each."""
        count, values, width = self.versions.shape
        answers = ask(self.versions.reshape(-1, width)).clamp(min=-SURE).reshape(count, values, -1)
        label = self.known[:, -answers.shape[2] :]  # the known columns end in it, one-hot
        gain = (answers * label[:, None]).sum(dim=2)
        gain = gain - gain.mean(dim=1, keepdim=True)
        return torch.cat([answers.mean(dim=1), gain], dim=1)


Lessons = list[tuple[HiddenValues, Ask]]  # people with the shadow that was trained on them
Models = tuple[dict[str, Ask], list[Ask]]  # models by name, and the shadows that stand for them


def sensitive(schema: Schema, name: str = SENSITIVE) -> Categorical | None:
    """The feature to infer, if the schema has it as categories."""
    found = [each for each in schema.features if each.columns == (name,)]
    return found[0] if found and isinstance(found[0], Categorical) else None


def why_not(arena: Arena, name: str = SENSITIVE) -> str | None:
    """Why an attribute cannot be inferred, in a sentence; None where it can."""
    if sensitive(arena.schema, name) is None:
        return f"Attribute {name}: no column of categories of this name, so none was inferred."
    for who, frame in (("members", arena.d1), ("others", arena.d3), ("others", arena.d4)):
        known = frame[name].dropna()
        if len(known) < FEWEST or known.nunique() < 2:
            return (
                f"Attribute {name}: known of {len(known)} {who} with {known.nunique()} "
                f"values, too few to infer anything."
            )
    return None


def infer(
    arena: Arena,
    models: Sequence[Models],
    taught: list[pd.DataFrame],
    count: int,
    *,
    name: str = SENSITIVE,
    seed: int = 0,
) -> list[Row]:
    """Rows for every model, for members and outsiders, overall and by value.

    `taught`: the rows that each of the shadows of `models` learnt.
    """
    feature = sensitive(arena.schema, name)
    missing = why_not(arena, name)
    if feature is None or missing is not None:
        raise RequestError(missing)
    lessons = [HiddenValues.of(frame, arena.schema, feature) for frame in taught]
    groups = {"members": arena.members(count), "outsiders": arena.outsiders(count)}
    people = {who: HiddenValues.of(rows, arena.schema, feature) for who, rows in groups.items()}
    nothing = torch.zeros(1, arena.classes)

    def silent(points: Tensor) -> Tensor:
        return nothing.expand(len(points), -1)

    blank: Models = {"": silent}, [silent] * len(taught)
    guesses: dict[str, dict[str, Array]] = {}
    for asked, shadows in (blank, *models):
        classify = _taught(list(zip(lessons, shadows, strict=True)), feature, seed)
        for model, ask in asked.items():
            guesses[model] = {who: classify(each, ask) for who, each in people.items()}
    rows: list[Row] = []
    for model in list(guesses)[1:]:
        for who, each in people.items():
            head = {"attack": "attribute", "target": model, "who": who, "attribute": name}
            told = each.truth.numpy(), guesses[model][who], guesses[""][who]
            rows += [{**head, **row} for row in _compare(*told, feature, seed)]
    return rows


def _taught(
    lessons: Lessons, feature: Categorical, seed: int
) -> Callable[[HiddenValues, Ask], Array]:
    """A classifier that learnt from `lessons`: people and a model -> the number of the value.

    It sees all that is known, and the model's answers on the scale they have in the lessons.
    """
    told = torch.cat([people.told(ask) for people, ask in lessons])
    mean, spread = told.mean(dim=0), told.std(dim=0).clamp(min=1e-3)

    def inputs(people: HiddenValues, ask: Ask) -> Tensor:
        answers = (people.told(ask) - mean) / spread
        return torch.cat([people.known, answers.clamp(-5, 5)], dim=1)

    known, values = torch.cat([inputs(*lesson) for lesson in lessons]), len(feature.categories)
    truth = torch.cat([people.truth for people, _ in lessons])
    numbers = torch.arange(len(known)).repeat(CLASSIFIERS, 1)

    def build() -> torch.nn.Module:
        return classifier(known.shape[1], HIDDEN, values)

    networks = train_classifiers(build, known, truth, numbers, values, RECIPE, seed)

    def classify(people: HiddenValues, ask: Ask) -> Array:
        proba = networks.logits(inputs(people, ask)).softmax(dim=2)
        chosen: Array = proba.mean(dim=0).argmax(dim=1).numpy()
        return chosen

    return classify


def _compare(
    truth: Array, guess: Array, imputed: Array, feature: Categorical, seed: int
) -> list[Row]:
    """The guesses beside imputation: overall with an interval over people, then by value."""
    present = np.unique(truth)
    draws = np.random.default_rng(seed).integers(len(truth), size=(RESAMPLES, len(truth)))
    gains = [
        balanced(truth[drawn], guess[drawn], present)
        - balanced(truth[drawn], imputed[drawn], present)
        for drawn in draws
    ]
    low, high = np.nanquantile(gains, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    accuracy, baseline = (balanced(truth, each, present) for each in (guess, imputed))
    overall: Row = {"value": "all", "people": len(truth), "balanced_accuracy": accuracy}
    overall |= {"imputation": baseline, "advantage": accuracy - baseline}
    overall |= {"advantage_low": float(low), "advantage_high": float(high)}
    overall |= {"accuracy": float((truth == guess).mean())}
    overall |= {"imputation_accuracy": float((truth == imputed).mean())}
    by_value = [
        {
            "value": str(value),
            "people": int((truth == number).sum()),
            "precision": precision(truth, guess, number),
            "imputation_precision": precision(truth, imputed, number),
            "recall": precision(guess, truth, number),
        }
        for number, value in enumerate(feature.categories)
    ]
    return [overall, *by_value]


def balanced(truth: Array, guess: Array, values: Array) -> float:
    """The mean over values of the share told right among those who have it; absent ones apart."""
    there = [value for value in values if (truth == value).any()]
    return float(np.mean([(guess[truth == value] == value).mean() for value in there]))


def precision(truth: Array, guess: Array, value: int) -> float | None:
    """The share that has the value among those who are said to; None if nobody is."""
    said = guess == value
    return float((truth[said] == value).mean()) if said.any() else None
