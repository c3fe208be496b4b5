"""Whether answers about images can be believed: judged by networks that no search ever saw.

The queries are held-out images, each towards a class drawn at random among those that f does not
give it.

| column | better | meaning |
|---|---|---|
| flip_ratio | high | queries with an answer that f accepts |
| twins | high | answers accepted by networks trained like f on bootstraps of the same images |
| stranger | high | answers accepted by a network of another architecture |
| effort | low | mean absolute change of a pixel, from 0 to 1 |
| near | low | L2 distance to the nearest training image of the target class |
| near_queries, near_real | - | the same of the queries, and of held-out images of the class |
| plausibility, stability | - | what the answers say of themselves, mean |

All but `flip_ratio` are means over the answers that were found, None where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.models import TargetModel, adapt
from counterveil.networks import AsImages
from counterveil.schema import Category, Pixels
from counterveil.search import Explanations
from counterveil_lab.believability import OTHER_SEED, trained
from counterveil_lab.datasets import Dataset
from counterveil_lab.experiments import releases
from counterveil_lab.product import any_other
from counterveil_lab.results import Row
from counterveil_lab.targets import classes_of, encoded, train_target

QUERIES, QUICK_QUERIES = 500, 20
TWINS, QUICK_TWINS = 5, 2
REAL_IMAGES = 20_000  # that answers are compared with
HELD_OUT = 500


class MaxPooled(nn.Module):
    """Two convolutions of 5 × 5 with maxima between them, tanh: another kind of network than f."""

    def __init__(self, image: Pixels, classes: int) -> None:
        super().__init__()
        places = (image.height // 4) * (image.breadth // 4)
        self.layers = nn.Sequential(
            AsImages(image),
            nn.Conv2d(image.channels, 8, kernel_size=5, padding=2),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 24, kernel_size=5, padding=2),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24 * places, 96),
            nn.Tanh(),
            nn.Linear(96, classes),
        )

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(points)


@dataclass(frozen=True, eq=False)
class ImageJudges:
    """f, images with the class that each should get, and whoever judges the answers.

    `model`: f as it was trained; `f`: the same for the search. `queries`: rows in original units;
    `targets`: class numbers, (queries,).
    """

    data: Dataset
    model: nn.Module
    f: TargetModel
    queries: pd.DataFrame
    targets: Tensor
    twins: tuple[nn.Module, ...]
    stranger: nn.Module

    @classmethod
    def of(cls, dataset: str, seed: int, *, quick: bool = False) -> ImageJudges:
        """The judges of a dataset, split by `seed`; made once a process."""
        return _judges(dataset, seed, quick)

    @property
    def classes(self) -> list[Category]:
        """The class that each query asks for, by name."""
        names = self.data.schema.label.classes
        return [names[int(number)] for number in self.targets]

    @cached_property
    def _real(self) -> tuple[Tensor, Tensor]:
        return encoded(self.data.train.head(REAL_IMAGES), self.data.schema)

    @cached_property
    def near_queries(self) -> float:
        points, _ = encoded(self.queries, self.data.schema)
        return self._near(points, self.targets)

    @cached_property
    def near_real(self) -> float:
        """`near` of held-out images, each in its own class."""
        return self._near(*encoded(self.data.test.tail(HELD_OUT), self.data.schema))

    def score(self, result: Explanations, seconds: float) -> Row:
        """Every metric of the module, for one answer to each query; `seconds`: what all took."""
        label = self.data.schema.label  # of answers any one, as `encoded` wants it
        answers = result.rows.assign(**{label.name: label.classes[0]})
        points, _ = encoded(answers, self.data.schema)
        before, _ = encoded(self.queries, self.data.schema)
        said = classes_of(self.model, points) == self.targets
        row: Row = {
            "flip_ratio": float(said.numpy()[result.valid].sum() / len(self.queries)),
            "queries": len(self.queries),
            "seconds_per_query": seconds / len(self.queries),
            "near_queries": self.near_queries,
            "near_real": self.near_real,
        }
        found = torch.as_tensor(result.valid)
        if not bool(found.any()):
            return row | dict.fromkeys(("twins", "stranger", "effort", "near"))
        given, goals = points[found], self.targets[found]
        twins = [float((classes_of(twin, given) == goals).float().mean()) for twin in self.twins]
        row |= {
            "twins": float(np.mean(twins)),
            "stranger": float((classes_of(self.stranger, given) == goals).float().mean()),
            "effort": float((given - before[found]).abs().mean()),
            "near": self._near(given, goals),
        }
        if result.quality is not None:
            told = {name: result.quality.measures[name] for name in ("plausibility", "stability")}
            row |= {name: float(values[result.valid].mean()) for name, values in told.items()}
        return row

    def _near(self, points: Tensor, targets: Tensor) -> float:
        images, classes = self._real
        found = torch.zeros(len(points))
        for goal in targets.unique().tolist():
            mine = targets == goal
            found[mine] = torch.cdist(points[mine], images[classes == goal]).amin(dim=1)
        return float(found.mean())


@lru_cache(maxsize=2)
def _judges(dataset: str, seed: int, quick: bool) -> ImageJudges:
    data = releases.data_for(dataset, seed, quick=quick)
    schema, model = data.schema, releases.target_for(data, seed)
    f = adapt(model, schema)
    queries = data.test.head(QUICK_QUERIES if quick else QUERIES)
    twins = range(QUICK_TWINS if quick else TWINS)
    new = partial(MaxPooled, schema.images[0], len(schema.label.classes))
    path = releases.place("judge", ".pt", dataset, "stranger", seed, len(data.train))
    train = partial(train_target, data, seed=seed + OTHER_SEED, new=new)
    return ImageJudges(
        data,
        model,
        f,
        queries,
        any_other(f, queries, seed),
        tuple(trained(data, "network", seed, twin) for twin in twins),
        releases.kept(path, new, train),
    )
