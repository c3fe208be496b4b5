import pickle

import joblib
import numpy as np
import pytest
import torch
from asking import ask_frame, ask_points
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from skops import io as skops_io
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import (
    CallableModel,
    EstimatorModel,
    TorchModel,
    adapt,
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
        ask_points(logits, points).exp(),
        ask_points(probabilities, points).exp(),
        atol=1e-5,
        rtol=1e-4,
    )
    assert logits.differentiable


@pytest.mark.parametrize("layer", [nn.Tanh, nn.ReLU, nn.GELU])
def test_a_few_rows_get_the_answers_that_many_get(schema, points, layer):
    module = nn.Sequential(nn.Linear(schema.width, 8), layer(), nn.Linear(8, 2))
    model = TorchModel(module, schema)
    with torch.no_grad():
        wanted = module(points).log_softmax(dim=1)
        for few in (1, 24, 300):
            found = ask_points(model, points[:few])
            torch.testing.assert_close(found, wanted[:few], atol=1e-5, rtol=1e-5)
    asked = points[:5].clone().requires_grad_(True)
    assert torch.autograd.grad(ask_points(model, asked).sum(), asked)[0].abs().sum() > 0


def test_torch_modules_are_copied_frozen_and_called_whole(schema, model, points):
    module = nn.Sequential(nn.Linear(schema.width, 4), nn.Dropout(), nn.Linear(4, 2)).train()
    adapted = TorchModel(module, schema)
    assert module.training
    assert all(weights.requires_grad for weights in module.parameters())
    point = torch.rand(1, schema.width, requires_grad=True)
    ask_points(adapted, point).sum().backward()
    assert point.grad is not None
    module, seen = nn.Sequential(nn.Linear(schema.width, 2)), []
    module[0].register_forward_hook(lambda *given: seen.append(1))
    model = TorchModel(module, schema)
    seen.clear()
    with torch.no_grad():
        ask_points(model, points[:3])
    assert seen
    module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.LazyLinear(2))
    module(torch.rand(1, 1, schema.width))
    assert TorchModel(module, schema, shape=(1, schema.width)).classes == 2


def test_one_output_within_0_and_1_is_ambiguous(schema, points):
    class Gentle(nn.Module):
        def forward(self, points):
            return 0.05 + 0.4 * points[:, :1]  # as logits it always says granted

    with pytest.raises(ModelError, match=r"a probability or a logit.*--model-outputs"):
        TorchModel(Gentle(), schema)
    said = {}
    for outputs in ("logits", "probabilities"):
        adapted = TorchModel(Gentle(), schema, outputs=outputs, classes=["granted"])
        said[outputs] = set(ask_points(adapted, points).argmax(dim=1).tolist())
    assert said == {"logits": {1}, "probabilities": {0}}


def test_class_numbers_are_never_matched_by_position_unasked(schema, rows, points, model):
    classes = (rows.loan == "granted").astype(int)
    forest = LogisticRegression().fit(points.numpy(), classes)
    with pytest.raises(ModelError, match=r"--model-classes\), out of: refused,granted"):
        adapt(forest, schema)
    for names in (("refused", "granted"), ("granted", "refused")):
        adapted = EstimatorModel(forest, schema, classes=names)
        found = ask_frame(adapted, rows).exp().numpy()
        expected = forest.predict_proba(points.numpy())
        turned = expected if names[0] == "refused" else expected[:, ::-1]
        np.testing.assert_allclose(found, turned, atol=1e-5)
    with pytest.raises(ModelError, match="called otherwise"):
        EstimatorModel(forest, schema, classes=("refused", "later"))
    with pytest.raises(ModelError, match="answers 3 classes"):
        EstimatorModel(forest, schema, classes=("a", "b", "c"))
    straight = ask_points(TorchModel(model, schema), points)
    turned = ask_points(TorchModel(model, schema, classes=("granted", "refused")), points)
    torch.testing.assert_close(turned, straight.flip(1))


def test_a_model_that_answers_nan_for_one_row(schema, rows, model):
    class Holes(nn.Module):
        def forward(self, points):
            answer = torch.stack([points[:, 0], -points[:, 0]], dim=1)
            return torch.where((points[:, 1:2] > 0.9999), torch.nan, answer)

    frame = rows.drop(columns="loan").assign(income=[5.0] * 6 + [10.0] + [5.0] * 593)
    with pytest.raises(ModelError, match="answers NaN or infinity for row 7;"):
        ask_frame(TorchModel(Holes(), schema), frame)
    bold = TorchModel(nn.Sequential(model, nn.Softmax(1)), schema)
    bold._outputs, bold._module = "probabilities", model
    with pytest.raises(ModelError, match="a probability above 1 for row"):
        ask_frame(bold, frame)


def test_functions_get_a_copy_and_their_errors_stay_closed(schema, rows):
    def greedy(frame):
        frame["income"] = 0.0
        return np.full((len(frame), 2), 0.5)

    frame = rows.drop(columns="loan")
    ask_frame(CallableModel(greedy, schema), frame)
    assert frame.income.equals(rows.income)

    def telling(frame):
        raise ValueError(f"bad income {frame.income[0]}")

    with pytest.raises(ModelError) as caught:
        ask_frame(CallableModel(telling, schema), frame)
    assert "ValueError" in str(caught.value)
    assert str(frame.income[0]) not in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda frame: np.zeros((len(frame), 3)), "answers 3 classes, the schema's label has 2"),
        (lambda frame: np.zeros((len(frame) + 1, 2)), "one row of 2 numbers for each input row"),
        (lambda frame: [["a", "b"]] * len(frame), "must answer with numbers"),
        (lambda frame: np.full((len(frame), 2), np.nan), "answers NaN or infinity for row 1"),
        (lambda frame: np.full((len(frame), 2), 7.0), "between 0 and 1"),
        (lambda frame: 1 / 0, "failed on rows in original units with ZeroDivisionError"),
    ],
)
def test_wrong_answers(schema, rows, broken, words):
    with pytest.raises(ModelError, match=words):
        ask_frame(CallableModel(broken, schema), rows)


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
    other = LogisticRegression().fit(points.numpy(), np.where(rows.loan == "granted", "up", "down"))
    with pytest.raises(ModelError, match=r"the schema's: down, up; .* out of: refused,granted"):
        adapt(other, schema)
    names = {"granted": "up", "refused": "down"}  # what people call them
    label = type(schema.label)(**schema.label.model_dump() | {"value_names": names})
    shown = adapt(other, schema.model_copy(update={"label": label}))
    np.testing.assert_allclose(
        ask_points(shown, points).exp().numpy(), other.predict_proba(points.numpy()), atol=1e-5
    )
    half = type("Half", (), {"predict_proba": lambda _, rows: np.full((len(rows), 2), 0.5)})()
    with pytest.raises(ModelError, match="another schema"):
        adapt(EstimatorModel(half, schema), schema.model_copy(update={"name": "other"}))


def test_files(schema, model, pipeline, points, rows, tmp_path):
    save_exported(nn.Linear(schema.width, 2), schema, tmp_path / "m.pt2")
    assert load_model(tmp_path / "m.pt2", schema).differentiable
    skops_io.dump(pipeline, tmp_path / "m.skops")
    expected = pipeline.predict_proba(rows.drop(columns="loan"))[:, ::-1]
    found = ask_frame(load_model(tmp_path / "m.skops", schema), rows.drop(columns="loan"))
    np.testing.assert_allclose(found.exp().numpy(), expected, atol=1e-5)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(pipeline))
    joblib.dump(pipeline, tmp_path / "m.joblib")
    torch.save(nn.Linear(schema.width, 2), tmp_path / "m.pt")
    for name in ("m.pkl", "m.joblib", "m.pt"):
        with pytest.raises(ModelError, match="--trust-pickle"):
            load_model(tmp_path / name, schema)
        assert load_model(tmp_path / name, schema, trust_pickle=True).classes == 2


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=5)],
)
def test_skops_pipelines_load_untrusted(schema, rows, estimator, tmp_path):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["age", "income", "debt"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["housing", "member"]),
    )
    frame = rows.drop(columns="loan")
    pipeline = make_pipeline(columns, estimator).fit(frame, rows.loan)
    skops_io.dump(pipeline, tmp_path / "m.skops")
    found = ask_frame(load_model(tmp_path / "m.skops", schema), frame).exp().numpy()
    np.testing.assert_allclose(found, pipeline.predict_proba(frame)[:, ::-1], atol=1e-5)


def test_skops_files_with_functions_are_refused(schema, points, rows, tmp_path):
    for function in (pickle.loads, np.save, np.testing.assert_equal):
        step = FunctionTransformer(function)
        skops_io.dump(step, tmp_path / "m.skops")
        with pytest.raises(ModelError, match=r"not trusted: [\w.]+; add --trust-pickle"):
            load_model(tmp_path / "m.skops", schema)
