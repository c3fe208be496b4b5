"""ONNX models through onnxruntime: a network over the encoding, or a pipeline over columns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models.base import (
    Inputs,
    Outputs,
    Rows,
    TargetModel,
    as_log_proba,
    as_numbers,
    column_called,
    column_order,
    foreign_classes,
    guess_outputs,
    name_columns,
    optional,
    sane,
    values_of,
)
from counterveil.schema import Category, Feature, Schema

MOST_ROWS = 4096  # in one run of the session
PROBES = 256  # random points that show what the model answers
CLEAR = 0.1  # by how much a class must lead for the label to tell its name
TEXT = "tensor(string)"
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
WHOLE = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}  # what cannot hold a missing value
Feed = Callable[[Any], dict[str, Array]]


class OnnxModel(TargetModel):
    """An ONNX model: the path of a file, or its bytes.

    Two forms of input: one float tensor, which gets the encoding, or one input a column, called as
    the column, which gets original units. With `inputs="rows"` a single tensor gets the columns in
    original units, in the schema's order. A missing number is NaN; `missing_text` is what stands
    for a missing text, for ONNX has none: exporters differ in it.
    `outputs`: "logits", "probabilities", or "auto" to tell by asking it 256 random points.
    `classes`: the names of its columns, where the model does not tell them and their order is not
    the schema's. No gradient: the search follows a student of the model, and the model decides.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        schema: Schema,
        *,
        inputs: Inputs = "auto",
        outputs: Outputs = "auto",
        classes: Sequence[Category] | None = None,
        missing_text: str | None = None,
    ) -> None:
        super().__init__(schema)
        self._session = _open(source)
        self._feeding = _feeding(self._session.get_inputs(), schema, inputs, missing_text)
        self._wanted = [_answer_of(self._session.get_outputs(), self.classes)]
        self._wanted += _label_of(self._session.get_outputs())
        self._keys: list[Category] | None = None
        random = torch.rand(PROBES, self.encoding.width, generator=torch.Generator().manual_seed(0))
        raw, labels = self._raw(Rows.of_points(random, self.encoding))
        if not bool(raw.isfinite().all()):
            raise ModelError("the model answers NaN or infinity; it cannot be explained")
        self._outputs: Outputs = guess_outputs(raw) if outputs == "auto" else outputs
        log_proba = as_log_proba(raw, self._outputs, self.classes, PROBES)
        named = dict(enumerate(self._keys or ())) or _told(labels, log_proba)
        self._order = _order(named, classes, schema)

    def ask(self, rows: Rows) -> Tensor:
        raw, _ = self._raw(rows)
        answer = as_log_proba(raw, self._outputs, self.classes, len(rows))[:, self._order]
        return sane(answer) if rows.from_frame else answer.to(rows.points.device)

    def _raw(self, rows: Rows) -> tuple[Tensor, list[Category]]:
        """Raw answers, and the labels that the model gives, if it does."""
        table = rows.frame if self._feeding.over_rows else rows.encoded
        size = self._feeding.batch or MOST_ROWS
        answers, labels = [], []
        for start in range(0, max(len(table), 1), size):
            part = table[start : start + size]
            answer, *label = self._run(self._feeding.feed(part), len(part))
            if isinstance(answer, list):  # of a ZipMap: {class: probability} for each row
                if self._keys is None:
                    self._keys = list(answer[0])
                answer = [[row[key] for key in self._keys] for row in answer]
            numbers = as_numbers(answer, rows)
            answers.append(numbers[: len(part)] if self._feeding.batch else numbers)
            labels += [name for given in label for name in np.ravel(given)[: len(part)].tolist()]
        return torch.cat(answers), labels

    def _run(self, feed: dict[str, Array], rows: int) -> list[Any]:
        short = (self._feeding.batch or rows) - rows  # a graph for just so many rows: fill them up
        if short > 0:
            feed = {k: np.concatenate([v, np.repeat(v[-1:], short, 0)]) for k, v in feed.items()}
        try:
            answers: list[Any] = self._session.run(self._wanted, feed)
        except Exception as error:  # its text may hold values: show the type alone
            raise ModelError(
                f"the ONNX model failed on rows of the schema with {type(error).__name__}; "
                "export the model of this schema, for any number of rows"
            ) from None
        return answers


def _open(source: str | os.PathLike[str] | bytes) -> Any:
    runtime = optional("onnxruntime", "'counterveil[onnx]'", "reading .onnx")
    name = "the content" if isinstance(source, bytes) else os.fspath(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise ModelError(f"no model at {name}; check the path")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what is wrong comes as an exception
    content = source if isinstance(source, bytes) else os.fspath(source)
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(
            f"{name} cannot be read as an ONNX model ({type(error).__name__}): damaged, or it "
            "needs a newer onnxruntime or operators of its own"
        ) from None


def _answer_of(given: Sequence[Any], classes: int) -> str:
    """The output with the class probabilities: a tensor of floats, or the maps of a ZipMap."""
    found = [output for output in given if output.type in FLOATS or output.type.startswith("seq")]
    if len(found) > 1:
        found = (
            [output for output in found if "prob" in output.name.lower()]
            or [output for output in found if list(output.shape)[1:] == [classes]]
            or found
        )
    if len(found) != 1:
        listed = ", ".join(output.name for output in given[:12])
        raise ModelError(
            f"it is not clear which output of the ONNX model holds class probabilities, of: "
            f"{listed}; export it with one output of floats, or call it 'probabilities'"
        )
    return str(found[0].name)


def _label_of(given: Sequence[Any]) -> list[str]:
    """The output with the class that the model decides for, if there is just one such."""
    found = [str(output.name) for output in given if output.type in {TEXT, "tensor(int64)"}]
    return found if len(found) == 1 else []


def _told(labels: Sequence[Category], log_proba: Tensor) -> dict[int, Category]:
    """Which class a column is, by the label that the model gives where the column clearly leads."""
    if len(labels) != len(log_proba):
        return {}
    best = log_proba.exp().topk(2, dim=1)
    leads = (best.values[:, 0] - best.values[:, 1] > CLEAR).tolist()
    seen: dict[int, set[Category]] = {}
    for column, label, clear in zip(best.indices[:, 0].tolist(), labels, leads, strict=True):
        if clear:
            seen.setdefault(column, set()).add(label)
    return {column: next(iter(names)) for column, names in seen.items() if len(names) == 1}


def _order(
    named: Mapping[int, Category], classes: Sequence[Category] | None, schema: Schema
) -> list[int]:
    """Where each class stands among the columns: by the model's own names, else by `classes`."""
    wanted = schema.label.classes
    foreign = not set(named.values()) <= set(wanted)
    if classes is not None:
        order = column_order(classes, schema)
        if not foreign and any(classes[column] != name for column, name in named.items()):
            raise ModelError(
                "classes=[...] (--model-classes) contradicts the names of classes within the "
                "ONNX model, which are the schema's; leave it out"
            )
        return order
    if not named:
        return list(range(len(wanted)))
    if foreign:
        raise foreign_classes(named.values(), schema)
    names = dict(named)
    open_columns = [column for column in range(len(wanted)) if column not in names]
    left = [name for name in wanted if name not in names.values()]
    if len(open_columns) == len(left) == 1:
        names[open_columns[0]] = left[0]
    elif open_columns or left:
        raise ModelError(
            "the ONNX model's labels do not show which column is which class; "
            + name_columns(schema)
        )
    return column_order([names[column] for column in range(len(wanted))], schema)


class Feeding(NamedTuple):
    """How the graph is fed.

    It gets a frame in original units (`over_rows`) or the encoded array, which `feed` turns into
    its input tensors by name. `batch` is the number of rows for one run, where the graph fixes it.
    """

    over_rows: bool
    feed: Feed
    batch: int | None


def _feeding(
    wanted: Sequence[Any], schema: Schema, inputs: Inputs, missing_text: str | None
) -> Feeding:
    """How to feed a graph with the inputs `wanted`; what fits no form is an error."""
    fixed = {given.shape[0] for given in wanted if given.shape and _is_fixed(given.shape[0])}
    batch = fixed.pop() if len(fixed) == 1 else None
    columns = {given.name: column_called(given.name, schema.columns) for given in wanted}
    strays = [name for name, column in columns.items() if column is None]
    if inputs != "encoding" and not strays:
        features = {feature.name: feature for feature in schema.features}
        named = [
            (given, str(column), features.get(str(column)))
            for given, column in zip(wanted, columns.values(), strict=True)
        ]
        return Feeding(True, _feed_columns(named, missing_text), batch)
    if len(wanted) != 1:
        stray = next(iter([*strays, *columns]), "")
        raise ModelError(
            f"the ONNX model has {len(wanted)} inputs and {stray!r} is no column of the schema; "
            "name the inputs as the columns, or export one float tensor over the encoding"
        )
    return _one_tensor(wanted[0], schema, inputs, batch)


def _one_tensor(given: Any, schema: Schema, inputs: Inputs, batch: int | None) -> Feeding:
    if given.type not in FLOATS:
        raise ModelError(
            f"the ONNX model's input {given.name!r} is a {given.type}; "
            "over the encoding it must be a tensor of floats"
        )
    rest = tuple(given.shape[1:])
    known = math.prod(rest) if all(_is_fixed(size) for size in rest) else None
    count = len(schema.columns)
    over_rows = inputs == "rows" or (inputs == "auto" and known == count != schema.width)
    width = count if over_rows else schema.width
    if not rest or known not in {None, width}:
        raise ModelError(
            f"the ONNX model takes {known or 'unknown'} numbers a row, "
            f"the encoding of the schema has {schema.width}; export the model of this schema"
        )
    shape = rest if known else (width,)
    dtype = FLOATS[given.type]

    def feed(table: Any) -> dict[str, Array]:
        if over_rows:
            table = table[list(schema.columns)].to_numpy(np.float64, na_value=np.nan)
        return {given.name: np.asarray(table, dtype=dtype).reshape(len(table), *shape)}

    return Feeding(over_rows, feed, batch)


def _feed_columns(
    named: Sequence[tuple[Any, str, Feature | None]], missing_text: str | None
) -> Feed:
    """For inputs of one column each: (input, column of the schema, feature)."""
    for given, _, feature in named:
        why = _misfit(given, feature, missing_text)
        if why is not None:
            raise ModelError(f"the ONNX model's input {given.name!r} is a {given.type}: {why}")

    def feed(rows: pd.DataFrame) -> dict[str, Array]:
        return {
            given.name: _cells(rows[column], given.type, feature, missing_text).reshape(
                (len(rows),) + (1,) * (len(given.shape) - 1)
            )
            for given, column, feature in named
        }

    return feed


def _misfit(given: Any, feature: Feature | None, missing_text: str | None) -> str | None:
    """Why an input cannot take the column of `feature`; None if it can."""
    values = values_of(feature)
    text, whole = given.type == TEXT, given.type in WHOLE
    missing = getattr(feature, "missing", False)
    sizes = math.prod(size for size in given.shape[1:] if _is_fixed(size))
    tests = (
        (text and values is None, "the schema's column holds numbers"),
        (
            given.type not in {TEXT, *FLOATS, *WHOLE},
            "it must hold text, floats or whole numbers",
        ),
        (
            not text and any(isinstance(value, str) for value in values or ()),
            "the schema's column holds text",
        ),
        (whole and missing, "the schema's column may be missing; export it as floats"),
        (whole and not getattr(feature, "integer", True), "the schema's column is not 'integer'"),
        (sizes != 1, "it must be one value a row"),
        (
            text and missing and missing_text is None,
            "the schema's column may be missing, and ONNX has no missing text; say which text "
            "the model takes for it: OnnxModel(..., missing_text='')",
        ),
    )
    return next((why for wrong, why in tests if wrong), None)


def _cells(
    column: pd.Series[Any], kind: str, feature: Feature | None, missing_text: str | None
) -> Array:
    if kind != TEXT:
        numbers = column.astype("Float64").to_numpy(np.float64, na_value=np.nan)
        return np.asarray(numbers, dtype=FLOATS.get(kind) or WHOLE[kind])
    if all(type(value) is int for value in values_of(feature) or ()):
        column = column.astype("Int64")  # 2.0 of a table with gaps is the category 2
    return column.astype(object).where(column.notna(), missing_text).map(str).to_numpy(object)


def _is_fixed(size: Any) -> bool:
    """Whether the graph fixes a dimension; a name or None leaves it open."""
    return isinstance(size, int) and size > 0
