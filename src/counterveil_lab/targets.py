"""Target models: the f that is explained, one architecture for each family of data.

All take points of the encoding, (rows, width), and answer logits, so that
`counterveil.models.adapt` needs no option for any of them. Classes are weighted evenly: on
skewed data accuracy may then be below what naming the largest class would score.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Encoding
from counterveil.networks import fit, pick_device, seeded
from counterveil.terminal import Tick, progress_bar, silent
from counterveil.schema import Pixels, Schema
from counterveil_lab.datasets import Dataset

ROWS_AT_A_TIME = 8192


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
        features = nn.Sequential(
            nn.Conv2d(image.channels, 16, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        halved = [(((side + 1) // 2) + 1) // 2 for side in (image.height, image.breadth)]
        self.layers = nn.Sequential(
            *features, nn.Linear(32 * halved[0] * halved[1], 64), nn.ReLU(), nn.Linear(64, classes)
        )

    def forward(self, points: Tensor) -> Tensor:
        pictures = points.reshape(len(points), *self._shape).movedim(-1, 1)  # channels first
        logits: Tensor = self.layers(pictures)
        return logits


def new_target(schema: Schema) -> nn.Module:
    """An untrained f for a schema."""
    classes = len(schema.label.classes)
    if isinstance(schema.features[0], Pixels) and len(schema.features) == 1:
        return Convolutional(schema.features[0], classes)
    hidden = HIDDEN["binary" if schema.family == "binary" else "mixed"]
    layers: list[nn.Module] = []
    for wide, narrow in pairwise((schema.width, *hidden)):
        layers += [nn.Linear(wide, narrow), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))


def train_target(
    dataset: Dataset, seed: int = 0, device: str = "cpu", progress: bool = False
) -> nn.Module:
    """f trained on the training rows; frozen, on `device`. On a CPU a seed always gives one f."""
    schema, place = dataset.schema, pick_device(device)
    recipe = RECIPES.get(dataset.name, ANY_OTHER)
    points, classes = (part.to(place) for part in encoded(dataset.train, schema))
    counts = torch.bincount(classes, minlength=len(schema.label.classes))
    evenly = len(classes) / (len(counts) * counts.clamp(min=1).float())
    model = seeded(lambda: new_target(schema), seed).to(place)

    def learn(epochs: int, batch: int, rate: float, tick: Tick) -> None:
        fit(
            model.requires_grad_(True).train(),
            lambda rows: nn.functional.cross_entropy(model(points[rows]), classes[rows], evenly),
            len(points),
            epochs=epochs,
            batch=batch,
            rate=rate,
            seed=seed,
            tick=tick,
        )

    with progress_bar(f"training f on {dataset.name}", recipe.epochs, show=progress) as tick:
        learn(recipe.epochs, recipe.batch, recipe.rate, tick)
    if recipe.settling:
        learn(recipe.settling, 4 * recipe.batch, recipe.rate / 10, silent)
    return model


@torch.no_grad()
def accuracy(model: nn.Module, dataset: Dataset) -> float:
    """The share of held-out rows that `model` puts into their class."""
    device = next(model.parameters()).device
    points, classes = encoded(dataset.test, dataset.schema)
    answers = [model(part.to(device)).argmax(dim=1).cpu() for part in points.split(ROWS_AT_A_TIME)]
    return float((torch.cat(answers) == classes).float().mean())


def encoded(frame: pd.DataFrame, schema: Schema) -> tuple[Tensor, Tensor]:
    """Points as float32 and class numbers; encoded in parts, for float64 takes twice the room."""
    encoding = Encoding(schema)
    points = torch.empty(len(frame), encoding.width)
    for start in range(0, len(frame), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        points[rows] = torch.as_tensor(encoding.encode(frame.iloc[rows]), dtype=torch.float32)
    return points, torch.as_tensor(encoding.labels(frame))
