"""Attribute inference: a sensitive value of a person whose other values and label are known.

| attack | what it is |
|---|---|
| attribute | a small classifier: all that is known, and a model's answers about the person |
| attribute-paper | the paper's network, which sees the model's answers and the label alone |

Both ask the model about the person with each candidate value in turn, and learn from shadows of the
model. Each number stands beside that of the first classifier with the model's answers blanked out
(imputation), and beside people who were not in the training set; what the model gives away about
its members is what is left.

The paper says of its attack: learning-based, with the network of its membership inference, fed with
the prediction vector of f'. It does not say whose vector, as the value is not known: here there is
one for each candidate value, and an output for each. Values count the same, rare or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from counterveil.encoding import Array, Encoding
from counterveil.errors import RequestError
from counterveil.networks import classifier
from counterveil.schema import Binary, Categorical, Schema
from counterveil_lab.attacks import membership
from counterveil_lab.attacks.batched_training import train_classifiers
from counterveil_lab.attacks.protocol import FEWEST, Arena
from counterveil_lab.attacks.scores import RESAMPLES
from counterveil_lab.attacks.shadows import Ask
from counterveil_lab.intervals import CONFIDENCE
from counterveil_lab.product import evenly
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe, encoded

SENSITIVE = "race"
RECIPE = Recipe(epochs=12, batch=128)
HIDDEN = (64, 32)
PAPER_ROWS = 6000  # that the paper's network learns from, at most: it is slow
CLASSIFIERS = 3  # averaged; one alone moves more by its start than by what it is told
SURE = 12.0


@dataclass(frozen=True)
class Sensitive:
    """An attribute to infer: its values, and the columns of the table that tell them.

    That is one column of categories, or for each value a yes-or-no column `name=value`.
    """

    name: str
    values: tuple[str, ...]
    columns: tuple[str, ...]

    def of(self, frame: pd.DataFrame) -> pd.Series[Any]:
        """The value of each row; missing where it has none."""
        if self.columns == (self.name,):
            return frame[self.name]
        bits = frame[list(self.columns)].to_numpy() == 1
        told = pd.Series(np.array(self.values)[bits.argmax(axis=1)], frame.index)
        return told.where(bits.any(axis=1))


@dataclass(frozen=True, eq=False)
class HiddenValues:
    """Rows with the value hidden, what each would be with every candidate value, and the truth.

    `known`: (rows, other columns and the one-hot label); `versions`: (rows, values, width).
    """

    known: Tensor
    versions: Tensor
    truth: Tensor

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, feature: Sensitive) -> HiddenValues:
        """Those of `frame` whose value is not missing."""
        frame = frame[feature.of(frame).notna()]
        points, classes = encoded(frame, schema)
        blocks = [b for b in Encoding(schema).blocks if {*b.feature.columns} <= {*feature.columns}]
        at = torch.tensor([place for b in blocks for place in range(b.start, b.stop)])
        truth = points[:, at].argmax(dim=1)
        values = len(feature.values)
        versions = points[:, None].repeat(1, values, 1)
        versions[:, :, at] = torch.eye(len(at))[:values]
        others = torch.ones(points.shape[1], dtype=torch.bool)
        others[at] = False
        label = functional.one_hot(classes, len(schema.label.classes)).float()
        return cls(torch.cat([points[:, others], label], dim=1), versions, truth)

    def answers(self, ask: Ask) -> Tensor:
        """Log-probabilities of the classes for each version: (rows, values, classes)."""
        count, values, width = self.versions.shape
        return ask(self.versions.reshape(-1, width)).clamp(min=-SURE).reshape(count, values, -1)

    def vectors(self, ask: Ask) -> Tensor:
        """What the paper's network sees: the prediction vector of each version, and the label."""
        answers = self.answers(ask).exp()
        label = self.known[:, -answers.shape[2] :]  # the known columns end in it, one-hot
        return torch.cat([answers.flatten(1), label], dim=1)

    def head(self, count: int) -> HiddenValues:
        return HiddenValues(self.known[:count], self.versions[:count], self.truth[:count])

    def told(self, ask: Ask) -> Tensor:
        """What the model says of each version, and by how much the true label gains by each."""
        answers = self.answers(ask)
        label = self.known[:, -answers.shape[2] :]
        gain = (answers * label[:, None]).sum(dim=2)
        gain = gain - gain.mean(dim=1, keepdim=True)
        return torch.cat([answers.mean(dim=1), gain], dim=1)


Lessons = list[tuple[HiddenValues, Ask]]  # people with the shadow that was trained on them
Classify = Callable[[HiddenValues, Ask], Array]  # the number of each one's value
Models = tuple[dict[str, Ask], list[Ask]]  # models by name, and the shadows that stand for them


def sensitive(schema: Schema, name: str = SENSITIVE) -> Sensitive | None:
    """The attribute to infer, if the schema has it as categories or as yes-or-no columns."""
    for feature in schema.features:
        if feature.columns == (name,) and isinstance(feature, Categorical):
            return Sensitive(name, tuple(map(str, feature.categories)), (name,))
    bits = [feature.name for feature in schema.features if isinstance(feature, Binary)]
    columns = tuple(column for column in bits if column.startswith(f"{name}="))
    values = tuple(column.partition("=")[2] for column in columns)
    return Sensitive(name, values, columns) if len(columns) > 1 else None


def why_not(arena: Arena, name: str = SENSITIVE) -> str | None:
    """Why an attribute cannot be inferred, in a sentence; None where it can."""
    feature = sensitive(arena.schema, name)
    if feature is None:
        return f"Attribute {name}: no column of categories of this name, so none was inferred."
    for who, frame in (("members", arena.d1), ("others", arena.d3), ("others", arena.d4)):
        known = feature.of(frame).dropna()
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
    as_paper: Models | None = None,
) -> list[Row]:
    """Rows for every model, for members and outsiders, overall and by value.

    `taught`: the rows that each of the shadows of `models` learnt. `as_paper`: the models that the
    paper's network is played on, too.
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
    guesses: dict[tuple[str, str], dict[str, Array]] = {}  # by attack and model: of whom
    played = [("attribute", _taught, each) for each in (blank, *models)]
    played += [("attribute-paper", _taught_as_paper, as_paper)] if as_paper else []
    for attack, teach, (asked, shadows) in played:
        classify = teach(list(zip(lessons, shadows, strict=True)), feature, seed)
        for model, ask in asked.items():
            guesses[attack, model] = {who: classify(each, ask) for who, each in people.items()}
    imputed = guesses.pop(("attribute", ""))
    largest = int(torch.cat([lesson.truth for lesson in lessons]).bincount().argmax())
    rows: list[Row] = []
    for (attack, model), told in guesses.items():
        for who, each in people.items():
            head = {"attack": attack, "target": model, "who": who, "attribute": name}
            compared = _compare(each.truth.numpy(), told[who], imputed[who], feature, largest, seed)
            rows += [{**head, **row} for row in compared]
    return rows


def _taught(lessons: Lessons, feature: Sensitive, seed: int) -> Classify:
    """A classifier that learnt from `lessons`: people and a model -> the number of the value.

    It sees all that is known, and the model's answers on the scale they have in the lessons.
    """
    told = torch.cat([people.told(ask) for people, ask in lessons])
    mean, spread = told.mean(dim=0), told.std(dim=0).clamp(min=1e-3)

    def inputs(people: HiddenValues, ask: Ask) -> Tensor:
        answers = (people.told(ask) - mean) / spread
        return torch.cat([people.known, answers.clamp(-5, 5)], dim=1)

    known, values = torch.cat([inputs(*lesson) for lesson in lessons]), len(feature.values)
    truth = torch.cat([people.truth for people, _ in lessons])
    numbers = torch.arange(len(known)).repeat(CLASSIFIERS, 1)

    def build() -> torch.nn.Module:
        return classifier(known.shape[1], HIDDEN, values)

    networks = train_classifiers(build, known, truth, numbers, values, RECIPE, seed)

    def classify(people: HiddenValues, ask: Ask) -> Array:
        proba = networks.logits(inputs(people, ask)).softmax(dim=2)
        return proba.mean(dim=0).argmax(dim=1).numpy()

    return classify


def _taught_as_paper(lessons: Lessons, feature: Sensitive, seed: int) -> Classify:
    """The same with the paper's network, from `PAPER_ROWS` rows of the lessons at most."""
    few = [(people.head(PAPER_ROWS // len(lessons)), ask) for people, ask in lessons]
    inputs = torch.cat([people.vectors(ask) for people, ask in few])
    truth, values = torch.cat([people.truth for people, _ in few]), len(feature.values)
    network = membership.attack_network(inputs.shape[1], seed, values)
    weights = evenly(truth, values)

    def loss(logits: Tensor, numbers: Tensor) -> Tensor:
        return functional.cross_entropy(logits, truth[numbers], weights)

    membership.train_attack(network, inputs, loss, torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def classify(people: HiddenValues, ask: Ask) -> Array:
        return network(people.vectors(ask)).argmax(dim=1).numpy()

    return classify


def _compare(
    truth: Array, guess: Array, imputed: Array, feature: Sensitive, largest: int, seed: int
) -> list[Row]:
    """The guesses beside imputation: overall with an interval over people, then by value.

    By value the balanced accuracy is that of telling who has it from who has not, both kinds
    counting the same. `group`: whether the value is the commonest (number `largest`) or another.
    """
    draws = np.random.default_rng(seed).integers(len(truth), size=(RESAMPLES, len(truth)))
    overall: Row = {"value": "all", "people": len(truth), **_gain(truth, guess, imputed, draws)}
    overall |= {"accuracy": float((truth == guess).mean())}
    overall |= {"imputation_accuracy": float((truth == imputed).mean())}
    by_value = [
        {
            "value": str(value),
            "group": "majority" if number == largest else "minority",
            "people": int((truth == number).sum()),
            **(
                _gain(truth == number, guess == number, imputed == number, draws)
                if (truth == number).any()
                else {}
            ),
            "precision": precision(truth, guess, number),
            "imputation_precision": precision(truth, imputed, number),
            "recall": precision(guess, truth, number),
        }
        for number, value in enumerate(feature.values)
    ]
    return [overall, *by_value]


def _gain(truth: Array, guess: Array, imputed: Array, draws: Array) -> Row:
    """Balanced accuracy of guesses and of imputation; the difference, with its interval.

    `draws`: (resamples, people), who is in each.
    """
    present = np.unique(truth)
    kinds = [truth == value for value in present]
    right, right_imputed = (each == truth for each in (guess, imputed))
    more = right.astype(float) - right_imputed
    drawn = np.stack([np.bincount(draw, minlength=len(truth)) for draw in draws]).astype(float)
    # A kind that a draw has nobody of is left out of its mean.
    with np.errstate(invalid="ignore"):
        shares = [(drawn[:, kind] @ more[kind]) / drawn[:, kind].sum(axis=1) for kind in kinds]
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(np.nanmean(shares, axis=0), ends)
    accuracy, baseline = (balanced(truth, each, present) for each in (guess, imputed))
    row: Row = {"balanced_accuracy": accuracy, "imputation": baseline}
    row |= {"advantage": accuracy - baseline}
    return row | {"advantage_low": float(low), "advantage_high": float(high)}


def balanced(truth: Array, guess: Array, values: Array) -> float:
    """The mean over values of the share told right among those who have it; absent ones apart."""
    there = [value for value in values if (truth == value).any()]
    return float(np.mean([(guess[truth == value] == value).mean() for value in there]))


def precision(truth: Array, guess: Array, value: int) -> float | None:
    """The share that has the value among those who are said to; None if nobody is."""
    said = guess == value
    return float((truth[said] == value).mean()) if said.any() else None
