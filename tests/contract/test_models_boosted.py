"""XGBoost and LightGBM: the same answers by every way in, columns and classes by name."""

import sys

import numpy as np
import pytest
import torch
from asking import ask_frame, ask_points
from boosters import booster_of, classifier, package_of, saved

from counterveil.encoding import Encoding
from counterveil.errors import ModelError
from counterveil.models import adapt, load_model
from counterveil.models.boosted import BoosterClassifier
from counterveil.schema import Categorical, Label, Numeric, Schema

NAMES = ("refused", "granted")


@pytest.fixture(scope="module")
def numbered(rows):
    return (rows.loan == "granted").astype(int).to_numpy()


@pytest.fixture(scope="module")
def points(schema, rows):
    return Encoding(schema).encode(rows)


@pytest.fixture(scope="module", params=["xgboost", "lightgbm"])
def package(request):
    return package_of(request.param)


def agree(adapted, frame, expected):
    found = ask_frame(adapted, frame).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    points = torch.tensor(adapted.encoding.encode(frame))
    np.testing.assert_allclose(ask_points(adapted, points).exp().numpy(), expected, atol=1e-5)


@pytest.mark.long
def test_over_the_encoding(package, schema, frame, points, numbered, tmp_path):
    model = classifier(package).fit(points, numbered)
    expected = model.predict_proba(points)
    for given in (model, booster_of(model)):
        agree(adapt(given, schema, classes=NAMES), frame, expected)
        agree(adapt(given, schema, classes=NAMES[::-1]), frame, expected[:, ::-1])
    for path in saved(model, tmp_path):
        agree(load_model(path, schema, classes=NAMES), frame, expected)


@pytest.mark.long
def test_classes_are_asked_for_where_they_have_names(
    package, schema, frame, points, numbered, tmp_path
):
    model = classifier(package).fit(points, numbered)
    ways = [lambda given=given: adapt(given, schema) for given in (model, booster_of(model))]
    ways += [lambda path=path: load_model(path, schema) for path in saved(model, tmp_path)]
    for way in ways:
        with pytest.raises(ModelError, match=r"numbered 0, 1.*--model-classes\), out of: refused"):
            way()
    numbers = schema.model_copy(update={"label": Label(name="loan", classes=(1, 0))})
    for path in saved(model, tmp_path):  # the schema's classes are numbers too: they go by name
        agree(load_model(path, numbers), frame, model.predict_proba(points)[:, ::-1])


def test_labels_of_text_name_the_columns_of_lightgbm(schema, rows, frame, points):
    package = package_of("lightgbm")
    model = classifier(package).fit(points, rows.loan)
    agree(adapt(model, schema), frame, model.predict_proba(points)[:, ::-1])
    with pytest.raises(ModelError, match="numbered"):  # the booster has forgotten the names
        adapt(model.booster_, schema)


@pytest.fixture(scope="module")
def small():
    return Schema(
        label=Label(name="loan", classes=(0, 1)),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True),
            Numeric(name="net income", lower=0, upper=10, missing=True),
            Categorical(name="region", categories=(1, 2, 3)),
            Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
        ),
    )


@pytest.fixture(scope="module")
def few(rows):
    return rows[["age", "debt", "region", "housing"]].assign(
        **{"net income": rows.debt.where(rows.debt.isna(), rows.income)}
    )[["age", "net income", "region", "housing"]]


@pytest.mark.long
def test_columns_go_by_name_and_text_by_its_categories(package, small, few, numbered, tmp_path):
    # Another order of columns than the schema's, another of categories than the schema's.
    fitted = few[["housing", "region", "net income", "age"]].astype({"housing": "category"})
    model = classifier(package, enable_categorical=True).fit(fitted, numbered)
    expected = model.predict_proba(fitted)
    for given in (model, booster_of(model)):
        agree(adapt(given, small), few, expected)
    for path in saved(model, tmp_path):
        opened = load_model(path, small)
        agree(opened, few, expected)
        one = ask_frame(opened, few.head(1)).exp().numpy()  # most categories do not occur
        np.testing.assert_allclose(one, expected[:1], atol=1e-5)


def test_unnamed_columns_in_original_units(package, small, few, numbered):
    numbers = small.model_copy(update={"features": small.features[:3]})
    few = few.drop(columns="housing")
    model = classifier(package).fit(few.to_numpy(float), numbered)
    expected = model.predict_proba(few.to_numpy(float))
    for given in (model, booster_of(model)):
        agree(adapt(given, numbers), few, expected)


def test_columns_that_cannot_be_matched(package, small, few, numbered):
    fitted = few.drop(columns="housing").rename(columns={"age": "years"})
    model = classifier(package).fit(fitted, numbered)
    with pytest.raises(ModelError, match="fitted on a column 'years', which the schema has not"):
        adapt(model, small)
    codes = few.assign(housing=few.housing.astype("category").cat.codes)
    model = classifier(package).fit(codes, numbered)
    with pytest.raises(ModelError, match="does not remember the categories"):
        adapt(model, small)


@pytest.mark.long
def test_three_classes(package, small, few, points, schema, frame, tmp_path):
    three = schema.model_copy(update={"label": Label(name="loan", classes=(2, 0, 1))})
    model = classifier(package).fit(points, np.arange(len(points)) % 3)
    expected = model.predict_proba(points)[:, [2, 0, 1]]
    agree(adapt(booster_of(model), three), frame, expected)
    for path in saved(model, tmp_path):
        agree(load_model(path, three), frame, expected)
    with pytest.raises(ModelError, match="answers 3 classes, the schema's label has 2"):
        adapt(booster_of(model), schema)


@pytest.mark.long
def test_regressions_are_refused(package, schema, points, numbered, tmp_path):
    kind = "XGBRegressor" if package.__name__ == "xgboost" else "LGBMRegressor"
    quiet = {} if package.__name__ == "xgboost" else {"verbose": -1}
    model = getattr(package, kind)(n_estimators=2, n_jobs=1, **quiet).fit(points, numbered)
    with pytest.raises(ModelError, match="does not give class probabilities"):
        adapt(booster_of(model), schema, classes=NAMES)
    for path in saved(model, tmp_path):
        with pytest.raises(ModelError, match=r"class probabilities|not a classifier"):
            load_model(path, schema, classes=NAMES)


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw", "multi:softmax"])
def test_objectives_of_xgboost(schema, points, numbered, objective):
    package = package_of("xgboost")
    matrix = package.DMatrix(points, numbered)
    options = {"objective": objective, "nthread": 1}
    if objective.startswith("multi"):
        options["num_class"] = 2
    booster = package.train(options, matrix, 5)
    found = BoosterClassifier(booster).predict_proba(points)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    assert (found.argmax(axis=1) == numbered).mean() > 0.9


@pytest.mark.long
def test_files_that_are_cut_off(package, schema, points, numbered, tmp_path):
    model = classifier(package).fit(points, numbered)
    for path in saved(model, tmp_path):  # the readers of the packages may end the whole process
        content = path.read_bytes()
        for part in range(1, 20):
            path.write_bytes(content[: len(content) * part // 20])
            with pytest.raises(ModelError, match="cannot be read as a model of"):
                load_model(path, schema, classes=NAMES)
        path.write_bytes(content)
        assert load_model(path, schema, classes=NAMES).classes == 2


@pytest.mark.parametrize(("kind", "name"), [("ubj", "xgboost"), ("txt", "lightgbm")])
def test_absent_packages(schema, tmp_path, monkeypatch, kind, name):
    (tmp_path / f"m.{kind}").write_bytes(b"tree")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelError, match=f"needs: pip install {name}"):
        load_model(tmp_path / f"m.{kind}", schema)


def test_estimators_get_columns_in_their_own_order(small, few, numbered):
    from sklearn.ensemble import HistGradientBoostingClassifier

    numbers = small.model_copy(update={"features": small.features[:3]})
    fitted = few[["region", "net income", "age"]]
    model = HistGradientBoostingClassifier(max_iter=3).fit(fitted, numbered)
    agree(adapt(model, numbers), few, model.predict_proba(fitted))
