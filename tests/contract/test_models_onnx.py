"""ONNX models answer through the adapter as they do by themselves, and columns go by name."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame, ask_points

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import OnnxModel, adapt, load_model
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema

onnx = pytest.importorskip("onnx", reason="the package onnx writes the models of these tests")
pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT, TEXT, WHOLE = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


def tensor(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def built(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes, "tiny", inputs, outputs,
        [numpy_helper.from_array(value, name) for name, value in weights],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


def score(schema):
    """10·income + 3·own - 6 for the second column, the opposite for the first."""
    weights = np.zeros((schema.width, 2), np.float32)
    weights[1], weights[7] = (-10, 10), (-3, 3)
    return [("w", weights), ("b", np.array([6, -6], np.float32))]


def network(schema, *more, answer="s", rows="rows", shape=None, outputs=None, kind=FLOAT):
    shape = [schema.width] if shape is None else shape
    flat = helper.make_node("Flatten", ["x"], ["flat"])
    gemm = helper.make_node("Gemm", ["flat", "w", "b"], ["s"])
    outputs = outputs or [tensor(answer, FLOAT, [rows, 2])]
    return built([flat, gemm, *more], [tensor("x", kind, [rows, *shape])], outputs, score(schema))


SOFTMAX = helper.make_node("Softmax", ["s"], ["p"], axis=1)


def zipped(schema, keys, by):
    zipmap = helper.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", **{by: keys})
    kind = TEXT if by == "classlabels_strings" else WHOLE
    value = helper.make_tensor_type_proto(FLOAT, [])
    entry = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, value))
    return network(schema, SOFTMAX, zipmap, outputs=[helper.make_value_info("z", entry)])


def labelled(schema, names):
    """Probabilities without names, and the label that names the best column."""
    text = isinstance(names[0], str)
    words = [str(name) for name in names]
    outputs = [tensor("label", TEXT if text else WHOLE, ["rows"]), tensor("p", FLOAT, ["rows", 2])]
    best = helper.make_node("ArgMax", ["s"], ["best"], axis=1, keepdims=0)
    named = helper.make_node(
        "LabelEncoder", ["best"], ["label" if text else "word"], domain="ai.onnx.ml",
        keys_int64s=[0, 1], values_strings=words,
    )  # fmt: skip
    nodes = [SOFTMAX, best, named]
    if not text:
        nodes.append(helper.make_node("Cast", ["word"], ["label"], to=WHOLE))
    return network(schema, *nodes, outputs=outputs)


@pytest.fixture(scope="module")
def points(schema, rows):
    return torch.tensor(Encoding(schema).encode(rows)).float()


@pytest.fixture(scope="module")
def expected(points, model):
    """Of the columns of the graph: the same f as the torch model of the tests."""
    return torch.softmax(model(points), dim=1)


def agree(adapted, frame, points, expected):
    torch.testing.assert_close(ask_points(adapted, points).exp(), expected, atol=1e-5, rtol=1e-3)
    found = ask_frame(adapted, frame).exp().float()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("answer", ["logits", "probabilities"])
def test_a_network_over_the_encoding(schema, frame, points, expected, answer, tmp_path):
    content = network(schema) if answer == "logits" else network(schema, SOFTMAX, answer="p")
    adapted = OnnxModel(content, schema)
    agree(adapted, frame, points, expected)
    assert not adapted.differentiable
    (tmp_path / "m.onnx").write_bytes(content)
    for opened in (
        adapt(tmp_path / "m.onnx", schema),
        adapt(str(tmp_path / "m.onnx"), schema),
        load_model(tmp_path / "m.onnx", schema),
    ):
        agree(opened, frame, points, expected)


def test_graphs_of_any_batch_shape_and_type(schema, points, expected, frame):
    many = points.repeat(9, 1)
    found = ask_points(OnnxModel(network(schema), schema), many).exp()
    torch.testing.assert_close(found, expected.repeat(9, 1), atol=1e-5, rtol=1e-3)
    for rows in (1, 7):
        fixed = OnnxModel(network(schema, rows=rows), schema)
        torch.testing.assert_close(
            ask_points(fixed, points[:17]).exp(), expected[:17], atol=1e-5, rtol=1e-3
        )
    agree(OnnxModel(network(schema, shape=[1, schema.width, 1]), schema), frame, points, expected)
    agree(OnnxModel(network(schema, shape=["width"]), schema), frame, points, expected)


def test_one_output_is_ambiguous_within_0_and_1(schema, frame, points, expected):
    last = helper.make_node("Gather", ["p", "one"], ["g"], axis=1)
    for shape, one in ((["rows", 1], np.array([1])), (["rows"], np.array(1))):
        content = built(
            [
                helper.make_node("Gemm", ["x", "w", "b"], ["s"]), SOFTMAX, last,
            ],
            [tensor("x", FLOAT, ["rows", schema.width])],
            [tensor("g", FLOAT, shape)],
            [*score(schema), ("one", one)],
        )  # fmt: skip
        with pytest.raises(ModelError, match=r"a probability or a logit.*--model-outputs"):
            OnnxModel(content, schema)
        with pytest.raises(ModelError, match=r"one number a row.*--model-classes granted"):
            OnnxModel(content, schema, outputs="probabilities")
        said = {"outputs": "probabilities", "classes": ["granted"]}
        agree(OnnxModel(content, schema, **said), frame, points, expected)
        said["classes"] = ["refused"]
        agree(OnnxModel(content, schema, **said), frame, points, expected.flip(1))


def test_outputs_name_their_columns(schema, frame, points, expected):
    straight = zipped(schema, ["refused", "granted"], by="classlabels_strings")
    turned = zipped(schema, ["granted", "refused"], by="classlabels_strings")
    agree(OnnxModel(straight, schema), frame, points, expected)
    agree(OnnxModel(turned, schema), frame, points, expected.flip(1))
    with pytest.raises(ModelError, match="called otherwise"):
        OnnxModel(zipped(schema, ["up", "down"], by="classlabels_strings"), schema)
    turned = OnnxModel(network(schema), schema, classes=("granted", "refused"))
    agree(turned, frame, points, expected.flip(1))
    with pytest.raises(ModelError, match="called otherwise"):
        OnnxModel(network(schema), schema, classes=("granted", "later"))
    agree(OnnxModel(labelled(schema, ["refused", "granted"]), schema), frame, points, expected)
    turned = labelled(schema, ["granted", "refused"])
    agree(OnnxModel(turned, schema), frame, points, expected.flip(1))
    with pytest.raises(ModelError, match="contradicts the names"):
        OnnxModel(turned, schema, classes=("refused", "granted"))
    named = helper.make_node("Softmax", ["s"], ["probabilities"], axis=1)
    both = [tensor("s", FLOAT, ["rows", 2]), tensor("probabilities", FLOAT, ["rows", 2])]
    agree(OnnxModel(network(schema, named, outputs=both), schema), frame, points, expected)


def test_numbers_of_classes_are_never_matched_by_position_unasked(schema, frame, points, expected):
    for content in (zipped(schema, [0, 1], by="classlabels_int64s"), labelled(schema, [0, 1])):
        with pytest.raises(ModelError, match=r"numbered 0, 1.*--model-classes\), out of: refused"):
            OnnxModel(content, schema)
        agree(OnnxModel(content, schema, classes=("refused", "granted")), frame, points, expected)
    numbered = schema.model_copy(update={"label": Label(name="loan", classes=(1, 0))})
    for content in (zipped(schema, [0, 1], by="classlabels_int64s"), labelled(schema, [0, 1])):
        agree(OnnxModel(content, numbered), frame, points, expected.flip(1))


def test_labels_that_leave_the_names_open(schema, rows):
    classes = ("a", "b", "c")
    three = schema.model_copy(update={"label": Label(name="loan", classes=classes)})
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["s"]),
        SOFTMAX,
        helper.make_node("ArgMax", ["s"], ["best"], axis=1, keepdims=0),
        helper.make_node("LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml",
                         keys_int64s=[0, 1, 2], values_strings=["c", "b", "a"]),
    ]  # fmt: skip
    weights = [
        ("w", np.zeros((schema.width, 3), np.float32)),
        ("b", np.array([0, 5, 0], np.float32)),
    ]
    outputs = [tensor("label", TEXT, ["rows"]), tensor("p", FLOAT, ["rows", 3])]
    content = built(nodes, [tensor("x", FLOAT, ["rows", schema.width])], outputs, weights)
    with pytest.raises(ModelError, match=r"do not show which column.*--model-classes"):
        OnnxModel(content, three)
    named = OnnxModel(content, three, classes=("c", "b", "a"))
    assert (ask_frame(named, rows).argmax(dim=1) == 1).all()


@pytest.fixture(scope="module")
def plain():
    return Schema(
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True),
            Numeric(name="net-income", lower=0, upper=10, missing=True),
            Categorical(name="housing", categories=("rent", "own"), missing=True),
            Categorical(name="region", categories=(1, 2, 3)),
            Binary(name="member", values=(False, True)),
        ),
    )


COLUMNS = [
    ("age", WHOLE, ["rows", 1]), ("net_income", FLOAT, ["rows", 1]), ("housing", TEXT, ["rows", 1]),
    ("region", TEXT, ["rows", 1]), ("member", TensorProto.BOOL, ["rows"]),
]  # fmt: skip


def by_columns():
    """P(granted) = .5 + a sum over columns, each with its own sign in it."""

    def coded(name, keys, values):
        return helper.make_node(
            "LabelEncoder", [name], [f"{name}_n"], domain="ai.onnx.ml",
            keys_strings=keys, values_floats=values, default_float=9.0,
        )  # fmt: skip

    nodes = [
        helper.make_node("Cast", ["age"], ["age_n"], to=FLOAT),
        helper.make_node("IsNaN", ["net_income"], ["gap"]),
        helper.make_node("Where", ["gap", "three", "net_income"], ["income_n"]),
        coded("housing", ["rent", "own", "gap"], [0.0, 1.0, 2.0]),
        coded("region", ["1", "2", "3"], [1.0, 2.0, 3.0]),
        helper.make_node("Cast", ["member"], ["flag"], to=FLOAT),
        helper.make_node("Reshape", ["flag", "column"], ["member_n"]),
        helper.make_node(
            "Concat", ["age_n", "income_n", "housing_n", "region_n", "member_n"], ["all"], axis=1
        ),
        helper.make_node("MatMul", ["all", "w"], ["score"]),
        helper.make_node("Sigmoid", ["score"], ["yes"]),
        helper.make_node("Sub", ["unit", "yes"], ["no"]),
        helper.make_node("Concat", ["no", "yes"], ["probabilities"], axis=1),
    ]
    weights = [
        ("three", np.array(3, np.float32)),
        ("unit", np.array(1, np.float32)),
        ("column", np.array([-1, 1])),
        ("w", np.array([[0.01], [0.1], [0.3], [-0.2], [0.5]], np.float32)),
    ]
    inputs = [tensor(*column) for column in COLUMNS]
    return built(nodes, inputs, [tensor("probabilities", FLOAT, ["rows", 2])], weights)


def test_named_columns_in_original_units(plain):
    frame = pd.DataFrame(
        {
            "member": [True, False, True],
            "region": [3.0, 1.0, 2.0],  # whole numbers, though a table may hold them as floats
            "housing": ["own", None, "rent"],
            "net-income": [1.5, np.nan, 10.0],
            "age": [18, 40, 100],
        }
    )
    score = np.array(
        [
            0.18 + 0.15 + 0.3 - 0.6 + 0.5,
            0.40 + 0.30 + 0.6 - 0.2 + 0.0,
            1.00 + 1.00 + 0.0 - 0.4 + 0.5,
        ]
    )
    granted = 1 / (1 + np.exp(-score))
    adapted = OnnxModel(by_columns(), plain, missing_text="gap")
    found = ask_frame(adapted, frame).exp().numpy()
    np.testing.assert_allclose(found[:, 1], granted, atol=1e-5)
    points = torch.tensor(Encoding(plain).encode(frame))
    np.testing.assert_allclose(ask_points(adapted, points).exp()[:, 1], granted, atol=1e-5)


@pytest.mark.parametrize(
    ("place", "column", "words"),
    [
        (0, ("years", WHOLE, ["rows", 1]), "'years' is no column of the schema"),
        (0, ("ages", WHOLE, ["rows", 1]), "'ages' is no column .*; did you mean 'age'"),
        (0, ("age", TEXT, ["rows", 1]), "'age' is a tensor.string.: the schema's column holds num"),
        (2, ("housing", FLOAT, ["rows", 1]), "'housing' is a .*: the schema's column holds text"),
        (1, ("net_income", WHOLE, ["rows", 1]), "may be missing; export it as floats"),
        (0, ("age", WHOLE, ["rows", 2]), "one value a row"),
    ],
)
def test_columns_that_do_not_fit(plain, place, column, words):
    name, kind, shape = column
    inputs = [tensor(*given) for given in COLUMNS]
    inputs[place] = tensor(name, kind, shape)
    nodes = [helper.make_node("Shape", [given.name], [f"{given.name}_shape"]) for given in inputs]
    nodes.append(helper.make_node("ConstantOfShape", ["two"], ["probabilities"]))
    outputs = [tensor("probabilities", FLOAT, ["rows", 2])]
    content = built(nodes, inputs, outputs, [("two", np.array([256, 2]))])
    with pytest.raises(ModelError, match=words):
        OnnxModel(content, plain)


def test_one_tensor_of_columns_in_original_units():
    schema = Schema(
        label=Label(name="loan", classes=(0, 1)),
        features=(
            Numeric(name="age", lower=0, upper=100, integer=True),
            Categorical(name="region", categories=(1, 2)),
        ),
    )
    content = built(
        [helper.make_node("Gemm", ["x", "w"], ["s"])],
        [tensor("x", FLOAT, ["rows", 2])],
        [tensor("s", FLOAT, ["rows", 2])],
        [("w", np.array([[0, 0.1], [0, -3]], np.float32))],
    )
    frame = pd.DataFrame({"region": [1, 2], "age": [50, 50]})
    for inputs in ("auto", "rows"):  # 2 columns, 3 encoded numbers: it cannot be the encoding
        found = ask_frame(OnnxModel(content, schema, inputs=inputs), frame)
        np.testing.assert_array_equal(found.argmax(dim=1), [1, 0])
    with pytest.raises(ModelError, match="takes 2 numbers a row, the encoding of the schema has 3"):
        OnnxModel(content, schema, inputs="encoding")


def test_models_that_do_not_fit(schema, plain):
    narrow = built(
        [helper.make_node("Softmax", ["x"], ["p"], axis=1)],
        [tensor("x", FLOAT, ["rows", 4])],
        [tensor("p", FLOAT, ["rows", 4])],
    )
    with pytest.raises(ModelError, match="takes 4 numbers a row"):
        OnnxModel(narrow, schema)
    three = schema.model_copy(update={"label": Label(name="loan", classes=("a", "b", "c"))})
    with pytest.raises(ModelError, match="answers 2 classes, the schema's label has 3"):
        OnnxModel(network(schema), three)
    other = helper.make_node("Neg", ["s"], ["t"])
    several = [tensor("s", FLOAT, ["rows", 2]), tensor("t", FLOAT, ["rows", 2])]
    with pytest.raises(ModelError, match=r"not clear which output .* of: s, t"):
        OnnxModel(network(schema, other, outputs=several), schema)
    broken = helper.make_node("Log", ["s"], ["t"])
    with pytest.raises(ModelError, match="answers NaN or infinity"):
        OnnxModel(network(schema, broken, answer="t"), schema)
    with pytest.raises(ModelError, match=r"'housing'.*ONNX has no missing text.*missing_text="):
        OnnxModel(by_columns(), plain)


@pytest.mark.parametrize("content", [b"", b"rubbish", network])
def test_damaged_files_are_one_line(schema, content, tmp_path, capfd):
    if callable(content):
        content = content(schema)[:-40]
    (tmp_path / "m.onnx").write_bytes(content)
    for opened in (lambda: load_model(tmp_path / "m.onnx", schema),
                   lambda: OnnxModel(content, schema)):  # fmt: skip
        with pytest.raises(ModelError, match="cannot be read as an ONNX model") as caught:
            opened()
        assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_absent_file_and_absent_package(schema, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no model at"):
        adapt(tmp_path / "none.onnx", schema)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"pip install 'counterveil\[onnx\]'"):
        OnnxModel(network(schema), schema)


def test_a_pipeline_of_scikit_learn(schema, rows, frame):
    convert = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed").to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["degree", "member"]), ("passthrough", ["income"])
    )
    used = frame[["income", "degree", "member"]]
    pipeline = make_pipeline(columns, LogisticRegression()).fit(used, rows.loan)
    kinds = [("income", FloatTensorType([None, 1])), ("degree", StringTensorType([None, 1])),
             ("member", StringTensorType([None, 1]))]  # fmt: skip
    truth = pipeline.predict_proba(used)[:, ::-1]  # granted, refused
    for zipmap in (True, False):
        graph = convert(
            pipeline, initial_types=kinds, options={id(pipeline): {"zipmap": zipmap}},
            target_opset={"": 17, "ai.onnx.ml": 3},
        )  # fmt: skip
        found = ask_frame(OnnxModel(graph.SerializeToString(), schema), frame)
        np.testing.assert_allclose(found.exp().numpy(), truth, atol=1e-5)
