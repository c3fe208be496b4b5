"""Adapters for torch modules, estimators and functions, and the student of a model."""

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import CallLimitError, ModelError, RequestError
from counterveil.models import base, limits
from counterveil.models.base import Inputs, Outputs, Rows, TargetModel
from counterveil.models.boosted import BoosterClassifier, is_booster, rows_as_fitted
from counterveil.models.exported import ExportedGraph
from counterveil.models.onnx import OnnxModel
from counterveil.networks import Clip, classifier, fit, seeded
from counterveil.private_model import PrivateModel
from counterveil.schema import Category, Schema
from counterveil.terminal import Tick, silent

FLOATS = torch.float32
FEW = 256  # rows, for which calling torch is most of the time
ArrayLayer = Callable[[Array], Array]
STUDENT_HIDDEN = 64
STUDENT_EPOCHS = 40
NOT_PROBABILITIES = frozenset({"predict", "decision_function", "predict_log_proba"})
NOT_FITTED = "the model is not fitted; call its fit first"


class TorchModel(TargetModel):
    """A torch module over the encoding. The search uses its gradient.

    `outputs`: "logits", "probabilities", or "auto" to tell by asking it 64 random points.
    `shape`: what a point is reshaped to, for example (1, 28, 28) for a convolutional network.
    `classes`: the names of its columns, where their order is not that of the schema; for a module
    with one output, the class that it speaks of.
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
        self._module = copy.deepcopy(module).requires_grad_(False)
        if not isinstance(module, torch.fx.GraphModule):  # an exported program has no modes to set
            self._module.eval()
        self._place()
        self._shape = shape
        self._columns = base.columns_called(classes, schema)
        points = base.random_points(64, self.encoding.width).to(self.device)
        raw = self._raw(points.requires_grad_(True))
        self.differentiable = raw.requires_grad  # a module of steps alone has no gradient
        raw = raw.detach()
        self._outputs = base.kind_of_outputs(
            raw,
            outputs,
            schema,
            single=self._columns.single,
            ends_in_sigmoid=_ends_in_sigmoid(module),
        )
        self._log_proba(raw, 64)

    @property
    def device(self) -> torch.device:
        return self._device

    def to(self, device: torch.device) -> Self:
        if device != self._device:
            self._module.to(device)
            self._place()
        return self

    def _place(self) -> None:
        """Note where the module is, and how it is computed there."""
        tensors = (*self._module.parameters(), *self._module.buffers())
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._forward = _without_module_calls(self._module)
        self._layers = _array_layers(self._module) if self._device.type == "cpu" else None

    def ask(self, rows: Rows) -> Tensor:
        points = rows.points
        if rows.from_frame:
            with torch.no_grad():
                raw = self._raw(points.to(self.device)).cpu().double()
        else:
            raw = self._raw(points)
        answer = self._log_proba(raw, points.shape[0])
        return base.sane(answer) if rows.from_frame else answer

    def _log_proba(self, raw: Tensor, asked: int) -> Tensor:
        columns = self._columns
        answer = base.as_log_proba(raw, self._outputs, self.schema, asked, single=columns.single)
        in_order = columns.names == tuple(self.schema.label.classes)
        return answer if in_order else answer[:, columns.order]

    def _raw(self, points: Tensor) -> Tensor:
        inputs = points if self._shape is None else points.reshape(len(points), *self._shape)
        few = inputs.ndim == 2 and len(inputs) <= FEW and inputs.shape[1] == self.encoding.width
        if self._layers is not None and few and not torch.is_grad_enabled():
            return _through(self._layers, inputs)
        try:
            answer = self._forward(inputs)
        except Exception as error:
            raise limits.out_of_memory(error) or ModelError(
                f"the torch model does not accept encoded rows of {self.encoding.width} numbers "
                f"({type(error).__name__}); train it on counterveil's encoding, "
                "or wrap it in a callable"
            ) from None
        if not isinstance(answer, Tensor):
            raise ModelError(f"the torch model must return a tensor, not {type(answer).__name__}")
        return answer


def _without_module_calls(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that computes what `module` does, without the overhead of calling modules.

    For a few rows that overhead is most of the time. Layers whose call could do more than their
    own forward (hooks, subclasses) are called as usual.
    """
    if module._forward_hooks or module._forward_pre_hooks:
        return module
    if type(module) is nn.Sequential:
        layers = [_without_module_calls(layer) for layer in module]

        def forward(points: Tensor) -> Tensor:
            for layer in layers:
                points = layer(points)
            return points

        return forward
    if type(module) is nn.Linear:
        return _linear(module)
    return {nn.Tanh: torch.tanh, nn.ReLU: torch.relu, Clip: _clip}.get(type(module), module)


def _clip(points: Tensor) -> Tensor:
    return points.clamp(0, 1)


def _linear(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """A function that computes what `layer` does.

    For some rows a product with the weights the other way round is several times quicker.
    """
    weight, bias = layer.weight, layer.bias
    if bias is None:
        return lambda points: nn.functional.linear(points, weight)
    turned = weight.T.contiguous()

    def forward(points: Tensor) -> Tensor:
        if points.ndim == 2:
            return torch.addmm(bias, points, turned)
        return nn.functional.linear(points, weight, bias)

    return forward


def _array_layers(module: nn.Module) -> list[ArrayLayer] | None:
    """The layers of a plain chain of dense layers as functions of arrays; None for any other.

    For a few rows numpy takes a fraction of the time of torch.
    """
    if type(module) is not nn.Sequential or module._forward_hooks or module._forward_pre_hooks:
        return None
    found: list[ArrayLayer] = []
    for layer in module:
        if layer._forward_hooks or layer._forward_pre_hooks:
            return None
        if type(layer) is nn.Linear and layer.bias is not None and layer.weight.dtype == FLOATS:
            found.append(partial(_dense, layer.weight.T.contiguous().numpy(), layer.bias.numpy()))
        elif type(layer) is nn.Tanh:
            found.append(np.tanh)
        elif type(layer) is nn.ReLU:
            found.append(_relu)
        elif type(layer) is Clip:
            found.append(partial(np.clip, a_min=0, a_max=1))
        else:
            return None
    return found


def _dense(weight: Array, bias: Array, points: Array) -> Array:
    found: Array = points @ weight
    found += bias
    return found


def _relu(points: Array) -> Array:
    return np.maximum(points, 0)


def _through(layers: Sequence[ArrayLayer], points: Tensor) -> Tensor:
    """What a chain of layers makes of points (rows, width) on the CPU."""
    found: Array = points.numpy()
    for layer in layers:
        found = layer(found)
    return torch.from_numpy(found)


def _ends_in_sigmoid(module: nn.Module) -> bool:
    while isinstance(module, nn.Sequential) and len(module):
        module = module[-1]
    read = isinstance(module, ExportedGraph) and module.ends_in_sigmoid
    return read or isinstance(module, nn.Sigmoid)


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
        own = _classes_of_method(function)
        if own is not None:
            classes = _checked_classes(own, classes, schema)
        self._function = function
        self._columns = base.columns_called(classes, schema)
        self._over_rows = inputs != "encoding"

    @property
    def calls_left(self) -> int | None:
        return None if self.max_calls is None else self.max_calls - self.calls

    def ask(self, rows: Rows) -> Tensor:
        inputs = rows.frame if self._over_rows else rows.encoded
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
                raise self._failure(error) from None
            try:
                parts.append(self._log_proba(base.as_numbers(answer, rows), len(part)))
            except ModelError as error:
                raise base.labels_not_probabilities(answer, self.schema) or error from None
        log_proba = base.sane(torch.cat(parts))[:, self._columns.order]
        return log_proba if rows.from_frame else log_proba.to(rows.points.device)

    def _log_proba(self, raw: Tensor, asked: int) -> Tensor:
        single = self._columns.single
        answer = base.as_log_proba(raw, "probabilities", self.schema, asked, single=single)
        if bool(((raw < -1e-6) | (raw > 1 + 1e-6)).any()):
            raise ModelError("the model's answers must be probabilities between 0 and 1")
        return answer

    def _failure(self, error: Exception) -> ModelError:
        """What is said where the function raises `error`."""
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
        if inputs == "auto" and self._fitted_on == schema.width and fitted_names is None:
            inputs = "encoding"
        own = _own_classes(estimator)
        if own is not None:
            classes = _checked_classes(own, classes, schema)
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
        names = [] if fitted_names is None else [str(name) for name in fitted_names]
        strays = [name for name in names if base.column_called(name, schema.columns) is None]
        self._stray = strays[0] if strays else None

    def _failure(self, error: Exception) -> ModelError:
        if _says_not_fitted(error):
            return ModelError(NOT_FITTED)
        if self._over_rows and self._stray is not None:
            return ModelError(base.unknown_column(self._stray, self.schema))
        columns, width = len(self.schema.columns), self.schema.width
        if self._fitted_on in {None, columns if self._over_rows else width}:
            return super()._failure(error)
        return ModelError(
            f"{super()._failure(error)}; it was fitted on {self._fitted_on} columns, and the "
            f"schema has {columns}, its encoding {width}"
        )


def _says_not_fitted(error: Exception) -> bool:
    return "NotFitted" in type(error).__name__  # of scikit-learn, XGBoost, LightGBM


def _checked_classes(
    own: list[Any], given: Sequence[Category] | None, schema: Schema
) -> Sequence[Category]:
    """The names of an estimator's columns: its own, or those `given`, which may not contradict."""
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


def distil(
    model: TargetModel, points: Tensor, log_proba: Tensor, *, seed: int, tick: Tick = silent
) -> TorchModel:
    """A student of `model`: a small network that answers on `points` as the model did.

    `points` (rows, width) are legal encoded rows, `log_proba` (rows, classes) the model's answers
    on them. The student lends the search its gradient; the model itself decides on every answer.
    """
    answers = log_proba.exp().to(points.device)
    hidden = (STUDENT_HIDDEN, STUDENT_HIDDEN)
    network = seeded(lambda: classifier(points.shape[1], hidden, model.classes), seed)
    network = network.to(points.device)

    def loss_of(rows: Tensor) -> Tensor:
        return nn.functional.cross_entropy(network(points[rows]), answers[rows])

    count, epochs = len(points), STUDENT_EPOCHS
    fit(network, loss_of, count, epochs=epochs, batch=256, rate=3e-3, seed=seed, tick=tick)
    return TorchModel(network, model.schema, outputs="logits")
