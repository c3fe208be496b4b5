"""The closed list of operators that a .pt2 file may use unasked: they compute, and nothing else."""

import operator
from collections.abc import Callable
from typing import Any

import torch

SIGMOID = "torch.ops.aten.sigmoid.default"
# The operators of torch.ops.aten by overload. None reads files or gets at memory by address.
_ATEN = {
    "default": (
        "abs adaptive_avg_pool1d adaptive_avg_pool2d addcmul addmm alias amax amin argmax "
        "avg_pool2d baddbmm batch_norm bitwise_not bmm cat ceil celu chunk clamp clamp_max "
        "clamp_min clone concat constant_pad_nd contiguous conv1d conv2d conv3d cos cumsum detach "
        "dot dropout elu embedding erf exp expand expand_as expm1 feature_dropout flip floor "
        "floor_divide gelu group_norm hardsigmoid hardswish hardtanh hstack instance_norm isnan "
        "layer_norm leaky_relu lift_fresh_copy linear log log1p log_sigmoid logical_and "
        "logical_not logical_or logit matmul max_pool1d max_pool2d maximum mean minimum mish mm mv "
        "neg numpy_T ones_like pad permute prelu prod reciprocal relu relu6 repeat reshape "
        "reshape_as rms_norm round rsqrt scaled_dot_product_attention selu sigmoid sign silu sin "
        "softplus softshrink sqrt square squeeze stack sum t tanh trunc unsqueeze view view_as "
        "vstack zeros_like"
    ),
    "Tensor": (
        "add bitwise_and bitwise_or clamp div eq ge gt le lt mul ne remainder rsub slice split sub"
    ),
    "Scalar": "add bitwise_and div eq floor_divide ge gt le lt mul ne remainder rsub sub",
    "Tensor_Scalar": "pow",
    "Tensor_Tensor": "pow",
    "Tensor_mode": "div",
    "int": "log_softmax select size softmax sym_size transpose unbind unflatten",
    "dim": "max mean min squeeze",
    "dim_IntList": "sum",
    "dims": "squeeze",
    "self": "where",
    "ScalarOther": "where",
    "ScalarSelf": "where",
    "using_ints": "flatten",
    "dtype": "to",
}
_ARITHMETIC = {f"_operator.{name}" for name in ("add", "sub", "mul", "floordiv", "neg")}
_KNOWN = _ARITHMETIC | {
    f"torch.ops.aten.{name}.{overload}"
    for overload, names in _ATEN.items()
    for name in names.split()
}
# Operators that change no number, only the shape of the tensor.
_SHAPING = {"alias", "clone", "flatten", "reshape", "select", "squeeze", "unsqueeze", "view"}
SHAPING = {target for target in _KNOWN - _ARITHMETIC if target.split(".")[3] in _SHAPING}
# Assertions that torch writes into the graph: the adapter checks inputs and answers itself.
CHECKS = {
    "torch.ops.aten._assert_scalar.default",
    "torch.ops.aten._assert_tensor_metadata.default",
    "torch.ops.aten.sym_constrain_range_for_size.default",
    "_operator.eq",
    "_operator.ge",
    "_operator.le",
}
# What an argument in the graph may be: kinds of numbers, and the words that options take.
PLAIN = {"as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_int_lists"}
WORDS = {"none", "tanh", "constant", "reflect", "replicate", "floor", "trunc"}
# The kinds of numbers that a tensor may hold, by torch's number for them.
DTYPES = dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), start=1))
DTYPES |= {6: torch.float16, 7: torch.float32, 8: torch.float64}
DTYPES |= {12: torch.bool, 13: torch.bfloat16}


def operator_called(target: str) -> Callable[..., Any] | None:
    """The operator of the list that `target` names; None for everything else."""
    if target not in _KNOWN:
        return None
    *_, name, overload = target.split(".")
    if target in _ARITHMETIC:
        return getattr(operator, overload)
    return getattr(getattr(torch.ops.aten, name, None), overload, None)
