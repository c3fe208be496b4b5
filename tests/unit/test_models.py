import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from skops import io as skops_io
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import (
    CallableModel,
    EstimatorModel,
    TorchModel,
    adapt,
    distil,
    load_model,
    save_exported,
)


@pytest.fixture(scope="module")
def points(schema, rows):
    return torch.tensor(Encoding(schema).encode(rows)).float()


@pytest.fixture(scope="module")
def pipeline(schema, rows):
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["housing", "member"]), ("passthrough", ["income"])
    )
    return make_pipeline(columns, LogisticRegression()).fit(rows.drop(columns="loan"), rows.loan)


def test_torch_logits_and_probabilities_agree(schema, model, points):
    logits = TorchModel(model, schema)
    probabilities = TorchModel(nn.Sequential(model, nn.Softmax(dim=1)), schema)
    torch.testing.assert_close(
        logits.log_proba(points).exp(), probabilities.log_proba(points).exp(), atol=1e-5, rtol=1e-4
    )
    assert logits.differentiable


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_torch_with_one_output(schema, points, outputs):
    module = nn.Sequential(nn.Linear(schema.width, 1), nn.Flatten(0))
    if outputs == "probabilities":
        module.append(nn.Sigmoid())
    expected = torch.sigmoid(module[0](points)[:, 0])
    with torch.no_grad():
        module[0].weight.mul_(20)  # logits that leave [0, 1]
        expected = torch.sigmoid(module[0](points)[:, 0])
        found = TorchModel(module, schema).log_proba(points).exp()[:, 1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


def test_torch_model_is_copied_and_frozen(schema, model):
    module = nn.Sequential(nn.Linear(schema.width, 4), nn.Dropout(), nn.Linear(4, 2)).train()
    adapted = TorchModel(module, schema)
    assert module.training
    assert all(weights.requires_grad for weights in module.parameters())
    point = torch.rand(1, schema.width, requires_grad=True)
    adapted.log_proba(point).sum().backward()
    assert point.grad is not None


def test_convolutions_get_their_shape(schema):
    module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.LazyLinear(2))
    module(torch.rand(1, 1, schema.width))
    assert TorchModel(module, schema, shape=(1, schema.width)).classes == 2


def test_estimators_over_rows(schema, rows, pipeline, points):
    adapted = adapt(pipeline, schema)
    expected = pipeline.predict_proba(rows.drop(columns="loan"))[:, ::-1]  # granted, refused
    found = adapted.log_proba_rows(rows.drop(columns="loan")).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(adapted.log_proba(points).exp().numpy(), expected, atol=1e-5)


def test_estimators_over_the_encoding_and_class_numbers(schema, rows, points):
    classes = (rows.loan == "granted").astype(int)
    forest = LogisticRegression().fit(points.numpy(), classes)
    adapted = adapt(forest, schema)
    found = adapted.log_proba_rows(rows).exp().numpy()
    np.testing.assert_allclose(found, forest.predict_proba(points.numpy()), atol=1e-5)


def test_callables_over_rows_and_encoding(schema, rows, points):
    def by_rows(frame):
        granted = (frame.income > 5).astype(float)
        return np.stack([1 - granted, granted], axis=1)

    over_rows = CallableModel(by_rows, schema)
    over_points = CallableModel(lambda array: array[:, 1], schema, inputs="encoding")
    assert (over_rows.log_proba_rows(rows).argmax(dim=1).numpy() == (rows.income > 5)).all()
    assert (over_points.log_proba(points).argmax(dim=1) == (points[:, 1] > 0.5)).all()


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda frame: np.zeros((len(frame), 3)), "answers 3 classes, the schema's label has 2"),
        (lambda frame: np.zeros((len(frame) + 1, 2)), "one row of 2 numbers for each input row"),
        (lambda frame: [["a", "b"]] * len(frame), "must answer with numbers"),
        (lambda frame: np.full((len(frame), 2), np.nan), "between 0 and 1"),
        (lambda frame: np.full((len(frame), 2), 7.0), "between 0 and 1"),
        (lambda frame: 1 / 0, "failed on rows in original units: division by zero"),
    ],
)
def test_wrong_answers(schema, rows, broken, words):
    with pytest.raises(ModelError, match=words):
        CallableModel(broken, schema).log_proba_rows(rows)


def test_models_that_do_not_fit(schema, rows, points):
    with pytest.raises(ModelError, match="answers 3 classes"):
        adapt(nn.Linear(schema.width, 3), schema)
    with pytest.raises(ModelError, match="does not accept encoded rows"):
        adapt(nn.Linear(4, 2), schema)
    with pytest.raises(ModelError, match="must return a tensor"):
        adapt(nn.LSTM(schema.width, 2), schema)
    broken = nn.Linear(schema.width, 2)
    nn.init.constant_(broken.weight, torch.nan)
    with pytest.raises(ModelError, match="NaN or infinity"):
        adapt(broken, schema)
    with pytest.raises(ModelError, match="got int"):
        adapt(3, schema)
    three = LogisticRegression().fit(points.numpy(), np.arange(600) % 3)
    with pytest.raises(ModelError, match="answers 3 classes"):
        adapt(three, schema)
    other = LogisticRegression().fit(points.numpy(), np.where(rows.loan == "granted", "up", "down"))
    with pytest.raises(ModelError, match="not those of the schema"):
        adapt(other, schema)
    with pytest.raises(ModelError, match="another schema"):
        adapt(EstimatorModel(three_free(), schema), schema.model_copy(update={"name": "other"}))


def three_free():
    class Estimator:
        def predict_proba(self, rows):
            return np.full((len(rows), 2), 0.5)

    return Estimator()


def test_a_student_learns_the_model(schema, pipeline, points):
    teacher = adapt(pipeline, schema)
    student = distil(teacher, points, seed=0)
    assert student.differentiable
    agree = student.log_proba(points).argmax(dim=1) == teacher.log_proba(points).argmax(dim=1)
    assert agree.float().mean() > 0.95


def test_files(schema, model, pipeline, points, rows, tmp_path):
    save_exported(nn.Linear(schema.width, 2), schema, tmp_path / "m.pt2")
    assert load_model(tmp_path / "m.pt2", schema).differentiable
    skops_io.dump(pipeline, tmp_path / "m.skops")
    expected = pipeline.predict_proba(rows.drop(columns="loan"))[:, ::-1]
    found = load_model(tmp_path / "m.skops", schema).log_proba_rows(rows.drop(columns="loan"))
    np.testing.assert_allclose(found.exp().numpy(), expected, atol=1e-5)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(pipeline))
    joblib.dump(pipeline, tmp_path / "m.joblib")
    torch.save(nn.Linear(schema.width, 2), tmp_path / "m.pt")
    for name in ("m.pkl", "m.joblib", "m.pt"):
        with pytest.raises(ModelError, match="--trust-pickle"):
            load_model(tmp_path / name, schema)
        assert load_model(tmp_path / name, schema, trust_pickle=True).classes == 2


@pytest.mark.parametrize("name", ["m.pt2", "m.skops", "m.pkl", "m.pt", "m.docx"])
def test_files_that_are_no_models(schema, tmp_path, name):
    (tmp_path / name).write_bytes(b"rubbish")
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path / name, schema, trust_pickle=True)
    assert "\n" not in str(caught.value)


def test_absent_model(schema, tmp_path):
    with pytest.raises(ModelError, match="no model at"):
        load_model(tmp_path / "none.pt2", schema)
