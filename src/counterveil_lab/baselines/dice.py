"""DiCE (Mothilal 2020): the library dice-ml as it is, row by row, asked about the very same f.

dice-ml tells the categories of a feature by the first letters of column names and wants them to be
strings; so it gets columns and categories under plain names of one length. Its one-hot encoding is
then an affine map away from ours, and f is explained through that map.
"""

import importlib
import io
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from math import ceil, inf, log10
from time import monotonic
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array, Block, Encoding
from counterveil.errors import RequestError
from counterveil.models import TargetModel
from counterveil.schema import Numeric, Pixels
from counterveil_lab.baselines.base import Answers, Fitted, Problem
from counterveil_lab.product import log_proba_at
from counterveil_lab.targets import encoded

Method = Literal["gradient", "random", "genetic", "kdtree"]
OUTCOME = "outcome"
MOST_QUESTIONS = 20_000  # to f, for one query: where f never says the class, genetic asks for ever


class Dice(Fitted):
    """`method`: gradient, random, genetic or kdtree. Every other option goes to dice-ml.

    Features that must stay are named to dice-ml; directions and allowed ranges, which differ from
    query to query, hold because its rows are snapped into the query's box before f is asked again.
    """

    def __init__(self, *given: Any, seed: int = 0, method: Method = "gradient", **options: Any):
        self.method, self._options = method, options
        super().__init__(*given, seed=seed)

    def fit(self, train: pd.DataFrame) -> None:
        self.name = f"dice-{self.method}"
        if self.method == "gradient":
            self.require_gradient()
        for feature in self.schema.features:
            if getattr(feature, "missing", False):
                raise RequestError(
                    f"DiCE knows no missing values, and {feature.name!r} may be missing; "
                    "fill it in and take 'missing' out of the schema"
                )
        library = _library("dice_ml")
        self._words = Words(self.model.encoding)
        rows = self._words.complete(encoded(train, self.schema)[0].double().numpy())
        with _quiet(self.seed):
            data = library.Data(
                dataframe=rows.assign(**{OUTCOME: 0}),  # it has to be there and is never read
                continuous_features=list(self._words.numbers),
                outcome_name=OUTCOME,
                continuous_features_precision=self._words.precision,
            )
            self._asked: OneClass | AllClasses
            if self.method == "gradient":
                self._asked = OneClass(self.model, *self._words.affine(data.data_df))
                interface = library.Model(self._asked, backend="PYT", func="ohe-min-max")
            else:
                self._asked = AllClasses(self.model, self._words)
                interface = library.Model(self._asked, backend="sklearn")
            self._explainer = library.Dice(data, interface, method=self.method)

    def explain(self, queries: pd.DataFrame, targets: Tensor, *, k: int = 1) -> Answers:
        return self._explain(queries, targets, k)[0]

    def explain_within(
        self, seconds: float, queries: pd.DataFrame, targets: Tensor
    ) -> tuple[Answers, int]:
        """One answer to each of the first queries, and how many dice-ml was done with in time.

        The others count as not found. A query that is being answered when the time is over is
        dropped.
        """
        self._asked.end = monotonic() + seconds
        try:
            return self._explain(queries, targets, 1)
        finally:
            self._asked.end = inf

    def _explain(self, queries: pd.DataFrame, targets: Tensor, k: int) -> tuple[Answers, int]:
        """Answers, and how many of the queries were asked to the end."""
        problem = Problem.pose(self.model, queries, targets, k)
        points, done = problem.queries[:, None].repeat(1, k, 1), 0
        for number, target in enumerate(problem.targets.tolist()):
            try:
                with _quiet(self.seed):
                    found = self._generate(self._words.say(problem.points[[number]]), target, k)
            except TimeOverError:
                break
            done += 1
            if found is not None:
                heard = torch.as_tensor(self._words.hear(found.iloc[:k]))
                points[number, : len(heard)] = heard.to(points)
        return problem.answers(problem.legal(points, problem.numbers)), done

    def _generate(self, query: pd.DataFrame, target: int, k: int) -> pd.DataFrame | None:
        if isinstance(self._asked, OneClass):
            self._asked.target, target = target, 1
        else:
            self._asked.questions = 0
        failure = _library("raiutils.exceptions").UserConfigValidationException
        try:
            given = {"total_CFs": k, "desired_class": target, "features_to_vary": self._words.free}
            result = self._explainer.generate_counterfactuals(query, **given, **self._options)
        except EnoughError:
            return None
        except failure as error:
            if str(error).startswith("No counterfactuals found"):
                return None
            raise RequestError(f"dice-ml: {error}") from None
        one = result.cf_examples_list[0]
        rows = one.final_cfs_df if one.final_cfs_df_sparse is None else one.final_cfs_df_sparse
        return None if rows is None else rows[self._words.columns]


@dataclass(frozen=True)
class Number:
    """A numeric column: its place in the encoding, and its scale."""

    place: int
    lower: float
    span: float
    whole: bool


class Words:
    """Encoded points as rows in dice-ml's words, and back."""

    def __init__(self, encoding: Encoding) -> None:
        self.numbers: dict[str, Number] = {}
        self.groups: dict[str, Block] = {}
        self.free: list[str] = []
        self._width = encoding.width
        for block in encoding.blocks:
            feature, names = block.feature, [f"x{block.start:07}"]
            if isinstance(feature, Numeric):
                span = feature.upper - feature.lower
                self.numbers[names[0]] = Number(block.start, feature.lower, span, feature.integer)
            elif isinstance(feature, Pixels):
                names = [f"x{place:07}" for place in range(block.start, block.stop)]
                for place, name in enumerate(names, block.start):
                    self.numbers[name] = Number(place, 0, feature.levels, True)
            else:
                self.groups[names[0]] = block
            self.free += [] if feature.immutable else names
        self.columns = [*self.numbers, *self.groups]
        # Otherwise dice-ml guesses decimals from how the commonest value prints.
        self.precision = {
            name: 0 if number.whole else max(0, ceil(3 - log10(number.span)))
            for name, number in self.numbers.items()
        }

    def say(self, points: Array) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for name, number in self.numbers.items():
            values = number.lower + number.span * points[:, number.place]
            columns[name] = np.round(values).astype(np.int64) if number.whole else values
        for name, block in self.groups.items():
            columns[name] = [f"c{code:07}" for code in _codes(points, block)]
        return pd.DataFrame(columns)

    def hear(self, rows: pd.DataFrame) -> Array:
        """Points of dice-ml's rows; numbers beyond the bounds count as the bound."""
        points = np.zeros((len(rows), self._width))
        for name, number in self.numbers.items():
            values = rows[name].to_numpy(np.float64)
            points[:, number.place] = ((values - number.lower) / number.span).clip(0, 1)
        for name, block in self.groups.items():
            points[:, block.at] = _choices(block)[[int(str(word)[1:]) for word in rows[name]]]
        return points

    def complete(self, points: Array) -> pd.DataFrame:
        """Training rows, and copies of the first with what dice-ml must see in order to know it.

        That is every category, and two values of each number.
        """
        more = [points]
        for number in self.numbers.values():
            if np.ptp(points[:, number.place]) == 0:
                more.append(points[[0, 0]].copy())
                more[-1][:, number.place] = 0, 1
        for block in self.groups.values():
            choices = _choices(block)
            unseen = np.setdiff1d(np.arange(len(choices)), _codes(points, block))
            more.append(points[np.zeros_like(unseen)].copy())
            more[-1][:, block.at] = choices[unseen]
        return self.say(np.concatenate(more))

    def affine(self, seen: pd.DataFrame) -> tuple[Tensor, Tensor]:
        """From dice-ml's one-hot points, scaled by what it has `seen`, to ours: x @ A + b."""
        choices = [_choices(block) for block in self.groups.values()]
        matrix = np.zeros((len(self.numbers) + sum(map(len, choices)), self._width))
        shift = np.zeros(self._width)
        for row, (name, number) in enumerate(self.numbers.items()):
            low, high = float(seen[name].min()), float(seen[name].max())
            matrix[row, number.place] = (high - low) / number.span
            shift[number.place] = (low - number.lower) / number.span
        row = len(self.numbers)
        for block, options in zip(self.groups.values(), choices, strict=True):
            matrix[row : row + len(options), block.at] = options
            row += len(options)
        return torch.as_tensor(matrix).float(), torch.as_tensor(shift).float()


class OneClass(nn.Module):
    """f over dice-ml's points, as the probability of one class: its gradient method knows two."""

    def __init__(self, model: TargetModel, matrix: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.target, self.end = 0, inf
        self._model, self._matrix, self._shift = model, matrix, shift

    def forward(self, points: Tensor) -> Tensor:
        _check(self.end)
        ours = (torch.atleast_2d(points) @ self._matrix + self._shift).to(self._model.device)
        proba = log_proba_at(self._model, ours)[:, [self.target]].exp().cpu()
        return proba if points.ndim == 2 else proba[0]


class AllClasses:
    """f over dice-ml's rows, in the manner of scikit-learn."""

    def __init__(self, model: TargetModel, words: Words) -> None:
        self.questions, self.end = 0, inf
        self._model, self._words = model, words

    @torch.no_grad()
    def predict_proba(self, rows: pd.DataFrame) -> Array:
        _check(self.end)
        self.questions += 1
        if self.questions > MOST_QUESTIONS:
            raise EnoughError
        points = torch.as_tensor(self._words.hear(rows), dtype=torch.float32)
        return log_proba_at(self._model, points.to(self._model.device)).exp().cpu().numpy()

    def predict(self, rows: pd.DataFrame) -> Array:
        return self.predict_proba(rows).argmax(axis=1)


class EnoughError(Exception):
    """dice-ml has asked so often that it will not find anything."""


class TimeOverError(Exception):
    """The time that dice-ml was given is over."""


def _check(end: float) -> None:
    """Stop dice-ml, which cannot be told to, when it asks f after `end`, a time of `monotonic`."""
    if monotonic() > end:
        raise TimeOverError


def _choices(block: Block) -> Array:
    """The encoded categories of a feature, one a row."""
    width = block.feature.width
    return np.array([[0.0], [1.0]]) if width == 1 else np.eye(width)


def _codes(points: Array, block: Block) -> Array:
    here = points[:, block.at]
    return np.asarray(here[:, 0] > 0.5 if here.shape[1] == 1 else here.argmax(axis=1), dtype=int)


def _library(name: str) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(name)
    except ImportError:
        raise RequestError("the baseline DiCE needs: pip install 'counterveil[lab]'") from None


@contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """dice-ml without its prints, bars and warnings; the global generators it draws from as before.

    Its own `random_seed` is no use: three methods have none, the fourth draws every feature alike.
    """
    states = random.getstate(), np.random.get_state()
    root, handler = logging.getLogger(), logging.NullHandler()
    level = root.manager.disable
    root.addHandler(handler)  # or logging.warning would set one up for good
    logging.disable(logging.WARNING)
    random.seed(seed)
    np.random.seed(seed)
    try:
        with (
            torch.random.fork_rng(devices=[]),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", module=r"dice_ml\.")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        logging.disable(level)
        root.removeHandler(handler)
