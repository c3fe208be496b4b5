"""What holds for every adapter: the answer is the model's own, on exactly the rows given.

Each case is a model behind its adapter, and the same model asked without one: `own` gives its
numbers for a frame (probabilities or logits), with columns in the order of the schema's classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boosters
import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame, ask_points
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import (
    EstimatorModel,
    OnnxModel,
    TargetModel,
    TorchModel,
    adapt,
    load_model,
    save_exported,
)
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema

SCHEMA = Schema(
    label=Label(name="loan", classes=("refused", "granted")),
    features=(
        Numeric(name="age", lower=18, upper=100, integer=True),
        Numeric(name="income", lower=0, upper=10),
        Numeric(name="debt", lower=0, upper=7),
        Categorical(name="housing", categories=("rent", "own", "free")),
        Binary(name="member", values=(0, 1)),
    ),
)
NUMBERS = SCHEMA.model_copy(update={"features": SCHEMA.features[:3]})
ENCODING = Encoding(SCHEMA)
BACKWARDS = ("granted", "refused")  # scikit-learn sorts names; numbered models are fitted alike
SLOPE = 1.7  # of the models written by hand: granted where SLOPE·income outweighs debt + BAR
BAR = 4.321


def people(count):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 101, count),
            "income": rng.uniform(0, 10, count),
            "debt": rng.uniform(0, 7, count),
            "housing": rng.choice(["rent", "own", "free"], count),
            "member": rng.integers(0, 2, count),
        }
    )


FRAME = people(400)
GRANTED = (SLOPE * FRAME.income > FRAME.debt + BAR).to_numpy(copy=True)
LOAN = np.where(GRANTED, "granted", "refused")
POINTS = torch.as_tensor(ENCODING.encode(FRAME), dtype=torch.float32)


@dataclass
class Case:
    adapted: TargetModel
    own: Callable[[pd.DataFrame], Any]


def points_of(frame):
    return torch.as_tensor(ENCODING.encode(frame), dtype=torch.float32)


def network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(SCHEMA.width, 16), nn.Tanh(), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(layers.parameters(), 0.02)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(layers(POINTS), torch.as_tensor(GRANTED).long()).backward()
        optimiser.step()
    return layers.requires_grad_(False).eval()


def torch_case(adapted, module):
    return Case(adapted, lambda frame: module(points_of(frame)))


def torch_module(folder):
    module = network()
    return torch_case(adapt(module, SCHEMA), module)


def exported_program(folder):
    module = network()
    rows = {0: torch.export.Dim("rows", min=1)}
    program = torch.export.export(module, (POINTS[:4],), dynamic_shapes=(rows,))
    return torch_case(adapt(program, SCHEMA), module)


def pt2_file(folder):
    module = network()
    save_exported(module, SCHEMA, folder / "m.pt2")
    return torch_case(load_model(folder / "m.pt2", SCHEMA), module)


def estimator_over_rows(folder):
    used = list(NUMBERS.columns)
    model = HistGradientBoostingClassifier(max_iter=20).fit(FRAME[used], LOAN)
    return Case(adapt(model, SCHEMA), lambda frame: model.predict_proba(frame[used])[:, ::-1])


def estimator_over_encoding(folder):
    model = LogisticRegression().fit(ENCODING.encode(FRAME), LOAN)

    def own(frame):
        return model.predict_proba(ENCODING.encode(frame))[:, ::-1]

    return Case(adapt(model, SCHEMA), own)


def pipeline(folder):
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["housing", "member"]),
        ("passthrough", ["income", "debt"]),
    )
    model = make_pipeline(columns, LogisticRegression()).fit(FRAME, LOAN)
    return Case(adapt(model, SCHEMA), lambda frame: model.predict_proba(frame)[:, ::-1])


def boosted(package, *, over_rows, raw):
    def build(folder):
        model = boosters.classifier(boosters.package_of(package))
        schema = NUMBERS if over_rows else SCHEMA

        def seen(frame):
            return frame[list(NUMBERS.columns)] if over_rows else ENCODING.encode(frame)

        model.fit(seen(FRAME), (~GRANTED).astype(int))
        given = boosters.booster_of(model) if raw else model
        adapted = adapt(given, schema, classes=BACKWARDS)
        return Case(adapted, lambda frame: model.predict_proba(seen(frame))[:, ::-1])

    return build


def by_hand(income, debt):
    granted = 1 / (1 + np.exp(-(SLOPE * np.asarray(income) - np.asarray(debt) - BAR)))
    return np.stack([1 - granted, granted], axis=1)


def function_over_rows(folder):
    def own(frame):
        return by_hand(frame.income, frame.debt)

    return Case(adapt(own, SCHEMA), own)


def function_over_encoding(folder):
    def function(array):
        return by_hand(10 * array[:, 1], 7 * array[:, 2])

    adapted = adapt(function, SCHEMA, inputs="encoding")
    return Case(adapted, lambda frame: function(ENCODING.encode(frame)))


def onnx_model(*, over_rows, double):
    """Probabilities of `by_hand`, computed by a graph in float32 or float64."""

    def build(folder):
        onnx = pytest.importorskip("onnx", reason="the package onnx writes the models")
        runtime = pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
        helper, kind = onnx.helper, onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
        dtype = np.float64 if double else np.float32
        names = ["income", "debt"] if over_rows else ["x"]
        size = 1 if over_rows else SCHEMA.width
        weights = np.zeros((len(names) * size, 1), dtype)
        if over_rows:
            weights[:, 0] = SLOPE, -1
        else:
            weights[1:3, 0] = 10 * SLOPE, -7
        constants = {"w": weights, "bar": np.array(BAR, dtype), "one": np.array(1, dtype)}
        graph = helper.make_graph(
            [
                helper.make_node("Concat", names, ["all"], axis=1),
                helper.make_node("MatMul", ["all", "w"], ["weighed"]),
                helper.make_node("Sub", ["weighed", "bar"], ["score"]),
                helper.make_node("Sigmoid", ["score"], ["yes"]),
                helper.make_node("Sub", ["one", "yes"], ["no"]),
                helper.make_node("Concat", ["no", "yes"], ["p"], axis=1),
            ],
            "by_hand",
            [helper.make_tensor_value_info(name, kind, ["rows", size]) for name in names],
            [helper.make_tensor_value_info("p", kind, ["rows", 2])],
            [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])

        def own(frame):
            if over_rows:
                feed = {name: frame[[name]].to_numpy(dtype) for name in names}
            else:
                feed = {"x": ENCODING.encode(frame).astype(dtype)}
            return session.run(["p"], feed)[0]

        return Case(OnnxModel(model, SCHEMA), own)

    return build


CASES = {
    "torch module": torch_module, "exported program": exported_program, ".pt2 file": pt2_file,
    "estimator over rows": estimator_over_rows,
    "estimator over the encoding": estimator_over_encoding, "pipeline": pipeline,
    "XGBoost over rows": boosted("xgboost", over_rows=True, raw=False),
    "XGBoost over the encoding": boosted("xgboost", over_rows=False, raw=False),
    "XGBoost booster": boosted("xgboost", over_rows=True, raw=True),
    "LightGBM over rows": boosted("lightgbm", over_rows=True, raw=False),
    "LightGBM over the encoding": boosted("lightgbm", over_rows=False, raw=False),
    "LightGBM booster": boosted("lightgbm", over_rows=True, raw=True),
    "function over rows": function_over_rows, "function over the encoding": function_over_encoding,
    "ONNX over rows, float64": onnx_model(over_rows=True, double=True),
    "ONNX over rows, float32": onnx_model(over_rows=True, double=False),
    "ONNX over the encoding, float64": onnx_model(over_rows=False, double=True),
    "ONNX over the encoding, float32": onnx_model(over_rows=False, double=False),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request, tmp_path_factory):
    return CASES[request.param](tmp_path_factory.mktemp("models"))


def own_probabilities(case, frame):
    own = np.asarray(case.own(frame), dtype=np.float64)
    if own.min() < 0 or own.max() > 1:  # logits
        own = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
    return own


def own_verdict(case, frame):
    return np.asarray(case.own(frame)).argmax(axis=1)


def rows_of(case, count):
    """Rows of the case's own schema."""
    return case.adapted.encoding.pick(FRAME.head(count))


def near_a_threshold(case, count):
    """Rows whose income is 1e-9 to 1e-6 off the place where the model's own verdict changes."""
    frame = FRAME.head(count)
    low, high = frame.assign(income=0.0), frame.assign(income=10.0)
    first, last = own_verdict(case, low), own_verdict(case, high)
    for _ in range(60):
        middle = frame.assign(income=(low.income + high.income) / 2)
        below = own_verdict(case, middle) == first
        low = low.assign(income=np.where(below, middle.income, low.income))
        high = high.assign(income=np.where(below, high.income, middle.income))
    frame = frame.assign(income=high.income)[first != last]
    offsets = np.geomspace(1e-9, 1e-6, 7)
    steps = np.concatenate([-offsets, [0.0], offsets])
    near = pd.concat([frame.assign(income=frame.income + step) for step in steps])
    return near.reset_index(drop=True)


def test_log_probabilities_in_the_order_of_the_label_set(case):
    found = ask_frame(case.adapted, rows_of(case, 400)).exp().numpy()
    assert found.shape == (400, 2)
    np.testing.assert_allclose(found, own_probabilities(case, FRAME), atol=1e-6)
    np.testing.assert_array_equal(found.argmax(axis=1), own_verdict(case, FRAME))
    assert (found.argmax(axis=1) == GRANTED).mean() > 0.8  # the second class is "granted"


def test_verdicts_near_a_threshold_are_the_models_own(case):
    frame = near_a_threshold(case, 40)
    wanted = own_verdict(case, frame)
    assert len(frame) >= 100
    assert 0.1 < wanted.mean() < 0.9
    answer = ask_frame(case.adapted, case.adapted.encoding.pick(frame))
    np.testing.assert_array_equal(answer.argmax(dim=1).numpy(), wanted)


def test_a_row_alone_is_answered_as_in_a_batch_and_stays_as_it_is(case):
    frame = rows_of(case, 50)
    together = ask_frame(case.adapted, frame)
    for number in (0, 7, 49):
        alone = ask_frame(case.adapted, frame.iloc[[number]])
        torch.testing.assert_close(alone, together[[number]], atol=1e-6, rtol=1e-5)
    frame = rows_of(case, 50)
    points = torch.as_tensor(case.adapted.encoding.encode(frame), dtype=torch.float32)
    frame_before, points_before = frame.copy(deep=True), points.clone()
    ask_frame(case.adapted, frame)
    ask_points(case.adapted, points)
    pd.testing.assert_frame_equal(frame, frame_before)
    assert torch.equal(points, points_before)
    with pytest.raises(ModelError):
        ask_points(case.adapted, torch.rand(3, case.adapted.encoding.width + 1))


def test_points_are_answered_alike_and_lend_a_gradient(case):
    frame = rows_of(case, 50)
    points = torch.as_tensor(case.adapted.encoding.encode(frame), dtype=torch.float32)
    points.requires_grad_(case.adapted.differentiable)
    answer = ask_points(case.adapted, points)
    assert answer.dtype == torch.float32
    expected = own_probabilities(
        case, case.adapted.encoding.decode(points.detach().double().numpy())
    )
    np.testing.assert_allclose(answer.exp().detach().numpy(), expected, atol=1e-5)
    if case.adapted.differentiable:
        (gradient,) = torch.autograd.grad(answer[:, 1].sum(), points)
        assert bool((gradient != 0).any())


# Ways to write the cells of a column: as in the schema's types, as what files make of them.
WRITTEN = {
    "float": lambda column: column.astype(float),
    "small whole numbers": lambda column: column.astype("int8"),
    "nullable": lambda column: column.astype("Int64"),
    "text": lambda column: column.astype(str),
    "objects of text": lambda column: column.astype(str).astype(object),
    "pandas categories": lambda column: column.astype(str).astype("category"),
}


@pytest.mark.parametrize("way", WRITTEN, ids=lambda name: name.replace(" ", "-"))
def test_a_model_gets_values_of_the_schemas_types(case, way):
    """Whole-number categories and numbers decide alike however they are written."""
    frame = rows_of(case, 50)
    written = {name: WRITTEN[way](frame[name]) for name in {"age", "member"} & set(frame)}
    found = ask_frame(case.adapted, frame.assign(**written))
    assert torch.equal(found, ask_frame(case.adapted, frame))


def test_whole_numbers_with_gaps_reach_a_model_as_it_has_learnt_them():
    """pandas reads such a column as floats and NaN; many models cannot read anything else."""
    schema = Schema(
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Categorical(name="region", categories=("north", "south")),
            Numeric(name="score", lower=300, upper=850, integer=True, missing=True),
        ),
    )
    draw = np.random.default_rng(0)
    score = np.where(draw.random(300) < 0.2, np.nan, draw.integers(300, 851, 300))
    frame = pd.DataFrame({"region": draw.choice(["north", "south"], 300), "score": score})
    words = make_column_transformer((OrdinalEncoder(), ["region"]), remainder="passthrough")
    pipeline = make_pipeline(words, HistGradientBoostingClassifier(max_iter=5))
    pipeline.fit(frame, np.where(frame.score > 600, "granted", "refused"))
    adapted = adapt(pipeline, schema)
    expected = torch.from_numpy(pipeline.predict_proba(frame)[:, ::-1].copy())
    found = ask_frame(adapted, frame).exp()
    assert torch.allclose(found, expected.to(found), atol=1e-6)
    nullable = frame.assign(score=frame.score.astype("Int64"))
    assert torch.equal(ask_frame(adapted, nullable).exp(), found)
    points = torch.from_numpy(Encoding(schema).encode(frame)).float()
    again = ask_points(adapted, points).exp()
    assert torch.allclose(again, expected.to(again), atol=1e-6)


def test_functions_see_the_schemas_own_values():
    features = (
        Categorical(name="region", categories=(1, 2, 3)),
        Categorical(name="code", categories=("007", "8")),
        Binary(name="member", values=(0, 1)),
        Numeric(name="debt", lower=0, upper=7, missing=True),
        Numeric(name="children", lower=0, upper=9, integer=True),
    )
    seen = []

    def function(rows):
        seen.append(rows)
        return np.full((len(rows), 2), 0.5)

    adapted = adapt(function, SCHEMA.model_copy(update={"features": features}))
    usual = pd.DataFrame(
        {
            "region": [3, 1, 2], "code": ["007", "8", "8"], "member": [1, 0, 1],
            "debt": [0.1, np.nan, 2 / 3], "children": [0, 9, 4],
        }
    )  # fmt: skip
    foreign = {
        "children": ["0", "9", "4"], "member": [1.0, 0.0, 1.0], "code": ["007", "8", "8"],
        "debt": pd.array(["0.1", None, repr(2 / 3)], dtype=object), "region": ["3", "1", "2"],
        "loan": ["refused"] * 3,  # no feature: no model gets it
    }  # fmt: skip
    ask_frame(adapted, usual)
    ask_frame(adapted, pd.DataFrame(foreign, index=[7, 8, 9]))
    for given in seen:
        pd.testing.assert_frame_equal(given, usual, check_exact=True)


class Answering(nn.Module):
    """Answers wrongly where a row has the largest income: a module, and an estimator."""

    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def forward(self, points):
        answer = torch.stack([1 - points[:, 1], points[:, 1]], dim=1)
        return self.wrong(answer) if bool((points[:, 1] == 1).any()) else answer

    def predict_proba(self, rows):
        encoded = ENCODING.encode(rows) if isinstance(rows, pd.DataFrame) else rows
        return self.forward(torch.tensor(encoded)).numpy()


WRONG = {
    "NaN in one row": lambda answer: torch.where(answer[:, 1:] > 0.999, torch.nan, answer),
    "a third column": lambda answer: torch.cat([answer, answer[:, :1]], dim=1),
    "a row too many": lambda answer: torch.cat([answer, answer[:1]]),
    "another dimension": lambda answer: answer[:, :, None],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=[name.replace(" ", "-") for name in WRONG])
@pytest.mark.parametrize("kind", ["torch", "rows", "encoding", "estimator", "ONNX"])
def test_wrong_answers_are_refused(kind, wrong, monkeypatch):
    rich = FRAME.head(20).assign(income=10.0)
    if kind == "torch":
        adapted = TorchModel(Answering(wrong), SCHEMA, outputs="probabilities")
    elif kind == "ONNX":
        adapted = onnx_model(over_rows=True, double=True)(Path()).adapted
        run = adapted._session.run  # type: ignore[attr-defined]
        session = type("Session", (), {})()
        session.run = lambda names, feed: [wrong(torch.tensor(run(names, feed)[0])).numpy()]
        monkeypatch.setattr(adapted, "_session", session)
    elif kind == "estimator":
        adapted = EstimatorModel(Answering(wrong), SCHEMA)
    else:
        adapted = adapt(Answering(wrong).predict_proba, SCHEMA, inputs=kind)
    with pytest.raises(ModelError):
        ask_frame(adapted, rich)
