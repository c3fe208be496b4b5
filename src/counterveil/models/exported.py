"""Torch models of .pt2 files, programs of `torch.export`, read as data.

`torch.export.load` unpickles members of the file, evaluates its symbolic expressions and looks up
whatever operator it names: a hostile file runs any code. `read_graph` does none of that. It takes
the graph (JSON) and the raw bytes of the weights, runs operators of a closed list that compute and
do nothing else, and leaves every other member of the file unread.
"""

import json
import math
import operator
import os
import zipfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from counterveil.errors import ModelError
from counterveil.models import limits

MOST_JSON = 64 * 2**20  # bytes
MOST_COPIES = 4  # times the bytes of a file that its tensors may take: some share their numbers
TRUST = "add --trust-pickle (trust_pickle=True) if you made it yourself"

SIGMOID = "torch.ops.aten.sigmoid.default"
# The closed list of operators that a .pt2 file may use unasked: they compute, and nothing else.
# Those of torch.ops.aten stand by overload. None reads files or gets at memory by address.
_ATEN = {
    "default": (
        "abs adaptive_avg_pool1d adaptive_avg_pool2d addcmul addmm alias amax amin argmax "
        "avg_pool2d baddbmm batch_norm bitwise_not bmm cat ceil celu chunk clamp clamp_max "
        "clamp_min clone concat constant_pad_nd contiguous conv1d conv2d conv3d cos cumsum detach "
        "dot dropout elu embedding erf exp expand expand_as expm1 feature_dropout flip floor "
        "floor_divide gelu group_norm hardsigmoid hardswish hardtanh hstack index_select "
        "instance_norm isnan layer_norm leaky_relu lift_fresh_copy linear log log1p log_sigmoid "
        "logical_and logical_not logical_or logit matmul max_pool1d max_pool2d maximum mean "
        "minimum mish mm mv neg numpy_T ones_like pad permute prelu prod reciprocal relu relu6 "
        "repeat reshape reshape_as rms_norm round rsqrt scaled_dot_product_attention selu sigmoid "
        "sign silu sin softplus softshrink sqrt square squeeze stack sum t tanh trunc unsqueeze "
        "view view_as vstack zeros_like"
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
_ASSERTIONS = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size")
CHECKS = {f"torch.ops.aten.{name}.default" for name in _ASSERTIONS}
CHECKS |= {"_operator.eq", "_operator.ge", "_operator.le"}
# What an argument in the graph may be: kinds of numbers, and the words that options take.
PLAIN = {"as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_int_lists"}
WORDS = {"none", "tanh", "constant", "reflect", "replicate", "floor", "trunc"}
# The kinds of numbers that a tensor may hold, by torch's number for them.
DTYPES = dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), start=1))
DTYPES |= {6: torch.float16, 7: torch.float32, 8: torch.float64}
DTYPES |= {12: torch.bool, 13: torch.bfloat16}


class NotPlainError(ModelError):
    """The file asks for more than a plain graph of tensors."""


class Ref(str):
    """The name of a value that the graph computes or is given."""


# One node of the graph, (function, arguments, options, results), where results =
# function(*arguments, **options): a Ref for each result, a list of them for one that is a list.
Step = tuple[Callable[..., Any], list[Any], dict[str, Any], list[Any]]


class ExportedGraph(nn.Module):
    """The graph of a .pt2 file as a module from one tensor, called `asked`, to one, `answer`."""

    def __init__(
        self, tensors: dict[str, Tensor], asked: str, nodes: list[dict[str, Any]], answer: str
    ) -> None:
        super().__init__()
        self._names = {f"tensor{number}": name for number, name in enumerate(tensors)}
        for place, name in self._names.items():
            self.register_buffer(place, tensors[name])
        self._asked, self._answer = asked, answer
        self._steps = [_step(node) for node in nodes]
        self.ends_in_sigmoid = False  # but for a change of shape after it
        for node, step in zip(reversed(nodes), reversed(self._steps), strict=True):
            if step[-1] == [answer]:
                self.ends_in_sigmoid = node["target"] == SIGMOID
                if node["target"] not in SHAPING:
                    break
                answer = node["inputs"][0]["arg"]["as_tensor"]["name"]

    def forward(self, points: Tensor) -> Tensor:
        values: dict[str, Any] = {name: getattr(self, key) for key, name in self._names.items()}
        values[self._asked] = points
        for function, arguments, options, results in self._steps:
            named = {key: _fill(value, values) for key, value in options.items()}
            found = function(*_fill(arguments, values), **named)
            answers = [found] if len(results) == 1 else found
            for name, answer in zip(results, answers, strict=True):
                listed = isinstance(name, list)
                values.update(zip(name, answer, strict=True) if listed else [(name, answer)])
        return values[self._answer]


def _fill(template: Any, values: dict[str, Any]) -> Any:
    if isinstance(template, Ref):
        return values[template]
    return [_fill(part, values) for part in template] if isinstance(template, list) else template


def read_graph(path: str | os.PathLike[str]) -> ExportedGraph:
    """The model in `path`; anything but a plain graph of tensors is refused, nothing is run."""
    size = limits.check_size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_contents(archive, size)
            return _read(archive, size)
    except NotPlainError as error:
        raise ModelError(f"{os.fspath(path)}: {error}; {TRUST}") from None
    except Exception:  # whatever a damaged or forged file leads to
        raise ModelError(
            f"{os.fspath(path)} cannot be read as a .pt2 of torch.export: damaged, or written by "
            f"a torch before 2.8; write it again with counterveil.models.save_exported, or {TRUST}"
        ) from None


def _check_contents(archive: zipfile.ZipFile, size: int) -> None:
    """That the members of an archive of `size` bytes lie in it as they are, as torch writes them.

    A member may then be read: it is no longer than the file.
    """
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise NotPlainError("it is compressed")
    excess = limits.excess_of(members, size)
    if excess is not None or sum(member.file_size for member in members) > size:
        raise NotPlainError(excess or "its members claim more bytes than it has")


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, named without the outermost folder of the archive."""
    root = archive.namelist()[0].split("/")[0]
    return archive.read(f"{root}/{name}")


def _json(archive: zipfile.ZipFile, name: str) -> Any:
    content = _member(archive, name)
    if len(content) > MOST_JSON:
        raise NotPlainError("its graph is too large")
    return json.loads(content)


def _read(archive: zipfile.ZipFile, size: int) -> ExportedGraph:
    if _member(archive, "byteorder") != b"little":
        raise NotPlainError("its numbers are not little-endian")
    stored: dict[str, Tensor] = {}
    for kind in ("weights", "constants"):
        config = _json(archive, f"data/{kind}/model_{kind}_config.json")["config"]
        if sum(_bytes_claimed(meta) for meta in config.values()) > MOST_COPIES * size:
            raise ValueError("its tensors claim far more numbers than it holds")
        stored |= {str(name): _tensor(archive, kind, meta) for name, meta in config.items()}
    module = _json(archive, "models/model.json")["graph_module"]
    tensors: dict[str, Tensor] = {}
    asked: list[str] = []
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind == "user_input":
            asked.append(str(content["arg"]["as_tensor"]["name"]))
        elif kind in {"parameter", "buffer", "tensor_constant"}:
            tensors[str(content["arg"]["name"])] = stored[content[f"{kind}_name"]]
        else:
            raise NotPlainError(f"it has an input of the kind {kind!r}")
    outputs = module["signature"]["output_specs"]
    if len(asked) != 1 or len(outputs) != 1 or "user_output" not in outputs[0]:
        raise NotPlainError("it must take one tensor, answer one and change none")
    answer = str(outputs[0]["user_output"]["arg"]["as_tensor"]["name"])
    nodes = [node for node in module["graph"]["nodes"] if node["target"] not in CHECKS]
    return ExportedGraph(tensors, asked[0], nodes, answer)


def _bytes_claimed(payload: dict[str, Any]) -> int:
    meta = payload["tensor_meta"]
    if payload["use_pickle"]:
        raise NotPlainError("it holds a pickle, which can run any code when it is opened")
    if meta["layout"] != 7 or meta["dtype"] not in DTYPES:
        raise NotPlainError("it holds a tensor that is not plain")
    sizes = [int(size["as_int"]) for size in meta["sizes"]]
    return math.prod(sizes) * DTYPES[meta["dtype"]].itemsize


def _tensor(archive: zipfile.ZipFile, kind: str, payload: dict[str, Any]) -> Tensor:
    meta = payload["tensor_meta"]
    sizes, strides = ([int(size["as_int"]) for size in meta[key]] for key in ("sizes", "strides"))
    dtype = DTYPES[meta["dtype"]]
    if math.prod(sizes) == 0:
        return torch.empty(sizes, dtype=dtype)
    raw = bytearray(_member(archive, f"data/{kind}/{payload['path_name']}"))
    if _bytes_claimed(payload) > len(raw):  # strides of 0 could make any size of a few bytes
        raise ValueError("a tensor claims more numbers than are stored")
    flat = torch.frombuffer(raw, dtype=dtype)
    return flat.as_strided(sizes, strides, int(meta["storage_offset"]["as_int"])).clone()


def _step(node: dict[str, Any]) -> Step:
    target, function = str(node["target"]), None
    if target in _KNOWN:
        *_, name, overload = target.split(".")
        home = operator if target in _ARITHMETIC else getattr(torch.ops.aten, name, None)
        function = getattr(home, overload, None)
    if function is None:
        raise NotPlainError(
            f"it uses {target!r}, which is not on the list of operators that only compute"
        )
    arguments, options = [], {}
    for given in node["inputs"]:
        if given.get("kind") == 1 or not target.startswith("torch."):
            arguments.append(_template(given["arg"]))
        else:
            options[str(given["name"])] = _template(given["arg"])
    return function, arguments, options, [_template(result) for result in node["outputs"]]


def _template(argument: dict[str, Any]) -> Any:
    """An argument of the file as a value, with a Ref for what is computed."""
    ((kind, content),) = argument.items()
    if kind in {"as_tensor", "as_name"}:
        return Ref(content["name"] if kind == "as_tensor" else content)
    if kind == "as_tensors":
        return [Ref(part["name"]) for part in content]
    if kind in {"as_sym_int", "as_sym_bool", "as_sym_float", "as_optional_tensor"}:
        return _template(content)
    if kind in {"as_sym_ints", "as_sym_bools", "as_sym_floats", "as_optional_tensors"}:
        return [_template(part) for part in content]
    return _constant(kind, content)


def _constant(kind: str, content: Any) -> Any:
    if kind == "as_none":
        return None
    if kind == "as_scalar_type":
        return DTYPES[content]
    if kind == "as_float" and content in {"Infinity", "-Infinity"}:
        return float(content)
    is_word = kind == "as_string" and content in WORDS
    if is_word or (kind in PLAIN and _is_plain(content)):
        return content
    raise NotPlainError(f"it uses an argument of the kind {kind!r}")


def _is_plain(content: Any) -> bool:
    if isinstance(content, list):
        return all(_is_plain(part) for part in content)
    return isinstance(content, (bool, int, float))
