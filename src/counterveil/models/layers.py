"""How the layers of a torch module are computed with little overhead: for a few rows it is most."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterveil.encoding import Array
from counterveil.networks import Clip

FLOATS = torch.float32
ArrayLayer = Callable[[Array], Array]
# What a layer without weights makes of a tensor, and of an array.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], ArrayLayer]] = {
    nn.Tanh: (torch.tanh, np.tanh),
    nn.ReLU: (torch.relu, partial(np.maximum, 0)),
    Clip: (partial(torch.clamp, min=0, max=1), partial(np.clip, a_min=0, a_max=1)),
}


def through(layers: Sequence[Callable[[Any], Any]], points: Any) -> Any:
    """What a chain of layers makes of points (rows, width), a tensor or an array as they take."""
    for layer in layers:
        points = layer(points)
    return points


def without_module_calls(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that computes what `module` does, without the overhead of calling modules.

    Layers whose call could do more than their own forward (hooks, subclasses) are called as usual.
    """
    if _has_hooks(module):
        return module
    if type(module) is nn.Sequential:
        return partial(through, [without_module_calls(layer) for layer in module])
    if type(module) is nn.Linear:
        return _linear(module)
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


def array_layers(module: nn.Module) -> list[ArrayLayer] | None:
    """The layers of a plain chain of dense layers as functions of arrays; None for any other.

    For a few rows numpy takes a fraction of the time of torch.
    """
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
    found: Array = points @ weight
    found += bias
    return found
