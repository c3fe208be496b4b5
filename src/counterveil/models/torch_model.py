"""A torch module over the encoding as a model that the search can ask."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models import base, limits
from counterveil.models.additive import additive_module, kinks_of
from counterveil.models.base import Outputs, TargetModel
from counterveil.models.exported import ExportedGraph
from counterveil.models.rows import Rows
from counterveil.population.whole_scorecard import WholeScorecard
from counterveil.schema import Category, Schema

FEW = 256  # rows, for which calling torch is most of the time
FLOATS = torch.float32
ArrayLayer = Callable[[Array], Array]
# What a layer without weights makes of a tensor, and of an array.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], ArrayLayer]] = {
    nn.Tanh: (torch.tanh, np.tanh),
    nn.ReLU: (torch.relu, partial(np.maximum, 0)),
}


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
        self.additive = additive_module(module) if shape is None else None
        if self.additive == "steps":
            self.kinks = kinks_of(module, self.encoding)

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
        if rows.from_frame:  # a verdict is the module's own, to the last bit
            with torch.no_grad():
                raw = self._raw(rows.points.to(self.device), self._module)
            return base.sane(self._log_proba(raw.cpu().double(), len(rows)))
        few = len(rows) <= FEW and self._shape is None and not torch.is_grad_enabled()
        if self._layers is not None and few and rows.array.shape[1:] == (self.encoding.width,):
            raw = torch.from_numpy(_through(self._layers, rows.array))
        else:
            raw = self._raw(rows.points)
        return self._log_proba(raw, len(rows))

    def _raw(self, points: Tensor, forward: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """What the module gives for points, by `forward` in the place of the quick way."""
        inputs = points if self._shape is None else points.reshape(len(points), *self._shape)
        try:
            answer = (forward or self._forward)(inputs)
        except Exception as error:
            raise limits.out_of_memory(error) or ModelError(
                f"the torch model does not accept encoded rows of {self.encoding.width} numbers "
                f"({type(error).__name__}); train it on counterveil's encoding, "
                "or wrap it in a callable"
            ) from None
        if not isinstance(answer, Tensor):
            raise ModelError(f"the torch model must return a tensor, not {type(answer).__name__}")
        return answer


def _ends_in_sigmoid(module: nn.Module) -> bool:
    while isinstance(module, nn.Sequential) and len(module):
        module = module[-1]
    read = isinstance(module, ExportedGraph) and module.ends_in_sigmoid
    return read or isinstance(module, nn.Sigmoid)


def _through(layers: Sequence[Callable[[Any], Any]], points: Any) -> Any:
    """What a chain of layers makes of points (rows, width), a tensor or an array as they take."""
    for layer in layers:
        points = layer(points)
    return points


def _without_module_calls(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that computes what `module` does, without the overhead of calling modules.

    Layers whose call could do more than their own forward (hooks, subclasses) are called as usual.
    """
    if _has_hooks(module):
        return module
    if type(module) is nn.Sequential:
        return partial(_through, [_without_module_calls(layer) for layer in module])
    if type(module) is nn.Linear:
        return _linear(module)
    if type(module) is WholeScorecard:
        return module.forward
    return ACTIVATIONS[type(module)][0] if type(module) in ACTIVATIONS else module


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


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
    if type(module) is WholeScorecard and not _has_hooks(module):
        return [module.of_array]
    if type(module) is not nn.Sequential or any(map(_has_hooks, (module, *module))):
        return None
    found: list[ArrayLayer] = []
    for layer in module:
        if type(layer) in ACTIVATIONS:
            found.append(ACTIVATIONS[type(layer)][1])
        elif type(layer) is nn.Linear and layer.bias is not None and layer.weight.dtype == FLOATS:
            found.append(partial(_dense, layer.weight.T.contiguous().numpy(), layer.bias.numpy()))
        else:
            return None
    return found


def _dense(weight: Array, bias: Array, points: Array) -> Array:
    with np.errstate(invalid="ignore"):  # some BLAS raise this flag for few finite floats
        found: Array = points @ weight
    found += bias
    return found
