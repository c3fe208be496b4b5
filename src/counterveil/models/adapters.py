"""Adapters: a torch module, a scikit-learn-like estimator, any callable."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models.base import (
    Inputs,
    Outputs,
    TargetModel,
    as_log_proba,
    guess_outputs,
    probabilities_of,
)
from counterveil.models.exported import torch_kept_quiet
from counterveil.schema import Schema


class TorchModel(TargetModel):
    """A torch module over the encoding. The search uses its gradient.

    `outputs`: "logits", "probabilities", or "auto" to tell by asking it 64 random points.
    `shape`: what a point is reshaped to, for example (1, 28, 28) for a convolutional network.
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
    ) -> None:
        super().__init__(schema)
        self._module = _frozen_copy(module)
        self._shape = shape
        random = torch.rand(64, self.encoding.width, generator=torch.Generator().manual_seed(0))
        raw = self._ask(random.to(self.device))
        self._outputs: Outputs = guess_outputs(raw) if outputs == "auto" else outputs
        if not bool(as_log_proba(raw, self._outputs, self.classes, 64).isfinite().all()):
            raise ModelError("the model answers NaN or infinity; it cannot be explained")

    @property
    def device(self) -> torch.device:
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            return tensor.device
        return torch.device("cpu")

    def to(self, device: torch.device) -> TorchModel:
        self._module.to(device)
        return self

    def log_proba(self, points: Tensor) -> Tensor:
        return as_log_proba(self._ask(points), self._outputs, self.classes, len(points))

    def _ask(self, points: Tensor) -> Tensor:
        inputs = points if self._shape is None else points.reshape(len(points), *self._shape)
        try:
            answer = self._module(inputs)
        except (RuntimeError, ValueError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            raise ModelError(
                f"the torch model does not accept encoded rows of {self.encoding.width} numbers "
                f"({reason}); train it on counterveil's encoding, or wrap it in a callable"
            ) from None
        if not isinstance(answer, Tensor):
            raise ModelError(f"the torch model must return a tensor, not {type(answer).__name__}")
        return answer


def _frozen_copy(module: nn.Module) -> nn.Module:
    frozen = copy.deepcopy(module).requires_grad_(False)
    if not isinstance(frozen, torch.fx.GraphModule):  # an exported program has no modes to set
        frozen.eval()
    return frozen


class CallableModel(TargetModel):
    """A plain function from rows (a DataFrame) to class probabilities, one row each.

    With `inputs="encoding"` the function gets the encoded array instead. No gradient: the search
    follows a student of the function, and the function decides.
    """

    def __init__(
        self, function: Callable[[Any], Any], schema: Schema, *, inputs: Inputs = "rows"
    ) -> None:
        super().__init__(schema)
        self._function = function
        self._order = list(range(self.classes))
        self._over_rows = inputs != "encoding"

    def log_proba(self, points: Tensor) -> Tensor:
        array = points.detach().cpu().double().numpy()
        return self._ask(self.encoding.decode(array) if self._over_rows else array).to(
            points.device
        )

    def log_proba_rows(self, rows: pd.DataFrame) -> Tensor:
        return self._ask(rows if self._over_rows else self.encoding.encode(rows))

    def _ask(self, inputs: pd.DataFrame | Array) -> Tensor:
        try:
            answer = self._function(inputs)
        except Exception as error:
            kind = "rows in original units" if self._over_rows else "encoded rows"
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(
                f"the model failed on {kind}: {reason}; if it wants the other form, set 'inputs'"
            ) from None
        return probabilities_of(answer, self.classes, len(inputs))[:, self._order]


class EstimatorModel(CallableModel):
    """Anything with `predict_proba`: scikit-learn, its pipelines, XGBoost, LightGBM, ...

    `inputs`: "rows" (a DataFrame in original units), "encoding" (an array), or "auto": the encoding
    if the estimator was fitted on exactly as many unnamed columns as that has, otherwise rows.
    """

    def __init__(self, estimator: Any, schema: Schema, *, inputs: Inputs = "auto") -> None:
        fitted_on = getattr(estimator, "n_features_in_", None)
        unnamed = getattr(estimator, "feature_names_in_", None) is None
        if inputs == "auto" and fitted_on == schema.width and unnamed:
            inputs = "encoding"
        super().__init__(estimator.predict_proba, schema, inputs=inputs)
        self._order = _class_order(estimator, schema)


def _class_order(estimator: Any, schema: Schema) -> list[int]:
    """Where each class of the schema stands among the estimator's columns."""
    wanted = list(schema.label.classes)
    known = getattr(estimator, "classes_", None)
    if known is None:
        return list(range(len(wanted)))
    names = np.asarray(known).tolist()
    if len(names) != len(wanted):
        raise ModelError(
            f"the model answers {len(names)} classes, the schema's label has {len(wanted)}; "
            "use the model of this schema, or correct 'classes' in the schema"
        )
    if set(names) == set(wanted):
        return [names.index(name) for name in wanted]
    if names == list(range(len(wanted))):  # fitted on class numbers
        return list(range(len(wanted)))
    raise ModelError("the model's classes are not those of the schema's label")


def adapt(model: Any, schema: Schema) -> TargetModel:
    """The adapter that fits `model`; a `TargetModel` is taken as it is."""
    if isinstance(model, TargetModel):
        if model.schema != schema:
            raise ModelError("the model was adapted to another schema than the veil's")
        return model
    if isinstance(model, torch.export.ExportedProgram):
        with torch_kept_quiet():
            return TorchModel(model.module(), schema)
    if isinstance(model, nn.Module):
        return TorchModel(model, schema)
    if hasattr(model, "predict_proba"):
        return EstimatorModel(model, schema)
    if callable(model):
        return CallableModel(model, schema)
    raise ModelError(
        "the model must be a torch module, an estimator with predict_proba, or a function from "
        f"rows to class probabilities; got {type(model).__name__}"
    )
