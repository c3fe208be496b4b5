"""Networks as files for others: programs of torch.export, and ONNX without a package for it.

For ONNX the network is traced by `torch.export`; the operators of the closed list below are written
as nodes of ONNX, and anything else is refused. An ONNX file is a protobuf message: fields with a
number and a kind, some of them messages again. The numbers are those of onnx.proto, which never
change.
"""

import copy
import io
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterveil.errors import ModelError, RequestError
from counterveil.files import check_new, write_whole
from counterveil.private_model import PrivateModel
from counterveil.schema import Schema

OPSET, IR_VERSION = 17, 8
KINDS = {torch.float32: 1, torch.int64: 7, torch.float64: 11}  # what ONNX calls them
INPUT, OUTPUT = "encoded", "probabilities"
# Operators that take tensors and nothing else, and what ONNX calls them.
PLAIN = {
    **{f"aten.{name}.Tensor": name.capitalize() for name in ("add", "sub", "mul", "div")},
    **{
        f"aten.{name}.default": name.capitalize()
        for name in ("exp", "neg", "relu", "round", "sigmoid", "tanh")
    },
    "aten.matmul.default": "MatMul",
    "aten.hardtanh.default": "Clip",
}
CHECK = "aten._assert_tensor_metadata.default"  # torch notes what it saw; computes nothing
CASTS = {"aten.to.dtype", "aten._to_copy.default"}
ALONG = {"aten.softmax.int": "Softmax", "aten.log_softmax.int": "LogSoftmax"}


def save_exported(model: nn.Module, schema: Schema, path: str | os.PathLike[str]) -> None:
    """Write `model` over the encoding of `schema` as a .pt2 file for any number of rows.

    A copy in evaluation mode is written: dropout and its like are switched off.
    """
    content = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # torch warns about its own internals
        torch.export.save(_program(copy.deepcopy(model).eval(), schema.width), content)
    write_whole(path, content.getvalue())


def save_private_model(
    model: PrivateModel, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write `model` as .onnx or .pt2: encoded rows (rows, width) to probabilities.

    `Encoding(schema).encode(rows)` makes encoded rows. An .onnx file also tells its classes, the
    weights of the classes, the digest of its veil, its statement in one line, and the schema.
    """
    check_new(path, overwrite=overwrite)
    schema, network = model.schema, model.probabilities.eval()
    match Path(path).suffix.lower():
        case ".pt2":
            save_exported(network, schema, path)
        case ".onnx":
            notes = {
                "classes": json.dumps(schema.label.classes),
                "class_weights": model.classes,
                "veil": model.veil,
                "statement": model.statement.headline,
                "schema": schema.to_json(),
            }
            content = onnx_bytes(network, schema.width, len(schema.label.classes), notes)
            write_whole(path, content)
        case _:
            raise RequestError(f"{path}: name the file .onnx or .pt2")


def _program(network: nn.Module, width: int) -> torch.export.ExportedProgram:
    """What `network` computes of encoded rows (rows, width), any number of them."""
    rows = {0: torch.export.Dim("rows", min=1)}
    with warnings.catch_warnings(action="ignore"):  # torch warns about its own internals
        return torch.export.export(network, (torch.zeros(4, width),), dynamic_shapes=(rows,))


def onnx_bytes(network: nn.Module, width: int, classes: int, notes: dict[str, str]) -> bytes:
    """`network`, encoded rows (rows, width) to probabilities (rows, classes), as an ONNX model.

    Its input is called `encoded`, its output `probabilities`; `rows` may be any number. `notes`
    are kept in the file as its metadata.
    """
    graph, program = _Graph(), _program(network, width)
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants
    weights = {**program.state_dict, **program.constants}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            name = held.get(node.name)
            graph.names[node.name] = INPUT if name is None else graph.constant(weights[name])
        elif node.op == "call_function" and str(node.target) != CHECK:
            graph.write(node)
        elif node.op == "output":
            ((answer,),) = node.args
            graph.node("Identity", [graph.names[answer.name]], OUTPUT)
    content = [*_each(1, graph.nodes), _text(2, "counterveil"), *_each(5, graph.constants)]
    content += [_bytes(11, _value(INPUT, width)), _bytes(12, _value(OUTPUT, classes))]
    model = [_number(1, IR_VERSION), _text(2, "counterveil"), _bytes(7, b"".join(content))]
    model.append(_bytes(8, _text(1, "") + _number(2, OPSET)))
    model += [_bytes(14, _text(1, key) + _text(2, value)) for key, value in notes.items()]
    return b"".join(model)


class _Graph:
    """The nodes and constants of a graph as messages, and what ONNX calls each value of torch."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        self.names: dict[str, str] = {}

    def constant(self, tensor: Tensor) -> str:
        """The name of a new constant."""
        numbers = tensor.detach().cpu().contiguous().numpy()
        name = f"w{len(self.constants)}"
        sizes = b"".join(_number(1, size) for size in numbers.shape)
        raw = numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
        kind = _number(2, KINDS[tensor.dtype])
        self.constants.append(sizes + kind + _text(8, name) + _bytes(9, raw))
        return name

    def node(self, kind: str, inputs: Iterable[str], output: str, **whole_numbers: int) -> None:
        """A node with attributes that are whole numbers."""
        message = [*(_text(1, name) for name in inputs), _text(2, output), _text(4, kind)]
        for name, value in whole_numbers.items():
            message.append(_bytes(5, _text(1, name) + _number(3, value) + _number(20, 2)))
        self.nodes.append(b"".join(message))

    def write(self, node: Any) -> None:
        """One call of the traced network."""
        target, output = str(node.target), f"v{len(self.nodes)}"
        self.names[node.name] = output
        kind = node.meta["val"].dtype
        if target == "aten.linear.default":
            self.node("Gemm", [self._named(each, kind) for each in node.args], output, transB=1)
        elif target in PLAIN and not node.kwargs:
            self.node(PLAIN[target], [self._named(each, kind) for each in node.args], output)
        elif target == "aten.index_select.default":
            rows, axis, places = node.args
            self.node("Gather", [self._named(rows), self._named(places)], output, axis=axis)
        elif target in CASTS:
            self.node("Cast", [self._named(node.args[0])], output, to=KINDS[kind])
        elif target in ALONG:
            self.node(ALONG[target], [self._named(node.args[0])], output, axis=node.args[1])
        else:
            raise ModelError(
                f"the network uses {target}, which is not written as ONNX; export it as .pt2"
            )

    def _named(self, argument: Any, kind: torch.dtype = torch.float32) -> str:
        if isinstance(argument, torch.fx.Node):
            return self.names[argument.name]
        return self.constant(torch.tensor(float(argument), dtype=kind))


def _value(name: str, width: int) -> bytes:
    """That `name` is a tensor of floats, (rows, width)."""
    shape = _bytes(1, _text(2, "rows")) + _bytes(1, _number(1, width))
    kind = _number(1, KINDS[torch.float32])
    return _text(1, name) + _bytes(2, _bytes(1, kind + _bytes(2, shape)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, words: str) -> bytes:
    return _bytes(field, words.encode())


def _each(field: int, messages: Iterable[bytes]) -> list[bytes]:
    return [_bytes(field, message) for message in messages]


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
