"""A .pt2 file of `torch.export` read as data.

`torch.export.load` unpickles members of the file, evaluates its symbolic expressions and looks up
whatever operator it names: a hostile file runs any code. This reader does none of that. It takes
the graph (JSON) and the raw bytes of the weights, runs operators of a closed list that compute and
do nothing else, and leaves every other member of the file unread.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterveil.errors import ModelError
from counterveil.models.operators import (
    CHECKS,
    DTYPES,
    PLAIN,
    SHAPING,
    SIGMOID,
    WORDS,
    operator_called,
)

MOST_JSON = 64 * 2**20
TRUST = "add --trust-pickle (trust_pickle=True) if you made it yourself"


class NotPlainError(ModelError):
    """The file asks for more than a plain graph of tensors."""


@dataclass(frozen=True)
class Ref:
    """The name of a value computed before."""

    name: str


@dataclass(frozen=True)
class Step:
    """One node of the graph: results <- operator(arguments)."""

    operator: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: tuple[Any, ...]


class ExportedGraph(nn.Module):
    """The graph of a .pt2 file as a module over one tensor."""

    def __init__(self, tensors: dict[str, Tensor], asked: str, steps: list[Step], answer: str,
                 ends_in_sigmoid: bool) -> None:  # fmt: skip
        super().__init__()
        self._names = {f"tensor{number}": name for number, name in enumerate(tensors)}
        for place, name in self._names.items():
            self.register_buffer(place, tensors[name])
        self._asked, self._steps, self._answer = asked, steps, answer
        self.ends_in_sigmoid = ends_in_sigmoid

    def forward(self, points: Tensor) -> Tensor:
        values: dict[str, Any] = {name: getattr(self, key) for key, name in self._names.items()}
        values[self._asked] = points
        for step in self._steps:
            options = {key: _fill(value, values) for key, value in step.options.items()}
            found = step.operator(*_fill(list(step.arguments), values), **options)
            many = len(step.results) != 1
            for name, value in zip(step.results, found if many else (found,), strict=True):
                pairs = [(name, value)] if isinstance(name, str) else zip(name, value, strict=True)
                values.update(pairs)
        answer: Tensor = values[self._answer]
        return answer


def read_graph(path: str | os.PathLike[str]) -> ExportedGraph:
    """The model in `path`; anything but a plain graph of tensors is refused, nothing is run."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(_Archive(archive))
    except NotPlainError as error:
        raise ModelError(f"{os.fspath(path)}: {error}; {TRUST}") from None
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, IndexError, AttributeError,
            RuntimeError, RecursionError, OSError, EOFError, NotImplementedError):  # fmt: skip
        raise ModelError(
            f"{os.fspath(path)} cannot be read as a .pt2 of torch.export: damaged, or written by "
            f"a torch before 2.8; write it again with counterveil.models.save_exported, or {TRUST}"
        ) from None


class _Archive:
    """Members of the file by name, without its outermost folder."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        names = archive.namelist()
        self._root = names[0].split("/")[0]
        if self._text("byteorder") != "little":
            raise NotPlainError("its numbers are not little-endian")

    def bytes(self, name: str) -> bytes:
        member = self._archive.getinfo(f"{self._root}/{name}")
        if member.compress_type != zipfile.ZIP_STORED:  # as torch writes it; a bomb is compressed
            raise NotPlainError("it is compressed")
        return self._archive.read(member)

    def json(self, name: str) -> Any:
        content = self.bytes(name)
        if len(content) > MOST_JSON:
            raise NotPlainError("its graph is too large")
        return json.loads(content)

    def _text(self, name: str) -> str:
        return self.bytes(name)[:100].decode()


def _read(archive: _Archive) -> ExportedGraph:
    stored = _tensors(archive, "weights") | _tensors(archive, "constants")
    module = archive.json("models/model.json")["graph_module"]
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
    steps = [_step(node) for node in nodes]
    return ExportedGraph(tensors, asked[0], steps, answer, _ends_in_sigmoid(nodes, answer))


def _ends_in_sigmoid(nodes: list[dict[str, Any]], answer: str) -> bool:
    """Whether nothing but a change of shape comes after a sigmoid."""
    for node in reversed(nodes):
        if _results(node) == (answer,):
            if node["target"] not in SHAPING:
                return bool(node["target"] == SIGMOID)
            answer = node["inputs"][0]["arg"]["as_tensor"]["name"]
    return False


def _tensors(archive: _Archive, kind: str) -> dict[str, Tensor]:
    config = archive.json(f"data/{kind}/model_{kind}_config.json")["config"]
    return {str(name): _tensor(archive, kind, meta) for name, meta in config.items()}


def _tensor(archive: _Archive, kind: str, payload: dict[str, Any]) -> Tensor:
    if payload["use_pickle"]:
        raise NotPlainError("it holds a pickle, which can run any code when it is opened")
    meta = payload["tensor_meta"]
    if meta["layout"] != 7 or meta["dtype"] not in DTYPES:
        raise NotPlainError("it holds a tensor that is not plain")
    sizes, strides = ([int(size["as_int"]) for size in meta[key]] for key in ("sizes", "strides"))
    dtype = DTYPES[meta["dtype"]]
    if math.prod(sizes) == 0:
        return torch.empty(sizes, dtype=dtype)
    raw = bytearray(archive.bytes(f"data/{kind}/{payload['path_name']}"))
    flat = torch.frombuffer(raw, dtype=dtype)
    return flat.as_strided(sizes, strides, int(meta["storage_offset"]["as_int"])).clone()


def _step(node: dict[str, Any]) -> Step:
    operator = operator_called(str(node["target"]))
    if operator is None:
        raise NotPlainError(f"it uses {node['target']!r}, which is not on the list of operators "
                            "that only compute")  # fmt: skip
    by_name = str(node["target"]).startswith("torch.")
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for given in node["inputs"]:
        if given.get("kind") == 1 or not by_name:
            arguments.append(_template(given["arg"]))
        else:
            options[str(given["name"])] = _template(given["arg"])
    return Step(operator, tuple(arguments), options, _results(node))


def _results(node: dict[str, Any]) -> tuple[Any, ...]:
    def names(result: Any) -> Any:
        return result.name if isinstance(result, Ref) else tuple(ref.name for ref in result)

    return tuple(names(_template(result)) for result in node["outputs"])


def _template(argument: dict[str, Any]) -> Any:
    """An argument of the file as a value, with a Ref for what is computed."""
    ((kind, content),) = argument.items()
    if kind in {"as_tensor", "as_name"}:
        return Ref(str(content["name"] if kind == "as_tensor" else content))
    if kind in {"as_sym_int", "as_sym_bool", "as_sym_float", "as_optional_tensor"}:
        return _template(content)
    if kind in {"as_sym_ints", "as_sym_bools", "as_sym_floats", "as_optional_tensors"}:
        return [_template(part) for part in content]
    if kind == "as_tensors":
        return [Ref(str(part["name"])) for part in content]
    return _constant(kind, content)


def _constant(kind: str, content: Any) -> Any:
    if kind == "as_none":
        return None
    if kind == "as_scalar_type":
        return DTYPES[content]
    if kind == "as_float" and content in {"Infinity", "-Infinity"}:
        return float(content)
    if (kind == "as_string" and content in WORDS) or (kind in PLAIN and _is_plain(content)):
        return content
    raise NotPlainError(f"it uses an argument of the kind {kind!r}")


def _is_plain(content: Any) -> bool:
    if isinstance(content, list):
        return all(_is_plain(part) for part in content)
    return isinstance(content, (bool, int, float))


def _fill(template: Any, values: dict[str, Any]) -> Any:
    if isinstance(template, Ref):
        return values[template.name]
    return [_fill(part, values) for part in template] if isinstance(template, list) else template
