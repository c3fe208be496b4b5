"""Target models: the f that is explained, one architecture for each family of data.

All take points of the encoding, (rows, width), and answer logits, so that
`counterveil.models.adapt` needs no option for any of them. Classes are weighted evenly: on
skewed data accuracy may then be below what naming the largest class would score.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Encoding
from counterveil.networks import ARCHITECTURES, classifier, fit, pick_device, seeded
from counterveil.privacy import Budget
from counterveil.schema import Pixels, Schema
from counterveil.terminal import progress_bar, silent
from counterveil_lab.datasets import Dataset
from counterveil_lab.product import evenly

ROWS_AT_A_TIME = 8192
PRIVATE_EPOCHS = 20


@dataclass(frozen=True)
class Recipe:
    """How long and how fast f learns.

    `settling`: last epochs at a tenth of the rate in batches four times as large. On skewed classes
    the threshold of f swings with every batch; this steadies it.
    """

    epochs: int
    batch: int
    rate: float = 1e-3
    settling: int = 0

    @property
    def stages(self) -> list[tuple[int, int, float]]:
        """Epochs, batch and rate of each stage."""
        settling = [(self.settling, 4 * self.batch, self.rate / 10)] if self.settling else []
        return [(self.epochs, self.batch, self.rate), *settling]


RECIPES: dict[str, Recipe] = {
    "adult": Recipe(epochs=10, batch=128),  # the same f as the demo's
    "hospital": Recipe(epochs=6, batch=128, settling=2),
    "homecredit": Recipe(epochs=8, batch=128, settling=2),
    "mnist": Recipe(epochs=3, batch=64),
    "digits": Recipe(epochs=40, batch=64),
    "purchase-substitute": Recipe(epochs=10, batch=256),
    "texas-substitute": Recipe(epochs=5, batch=256),
    "purchase": Recipe(epochs=10, batch=256),
    "texas": Recipe(epochs=10, batch=256),
}
ANY_OTHER = Recipe(epochs=10, batch=128)
HIDDEN = {"mixed": (32, 16), "binary": (256, 128)}


class Convolutional(nn.Module):
    """Two convolutions and a dense layer, ReLU; takes flat points and reshapes them itself."""

    def __init__(self, image: Pixels, classes: int) -> None:
        super().__init__()
        self._shape = (image.height, image.breadth, image.channels)
        height, breadth = (((side + 1) // 2 + 1) // 2 for side in self._shape[:2])
        self.layers = nn.Sequential(
            nn.Conv2d(image.channels, 16, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * height * breadth, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )

    def forward(self, points: Tensor) -> Tensor:
        pictures = points.reshape(len(points), *self._shape).movedim(-1, 1)  # channels first
        return self.layers(pictures)


def new_target(schema: Schema) -> nn.Module:
    """An untrained f for a schema."""
    classes = len(schema.label.classes)
    if isinstance(schema.features[0], Pixels) and len(schema.features) == 1:
        return Convolutional(schema.features[0], classes)
    hidden = HIDDEN["binary" if schema.family == "binary" else "mixed"]
    return classifier(schema.width, hidden, classes)


def train_target(
    dataset: Dataset,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = False,
    new: Callable[[], nn.Module] | None = None,
    even: bool = True,
) -> nn.Module:
    """f trained on the training rows; frozen, on `device`. On a CPU a seed always gives one f.

    `new` makes an untrained module over the encoding; by default that of `new_target`. `even`:
    whether every class counts the same, however many rows it has.
    """
    schema, place = dataset.schema, pick_device(device)
    recipe = RECIPES.get(dataset.name, ANY_OTHER)
    points, classes = (part.to(place) for part in encoded(dataset.train, schema))
    weights = evenly(classes, len(schema.label.classes)) if even else None
    model = seeded(new or (lambda: new_target(schema)), seed).to(place)

    def loss_of(rows: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(points[rows]), classes[rows], weights)

    with progress_bar(f"training f on {dataset.name}", recipe.epochs, show=progress) as tick:
        for number, (epochs, batch, rate) in enumerate(recipe.stages):
            how: dict[str, Any] = {"epochs": epochs, "batch": batch, "rate": rate, "seed": seed}
            told = silent if number else tick
            fit(model.requires_grad_(True).train(), loss_of, len(points), tick=told, **how)
    return model


def train_privately(
    new: Callable[[], nn.Module],
    schema: Schema,
    train: pd.DataFrame,
    budget: Budget,
    *,
    clip: float,
    batch: int = 512,
    seed: int = 0,
) -> nn.Module:
    """An f by DP-SGD, `budget`-DP under replace-one; `clip`: the longest gradient of a record.

    How many rows each class has counts as public, to even the classes out.
    """
    from counterveil.curator import dpsgd  # the private side, for this alone

    dpsgd.check_installed()
    points, classes = encoded(train, schema)
    counts = torch.bincount(classes, minlength=len(schema.label.classes)).clamp(min=1)
    shares = (counts / counts.sum()).log()
    model = seeded(new, seed)

    def loss_of(rows: Tensor) -> Tensor:
        logits = model(points[rows]) + shares
        return nn.functional.cross_entropy(logits, classes[rows], reduction="sum")

    settings = replace(ARCHITECTURES[schema.family], epochs=PRIVATE_EPOCHS, batch=batch)
    schedule = dpsgd.Schedule.of(settings, len(points))
    dpsgd.train(model, loss_of, dpsgd.NoisyTraining("training of f", schedule, budget, clip))
    return model


@torch.no_grad()
def classes_of(model: nn.Module, points: Tensor) -> Tensor:
    """The class that `model` gives to each encoded point."""
    device = next(model.parameters()).device
    parts = points.split(ROWS_AT_A_TIME)
    return torch.cat([model(part.to(device)).argmax(dim=1).cpu() for part in parts])


def accuracy(model: nn.Module, dataset: Dataset) -> float:
    """The share of held-out rows that `model` puts into their class."""
    points, classes = encoded(dataset.test, dataset.schema)
    return float((classes_of(model, points) == classes).float().mean())


def encoded(frame: pd.DataFrame, schema: Schema) -> tuple[Tensor, Tensor]:
    """Points (rows, width) as float32 and class numbers (rows,).

    Rows are encoded in parts, for the float64 of the encoding takes twice the room.
    """
    encoding = Encoding(schema)
    points = torch.empty(len(frame), encoding.width)
    for start in range(0, len(frame), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        points[rows] = torch.as_tensor(encoding.encode(frame.iloc[rows]), dtype=torch.float32)
    return points, torch.as_tensor(encoding.labels(frame))
