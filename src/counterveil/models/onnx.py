"""ONNX models through onnxruntime: a network over the encoding, or a pipeline over columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models.base import (
    Inputs,
    Outputs,
    TargetModel,
    as_log_proba,
    column_order,
    foreign_classes,
    guess_outputs,
    name_columns,
    sane,
)
from counterveil.models.onnx_inputs import FLOATS, TEXT, feeding_of
from counterveil.models.optional import optional
from counterveil.schema import Category, Schema

MOST_ROWS = 4096  # at once
PROBES = 256  # random points that show what the model answers
CLEAR = 0.1  # by how much a class must lead for the label to tell its name


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
        self._feeding = feeding_of(self._session.get_inputs(), schema, inputs, missing_text)
        self._answer = _answer_of(self._session.get_outputs(), self.classes)
        self._label = _label_of(self._session.get_outputs())
        self._keys: list[Category] | None = None
        random = torch.rand(PROBES, self.encoding.width, generator=torch.Generator().manual_seed(0))
        raw, labels = self._ask(self._table(random))
        if not bool(raw.isfinite().all()):
            raise ModelError("the model answers NaN or infinity; it cannot be explained")
        self._outputs: Outputs = guess_outputs(raw) if outputs == "auto" else outputs
        log_proba = as_log_proba(raw, self._outputs, self.classes, PROBES)
        named = dict(enumerate(self._keys or ())) or _told(labels, log_proba)
        self._order = _order(named, classes, schema)

    def log_proba(self, points: Tensor) -> Tensor:
        return self._log_proba(self._table(points)).to(points.device)

    def log_proba_rows(self, rows: pd.DataFrame) -> Tensor:
        over_rows = self._feeding.over_rows
        return sane(self._log_proba(rows if over_rows else self.encoding.encode(rows)))

    def _table(self, points: Tensor) -> pd.DataFrame | Array:
        array = points.detach().cpu().double().numpy()
        return self.encoding.decode(array) if self._feeding.over_rows else array

    def _log_proba(self, table: pd.DataFrame | Array) -> Tensor:
        raw = self._ask(table)[0]
        return as_log_proba(raw, self._outputs, self.classes, len(table))[:, self._order]

    def _ask(self, table: pd.DataFrame | Array) -> tuple[Tensor, list[Category]]:
        """Raw answers, and the labels that the model gives, if it does."""
        size = self._feeding.batch or MOST_ROWS
        answers, labels = [], []
        for start in range(0, max(len(table), 1), size):
            part = table[start : start + size]
            answer, *label = self._run(self._feeding.feed(part), len(part))
            answers.append(self._numbers(answer, len(part)))
            labels += [name for given in label for name in np.ravel(given)[: len(part)].tolist()]
        return torch.cat(answers), labels

    def _run(self, feed: dict[str, Array], rows: int) -> list[Any]:
        short = (self._feeding.batch or rows) - rows  # a graph for just so many rows: fill them up
        if short > 0:
            feed = {k: np.concatenate([v, np.repeat(v[-1:], short, 0)]) for k, v in feed.items()}
        wanted = [self._answer, *([] if self._label is None else [self._label])]
        try:
            answers: list[Any] = self._session.run(wanted, feed)
        except Exception as error:  # its text may hold values: show the type alone
            raise ModelError(
                f"the ONNX model failed on rows of the schema with {type(error).__name__}; "
                "export the model of this schema, for any number of rows"
            ) from None
        return answers

    def _numbers(self, answer: Any, rows: int) -> Tensor:
        if isinstance(answer, list):  # of a ZipMap: {class: probability} for each row
            if self._keys is None:
                self._keys = list(answer[0])
            answer = [[row[key] for key in self._keys] for row in answer]
        numbers = torch.as_tensor(np.asarray(answer, dtype=np.float32))
        return numbers[:rows] if self._feeding.batch else numbers


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


def _label_of(given: Sequence[Any]) -> str | None:
    """The output with the class that the model decides for, if there is just one such."""
    found = [output.name for output in given if output.type in {TEXT, "tensor(int64)"}]
    return found[0] if len(found) == 1 else None


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
            f"the ONNX model's labels do not show which column is which class; "
            f"{name_columns(schema)}"
        )
    return column_order([names[column] for column in range(len(wanted))], schema)
