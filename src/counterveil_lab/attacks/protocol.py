"""Who owns which rows: the game that every attack plays.

Training and test rows are merged and dealt out anew: D1 trains f and whatever explains it; the
attacker owns D2 (what he asks), D3 (what his shadow models learn from) and D4 (people who were not
in D1, to be told apart from those who were). Test rows belong to nobody and only measure. Of people
with several rows one is drawn, so that to know a row is to know a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import DataError, InputError, RequestError
from counterveil.models import TargetModel, adapt
from counterveil.schema import Schema
from counterveil_lab.datasets import Dataset, Folder, load
from counterveil_lab.product import log_proba_at
from counterveil_lab.targets import ROWS_AT_A_TIME, encoded, new_target, train_target

DICE_SECONDS = 120.0  # that dice-ml is asked in one case of an experiment
FEWEST = 50  # rows of a set; with fewer no attack says anything
SAME, MORE = 0.5, 0.2  # the share of others that may be training rows; how far above repeats


@dataclass(frozen=True)
class Size:
    """How much is played.

    `rows` in each of the sets at most; `epochs` of a release (None: the usual number); `steps` and
    `batch` of an extracted model; `uniform` legal rows drawn for fidelity; `dice_seconds`: how long
    dice-ml is asked, `kdtree_queries`: the most that its k-d tree is; `shadows` and `candidates`
    (members, and as many others) of inference; `imitate`: whether explainers have shadows.
    """

    rows: int = 8000
    test: int = 8000
    queries: tuple[int, ...] = (250, 500, 1000, 2000)
    epochs: int | None = None
    steps: int = 1500
    batch: int = 256
    uniform: int = 5000
    dice_seconds: float = DICE_SECONDS
    kdtree_queries: int = 250
    shadows: int = 16
    candidates: int = 2000
    imitate: bool = True


FULL = Size()
_SHORT = Size(rows=2000, test=2000, queries=(250, 500), epochs=10, steps=500)
QUICK = replace(_SHORT, uniform=1000, dice_seconds=5, kdtree_queries=20, shadows=3, candidates=300)


class Asked(nn.Module):
    """A model that is no torch module, asked for log-probabilities as if they were logits."""

    def __init__(self, judge: TargetModel) -> None:
        super().__init__()
        self._judge = judge

    def forward(self, points: Tensor) -> Tensor:
        return log_proba_at(self._judge, points)


@dataclass(frozen=True, eq=False, repr=False)
class Arena:
    """One game. `decoys`: rows that are called members and are not; the control of `of`.

    No row of D4 equals one of D1: about such a person there is nothing to tell. The rows of D1 that
    had such a twin come last, so that neither side of the candidates has more common rows than the
    other. `dropped`: the share of others that were taken out for it. `whole`: all training rows,
    where D1 is a part of them.
    """

    name: str
    schema: Schema
    d1: pd.DataFrame
    d2: pd.DataFrame
    d3: pd.DataFrame
    d4: pd.DataFrame
    test: pd.DataFrame
    model: nn.Module
    judge: TargetModel
    seed: int
    decoys: pd.DataFrame | None = None
    dropped: float = 0.0
    whole: pd.DataFrame | None = None

    @property
    def classes(self) -> int:
        """How many classes f knows."""
        return len(self.schema.label.classes)

    @property
    def training(self) -> pd.DataFrame:
        """All rows that f was trained on."""
        return self.d1 if self.whole is None else self.whole

    def members(self, count: int) -> pd.DataFrame:
        """Rows of D1, or in the control rows that nothing was ever trained on."""
        rows = self.d1 if self.decoys is None else self.decoys
        return rows.head(count).reset_index(drop=True)

    def outsiders(self, count: int) -> pd.DataFrame:
        """Rows of D4; ask for as many as there are members."""
        return self.d4.head(count).reset_index(drop=True)

    def defended(self, model: nn.Module) -> Arena:
        """The same game about another f."""
        return replace(self, model=model, judge=adapt(model, self.schema, outputs="logits"))

    @torch.no_grad()
    def ask(self, points: Tensor) -> Tensor:
        """Class probabilities of f for encoded points: (points, classes)."""
        parts = [log_proba_at(self.judge, part).exp() for part in points.split(ROWS_AT_A_TIME)]
        return torch.cat(parts)

    @classmethod
    def of(
        cls, dataset: str, seed: int, size: Size, *, disjoint: bool = False, folder: Folder = None
    ) -> Arena:
        """Deal out a dataset and train f on D1.

        `disjoint`: the control. What is then called a member is none, so that inference must be at
        chance; everything else stays as it is.
        """
        data = load(dataset, seed=seed, folder=folder)
        schema = data.schema
        merged = pd.concat([data.train, data.test], ignore_index=True)
        order = np.random.default_rng(seed).permutation(len(merged))
        if data.people is not None:
            order = order[~pd.Series(data.people[order]).duplicated().to_numpy()]
        rows = min(size.rows, len(order) // 6)

        def dealt(number: int, count: int = rows) -> pd.DataFrame:
            return merged.take(order[number * rows :][:count]).reset_index(drop=True)

        d1, d2, d3, d4 = (dealt(number) for number in range(4))
        twins = meets(d4, d1, schema)
        d1, d4 = _last(d1, meets(d1, d4, schema)), _less(d4, twins)
        decoys = _less(dealt(4), meets(dealt(4), d1, schema)) if disjoint else None
        model = train_like_f(schema, d1, seed)
        judge = adapt(model, schema, outputs="logits")
        sets = d1, d2, d3, d4, dealt(5, size.test)
        return cls(dataset, schema, *sets, model, judge, seed, decoys, float(twins.mean()))

    @classmethod
    def own(
        cls,
        schema: Schema,
        members_frame: pd.DataFrame,
        others_frame: pd.DataFrame,
        model: Any,
        seed: int,
        size: Size,
    ) -> Arena:
        """Your own model (anything that `adapt` takes) and tables.

        `members_frame`: what it was trained on; `others_frame`: rows of the same kind that it was
        not trained on, dealt out to the attacker. Both need the label. Others that equal any of the
        members are left out, and too many of them are an error.
        """
        judge = adapt(model, schema)
        rng = np.random.default_rng(seed)
        whole = _shuffled(members_frame, "members", schema, rng)
        dealt = _shuffled(others_frame, "others", schema, rng)
        twins = meets(dealt, whole, schema)
        repeated = pd.Series(_keys(whole, schema)).duplicated(keep=False)
        share, repeats = (float(part.mean()) if len(part) else 0.0 for part in (twins, repeated))
        if share > SAME and share > repeats + MORE:  # rows of a small table repeat by themselves
            raise RequestError(
                f"others: {share:.0%} of the rows are rows of members (among members {repeats:.0%} "
                f"repeat); give rows that neither model nor veil has seen"
            )
        keys = pd.Series([*_keys(whole, schema), *_keys(dealt, schema)])
        common = keys.duplicated(keep=False).to_numpy()  # in both tables such rows come last
        members = _last(whole, common[: len(whole)]).head(size.rows)
        others, common = _less(dealt, twins), common[len(whole) :][~twins]
        if len(members) < FEWEST or len(others) < 4 * FEWEST:
            raise RequestError(
                f"an attack needs at least {FEWEST} members and {4 * FEWEST} others; "
                f"got {len(members)} and {len(others)}"
                + (f" that equal no member ({len(dealt)} in all)" if twins.any() else "")
            )
        rows = min(size.rows, len(others) // 4)
        parts = (others.iloc[number * rows :][:rows] for number in range(4))
        d2, d3, d4, test = (part.reset_index(drop=True) for part in parts)
        d4 = _last(d4, common[2 * rows :][:rows])
        sets = members, d2, d3, d4, test.head(size.test)
        about = schema.name, schema, *sets, Asked(judge), judge, seed
        return cls(*about, dropped=float(twins.mean()), whole=whole)


def _shuffled(
    frame: pd.DataFrame, what: str, schema: Schema, rng: np.random.Generator
) -> pd.DataFrame:
    """The columns of the schema and the label, checked, in random order."""
    columns = [*schema.columns, schema.label.name]
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(f"{what}: no column {missing[0]!r}; the schema and label need it")
    try:
        encoded(frame, schema)  # whatever does not fit is an error here, by row and column
    except InputError as error:
        raise DataError(f"{what}: {error}") from error
    return frame[columns].take(rng.permutation(len(frame))).reset_index(drop=True)


def meets(frame: pd.DataFrame, others: pd.DataFrame, schema: Schema) -> Array:
    """Which rows of `frame` equal one of `others`, in every feature and the label, as encoded."""
    known = set(_keys(others, schema))
    return np.array([key in known for key in _keys(frame, schema)], dtype=bool)


def _keys(frame: pd.DataFrame, schema: Schema) -> list[bytes]:
    points, classes = encoded(frame, schema)
    rows = torch.cat([points, classes[:, None].float()], dim=1).numpy()
    return [row.tobytes() for row in rows]


def _less(frame: pd.DataFrame, out: Array) -> pd.DataFrame:
    return frame[~out].reset_index(drop=True)


def _last(frame: pd.DataFrame, late: Array) -> pd.DataFrame:
    return pd.concat([frame[~late], frame[late]], ignore_index=True)


def train_like_f(schema: Schema, frame: pd.DataFrame, seed: int) -> nn.Module:
    """A network like f, trained on `frame` as f was."""
    return train_target(Dataset(schema.name, schema, frame, frame.head(0), None, ""), seed=seed)


def architecture(schema: Schema, *, wider: bool = False) -> Callable[[], nn.Module]:
    """How to build an untrained f, or one with a further dense layer before the last."""

    def build() -> nn.Module:
        model = new_target(schema)
        if wider:
            layers = model if isinstance(model, nn.Sequential) else model.layers
            assert isinstance(layers, nn.Sequential)
            last = layers[-1]
            assert isinstance(last, nn.Linear)
            layers.insert(len(layers) - 1, nn.Linear(last.in_features, last.in_features))
            layers.insert(len(layers) - 1, type(layers[1])())
        return model

    return build
