"""How the search asks a target model, and how the raw answers of models are read."""

import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import ModelError
from counterveil.hints import did_you_mean, named
from counterveil.models.additive import Additive
from counterveil.models.rows import Rows
from counterveil.schema import Category, Schema

Outputs = Literal["auto", "logits", "probabilities"]
Inputs = Literal["auto", "rows", "encoding"]
TINY = 1e-7  # probabilities below this are taken for it, so that their logarithm is finite


class Columns(NamedTuple):
    """Which class each number is of that a model gives for a row.

    `names`: the classes of the columns. `order`: where each class of the schema stands among them.
    `single`: the model gives one number, of the second column; the first is what is left to 1.
    """

    names: tuple[Category, ...]
    order: list[int]
    single: bool = False


class TargetModel:
    """The model f that is explained, over the rows of one schema.

    `differentiable`: whether a gradient flows from the answer of `ask` to the points asked about.
    `additive`: how its log-odds add up over features, where its structure shows that they do.
    `kinks`: of a model that adds up in "steps", where the line of each number bends, by its column.
    `goes_by_place`: which form of the table's columns it gets by their places, where it was fitted
    on as many without names; else "".
    `batch`: the most rows for one call of the model; None for no limit.
    """

    differentiable = False
    additive: Additive | None = None
    goes_by_place: Literal["", "rows", "encoding"] = ""
    kinks: Mapping[int, Array] = MappingProxyType({})
    batch: int | None = None
    _outputs: Outputs = "probabilities"  # what the model gives
    _columns: Columns  # and which class each number is of

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

    def _log_proba(self, raw: Tensor, asked: int) -> Tensor:
        """What the model gave for `asked` rows as log-probabilities, by the schema's classes."""
        columns = self._columns
        answer = as_log_proba(raw, self._outputs, self.schema, asked, single=columns.single)
        return answer if columns.order == sorted(columns.order) else answer[:, columns.order]

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
    least, most = (float(each) for each in log_proba.aminmax())
    if math.isfinite(least) and most <= 1e-3:
        return log_proba
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
    except Exception:  # the answer may be anything, with a conversion of its own
        raise ModelError("the model must answer with numbers: class probabilities") from None


def as_log_proba(
    raw: Tensor, outputs: Outputs, schema: Schema, asked: int, *, single: bool = False
) -> Tensor:
    """Logits or probabilities for `asked` rows as log-probabilities of shape (asked, classes).

    `raw` has the shape (asked, classes), or with `single` (asked,) or (asked, 1): then it speaks of
    the second column of the answer.
    """
    classes = len(schema.label.classes)
    if raw.ndim == 1:
        raw = raw[:, None]
    if raw.ndim != 2 or len(raw) != asked:
        raise ModelError(
            f"the model must answer one row of {classes} numbers for each input row, "
            f"it gave an answer of shape {tuple(raw.shape)} for {asked} rows"
        )
    if raw.shape[1] == 1 and single:
        if outputs == "logits":
            return torch.nn.functional.logsigmoid(torch.cat([-raw, raw], dim=1))
        raw = torch.cat([1 - raw, raw], dim=1)
    elif raw.shape[1] == 1 and classes == 2:
        raise ModelError(f"the model gives one number a row; say {_of_which_class(schema)}")
    elif raw.shape[1] != classes:
        raise _wrong_count(raw.shape[1], classes)
    elif single:
        raise ModelError(
            f"the model gives {classes} numbers a row, and one class is named for them; "
            + name_columns(schema)
        )
    if outputs == "logits":
        return torch.log_softmax(raw, dim=1)
    return raw.clamp(min=TINY).log()


def _of_which_class(schema: Schema) -> str:
    """The remedy where a model gives one number for two classes."""
    name = schema.label.classes[-1]
    return f"which class it is the probability of: classes=[{name!r}] (--model-classes {name})"


def labels_not_probabilities(answer: Any, schema: Schema) -> ModelError | None:
    """The error for an `answer` with a class label or class number a row, as `predict` gives it."""
    classes = schema.label.classes
    try:
        cells = np.asarray(answer, dtype=object)
        seen = set(cells.ravel().tolist())
    except Exception:  # the answer may be anything
        return None
    one_a_row = cells.ndim > 0 and cells.shape[1:] in {(), (1,)}
    if not one_a_row or not seen <= {*classes, *range(len(classes))}:
        return None
    also = f"; if each is a probability, say {_of_which_class(schema)}" if len(classes) == 2 else ""
    return ModelError(
        "the model answers class labels, not probabilities: give the model itself or its "
        "predict_proba; a rule that is always sure answers a column of 0 and 1 for each class"
        + also
    )


def random_points(count: int, width: int) -> Tensor:
    """Points of the unit cube, (count, width), always the same, to see what a model answers."""
    return torch.rand(count, width, generator=torch.Generator().manual_seed(0))


def kind_of_outputs(
    raw: Tensor, outputs: Outputs, schema: Schema, *, single: bool, ends_in_sigmoid: bool = False
) -> Outputs:
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
        if ends_in_sigmoid or not within:
            return "probabilities" if ends_in_sigmoid else "logits"
        also = "" if single else f", and say {_of_which_class(schema)}"
        raise ModelError(
            "the model has one output and it lies between 0 and 1: is it a probability or a "
            f"logit? say outputs='probabilities' or 'logits' (--model-outputs){also}"
        )
    sums = raw.sum(dim=-1)
    looks = within and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return "probabilities" if looks else "logits"


def columns_called(names: Sequence[Category] | None, schema: Schema) -> Columns:
    """The columns of a model by the names that the user gave; None: in the schema's order.

    Where the label has two classes, one name is that of the one number that the model gives.
    """
    classes = tuple(schema.label.classes)
    if isinstance(names, str):
        names = (names,)
    names = classes if names is None else tuple(names)
    names = tuple(_as_in_schema(names, schema))
    single = len(names) == 1 and len(classes) == 2
    if single and names[0] in classes:
        names = (classes[1 - classes.index(names[0])], names[0])
    elif single:
        raise foreign_classes(names, schema)
    return Columns(names, column_order(names, schema), single)


def _as_in_schema(names: Sequence[Category], schema: Schema) -> list[Category]:
    """The classes that are called `names`: so, or what people call them."""
    if set(names) <= set(schema.label.classes):
        return list(names)
    shown = {name: value for value, name in schema.label.value_names}
    return [shown.get(name, name) if isinstance(name, str) else name for name in names]


def column_order(names: Sequence[Category], schema: Schema) -> list[int]:
    """Where each class of the schema stands among a model's columns, called `names`."""
    wanted, names = list(schema.label.classes), _as_in_schema(names, schema)
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
    names = list(names)
    how = f"called otherwise than the schema's: {named(names)}"
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


def unknown_column(name: str, schema: Schema) -> str:
    """That a model's column is not in the schema, which one may be meant, and the remedy."""
    return (
        f"the model was fitted on a column {name!r}, which the schema has not; fit it on the "
        "schema's columns under their names, or correct the schema"
        f"{did_you_mean(name, schema.columns)}"
    )


def optional(package: str, install: str, what: str) -> Any:
    """The module `package` that only some models need, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ModelError(f"{what} needs: pip install {install}") from None
