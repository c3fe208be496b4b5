"""ONNX models through onnxruntime: a network over the encoding, or a pipeline over columns."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.files import read_bytes
from counterveil.hints import did_you_mean
from counterveil.models import base, limits
from counterveil.models.base import Inputs, Outputs, TargetModel
from counterveil.models.onnx_file import check_onnx
from counterveil.models.rows import Rows
from counterveil.schema import Category, Feature, Schema

MOST_ROWS = 4096  # in one run of the session
PROBES = 256  # random points that show what the model answers
CLEAR = 0.1  # by how much a class must lead for the label to tell its name
TEXT = "tensor(string)"
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
# What cannot hold a missing value.
WHOLE = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
Feed = Callable[[Any], dict[str, Array]]  # from a frame or an encoded array to tensors by name


class OnnxModel(TargetModel):
    """An ONNX model: the path of a file, or its bytes.

    Two forms of input: one float tensor, which gets the encoding, or one input a column, called as
    the column, which gets original units. With `inputs="rows"` a single tensor gets the columns in
    original units, in the schema's order. A missing number is NaN; `missing_text` is what stands
    for a missing text, for ONNX has none: exporters differ in it.
    `outputs`: "logits", "probabilities", or "auto" to tell by asking it 256 random points.
    `classes`: the names of its columns, where the model does not tell them and their order is not
    the schema's; for a model with one output, the class that it speaks of.
    No gradient: the search follows a student of the model, and the model decides.
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
        self._keys: list[Category] | None = None
        random = Rows.of_points(base.random_points(PROBES, self.encoding.width), self.encoding)
        try:
            with limits.bounded_memory():
                self._session = _open(source)
                given = self._session.get_inputs()
                fixed = {one.shape[0] for one in given if one.shape and _is_fixed(one.shape[0])}
                self._rows_a_run = fixed.pop() if len(fixed) == 1 else None  # by the graph
                self._over_rows, self._feed = _feeding(given, schema, inputs, missing_text)
                self._wanted = _wanted(self._session.get_outputs(), self.classes)
                raw, labels = self._raw(random)
        except UnicodeDecodeError:  # names in the file that are no text
            raise ModelError("the ONNX model is damaged: its names are no text") from None
        columns = base.columns_called(classes, schema)
        self._outputs = base.kind_of_outputs(raw, outputs, schema, single=columns.single)
        log_proba = base.as_log_proba(raw, self._outputs, schema, PROBES, single=columns.single)
        named = dict(enumerate(self._keys or ())) or _told(labels, log_proba)
        order = _order(named, None if classes is None else columns.names, schema)
        self._columns = columns._replace(order=order)

    def ask(self, rows: Rows) -> Tensor:
        raw, _ = self._raw(rows)
        answer = self._log_proba(raw, len(rows))
        return base.sane(answer) if rows.from_frame else answer.to(rows.points.device)

    def _raw(self, rows: Rows) -> tuple[Tensor, list[Category]]:
        """Raw answers, and the labels that the model gives, if it does."""
        table = rows.frame if self._over_rows else rows.encoded
        size = self._rows_a_run or MOST_ROWS
        answers, labels = [], []
        for start in range(0, max(len(table), 1), size):
            part = table[start : start + size]
            answer, *label = self._run(self._feed(part), len(part))
            if isinstance(answer, list):  # of a ZipMap: {class: probability} for each row
                if self._keys is None:
                    self._keys = list(answer[0])
                answer = [[row[key] for key in self._keys] for row in answer]
            numbers = base.as_numbers(answer, rows)
            answers.append(numbers[: len(part)] if self._rows_a_run else numbers)
            labels += [name for given in label for name in np.ravel(given)[: len(part)].tolist()]
        return torch.cat(answers), labels

    def _run(self, feed: dict[str, Array], rows: int) -> list[Any]:
        short = (self._rows_a_run or rows) - rows  # a graph for just so many rows: fill them up
        if short > 0:
            feed = {k: np.concatenate([v, np.repeat(v[-1:], short, 0)]) for k, v in feed.items()}
        try:
            return self._session.run(self._wanted, feed)
        except Exception as error:  # its text may hold values: show the type alone
            raise limits.out_of_memory(error) or ModelError(
                f"the ONNX model failed on rows of the schema with {type(error).__name__}; "
                "export the model of this schema, for any number of rows"
            ) from None


def _open(source: str | os.PathLike[str] | bytes) -> Any:
    runtime = base.optional("onnxruntime", "'counterveil[onnx]'", "reading .onnx")
    name = "the content" if isinstance(source, bytes) else os.fspath(source)
    if isinstance(source, bytes):
        content = source
    elif Path(name).is_file():
        limits.check_size(name)
        content = read_bytes(name, "model", ModelError)
    else:
        raise ModelError(f"no model at {name}; check the path")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what is wrong comes as an exception
    try:
        check_onnx(content)
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ModelError:
        raise
    except Exception as error:
        raise limits.out_of_memory(error) or ModelError(
            f"{name} cannot be read as an ONNX model ({type(error).__name__}): damaged, or it "
            "needs a newer onnxruntime or operators of its own"
        ) from None


def _wanted(given: Sequence[Any], classes: int) -> list[str]:
    """The output with the class probabilities: a tensor of floats, or the maps of a ZipMap.

    After it comes the output with the class that the model decides for, if there is just one such.
    """
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
    labels = [output for output in given if output.type in {TEXT, "tensor(int64)"}]
    return [str(output.name) for output in found + (labels if len(labels) == 1 else [])]


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
        order = base.column_order(classes, schema)
        if not foreign and any(classes[column] != name for column, name in named.items()):
            raise ModelError(
                "classes=[...] (--model-classes) contradicts the names of classes within the "
                "ONNX model, which are the schema's; leave it out"
            )
        return order
    if not named:
        return list(range(len(wanted)))
    if foreign:
        raise base.foreign_classes(named.values(), schema)
    names = dict(named)
    open_columns = [column for column in range(len(wanted)) if column not in names]
    left = [name for name in wanted if name not in names.values()]
    if len(open_columns) == len(left) == 1:
        names[open_columns[0]] = left[0]
    elif open_columns or left:
        raise ModelError(
            "the ONNX model's labels do not show which column is which class; "
            + base.name_columns(schema)
        )
    return base.column_order([names[column] for column in range(len(wanted))], schema)


def _feeding(
    wanted: Sequence[Any], schema: Schema, inputs: Inputs, missing_text: str | None
) -> tuple[bool, Feed]:
    """How to feed a graph with the inputs `wanted`; what fits no form is an error.

    Whether it gets a frame in original units, not the encoded array; and what makes its tensors.
    """
    columns = {given.name: base.column_called(given.name, schema.columns) for given in wanted}
    strays = [name for name, column in columns.items() if column is None]
    if inputs != "encoding" and not strays:
        features = {feature.name: feature for feature in schema.features}
        named = [(given, str(columns[given.name])) for given in wanted]
        for given, column in named:
            why = _misfit(given, features.get(column), missing_text)
            if why is not None:
                raise ModelError(f"the ONNX model's input {given.name!r} is a {given.type}: {why}")

        def feed(rows: pd.DataFrame) -> dict[str, Array]:
            tensors = {}
            for given, column in named:
                cells = _cells(rows[column], given.type, features.get(column), missing_text)
                tensors[given.name] = cells.reshape(len(rows), *[1] * (len(given.shape) - 1))
            return tensors

        return True, feed
    if len(wanted) != 1:
        stray = next(iter([*strays, *columns]), "")
        raise ModelError(
            f"the ONNX model has {len(wanted)} inputs and {stray!r} is no column of the schema; "
            "name the inputs as the columns, or export one float tensor over the encoding"
            f"{did_you_mean(stray, schema.columns)}"
        )
    return _one_tensor(wanted[0], schema, inputs)


def _one_tensor(given: Any, schema: Schema, inputs: Inputs) -> tuple[bool, Feed]:
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

    def feed(table: Any) -> dict[str, Array]:
        if over_rows:
            table = table[list(schema.columns)].to_numpy(np.float64, na_value=np.nan)
        return {given.name: np.asarray(table, FLOATS[given.type]).reshape(len(table), *shape)}

    return over_rows, feed


def _misfit(given: Any, feature: Feature | None, missing_text: str | None) -> str | None:
    """Why an input cannot take the column of `feature`; None if it can."""
    values = getattr(feature, "values", None)
    text, whole = given.type == TEXT, given.type in WHOLE
    known = text or whole or given.type in FLOATS
    missing = getattr(feature, "missing", False)
    sizes = math.prod(size for size in given.shape[1:] if _is_fixed(size))
    tests = (
        (text and values is None, "the schema's column holds numbers"),
        (not known, "it must hold text, floats or whole numbers"),
        (not text and getattr(feature, "is_text", False), "the schema's column holds text"),
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
    column: "pd.Series[Any]", kind: str, feature: Feature | None, missing_text: str | None
) -> Array:
    if kind != TEXT:
        numbers = column.astype("Float64").to_numpy(np.float64, na_value=np.nan)
        return np.asarray(numbers, dtype=FLOATS.get(kind) or WHOLE[kind])
    if all(type(value) is int for value in getattr(feature, "values", None) or ()):
        column = column.astype("Int64")  # 2.0 of a table with gaps is the category 2
    return column.astype(object).where(column.notna(), missing_text).map(str).to_numpy(object)


def _is_fixed(size: Any) -> bool:
    """Whether the graph fixes a dimension; a name or None leaves it open."""
    return isinstance(size, int) and size > 0
