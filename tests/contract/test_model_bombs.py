"""Model files that claim too much are refused before memory is taken for what they claim."""

import io
import re
import resource
import sys
import zipfile

import boosters
import numpy as np
import pytest
import torch
from archives import GRAPH, WEIGHTS, changed, forge, members_of
from sklearn.linear_model import LogisticRegression
from skops import io as skops_io
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import OnnxModel, limits, load_model, save_exported
from counterveil.models.boosted import check_ubjson

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Whatever a file claims, the tests take no more than 1 GiB."""
    monkeypatch.setattr(limits, "MOST_MEMORY", 2**30)


def refusal(path, schema, **options):
    with pytest.raises(ModelError) as caught:
        load_model(path, schema, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# .pt2


@pytest.fixture
def honest(schema, tmp_path):
    save_exported(nn.Linear(schema.width, 2), schema, tmp_path / "m.pt2")
    return members_of(tmp_path / "m.pt2")


@pytest.mark.parametrize("strides", [(0, 0), (16, 1)])
def test_a_tensor_of_the_file_that_is_larger_than_its_bytes(honest, schema, tmp_path, strides):
    def grow(content):
        meta = next(iter(content["config"].values()))["tensor_meta"]
        meta["sizes"] = [{"as_int": 2**31}, {"as_int": 16}]
        meta["strides"] = [{"as_int": stride} for stride in strides]

    path = forge(changed(honest, WEIGHTS, grow), tmp_path / "bomb.pt2")
    assert "cannot be read as a .pt2" in refusal(path, schema)


def test_one_tensor_read_many_times(honest, schema, tmp_path):
    def repeat(content):
        one = next(iter(content["config"].values()))
        content["config"] |= {f"copy{number}": one for number in range(2000)}

    big = honest | {"archive/data/weights/weight_0": bytes(2**20)}

    def widen(content):
        meta = next(iter(content["config"].values()))["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 2**18}], [{"as_int": 1}]

    members = changed(changed(big, WEIGHTS, widen), WEIGHTS, repeat)
    assert "cannot be read as a .pt2" in refusal(forge(members, tmp_path / "bomb.pt2"), schema)


def test_archives_of_too_many_members_or_of_packed_ones(honest, schema, tmp_path, monkeypatch):
    packed = honest | {"archive/more": bytes(2**27)}
    path = forge(packed, tmp_path / "bomb.pt2", zipfile.ZIP_DEFLATED)
    assert "it is compressed" in refusal(path, schema)
    monkeypatch.setattr(limits, "MOST_MEMBERS", 30)
    many = honest | {f"archive/{number}": b"" for number in range(40)}
    assert "more than 30" in refusal(forge(many, tmp_path / "bomb.pt2"), schema)


@ON_LINUX
def test_a_graph_that_makes_a_huge_tensor(schema, tmp_path):
    save_exported(Narrow(), schema, tmp_path / "m.pt2")
    members = members_of(tmp_path / "m.pt2")
    huge = members[GRAPH].replace(b"77777", str(2**33).encode())
    assert huge != members[GRAPH]
    path = forge(members | {GRAPH: huge}, tmp_path / "bomb.pt2")
    assert "needs more memory than there is" in refusal(path, schema)


class Narrow(nn.Module):
    def forward(self, points):
        return points[:, :2] + points[:, :1].repeat(1, 77777).sum(dim=1, keepdim=True)


def test_tied_weights_and_parts_of_weights_are_no_bomb(schema, tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(schema.width, schema.width, bias=False)
            self.again = self.first
            self.register_buffer("turned", torch.rand(2, schema.width).T)

        def forward(self, points):
            return self.again(self.first(points)) @ self.turned

    save_exported(Tied(), schema, tmp_path / "m.pt2")
    assert load_model(tmp_path / "m.pt2", schema).classes == 2


# .skops


@pytest.fixture
def estimator(schema, rows):
    return LogisticRegression().fit(Encoding(schema).encode(rows), rows.loan)


def with_members(path, **more):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in more.items():
            archive.writestr(name, content)
    return path


def test_skops_that_unpacks_to_too_much(estimator, schema, tmp_path, monkeypatch):
    skops_io.dump(estimator, tmp_path / "m.skops")
    assert load_model(tmp_path / "m.skops", schema).classes == 2
    with_members(tmp_path / "m.skops", zeros=bytes(2**27))
    said = refusal(tmp_path / "m.skops", schema)
    assert "bytes unpack to 1342" in said
    skops_io.dump(estimator, tmp_path / "n.skops")
    with_members(tmp_path / "n.skops", **{f"m{number}": b"" for number in range(40)})
    monkeypatch.setattr(limits, "MOST_MEMBERS", 30)
    assert "more than 30" in refusal(tmp_path / "n.skops", schema)


def test_bombs_within_skops(estimator, schema, tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", bytes(2**27))
    skops_io.dump(estimator, tmp_path / "m.skops")
    with_members(tmp_path / "m.skops", matrix=inner.getvalue())
    assert "bytes unpack to" in refusal(tmp_path / "m.skops", schema)
    skops_io.dump(estimator, tmp_path / "m.skops")
    members = members_of(tmp_path / "m.skops")
    huge = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**31, 16)}
    np.lib.format.write_array_header_1_0(huge, header)
    for name in members:
        if name.endswith(".npy"):
            members[name] = huge.getvalue()
    refusal(forge(members, tmp_path / "bomb.skops"), schema)


# .onnx

onnx = pytest.importorskip("onnx", reason="the package onnx writes the models of these tests")
pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT = TensorProto.FLOAT


def graph_of(schema, *nodes, weights=()):
    """A network over the encoding that adds the number called `extra` to its answer."""
    matrix = np.zeros((schema.width, 2), np.float32)
    constants = [numpy_helper.from_array(value, name) for name, value in weights]
    return helper.make_graph(
        [*nodes, helper.make_node("MatMul", ["x", "w"], ["m"]),
         helper.make_node("Add", ["m", "extra"], ["y"])],
        "bomb",
        [helper.make_tensor_value_info("x", FLOAT, ["rows", schema.width])],
        [helper.make_tensor_value_info("y", FLOAT, ["rows", 2])],
        [numpy_helper.from_array(matrix, "w"), *constants],
    )  # fmt: skip


def model_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


TOTAL = helper.make_node("ReduceSum", ["big"], ["extra"], keepdims=0)
WHOLE = np.int64


@ON_LINUX
@pytest.mark.parametrize("size", [2**31, 2**40])
@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand", "Tile", "Range"])
def test_graphs_that_make_a_huge_tensor(schema, tmp_path, capfd, operator, size):
    one = ("one", np.ones(1, np.float32))
    nodes, weights = {
        "ConstantOfShape": (["size"], [("size", np.array([size], WHOLE))]),
        "Expand": (["one", "size"], [one, ("size", np.array([size], WHOLE))]),
        "Tile": (["one", "size"], [one, ("size", np.array([size], WHOLE))]),
        "Range": (
            ["start", "stop", "step"],
            [("start", np.array(0, WHOLE)), ("stop", np.array(size)), ("step", np.array(1, WHOLE))],
        ),
    }[operator]
    makes = [helper.make_node(operator, nodes, ["big" if operator != "Range" else "whole"])]
    if operator == "Range":
        makes.append(helper.make_node("Cast", ["whole"], ["big"], to=FLOAT))
    content = model_of(graph_of(schema, *makes, TOTAL, weights=weights)).SerializeToString()
    (tmp_path / "bomb.onnx").write_bytes(content)
    # onnxruntime itself refuses the one, and fails to get the memory for the others.
    words = "failed on rows" if operator == "Tile" else "needs more memory than there is"
    assert words in refusal(tmp_path / "bomb.onnx", schema)
    assert capfd.readouterr() == ("", "")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ModelError, match=words):
        OnnxModel(content, schema)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def spoilt(schema, change):
    model = model_of(graph_of(schema, weights=[("extra", np.zeros(1, np.float32))]))
    change(model.graph)
    return model.SerializeToString()


def external(graph):
    tensor = graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"


def located(graph):
    graph.initializer[1].data_location = TensorProto.EXTERNAL


def huge(graph):
    graph.initializer[1].dims[:] = [2**31, 16]


def huge_within_an_attribute(graph):
    node = helper.make_node("Constant", [], ["c"], value=graph.initializer[1])
    node.attribute[0].t.dims[:] = [2**40]
    graph.node.insert(0, node)


def huge_within_a_branch(graph):
    branch = helper.make_graph([], "branch", [], [], [graph.initializer[1]])
    branch.initializer[0].dims[:] = [2**40]
    graph.node.insert(
        0, helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch)
    )


def sparse(graph):
    value = helper.make_tensor("s", FLOAT, [1], [1.0])
    place = helper.make_tensor("i", TensorProto.INT64, [1], [3])
    graph.sparse_initializer.append(helper.make_sparse_tensor(value, place, [2**40]))


def nested(graph):
    inner = helper.make_graph([], "inner", [], [])
    for _ in range(20):
        node = helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner)
        inner = helper.make_graph([], "outer", [], [])
        inner.node.append(helper.make_node("Identity", ["a"], ["b"]))
        del node.attribute[1]
        inner.node.append(node)
    graph.node.append(inner.node[1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (external, "keeps weights in other files"),
        (located, "keeps weights in other files"),
        (huge, "claims a tensor of 34359738368 numbers and holds"),
        (huge_within_an_attribute, "claims a tensor of 1099511627776 numbers"),
        (huge_within_a_branch, "claims a tensor of 1099511627776 numbers"),
        (sparse, "sparse weights"),
        (nested, "nests graphs"),
    ],
    ids=lambda change: getattr(change, "__name__", ""),
)
def test_onnx_files_that_claim_too_much(schema, tmp_path, change, words):
    (tmp_path / "bomb.onnx").write_bytes(spoilt(schema, change))
    assert words in refusal(tmp_path / "bomb.onnx", schema)


def test_an_honest_onnx_file_is_opened_and_no_other_format(schema, tmp_path):
    assert OnnxModel(spoilt(schema, lambda graph: None), schema).classes == 2
    (tmp_path / "m.onnx").write_bytes(b"\x0a\x7f\x00\x00ORTM" + bytes(200))
    assert "cannot be read as an ONNX model" in refusal(tmp_path / "m.onnx", schema)


# .ubj, .json, .txt


@pytest.mark.parametrize("kind", ["json", "ubj"])
@pytest.mark.parametrize("name", ["num_feature", "num_trees", "num_nodes", "num_class"])
def test_xgboost_files_that_claim_too_much(schema, rows, tmp_path, kind, name):
    model = boosters.classifier(boosters.package_of("xgboost"))
    model.fit(Encoding(schema).encode(rows), rows.loan == "granted")
    path = tmp_path / f"m.{kind}"
    boosters.booster_of(model).save_model(path)
    content = path.read_bytes()
    if kind == "json":
        found, grown = rb'"' + name.encode() + rb'":"\d+"', f'"{name}":"2000000000"'.encode()
    else:  # a text: S, its length as a number of eight bytes, itself
        found = name.encode() + rb"SL.{8}\d+"
        grown = name.encode() + b"SL" + (10).to_bytes(8, "big") + b"2000000000"
    forged, count = re.subn(found, lambda _: grown, content, count=1, flags=re.DOTALL)
    assert count == 1
    path.write_bytes(forged)
    said = refusal(path, schema, classes=("refused", "granted"))
    assert f"claims more than it can hold ({name})" in said


def nested_ubjson(depth):
    return b"{L" + (1).to_bytes(8, "big") + b"a" + b"[" * depth + b"]" * depth + b"}"


def nested_json(depth):
    # Brackets within a text must not hide those that follow.
    return b'{"a":"' + b"]" * depth + b'","b":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(("kind", "nested"), [("json", nested_json), ("ubj", nested_ubjson)])
def test_xgboost_files_that_nest_deep(schema, tmp_path, kind, nested):
    pytest.importorskip("xgboost", reason="xgboost is not installed")
    path = tmp_path / f"m.{kind}"
    path.write_bytes(nested(300_000))  # its own reader would end the process
    assert "cannot be read as a model of XGBoost" in refusal(path, schema)


@pytest.mark.parametrize(
    "content",
    [
        b"{}", b"{i\x01aZ}", b"{i\x01aSi\x03abc}", b"{i\x01a[Zi\x05Tl\x00\x00\x00\x01]}",
        b"{i\x01a[$d#i\x02\x00\x00\x00\x00}}}}}", b"{i\x01a[#i\x02ZZi\x01bD12345678}",
        b"{U\x01a{i\x01b[#i\x00}}",
    ],
)  # fmt: skip
def test_ubjson_is_read_as_it_is(content):
    check_ubjson(content)
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            check_ubjson(content[:end])
    for wrong in (content + b"}", b"[" + content, b"{" + content, content.replace(b"a", b"")):
        if wrong != content:
            with pytest.raises(ValueError, match=r"."):
                check_ubjson(wrong)


@pytest.mark.parametrize("name", ["num_class", "max_feature_idx", "num_leaves", "num_cat"])
def test_lightgbm_files_that_claim_too_much(schema, rows, tmp_path, name):
    model = boosters.classifier(boosters.package_of("lightgbm"))
    model.fit(Encoding(schema).encode(rows), rows.loan == "granted")
    boosters.booster_of(model).save_model(tmp_path / "m.txt")
    text = (tmp_path / "m.txt").read_text()
    lines = text.split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith(f"{name}="))
    grown = f"{name}=2000000000"
    longer = len(grown) - len(lines[place])
    lines[place] = grown
    text = "\n".join(lines)
    if name in {"num_leaves", "num_cat"}:  # the sizes of the trees must stay right
        sizes = next(line for line in lines if line.startswith("tree_sizes="))
        first = int(sizes.split("=")[1].split()[0])
        text = text.replace(f"tree_sizes={first}", f"tree_sizes={first + longer}")
    (tmp_path / "m.txt").write_text(text)
    said = refusal(tmp_path / "m.txt", schema, classes=("refused", "granted"))
    assert f"claims more than it can hold ({name})" in said


@pytest.mark.parametrize("kind", ["pt2", "skops", "onnx", "ubj", "json", "txt", "pkl"])
def test_files_that_are_far_too_large(schema, tmp_path, kind):
    path = tmp_path / f"m.{kind}"
    with path.open("wb") as stream:
        stream.truncate(2**40)  # takes no room on the disk
    assert "1099511627776 bytes; model files may have" in refusal(
        path, schema, trust_pickle=kind == "pkl"
    )


# The bound on memory itself.


@ON_LINUX
def test_memory_is_bounded_within_the_block_alone():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limits.bounded_memory():
        assert np.ones(1000).sum() == 1000
    with pytest.raises(MemoryError), limits.bounded_memory():
        np.ones(2**28)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with limits.bounded_memory(), limits.bounded_memory():
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
