"""Adapters for estimators and functions, and which adapter fits a model."""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.errors import CallLimitError, ModelError, RequestError
from counterveil.models import base
from counterveil.models.additive import additive_estimator
from counterveil.models.base import Inputs, Outputs, TargetModel
from counterveil.models.boosted import BoosterClassifier, is_booster, rows_as_fitted
from counterveil.models.onnx import OnnxModel
from counterveil.models.probing import FEW, what_it_cannot_take
from counterveil.models.rows import Rows
from counterveil.models.torch_model import TorchModel
from counterveil.private_model import PrivateModel
from counterveil.schema import Category, Schema

NOT_PROBABILITIES = frozenset({"predict", "decision_function", "predict_log_proba"})
NOT_FITTED = "the model is not fitted; call its fit first"


class CallableModel(TargetModel):
    """A plain function from rows (a DataFrame) to class probabilities of shape (rows, classes).

    With `inputs="encoding"` the function gets the encoded float64 array instead. `classes` names
    its columns, where their order is not that of the schema; a function that gives one number a
    row needs it: the class that this is the probability of. It has no gradient: the search follows
    a student of the function, and the function decides. It gets copies that it may change.

    For a model behind a network: `batch` is the most rows for one call, `max_calls` the most calls
    over the lifetime of the adapter. What would need more is a `CallLimitError`, and nothing is
    called. `calls` counts the calls made, `calls_left` those left.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        schema: Schema,
        *,
        inputs: Inputs = "rows",
        classes: Sequence[Category] | None = None,
        batch: int | None = None,
        max_calls: int | None = None,
    ) -> None:
        super().__init__(schema)
        for name, limit in (("batch", batch), ("max_calls", max_calls)):
            if limit is not None and limit < 1:
                raise RequestError(f"{name} must be at least 1, or None for no limit")
        self.batch = batch
        self.max_calls = max_calls
        self.calls = 0
        classes = _checked_classes(_classes_of_method(function), classes, schema)
        self._function = function
        self._columns = base.columns_called(classes, schema)
        self._over_rows = inputs != "encoding"
        types = zip(schema.columns, self.encoding.dtypes, strict=True)
        self._with_gaps = [name for name, dtype in types if isinstance(dtype, pd.Int64Dtype)]

    @property
    def calls_left(self) -> int | None:
        return None if self.max_calls is None else self.max_calls - self.calls

    def ask(self, rows: Rows) -> Tensor:
        inputs = self._table(rows) if self._over_rows else rows.encoded
        size = self.batch or max(len(inputs), 1)
        starts = range(0, max(len(inputs), 1), size)
        if self.calls_left is not None and len(starts) > self.calls_left:
            raise CallLimitError(
                f"the model was called {self.calls} times and may be called {self.max_calls} times "
                f"(max_calls); {len(inputs)} rows need {len(starts)} more: allow more calls, "
                "send more rows a call (batch), or explain fewer queries"
            )
        parts = []
        for start in starts:
            part = inputs[start : start + size]
            self.calls += 1
            try:
                answer = self._function(part.copy())
            except Exception as error:  # its text may hold values: show the type alone
                raise self._failure(error, part) from None
            try:
                parts.append(self._log_proba(base.as_numbers(answer, rows), len(part)))
            except ModelError as error:
                raise base.labels_not_probabilities(answer, self.schema) or error from None
        log_proba = torch.cat(parts)
        try:
            base.sane(log_proba)
        except ModelError as error:
            cause = self._cause(inputs)
            raise ModelError(f"{error}: {cause}") if cause else error from None
        return log_proba if rows.from_frame else log_proba.to(rows.points.device)

    def _table(self, rows: Rows) -> pd.DataFrame:
        """Rows in original units; a whole number that may be missing is a float, or NaN.

        So pandas reads a column with gaps, and so models have learnt from it; many cannot read
        the nullable whole numbers of pandas.
        """
        if not self._with_gaps:
            return rows.frame
        numbers = {
            name: rows.frame[name].to_numpy(np.float64, na_value=np.nan) for name in self._with_gaps
        }
        return rows.frame.assign(**numbers)

    def _log_proba(self, raw: Tensor, asked: int) -> Tensor:
        answer = super()._log_proba(raw, asked)
        if bool(((raw < -1e-6) | (raw > 1 + 1e-6)).any()):
            raise ModelError("the model's answers must be probabilities between 0 and 1")
        return answer

    def _fails(self, part: Any) -> bool:
        """Whether the function raises an error about these rows, or answers with no numbers."""
        try:
            answer = np.asarray(self._function(part.copy()), dtype=np.float64)
        except Exception:
            return True
        return not np.isfinite(answer).all()

    def _cause(self, part: Any) -> str:
        """The column and value that the function fails on; "" where it is no single one.

        A function whose calls are counted is not asked again.
        """
        if not self._over_rows or self.max_calls is not None:
            return ""
        some = Rows.of_points(base.random_points(FEW, self.schema.width), self.encoding)
        return what_it_cannot_take(self._fails, part, self._table(some), self.schema)

    def _failure(self, error: Exception, part: Any) -> ModelError:
        """What is said where the function raises `error` about the rows `part`."""
        cause = self._cause(part)
        if cause:
            return ModelError(f"the model failed with {type(error).__name__}: {cause}")
        kind = "rows in original units" if self._over_rows else "encoded rows"
        return ModelError(
            f"the model failed on {kind} with {type(error).__name__}; if it wants the "
            "other form, set 'inputs' (--model-input)"
        )


def _classes_of_method(function: Any) -> list[Any] | None:
    """The classes of the estimator whose `predict_proba` this is, if they are known.

    A method of an estimator that gives labels or scores, not probabilities, is an error.
    """
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if name in NOT_PROBABILITIES and hasattr(owner, "predict_proba"):
        raise ModelError(
            f"{name} of {type(owner).__name__} gives no class probabilities; "
            "give the model itself, or its predict_proba"
        )
    return _own_classes(owner) if name == "predict_proba" else None


def _own_classes(estimator: Any) -> list[Any] | None:
    own = getattr(estimator, "classes_", None)
    return None if own is None else list(np.asarray(own, dtype=object).tolist())


class EstimatorModel(CallableModel):
    """Anything with `predict_proba`: scikit-learn, its pipelines, XGBoost, LightGBM, ...

    `inputs`: "rows" (a DataFrame in original units), "encoding" (an array), or "auto": the encoding
    if the estimator was fitted on exactly as many unnamed columns as that has, otherwise rows.
    `classes`: the names of its columns in order; needed where its `classes_` are not the schema's.
    """

    def __init__(
        self,
        estimator: Any,
        schema: Schema,
        *,
        inputs: Inputs = "auto",
        classes: Sequence[Category] | None = None,
    ) -> None:
        self._fitted_on = getattr(estimator, "n_features_in_", None)
        fitted_names = getattr(estimator, "feature_names_in_", None)
        is_said = inputs == "encoding"
        if inputs == "auto" and self._fitted_on == schema.width and fitted_names is None:
            inputs = "encoding"
        classes = _checked_classes(_own_classes(estimator), classes, schema)
        try:
            as_fitted = np.asarray if inputs == "encoding" else rows_as_fitted(estimator, schema)
        except Exception as error:
            if _says_not_fitted(error):
                raise ModelError(NOT_FITTED) from None
            raise
        super().__init__(
            lambda rows: estimator.predict_proba(as_fitted(rows)),
            schema,
            inputs=inputs,
            classes=classes,
        )
        by_place = fitted_names is None and self._fitted_on == len(schema.columns)
        if by_place and not (is_said or schema.images):
            self.goes_by_place = "encoding" if inputs == "encoding" else "rows"
        self.additive = additive_estimator(estimator, schema)
        names = [] if fitted_names is None else [str(name) for name in fitted_names]
        strays = [name for name in names if base.column_called(name, schema.columns) is None]
        self._stray = strays[0] if strays else None

    def _failure(self, error: Exception, part: Any) -> ModelError:
        if _says_not_fitted(error):
            return ModelError(NOT_FITTED)
        if self._over_rows and self._stray is not None:
            return ModelError(base.unknown_column(self._stray, self.schema))
        columns, width = len(self.schema.columns), self.schema.width
        if self.goes_by_place and self.schema.text_columns:
            return ModelError(
                f"the model failed with {type(error).__name__}: it was fitted without column "
                "names, and gets the table's columns by their place, texts as they are; fit a "
                "pipeline that encodes them, on a frame with names, or set 'inputs' (--model-input)"
            )
        if self._fitted_on in {None, columns if self._over_rows else width}:
            return super()._failure(error, part)
        return ModelError(
            f"{super()._failure(error, part)}; it was fitted on {self._fitted_on} columns, and the "
            f"schema has {columns}, its encoding {width}"
        )


def _says_not_fitted(error: Exception) -> bool:
    return "NotFitted" in type(error).__name__  # of scikit-learn, XGBoost, LightGBM


def _checked_classes(
    own: list[Any] | None, given: Sequence[Category] | None, schema: Schema
) -> Sequence[Category] | None:
    """The names of an estimator's columns: its own, or those `given`, which may not contradict."""
    if own is None:
        return given
    if any(isinstance(name, (list, np.ndarray)) for name in own):
        raise ModelError(
            "the model predicts several labels; give a model of the schema's label alone"
        )
    if given is None:
        return own
    one = isinstance(given, str) or len(given) == 1  # the class of a single column
    if not one and set(own) == set(schema.label.classes) and list(given) != own:
        raise ModelError(
            "classes=[...] (--model-classes) contradicts the model's own classes_, which are the "
            "schema's; leave it out"
        )
    return given


def adapt(
    model: Any,
    schema: Schema,
    *,
    inputs: Inputs = "auto",
    outputs: Outputs = "auto",
    classes: Sequence[Category] | None = None,
) -> TargetModel:
    """The adapter that fits `model`; a `TargetModel` is taken as it is, a path is an .onnx file."""
    if isinstance(model, (TargetModel, PrivateModel)):
        if model.schema != schema:
            raise ModelError("the model was adapted to another schema than the veil's")
        if isinstance(model, TargetModel):
            return model
        model, outputs = model.logits, "logits"
    if isinstance(model, type):
        raise ModelError(
            f"the model is the class {model.__name__}, not an instance of it; "
            "make one, and train it"
        )
    if isinstance(model, torch.export.ExportedProgram):
        with warnings.catch_warnings(action="ignore"):  # torch warns about its own internals
            return TorchModel(model.module(), schema, outputs=outputs, classes=classes)
    if isinstance(model, nn.Module):
        return TorchModel(model, schema, outputs=outputs, classes=classes)
    if isinstance(model, (str, os.PathLike)):
        if not os.fspath(model).lower().endswith(".onnx"):
            raise ModelError(
                f"{os.fspath(model)!r} is no path of an .onnx file; "
                "open other model files with counterveil.models.load_model"
            )
        return OnnxModel(model, schema, inputs=inputs, outputs=outputs, classes=classes)
    if is_booster(model):
        model = BoosterClassifier(model)
    if getattr(model, "__name__", "") == "predict_proba" and hasattr(model, "__self__"):
        model = model.__self__  # its estimator knows the names of the columns
    if hasattr(model, "predict_proba"):
        return EstimatorModel(model, schema, inputs=inputs, classes=classes)
    if callable(model):
        return CallableModel(model, schema, inputs=inputs, classes=classes)
    raise ModelError(_no_model(model))


def _no_model(model: Any) -> str:
    """Why `model` is nothing that can be explained."""
    name = type(model).__name__
    if hasattr(model, "predict"):
        return (
            f"{name} has predict but no predict_proba: it gives no class probabilities; use a "
            "classifier that does (SVC: probability=True), or wrap it in a function that does"
        )
    if isinstance(model, dict) and any(isinstance(part, Tensor) for part in model.values()):
        return "the model is a dict of weights without a network; load them into the module first"
    return (
        "the model must be a torch module, an estimator with predict_proba, a booster, the path "
        "of an .onnx file, or a function from rows to class probabilities; "
        f"got {name} (other files: counterveil.models.load_model)"
    )
