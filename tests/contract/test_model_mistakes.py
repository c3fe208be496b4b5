"""Models given by mistake: one line says what they are, with the remedy; nothing is guessed."""

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame, ask_points
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.errors import CounterveilWarning, ModelError
from counterveil.models import CallableModel, EstimatorModel, TorchModel, adapt
from counterveil.schema import Label

NUMBERS = ["age", "income"]


@pytest.fixture(scope="module")
def fitted(frame, rows):
    return LogisticRegression().fit(frame[NUMBERS], rows.loan)


def refusal(action):
    """The one line of the ModelError that `action` raises."""
    with pytest.raises(ModelError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def granted(frame):
    return np.asarray(frame["income"], dtype=float) / 10


# One number a row.


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_number_of_a_function_needs_its_class(schema, frame, shape):
    model = CallableModel(lambda rows: granted(rows).reshape(shape), schema)
    said = refusal(lambda: ask_frame(model, frame))
    assert said == (
        "the model gives one number a row; say which class it is the probability of: "
        "classes=['granted'] (--model-classes granted)"
    )


def test_the_class_that_is_named_gets_the_number(schema, frame):
    yes = granted(frame)
    for name, expected in (("granted", [1 - yes, yes]), ("refused", [yes, 1 - yes])):
        for classes in ([name], name, np.array([name])):
            found = ask_frame(adapt(granted, schema, classes=classes), frame).exp().numpy()
            np.testing.assert_allclose(found, np.stack(expected, axis=1), atol=1e-6)


@pytest.mark.parametrize("outputs", ["auto", "logits"])
def test_one_output_of_torch_needs_its_class(schema, outputs):
    module = nn.Linear(schema.width, 1)
    nn.init.constant_(module.weight, -3.0)
    points = torch.rand(5, schema.width)
    said = refusal(lambda: TorchModel(module, schema, outputs=outputs))
    assert "which class it is the probability of: classes=['granted']" in said
    expected = torch.sigmoid(module(points))[:, 0]
    for name, column in (("granted", 1), ("refused", 0)):
        model = TorchModel(module, schema, outputs=outputs, classes=[name])
        torch.testing.assert_close(ask_points(model, points).exp()[:, column], expected)


# Labels in place of probabilities.


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_log_proba"])
def test_other_methods_of_an_estimator_are_noticed(schema, fitted, method):
    said = refusal(lambda: adapt(getattr(fitted, method), schema))
    assert said.startswith(f"{method} of LogisticRegression gives no class probabilities")
    assert "predict_proba" in said


@pytest.mark.parametrize(
    "answer",
    [
        lambda yes: np.where(yes, "granted", "refused"),
        lambda yes: np.where(yes, "granted", "refused").reshape(-1, 1),
        lambda yes: yes.astype(int),
        lambda yes: yes.astype(float).tolist(),
        lambda yes: yes,
        lambda yes: pd.Series(np.where(yes, "granted", "refused"), dtype="category"),
    ],
)
def test_labels_are_noticed(schema, frame, answer):
    model = adapt(lambda rows: answer(np.asarray(rows.income) > 5), schema)
    said = refusal(lambda: ask_frame(model, frame))
    assert said.startswith("the model answers class labels, not probabilities")
    assert "predict_proba" in said
    assert "--model-classes granted" in said


def test_numbers_of_three_classes_are_labels_too(schema, frame):
    three = schema.model_copy(update={"label": Label(name="loan", classes=(1, 2, 3))})
    for first in (0, 1):
        model = adapt(lambda rows, first=first: np.arange(len(rows)) % 3 + first, three)
        assert "predict_proba" in refusal(lambda model=model: ask_frame(model, frame))


def test_a_rule_that_is_always_sure_is_no_label(schema, frame, rows):
    sure = np.asarray(frame.income) > 5
    columns = adapt(lambda rows: np.stack([rows.income <= 5, rows.income > 5], axis=1), schema)
    named = adapt(lambda rows: (rows.income > 5).astype(float), schema, classes=["granted"])
    tree = adapt(DecisionTreeClassifier().fit(frame[NUMBERS], np.where(sure, "granted", "refused")),
                 schema)  # fmt: skip
    for model in (columns, named, tree):
        np.testing.assert_array_equal(ask_frame(model, frame).argmax(dim=1).numpy(), sure)


def test_classes_of_an_estimator_are_its_own(schema, fitted, frame):
    said = refusal(lambda: EstimatorModel(fitted, schema, classes=("refused", "granted")))
    assert "contradicts the model's own classes_" in said
    assert EstimatorModel(fitted, schema, classes=("granted", "refused")).classes == 2
    expected = fitted.predict_proba(frame[NUMBERS])[:, ::-1]  # it sorts: granted, refused
    found = ask_frame(adapt(fitted.predict_proba, schema), frame).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    points = LogisticRegression().fit(
        Encoding(schema).encode(frame), fitted.predict(frame[NUMBERS])
    )
    plain = CallableModel(points.predict_proba, schema, inputs="encoding")
    expected = points.predict_proba(Encoding(schema).encode(frame))[:, ::-1]
    np.testing.assert_allclose(ask_frame(plain, frame).exp().numpy(), expected, atol=1e-6)


def test_answers_that_cannot_be_numbers(schema, frame):
    def wants_gradient(rows):
        return torch.full((len(rows), 2), 0.5, requires_grad=True)

    for answer in (wants_gradient, lambda rows: None, lambda rows: object(), lambda rows: {}):
        refusal(lambda answer=answer: ask_frame(adapt(answer, schema), frame))
    assert "out of: refused,granted" in refusal(lambda: adapt(granted, schema, classes=["yes"]))
    two = adapt(lambda rows: np.full((len(rows), 2), 0.5), schema, classes=["granted"])
    assert "2 numbers a row, and one class is named" in refusal(lambda: ask_frame(two, frame))
    one = adapt(granted, schema, classes=["refused", "granted"])
    assert "one number a row" in refusal(lambda: ask_frame(one, frame))
    module = nn.Sequential(nn.Linear(schema.width, 1), nn.Sigmoid(), nn.Threshold(0.0, 0.0))
    said = refusal(lambda: TorchModel(module, schema))
    assert "--model-outputs" in said
    assert "--model-classes granted" in said


# Columns that the schema has not.


def pipeline(frame, rows, **names):
    frame = frame.rename(columns=names)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["member"]), ("passthrough", list(frame)[:2])
    )
    return make_pipeline(columns, LogisticRegression()).fit(frame, rows.loan)


def test_the_column_of_a_pipeline_is_named(schema, frame, rows):
    model = adapt(pipeline(frame, rows, income="incomes"), schema)
    said = refusal(lambda: ask_frame(model, frame))
    assert said == (
        "the model was fitted on a column 'incomes', which the schema has not; fit it on the "
        "schema's columns under their names, or correct the schema; did you mean 'income'?"
    )


def test_the_column_of_an_estimator_is_named(schema, frame, rows):
    for name, meant in (("x", "the schema"), ("AGES", "; did you mean 'age'?")):
        fitted = HistGradientBoostingClassifier(max_iter=2).fit(
            frame[NUMBERS].rename(columns={"age": name}), rows.loan
        )
        said = refusal(lambda fitted=fitted: ask_frame(adapt(fitted, schema), frame))
        assert f"fitted on a column {name!r}, which the schema has not;" in said
        assert said.endswith(meant)


def test_a_column_that_a_pipeline_drops_does_no_harm(schema, frame, rows):
    more = frame.assign(remark="none")
    columns = make_column_transformer(("passthrough", NUMBERS))
    model = make_pipeline(columns, LogisticRegression()).fit(more, rows.loan)
    expected = model.predict_proba(more)[:, ::-1]
    found = ask_frame(adapt(model, schema), frame).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_number_of_columns_that_fits_nothing(schema, frame, rows):
    points = Encoding(schema).encode(frame)[:, :5]
    model = adapt(LogisticRegression().fit(points, rows.loan), schema)
    said = refusal(lambda: ask_frame(model, frame[list(schema.columns)]))
    assert said.endswith("fitted on 5 columns, and the schema has 8, its encoding 17")


# What is no model at all.


@pytest.mark.parametrize("kind", [LogisticRegression, nn.Linear, CallableModel])
def test_a_class_is_no_instance(schema, kind):
    assert f"is the class {kind.__name__}, not an instance" in refusal(lambda: adapt(kind, schema))


def unfitted():
    yield LogisticRegression()
    yield make_pipeline(LogisticRegression())
    for package, name in (("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")):
        module = pytest.importorskip(package, reason=f"{package} is not installed")
        yield getattr(module, name)()


def test_estimators_that_are_not_fitted(schema, frame):
    for estimator in unfitted():
        said = refusal(lambda estimator=estimator: ask_frame(adapt(estimator, schema), frame))
        assert said == "the model is not fitted; call its fit first"


def test_models_without_probabilities_or_of_several_labels(schema, frame, rows):
    for estimator in (LinearRegression(), SVC()):
        said = refusal(lambda estimator=estimator: adapt(estimator, schema))
        assert "has predict but no predict_proba" in said
    for other in (rows.member, rows.degree):  # of two values, of three
        both = np.stack([rows.loan, other], axis=1)
        model = MultiOutputClassifier(LogisticRegression()).fit(frame[NUMBERS], both)
        assert "several labels" in refusal(lambda model=model: adapt(model, schema))


@pytest.mark.parametrize("thing", [None, 3, [1.0], {"weight": torch.ones(2)}, b"model", ""])
def test_things_that_are_no_models(schema, thing):
    refusal(lambda: adapt(thing, schema))


@pytest.mark.parametrize("path", ["model.pkl", "no model", "loans.pt2"])
def test_texts_that_are_no_path_of_onnx(schema, path):
    assert "counterveil.models.load_model" in refusal(lambda: adapt(path, schema))


def test_weights_without_a_network(schema):
    weights = nn.Linear(schema.width, 2).state_dict()
    assert "weights without a network" in refusal(lambda: adapt(weights, schema))


# Values of other types than the schema's.


def test_people_are_decided_on_alike_however_their_table_is_written(veil, frame, rows):
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["region"]), ("passthrough", ["income"])
    )
    loan = np.where((frame.region == 2) ^ (frame.income > 5), "granted", "refused")
    model = make_pipeline(columns, DecisionTreeClassifier(max_depth=4)).fit(frame, loan)
    queries = frame.head(20)
    expected = model.predict(queries)
    few_calls = CallableModel(model.predict_proba, veil.schema, batch=50, max_calls=40)
    explainer = Explainer(veil, few_calls)
    for kind in ("float64", "str"):
        written = queries.assign(region=queries.region.astype(kind))
        result = explainer.explain(written, progress=False, method="iterations", iterations=0)
        decided = np.array(veil.schema.label.classes)[result.predicted]
        np.testing.assert_array_equal(decided, expected)
        assert result.queries.region.dtype == np.int64


# Values that the model cannot take.


def estimator(frame, loan, *steps, **options):
    """A pipeline of plain encoders, fitted on some columns."""
    columns = make_column_transformer(*steps, **options)
    return make_pipeline(columns, LogisticRegression()).fit(frame, loan)


def test_a_category_that_an_encoder_has_never_seen_is_named(veil, schema, frame, rows):
    known = frame.housing != "free"
    steps = (OneHotEncoder(), ["housing", "member"]), ("passthrough", NUMBERS)
    model = estimator(frame[known], rows.loan[known], *steps)
    told = "cannot take 'free' of 'housing', which it may never have seen"
    said = refusal(lambda: ask_frame(adapt(model, schema), frame))
    assert told in said
    assert 'handle_unknown="ignore"' in said
    explainer = Explainer(veil, model)  # the search meets it where no query has it
    said = refusal(lambda: explainer.explain(frame[known].head(3), progress=False))
    assert told in said


def test_what_a_model_cannot_take_is_in_no_region(release_once, schema, frame, rows, tmp_path):
    known = frame.housing != "free"  # which the schema has
    veil = release_once(schema, rows[known], 100.0, epochs=6)
    steps = (OneHotEncoder(), ["housing"]), ("passthrough", NUMBERS)
    model = estimator(frame[known], rows.loan[known], *steps)
    queries = frame[known][model.predict(frame[known]) == "refused"].head(10)
    result = Explainer(veil, model).explain(queries, "granted", progress=False)
    result.save(tmp_path / "answers.html")
    listed = result.changes()["values"].dropna()
    assert len(listed)
    assert not any("free" in each for each in listed)
    assert any(result.reasons_of(query) for query in range(10))


def test_a_missing_value_that_a_model_cannot_take_is_named(schema, frame, rows):
    known = frame.debt.notna()
    model = estimator(frame[known], rows.loan[known], ("passthrough", [*NUMBERS, "debt"]))
    said = refusal(lambda: ask_frame(adapt(model, schema), frame))
    assert "cannot take a missing 'debt': put an imputer" in said
    answers_nan = adapt(lambda some: np.stack([some.debt, 1 - some.debt], axis=1) * 0 + 0.5, schema)
    said = refusal(lambda: ask_frame(answers_nan, frame))
    assert "NaN" in said
    assert "cannot take a missing 'debt'" in said


def test_a_number_that_a_model_cannot_take_is_not_told(schema, frame):
    def picky(some):
        assert not (some.age == 33).any()
        return np.full((len(some), 2), 0.5)

    said = refusal(lambda: ask_frame(adapt(picky, schema), frame.assign(age=[33, *frame.age[1:]])))
    assert "cannot take a number of 'age' that the schema allows, 18 to 100" in said
    assert "33" not in said


def test_a_function_whose_calls_are_counted_is_not_probed(schema, frame):
    def fails(some):
        raise ValueError

    model = CallableModel(fails, schema, max_calls=10)
    assert "set 'inputs'" in refusal(lambda: ask_frame(model, frame))
    assert model.calls == 1


def test_columns_in_another_order_are_noticed(release_once, schema, rows, frame):
    three = ["age", "income", "children"]
    narrow = schema.model_copy(update={"features": tuple(schema.feature(name) for name in three)})
    granted = np.where(frame.income > 5, "granted", "refused")
    known = rows.children.notna()
    table = frame[known][[*three]].astype(float)
    veil = release_once(narrow, table.assign(loan=granted[known]), 100.0, epochs=6)

    def explained(columns, veil=veil):
        model = LogisticRegression(max_iter=1000).fit(table[columns].to_numpy(), granted[known])
        return Explainer(veil, model)

    explained([*three])  # without a warning
    with pytest.warns(CounterveilWarning, match="and contradicts what the veil knows") as caught:
        explained(["income", "age", "children"])
    assert "schema's order, age, income, children" in str(caught[0].message)
    unsure = release_once(narrow, table.assign(loan=granted[known]), 0.01, epochs=1)
    with pytest.warns(CounterveilWarning, match="names: it gets its columns in the schema's order"):
        explained([*three], unsure)
    # Where the encoding has as many columns, it is what the model gets.
    two = narrow.model_copy(update={"features": narrow.features[:2]})
    three.remove("children")
    veil = release_once(two, table[three].assign(loan=granted[known]), 100.0, epochs=6)
    with pytest.warns(CounterveilWarning, match="gets its columns, encoded, in the schema's order"):
        explained(three, veil)
    # Text that such a model cannot take.
    told = HistGradientBoostingClassifier().fit(np.zeros((9, 8)), rows.loan[:9])
    said = refusal(lambda: ask_frame(adapt(told, schema), frame))
    assert "fitted without column names" in said
