"""How the search asks a target model, and how the raw answers of models are read."""

import importlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import ModelError
from counterveil.schema import Category, Schema

Outputs = Literal["auto", "logits", "probabilities"]
Inputs = Literal["auto", "rows", "encoding"]
TINY = 1e-7  # probabilities below this are taken for it, so that their logarithm is finite


class Rows:
    """Rows to ask a model about, in whichever form the model takes them.

    Rows are given as a frame in original units (`from_frame`) or as points of the encoding. The
    other forms are made when they are first asked for, and kept:

    `frame`: rows in original units: the very frame that was given, or the decoded points.
    `encoded`: float64 array of shape (rows, width): the encoded frame, or the points.
    `points`: float32 tensor of shape (rows, width): the very points that were given (a gradient
    flows through them), or the encoded frame on the CPU.
    """

    from_frame = False

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, encoding: Encoding) -> Self:
        """Rows in original units. Models over original units get exactly this frame."""
        rows = cls(encoding)
        rows.frame, rows.from_frame = frame, True
        return rows

    @classmethod
    def of_points(cls, points: Tensor, encoding: Encoding) -> Self:
        """Encoded rows: a float32 tensor of shape (rows, width)."""
        rows = cls(encoding)
        rows.points = points
        return rows

    def __len__(self) -> int:
        return len(self.frame if self.from_frame else self.points)

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self._encoding.decode(self.encoded)

    @cached_property
    def encoded(self) -> Array:
        if self.from_frame:
            return self._encoding.encode(self.frame)
        array: Array = self.points.detach().cpu().double().numpy()
        width = self._encoding.width
        if array.shape[1:] != (width,):
            raise ModelError(f"points must have the shape (rows, {width}), not {array.shape}")
        return array

    @cached_property
    def points(self) -> Tensor:
        return torch.as_tensor(self.encoded, dtype=torch.float32)


class TargetModel:
    """The model f that is explained, over the rows of one schema.

    `differentiable`: whether a gradient flows from the answer of `ask` to the points asked about.
    `batch`: the most rows for one call of the model; None for no limit.
    """

    differentiable = False
    batch: int | None = None

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.encoding = Encoding(schema)
        self.classes = len(schema.label.classes)

    def ask(self, rows: Rows) -> Tensor:
        """Log-probabilities of shape (rows, classes), in the order of the schema's classes.

        For rows made of a frame the answer is the model's own on exactly that frame, in float64 (so
        that a probability just above 1/2 stays above it) and on the CPU; a row without a
        probability for each class is a `ModelError`. For rows made of points the answer is in
        float32 and on the device of the points.
        """
        raise NotImplementedError

    @property
    def calls_left(self) -> int | None:
        """How many more calls of at most `batch` rows the model allows; None for no limit."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the model computes; points given to `ask` must be there."""
        return torch.device("cpu")

    def to(self, device: torch.device) -> Self:
        """The same model, moved to `device` if it can be moved."""
        return self


def sane(log_proba: Tensor) -> Tensor:
    """`log_proba` (rows, classes) if all is finite and no probability is above 1, else an error."""
    wrong = {"NaN or infinity": ~log_proba.isfinite(), "a probability above 1": log_proba > 1e-3}
    for what, bad in wrong.items():
        rows = bad.any(dim=1).nonzero()
        if len(rows):
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            raise ModelError(
                f"the model answers {what} for row {int(rows[0]) + 1}{more}; "
                "it must give every legal row a probability for each class"
            )
    return log_proba


def as_numbers(answer: Any, rows: Rows) -> Tensor:
    """The answer of a model outside torch as floats: float64 on a frame, float32 on points."""
    dtype = np.float64 if rows.from_frame else np.float32
    try:
        with np.errstate(over="ignore"):
            return torch.as_tensor(np.array(answer, dtype=dtype))
    except (TypeError, ValueError, OverflowError):
        raise ModelError("the model must answer with numbers: class probabilities") from None


def as_log_proba(raw: Tensor, outputs: Outputs, classes: int, asked: int) -> Tensor:
    """Logits or probabilities for `asked` rows as log-probabilities of shape (asked, classes).

    `raw` has the shape (asked, classes), or for two classes also (asked,) or (asked, 1): then it
    speaks of the second class.
    """
    if raw.shape != (asked, classes):
        if raw.ndim == 1:
            raw = raw[:, None]
        if raw.ndim != 2 or len(raw) != asked:
            raise ModelError(
                f"the model must answer one row of {classes} numbers for each input row, "
                f"it gave an answer of shape {tuple(raw.shape)} for {asked} rows"
            )
        if raw.shape[1] != 1 or classes != 2:
            raise _wrong_count(raw.shape[1], classes)
        if outputs == "logits":
            return torch.nn.functional.logsigmoid(torch.cat([-raw, raw], dim=1))
        raw = torch.cat([1 - raw, raw], dim=1)
    if outputs == "logits":
        return torch.log_softmax(raw, dim=1)
    return raw.clamp(min=TINY).log()


def random_points(count: int, width: int) -> Tensor:
    """Points of the unit cube, (count, width), always the same, to see what a model answers."""
    return torch.rand(count, width, generator=torch.Generator().manual_seed(0))


def kind_of_outputs(raw: Tensor, outputs: Outputs, ends_in_sigmoid: bool = False) -> Outputs:
    """What a model gives, from its answers to random points, unless `outputs` says it.

    Logits if an answer leaves [0, 1]; probabilities if all are in it and each row sums to 1. One
    column within [0, 1] could be either: only a sigmoid at the end of the model settles it.
    """
    if not bool(raw.isfinite().all()):
        raise ModelError("the model answers NaN or infinity; it cannot be explained")
    if outputs != "auto":
        return outputs
    within = bool(((raw >= 0) & (raw <= 1)).all())
    if raw.ndim == 1 or raw.shape[-1] == 1:
        if ends_in_sigmoid:
            return "probabilities"
        if within:
            raise ModelError(
                "the model has one output and it lies between 0 and 1: is it a probability or a "
                "logit? say outputs='probabilities' or 'logits' (--model-outputs)"
            )
        return "logits"
    sums = raw.sum(dim=-1)
    looks = within and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return "probabilities" if looks else "logits"


def column_order(names: Sequence[Category], schema: Schema) -> list[int]:
    """Where each class of the schema stands among a model's columns, called `names`."""
    wanted = list(schema.label.classes)
    if len(names) != len(wanted):
        raise _wrong_count(len(names), len(wanted))
    if set(names) != set(wanted):
        raise foreign_classes(names, schema)
    return [list(names).index(name) for name in wanted]


def _wrong_count(found: int, wanted: int) -> ModelError:
    return ModelError(
        f"the model answers {found} classes, the schema's label has {wanted}; "
        "use the model of this schema, or correct 'classes' in the schema"
    )


def foreign_classes(names: Iterable[Category], schema: Schema) -> ModelError:
    """The error for a model whose classes are not called as in the schema."""
    how = "called otherwise than the schema's"
    if all(isinstance(name, int) for name in names):
        how = "numbered 0, 1, ..., not called as in the schema"
    return ModelError(f"the model's classes are {how}; {name_columns(schema)}")


def name_columns(schema: Schema) -> str:
    """The remedy where it is not known which column is which class."""
    listed = ",".join(str(name) for name in schema.label.classes[:12])
    order = "name the model's columns in their order with classes=[...] (--model-classes)"
    return f"{order}, out of: {listed}"


def column_called(name: str, columns: Sequence[str]) -> str | None:
    """The column that a model calls `name`; exporters write signs and spaces as underscores."""
    if name in columns:
        return name
    plain = [column for column in columns if re.sub(r"\W", "_", column) == name]
    return plain[0] if len(plain) == 1 else None


def optional(package: str, install: str, what: str) -> Any:
    """The module `package` that only some models need, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ModelError(f"{what} needs: pip install {install}") from None
