"""What the search asks of a target model, and the reading of its raw answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.schema import Category, Feature, Schema

Outputs = Literal["auto", "logits", "probabilities"]
Inputs = Literal["auto", "rows", "encoding"]
TINY = 1e-7


class TargetModel:
    """f over one schema: log-probabilities of the classes, in the order of the label set.

    `differentiable` says whether a gradient flows from the answer to the encoded points. `batch` is
    the most rows that one call of the model takes, `calls_left` how many calls it has left; None:
    no limit.
    """

    differentiable = False
    batch: int | None = None

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.encoding = Encoding(schema)
        self.classes = len(schema.label.classes)

    def log_proba(self, points: Tensor) -> Tensor:
        """log f(x) for encoded points, shape (points, classes)."""
        raise NotImplementedError

    def log_proba_rows(self, rows: pd.DataFrame) -> Tensor:
        """log f(x) for rows in original units: the last word on every answer."""
        points = torch.as_tensor(self.encoding.encode(rows), dtype=torch.float32)
        with torch.no_grad():
            return sane(self.log_proba(points.to(self.device)).cpu())

    def decide(self, rows: pd.DataFrame, points: Tensor) -> Tensor:
        """log f(x) for rows that are given in original units and, as float32, in the encoding."""
        with torch.no_grad():
            return sane(self.log_proba(points.to(self.device)).cpu())

    @property
    def calls_left(self) -> int | None:
        """How often the model may still be called, each time with at most `batch` rows."""
        return None

    @property
    def device(self) -> torch.device:
        """Where `log_proba` wants its points."""
        return torch.device("cpu")

    def to(self, device: torch.device) -> TargetModel:
        """Move what can be moved."""
        return self


def sane(log_proba: Tensor) -> Tensor:
    """`log_proba`, or an error that names the first row without a probability for each class."""
    if not bool(((log_proba <= 1e-3) & (log_proba > -torch.inf)).all()):
        _refuse_row(~log_proba.isfinite(), "NaN or infinity")
        _refuse_row(log_proba > 1e-3, "a probability above 1")
    return log_proba


def _refuse_row(bad: Tensor, what: str) -> None:
    rows = bad.any(dim=1).nonzero()
    if len(rows):
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        raise ModelError(
            f"the model answers {what} for row {int(rows[0]) + 1}{more}; "
            "it must give every legal row a probability for each class"
        )


def as_log_proba(raw: Tensor, outputs: Outputs, classes: int, asked: int) -> Tensor:
    """Raw answers (logits or probabilities, one or `classes` columns) as log-probabilities."""
    if raw.ndim == 1:
        raw = raw[:, None]
    if raw.ndim != 2 or len(raw) != asked:
        raise ModelError(
            f"the model must answer one row of {classes} numbers for each input row, "
            f"it gave an answer of shape {tuple(raw.shape)} for {asked} rows"
        )
    if raw.shape[1] == 1 and classes == 2:
        if outputs == "logits":
            return torch.nn.functional.logsigmoid(torch.cat([-raw, raw], dim=1))
        raw = torch.cat([1 - raw, raw], dim=1)
    if raw.shape[1] != classes:
        raise ModelError(
            f"the model answers {raw.shape[1]} classes, the schema's label has {classes}; "
            "use the model of this schema, or correct 'classes' in the schema"
        )
    if outputs == "logits":
        return torch.log_softmax(raw, dim=1)
    return raw.clamp(min=TINY).log()


def guess_outputs(raw: Tensor, ends_in_sigmoid: bool = False) -> Outputs:
    """Logits if an answer leaves [0, 1]; probabilities if all are in it and each row sums to 1.

    One column within [0, 1] could be either: only a sigmoid at the end of the model settles it.
    """
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


def probabilities_of(answer: Any, classes: int, asked: int) -> Tensor:
    """The answer of a model without gradients as log-probabilities; `sane` checks the rest."""
    if isinstance(answer, pd.DataFrame):
        answer = answer.to_numpy()
    try:
        with np.errstate(over="ignore"):
            raw = torch.as_tensor(np.array(answer, dtype=np.float32))
    except (TypeError, ValueError):
        raise ModelError("the model must answer with numbers: class probabilities") from None
    log_proba = as_log_proba(raw, "probabilities", classes, asked)
    if bool(((raw < -1e-6) | (raw > 1 + 1e-6)).any()):
        raise ModelError("the model's answers must be probabilities between 0 and 1")
    return log_proba


def column_order(names: Sequence[Category], schema: Schema) -> list[int]:
    """Where each class of the schema stands among a model's columns, called `names`."""
    wanted = list(schema.label.classes)
    if len(names) != len(wanted):
        raise ModelError(
            f"the model answers {len(names)} classes, the schema's label has {len(wanted)}; "
            "use the model of this schema, or correct 'classes' in the schema"
        )
    if set(names) != set(wanted):
        raise foreign_classes(names, schema)
    return [list(names).index(name) for name in wanted]


def foreign_classes(names: Iterable[Category], schema: Schema) -> ModelError:
    """The error for a model whose classes are not called as in the schema."""
    numbered = all(isinstance(name, int) for name in names)
    how = "numbered 0, 1, ..., not called as in the schema" if numbered else (
        "called otherwise than the schema's"
    )  # fmt: skip
    return ModelError(f"the model's classes are {how}; {name_columns(schema)}")


def name_columns(schema: Schema) -> str:
    """The remedy where it is not known which column is which class."""
    listed = ",".join(str(name) for name in schema.label.classes[:12])
    return (
        "name the model's columns in their order with classes=[...] (--model-classes), "
        f"out of: {listed}"
    )


def column_called(name: str, columns: Sequence[str]) -> str | None:
    """The column that a model calls `name`; exporters write signs and spaces as underscores."""
    if name in columns:
        return name
    plain = [column for column in columns if re.sub(r"\W", "_", column) == name]
    return plain[0] if len(plain) == 1 else None


def values_of(feature: Feature | None) -> tuple[Category, ...] | None:
    """The closed list of values that a feature has, if it has one."""
    return None if feature is None else feature.values
