"""The private model: a classifier of rows, its files, and explanations of its decisions."""

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame
from rows import random_rows
from torch import nn

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.errors import DataError, ModelError, RequestError
from counterveil.models import adapt, load_model, save_private_model
from counterveil.models.export import onnx_bytes
from counterveil.private_model import BATCH, PrivateModel, logits_alone
from counterveil.search.results.refusals import Status
from counterveil.search.results.wording import DecidedBy


@pytest.fixture(scope="module")
def people(schema):
    return random_rows(schema, 200, seed=11)


def test_it_answers_like_a_classifier(veil, schema, people):
    model = veil.model("even")
    shares = model.predict_proba(people)
    assert shares.shape == (200, 2)
    assert shares.dtype == np.float64
    assert np.allclose(shares.sum(axis=1), 1)
    assert model.classes_.tolist() == ["refused", "granted"]
    assert model.feature_names_in_.tolist() == list(schema.columns)
    assert model.predict(people).tolist() == model.classes_[shares.argmax(axis=1)].tolist()
    points = torch.tensor(Encoding(schema).encode(people)).float()
    assert np.allclose(shares, veil.surrogate(points).softmax(dim=1).numpy(), atol=1e-6)
    assert "end-to-end, ε = 100; classes weigh equally" in repr(model)
    assert repr(model).startswith(f"PrivateModel('loans', veil {veil.digest[:12]}")


def test_wrong_rows_are_named(veil, people):
    many = pd.concat([people] * (BATCH // 200 + 1), ignore_index=True)
    many.loc[BATCH + 5, "housing"] = "castle"
    with pytest.raises(DataError, match=rf"row {BATCH + 6}, column 'housing'"):
        veil.model().predict(many)
    with pytest.raises(DataError, match="column 'income' is missing"):
        veil.model().predict(people.drop(columns="income"))
    with pytest.raises(DataError, match="empty"):
        veil.model().predict(people.head(0))


def test_classes_weigh_evenly_or_as_among_the_people(veil, people):
    even, shares = veil.model("even"), veil.population().class_share
    odds = even.predict_proba(people) * shares
    bayes = odds / odds.sum(axis=1, keepdims=True)
    assert np.allclose(veil.model("population").predict_proba(people), bayes, atol=1e-6)
    assert "as among the people" in repr(veil.model())
    assert "equally" in repr(replace(veil, record=None).model())  # as those of dpsgd
    with pytest.raises(RequestError, match="'even' or 'population'"):
        veil.model("odd")


class Moody(nn.Module):
    """Decides by a hair, and by another hair where rows are asked about together."""

    def forward(self, points):
        hair = 1e-6 if len(points) > 1 else -1e-6
        return torch.stack([points[:, 0] * 0, points[:, 0] * 0 + hair], dim=1)


def test_a_decision_does_not_depend_on_the_rows_beside(veil, schema, people):
    model = PrivateModel(schema, Moody(), veil.statement)
    assert set(model.predict(people)) == {"refused"}
    alone = logits_alone(model.logits, Encoding(schema).encode(people))
    assert set(alone.argmax(axis=1)) == {0}


@pytest.mark.parametrize("kind", [".onnx", ".pt2"])
@pytest.mark.parametrize("classes", ["even", "population"])
def test_a_file_answers_as_the_model_does(veil, schema, people, tmp_path, kind, classes):
    model = veil.model(classes)
    if kind == ".onnx":
        pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
    path = tmp_path / f"model{kind}"
    save_private_model(model, path)
    again = load_model(path, schema)
    assert np.allclose(ask_frame(again, people).exp(), model.predict_proba(people), atol=1e-6)
    with pytest.raises(RequestError, match="there already"):
        save_private_model(model, path)
    save_private_model(model, path, overwrite=True)
    with pytest.raises(RequestError, match=r"\.onnx or \.pt2"):
        save_private_model(model, tmp_path / "model.txt")


def test_an_onnx_file_is_one_by_the_standard(veil, schema, people, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the package onnx checks the file")
    runtime = pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
    save_private_model(veil.model(), tmp_path / "m.onnx")
    file = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(file, full_check=True)
    notes = {entry.key: entry.value for entry in file.metadata_props}
    assert json.loads(notes["classes"]) == ["refused", "granted"]
    assert notes["veil"] == veil.digest
    assert "end-to-end" in notes["statement"]
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for count in (1, 200):
        encoded = Encoding(schema).encode(people.head(count)).astype(np.float32)
        (shares,) = session.run(["probabilities"], {"encoded": encoded})
        assert np.allclose(shares, veil.model().predict_proba(people.head(count)), atol=1e-6)

    class Other(nn.Module):
        def forward(self, points):
            return torch.sin(points)

    with pytest.raises(ModelError, match=r"aten\.sin.*export it as \.pt2"):
        onnx_bytes(Other(), 3, 3, {})
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Sigmoid(), nn.Tanh())
    assert onnx_bytes(nn.Sequential(layers, nn.Linear(4, 2), nn.LogSoftmax(1)), 3, 2, {})


@pytest.fixture(scope="module")
def private(veil):
    """Explains the private model itself."""
    return Explainer(veil)


def test_the_private_model_is_explained_where_no_other_is_given(private, veil, schema, people):
    result = private.explain(people.head(40), progress=False)
    assert result.statement.level.value == "end-to-end"
    assert result.decided_by is DecidedBy.PRIVATE_MODEL
    assert result.flip_ratio == 1  # the model that is asked is the one that decides
    wanted = np.array(schema.label.classes)[result.target]
    assert veil.model().predict(result.rows).tolist() == wanted.tolist()
    now, goal = result.classes_of(0)
    start = f"The private model decides {now}. It would decide {goal} ("
    assert result.text(0).startswith(start)
    already = private.explain(people.head(9), target="refused", progress=False)
    at = int(np.flatnonzero(already.status == Status.ALREADY.value)[0])
    words = "The private model already says refused; nothing needs to change."
    assert already.text(at) == words
    nothing = private.explain(
        people.head(1), immutable=[feature.name for feature in schema.features], progress=False
    )
    assert "the rules leave nothing that may change" in nothing.text(0)
    assert nothing.text(0).startswith("The private model decides ")
    assert "consulted" in result.statement.level.meaning


def test_a_model_that_nobody_asked_is_never_said_to_agree(veil, model, people):
    foreign = Explainer(veil, model, guidance="surrogate")
    assert foreign.decided_by is DecidedBy.STAND_IN
    quick = {"method": "iterations", "iterations": 30, "progress": False}
    result = foreign.explain(people.head(5), target="granted", k=2, **quick)
    said = [result.text(query, answer) for query in range(5) for answer in (0, 1)]
    said += [result.explain(), *(str(why) for why in result.reason)]
    for words in said:
        assert "The model says" not in words
        assert "convinced the model" not in words
        assert "the private model decides" not in words.lower()
    assert any(words.startswith("The model was not asked.") for words in said)
    assert result.answer_of(0).classes == ("not asked", "granted")
    page = result.to_html()
    assert "not asked" in page
    assert "The target model was not asked" in page
    assert "was not asked" in result.decided_by.meaning
    assert "expected to carry over" in result.decided_by.meaning


class Turned(torch.nn.Module):
    """The opposite of what a network says."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, points):
        return -self.network(points)


def test_its_own_model_given_by_name_is_the_same(veil, model, schema, people):
    for classes in ("even", "population"):
        own = Explainer(veil, veil.model(classes))
        assert own.decided_by is DecidedBy.PRIVATE_MODEL
        assert own.statement.level.value == "end-to-end"
        shares = ask_frame(own.model, people).exp()
        assert np.allclose(shares, veil.model(classes).predict_proba(people), atol=1e-6)
    assert Explainer(veil, model).decided_by is DecidedBy.MODEL
    other = PrivateModel(schema, veil.surrogate, veil.statement, veil="of another file")
    foreign = Explainer(veil, other)
    assert foreign.decided_by is DecidedBy.MODEL
    assert foreign.statement.level.value == "explainer"
    forged = PrivateModel(schema, Turned(veil.surrogate), veil.statement, veil=veil.digest)
    said = ask_frame(Explainer(veil, forged).model, people).exp()
    sound = veil.model(forged.classes).predict_proba(people)
    assert np.allclose(said, sound, atol=1e-6)
    with pytest.raises(ModelError, match="another schema"):
        adapt(other, schema.model_copy(update={"name": "else"}))


def test_no_other_network_can_be_put_in_its_place(veil, model, people):
    """`m.logits = f` still said end-to-end."""
    own, explainer = veil.model(), Explainer(veil, guidance="surrogate")
    before = own.predict_proba(people)
    for name in ("logits", "statement", "veil", "population", "_network", "anything"):
        with pytest.raises(AttributeError):
            setattr(own, name, model)
    for name in ("model", "statement", "decided_by"):
        with pytest.raises(AttributeError):
            setattr(explainer, name, model)
    for buffer in own.logits.buffers():
        buffer.zero_()
    assert np.array_equal(own.predict_proba(people), before)
    surrogate = deepcopy(veil.surrogate)
    kept = PrivateModel(veil.schema, surrogate, veil.statement)
    before = kept.predict_proba(people)
    surrogate.points.zero_()
    assert np.array_equal(kept.predict_proba(people), before)
    forged = PrivateModel(veil.schema, model, veil.statement, veil=veil.digest)
    shares = ask_frame(Explainer(veil, forged).model, people).exp()
    assert np.allclose(shares, veil.model("even").predict_proba(people), atol=1e-6)


@pytest.mark.long
def test_nothing_learnt_with_a_model_is_found_by_an_answer_end_to_end(
    veil, schema, people, tmp_path, monkeypatch
):
    """Answers of f~ are the same bytes whether or not a model that agrees with it was explained."""
    monkeypatch.chdir(tmp_path)
    own, options = veil.model("even"), {"target": "granted", "progress": False}
    rows = people.head(6)

    def agrees_on_public_rows(frame):
        shares = own.predict_proba(frame).round(3)
        return shares / shares.sum(axis=1, keepdims=True)

    def answers():
        private = Explainer(veil, guidance="surrogate").explain(rows, **options)
        return private.rows.to_csv(), Explainer(veil).explain(rows, **options).rows.to_csv()

    before, digest = answers(), veil.digest
    for prefer in ("believable", "nearest"):
        Explainer(veil, agrees_on_public_rows).explain(rows, prefer=prefer, **options)
    Explainer(veil, agrees_on_public_rows).explain(rows, method="iterations", **options)
    assert veil.digest == digest
    assert answers() == before
    assert not list(tmp_path.iterdir())
    rows.to_parquet(tmp_path / "rows.parquet")
    asked = tmp_path / "rows.parquet", tmp_path / "answers", "granted"
    Explainer(veil, agrees_on_public_rows).explain_files(*asked, progress=False)
    for private in (Explainer(veil), Explainer(veil, guidance="surrogate")):
        with pytest.raises(RequestError, match="answers of another run"):
            private.explain_files(*asked, progress=False)
