"""Adapters: a torch module, an estimator, any callable; the others have modules of their own."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import CallLimitError, ModelError, RequestError
from counterveil.models.base import (
    Inputs,
    Outputs,
    TargetModel,
    as_log_proba,
    column_order,
    guess_outputs,
    probabilities_of,
    sane,
)
from counterveil.models.boosted import BoosterClassifier, is_booster, rows_as_fitted
from counterveil.models.exported import torch_kept_quiet
from counterveil.models.graph import ExportedGraph
from counterveil.models.onnx import OnnxModel
from counterveil.schema import Category, Schema


class TorchModel(TargetModel):
    """A torch module over the encoding. The search uses its gradient.

    `outputs`: "logits", "probabilities", or "auto" to tell by asking it 64 random points.
    `shape`: what a point is reshaped to, for example (1, 28, 28) for a convolutional network.
    `classes`: the names of its columns, where their order is not that of the schema.
    The module is copied: yours stays as it is.
    """

    differentiable = True

    def __init__(
        self,
        module: nn.Module,
        schema: Schema,
        *,
        outputs: Outputs = "auto",
        shape: tuple[int, ...] | None = None,
        classes: Sequence[Category] | None = None,
    ) -> None:
        super().__init__(schema)
        self._module = _frozen_copy(module)
        self._forward = _directly(self._module)
        self._shape = shape
        self._order = None if classes is None else column_order(classes, schema)
        random = torch.rand(64, self.encoding.width, generator=torch.Generator().manual_seed(0))
        raw = self._ask(random.to(self.device))
        if not bool(raw.isfinite().all()):
            raise ModelError("the model answers NaN or infinity; it cannot be explained")
        self._outputs: Outputs = outputs
        if outputs == "auto":
            self._outputs = guess_outputs(raw, _ends_in_sigmoid(module))
        as_log_proba(raw, self._outputs, self.classes, 64)

    @property
    def device(self) -> torch.device:
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            return tensor.device
        return torch.device("cpu")

    def to(self, device: torch.device) -> TorchModel:
        self._module.to(device)
        return self

    def log_proba(self, points: Tensor) -> Tensor:
        answer = as_log_proba(self._ask(points), self._outputs, self.classes, len(points))
        return answer if self._order is None else answer[:, self._order]

    def _ask(self, points: Tensor) -> Tensor:
        inputs = points if self._shape is None else points.reshape(len(points), *self._shape)
        try:
            answer = self._forward(inputs)
        except Exception as error:
            raise ModelError(
                f"the torch model does not accept encoded rows of {self.encoding.width} numbers "
                f"({type(error).__name__}); train it on counterveil's encoding, "
                "or wrap it in a callable"
            ) from None
        if not isinstance(answer, Tensor):
            raise ModelError(f"the torch model must return a tensor, not {type(answer).__name__}")
        return answer


def _frozen_copy(module: nn.Module) -> nn.Module:
    frozen = copy.deepcopy(module).requires_grad_(False)
    if not isinstance(frozen, torch.fx.GraphModule):  # an exported program has no modes to set
        frozen.eval()
    return frozen


def _directly(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """`module` without the ceremony of calling modules, which for a few rows costs most.

    Layers whose call could do more than their own forward (hooks, subclasses) are called as usual.
    """
    hooked = module._forward_hooks or module._forward_pre_hooks
    if type(module) is nn.Sequential and not hooked:
        layers = [_directly(layer) for layer in module]

        def forward(points: Tensor) -> Tensor:
            for layer in layers:
                points = layer(points)
            return points

        return forward
    if type(module) is nn.Linear and not hooked:
        return lambda points: nn.functional.linear(points, module.weight, module.bias)
    if type(module) is nn.Tanh and not hooked:
        return torch.tanh
    if type(module) is nn.ReLU and not hooked:
        return torch.relu
    return module


def _ends_in_sigmoid(module: nn.Module) -> bool:
    if isinstance(module, nn.Sequential) and len(module):
        return _ends_in_sigmoid(module[-1])
    if isinstance(module, ExportedGraph):
        return module.ends_in_sigmoid
    return isinstance(module, nn.Sigmoid)


class CallableModel(TargetModel):
    """A plain function from rows (a DataFrame) to class probabilities, one row each.

    With `inputs="encoding"` the function gets the encoded array instead. `classes` names its
    columns, where their order is not that of the schema. No gradient: the search follows a student
    of the function, and the function decides. It gets copies, to do with as it likes.

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
        self._function = function
        self._order = column_order(schema.label.classes if classes is None else classes, schema)
        self._over_rows = inputs != "encoding"

    @property
    def calls_left(self) -> int | None:
        return None if self.max_calls is None else self.max_calls - self.calls

    def log_proba(self, points: Tensor) -> Tensor:
        array = points.detach().cpu().double().numpy()
        return self._ask(self.encoding.decode(array) if self._over_rows else array).to(
            points.device
        )

    def decide(self, rows: pd.DataFrame, points: Tensor) -> Tensor:
        return self.log_proba_rows(rows)

    def log_proba_rows(self, rows: pd.DataFrame) -> Tensor:
        return self._ask(rows if self._over_rows else self.encoding.encode(rows))

    def _ask(self, inputs: pd.DataFrame | Array) -> Tensor:
        rows = len(inputs)
        size = self.batch or max(rows, 1)
        starts = range(0, max(rows, 1), size)
        self._check_limit(len(starts), rows)
        parts = [self._call(inputs[start : start + size]) for start in starts]
        return sane(torch.cat(parts))[:, self._order]

    def _check_limit(self, needed: int, rows: int) -> None:
        if self.calls_left is not None and needed > self.calls_left:
            raise CallLimitError(
                f"the model was called {self.calls} times and may be called {self.max_calls} times "
                f"(max_calls); {rows} rows need {needed} more: allow more calls, "
                "send more rows a call (batch), or explain fewer queries"
            )

    def _call(self, inputs: pd.DataFrame | Array) -> Tensor:
        self.calls += 1
        try:
            answer = self._function(inputs.copy())
        except Exception as error:  # its text may hold values: show the type alone
            kind = "rows in original units" if self._over_rows else "encoded rows"
            raise ModelError(
                f"the model failed on {kind} with {type(error).__name__}; if it wants the other "
                "form, set 'inputs' (--model-input)"
            ) from None
        return probabilities_of(answer, self.classes, len(inputs))


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
        fitted_on = getattr(estimator, "n_features_in_", None)
        unnamed = getattr(estimator, "feature_names_in_", None) is None
        if inputs == "auto" and fitted_on == schema.width and unnamed:
            inputs = "encoding"
        if classes is None and getattr(estimator, "classes_", None) is not None:
            classes = np.asarray(estimator.classes_).tolist()
        if inputs == "encoding":
            asked = estimator.predict_proba
        else:
            as_fitted = rows_as_fitted(estimator, schema)

            def asked(rows: pd.DataFrame) -> Any:
                return estimator.predict_proba(as_fitted(rows))

        super().__init__(asked, schema, inputs=inputs, classes=classes)


def adapt(
    model: Any,
    schema: Schema,
    *,
    inputs: Inputs = "auto",
    outputs: Outputs = "auto",
    classes: Sequence[Category] | None = None,
) -> TargetModel:
    """The adapter that fits `model`; a `TargetModel` is taken as it is, a path is an .onnx file."""
    if isinstance(model, TargetModel):
        if model.schema != schema:
            raise ModelError("the model was adapted to another schema than the veil's")
        return model
    if isinstance(model, torch.export.ExportedProgram):
        with torch_kept_quiet():
            return TorchModel(model.module(), schema, outputs=outputs, classes=classes)
    if isinstance(model, nn.Module):
        return TorchModel(model, schema, outputs=outputs, classes=classes)
    if isinstance(model, (str, os.PathLike)) and os.fspath(model).lower().endswith(".onnx"):
        return OnnxModel(model, schema, inputs=inputs, outputs=outputs, classes=classes)
    if is_booster(model):
        model = BoosterClassifier(model)
    if hasattr(model, "predict_proba"):
        return EstimatorModel(model, schema, inputs=inputs, classes=classes)
    if callable(model):
        return CallableModel(model, schema, inputs=inputs, classes=classes)
    raise ModelError(
        "the model must be a torch module, an estimator with predict_proba, a booster, the path "
        "of an .onnx file, or a function from rows to class probabilities; "
        f"got {type(model).__name__} (other files: counterveil.models.load_model)"
    )
