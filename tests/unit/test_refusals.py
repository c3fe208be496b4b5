"""Queries without an answer: proved or not, the closest allowed row, the rule in the way."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows

from counterveil import Explainer
from counterveil.report import explanation_table
from counterveil.schema import Categorical, Label, Numeric, Pixels, Schema
from counterveil.search.constraints.rules import Rules
from counterveil.search.results.refusals import Opening, Status
from counterveil.service.answers import records
from counterveil.terminal import out
from results import explanations

SCHEMA = Schema(
    name="people",
    label=Label(name="y", classes=("no", "yes")),
    features=(
        Numeric(name="age", lower=0, upper=100, integer=True, immutable=True),
        Categorical(name="education", categories=("school", "bachelor")),
        Numeric(name="hours", lower=0, upper=100, integer=True),
    ),
)
QUERY = {"age": 30, "education": "school", "hours": 40}
CLOSEST = QUERY | {"education": "bachelor", "hours": 60}
IMPOSSIBLE = (
    "The model says no. Proved: no row within the rules makes it say yes. Even with bachelor for "
    "education and 60 for hours, it would be only 41% sure."
)


def refused(status="impossible", opening=None, opened=None, closest=CLOSEST, **more):
    """The first of two queries has no answer, the second one has."""
    found = QUERY | {"hours": 50}
    fields = {
        "reason": np.array(["proved: no row convinces the model", ""], dtype=object),
        "asked": np.array([312, 20]),
        "best_probability": np.array([0.41, np.nan]),
        "closest": pd.DataFrame([closest, QUERY]),
        "opens": [opening, None],
        "opened": pd.DataFrame([opened or QUERY, QUERY]),
    }
    fields |= {
        "status": np.array([status, "found"], dtype=object),
        "probability": np.array([0.2, 0.8]),
        "distance": np.array([0.0, 0.1]),
        "changed": np.array([0, 1]),
    }
    return explanations(SCHEMA, [QUERY, QUERY], [QUERY, found], **(fields | more))


def opening(rule="immutable", feature="age", **more):
    return Opening(rule, feature, 0.62, np.zeros(4), **more)


UNCONVINCED = np.array(["no row within the rules convinced the model", ""], dtype=object)


def test_a_proved_no_in_words():
    assert refused().text(0) == IMPOSSIBLE
    way = " It would become possible if age might change, for example to 45 (62% sure)."
    assert refused(opening=opening(), opened=QUERY | {"age": 45}).text(0) == IMPOSSIBLE + way
    same = refused(closest=QUERY).text(0)
    assert same.endswith("No allowed change makes the model surer than now (41% sure).")
    why = refused(reason=np.array(["the rules leave nothing that may change", ""], dtype=object))
    assert "makes it say yes: the rules leave nothing that may change." in why.text(0)


def test_what_was_not_found_in_words():
    said = refused("not_found", reason=UNCONVINCED).text(0)
    assert said == (
        "The model says no. No way to yes was found; the model was asked about 312 rows. The "
        "closest allowed: with bachelor for education and 60 for hours, it would be 41% sure."
    )
    why = refused("not_found", reason=np.array(["x cannot hold", ""], dtype=object)).text(0)
    assert "was found: x cannot hold; the model was asked about 312 rows." in why


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (opening("direction"), "if age might change in the other direction, for example to 45"),
        (opening("allowed"), "if age might change beyond the allowed values, for example to 45"),
        (opening("transitions"), "if age might change in other steps, for example to 45"),
        (opening("max_changes", None, limit=2), "if more than 2 features might change, for"),
        (opening("only_one", None), "if more than one feature of a group might change, for"),
        (opening("relations", None), "if the rule relations did not hold, for example with 45"),
    ],
)
def test_the_rule_that_is_in_the_way(given, words):
    said = refused(opening=given, opened=QUERY | {"age": 45}).text(0)
    assert f"It would become possible {words}" in said
    both = refused(opening=given, opened=QUERY | {"age": 45, "hours": 50}).text(0)
    assert both.endswith("for example with 45 for age and 50 for hours (62% sure).")


def test_tables_and_counts():
    result = refused(opening=opening(), opened=QUERY | {"age": 45})
    assert result.headline.startswith("2 queries: 1 found, 0 not found, 1 impossible; mean")
    assert (result.flip_ratio, result.count(Status.IMPOSSIBLE)) == (0.5, 1)
    assert result.unanswered.tolist() == [0]
    assert result.summary()["asked"].tolist() == [312, 20]
    assert result.summary()["best_probability"][0] == 0.41
    found = result.only([1])
    assert "asked" not in found.summary()
    assert found.refusal_of(0) is None
    assert result.only([1, 0]).text(1) == result.text(0)
    again = pickle.loads(pickle.dumps(result))
    assert again.text(0) == result.text(0)
    unknown = refused(asked=None, best_probability=None)
    assert "asked" not in unknown.summary()
    assert unknown.text(0).endswith("makes it say yes.")


def test_records_for_machines():
    result = refused(opening=opening(), opened=QUERY | {"age": 45})
    first, second = json.loads(json.dumps(result.to_dict()))["explanations"]
    assert (first["status"], first["asked"], first["best_probability"]) == ("impossible", 312, 0.41)
    assert first["closest"] == [
        {"column": "education", "from": "school", "to": "bachelor"},
        {"column": "hours", "from": 40, "to": 60},
    ]
    assert first["opens"] == {
        "rule": "immutable", "feature": "age", "to": 45, "probability": 0.62,
        "changes": [{"column": "age", "from": 30, "to": 45}],
    }  # fmt: skip
    assert {"asked", "best_probability", "closest", "opens"}.isdisjoint(second)
    first, second = json.loads(json.dumps(records(result)))
    assert (first["asked"], first["opens"]["to"], first["ways"]) == (312, 45, [])
    assert "Even with" in first["text"]
    assert "asked" not in second
    assert refused().to_dict()["explanations"][0]["opens"] is None


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_files_have_plain_columns(kind, tmp_path):
    path = tmp_path / f"cf.{kind}"
    refused(opening=opening(), opened=QUERY | {"age": 45}).save(path)
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "json": pd.read_json}[kind]
    first = read(path).iloc[0]
    assert (first["asked"], first["best_probability"]) == (312, pytest.approx(0.41))
    assert json.loads(first["closest"]) == {"education": "bachelor", "hours": 60}
    assert (first["opens_rule"], first["opens_feature"]) == ("immutable", "age")
    assert (str(first["opens_to"]).removesuffix(".0"), first["opens_probability"]) == ("45", 0.62)
    found = refused().only([1]).table(whole=True)
    assert found.columns.tolist() == read(path).columns.tolist()


def test_pages_and_pictures_show_the_closest_row():
    result = refused(opening=opening(), opened=QUERY | {"age": 45})
    page = result.to_html()
    assert "<dt>impossible</dt><dd>1</dd>" in page
    assert "the closest allowed row</b>" in page
    assert "<tr><td>hours</td><td>40</td><td><b>60</b></td></tr>" in page
    assert "It would become possible if age might change" in page
    with out.capture() as captured:
        out.print(explanation_table(result, 0))
    assert "Proved: no row" in captured.get()
    pytest.importorskip("matplotlib")
    words = [text.get_text() for text in result.plot(0).axes[0].texts]
    assert "query 1 · the closest allowed row" in words
    assert {"education", "bachelor", "60"} <= set(words)
    image = Pixels(name="p", height=2, breadth=2)
    schema = SCHEMA.model_copy(update={"features": (image,)})
    dark = dict.fromkeys(image.columns, 0)
    frames = {"queries": pd.DataFrame([dark] * 2), "rows": pd.DataFrame([dark] * 2)}
    closest = pd.DataFrame([dark | {"p1": 9}, dark])
    picture = replace(result, schema=schema, closest=closest, opened=closest, **frames)
    assert "Even with 1 of 4 pixels different" in picture.text(0)
    assert [axes.get_title() for axes in picture.plot(0).axes[:2]] == [
        "now: no",
        "closest (41% sure)",
    ]


@pytest.fixture(scope="module")
def asked(veil, model, schema):
    """An Explainer, and what its builder is given for six queries that no row answers."""
    explainer = Explainer(veil, model)
    usual, given = explainer._builder, []
    explainer.__dict__["_builder"] = lambda *each: given.append(each) or usual(*each)
    explainer.explain(random_rows(schema, 6, seed=3), k=2, max_changes=1, progress=False)
    request, found = given[0]
    return usual, request, replace(found, accepted=torch.zeros_like(found.accepted))


def test_a_proof_is_not_believed_against_the_model(asked):
    builder, request, found = asked
    nobody, everybody = found.accepted, torch.ones_like(found.accepted)
    proved, points = torch.ones_like(found.proved), request.asked.points
    told = replace(found, accepted=everybody, proved=proved, closest=points)
    told = replace(told, asked=torch.zeros_like(found.asked), opens=[None] * len(points))
    plain, result = builder(request, replace(told, says_why=False)), builder(request, told)
    assert result.status.tolist() == plain.status.tolist()
    closest = points.clone()
    closest[plain.found] = found.rows[plain.found, 0]
    refused = builder(request, replace(told, accepted=nobody, closest=closest)).status[::2]
    assert set(refused[plain.found]) == {"not_found"}


def test_no_row_of_another_query_comes_in(schema, veil):
    """Of people who are asked about together, one may do nothing: the closest row is their own."""
    model = torch.nn.Sequential(torch.nn.Linear(schema.width, 2))
    explainer = Explainer(veil, model.requires_grad_(False).eval())
    queries = random_rows(schema, 12, seed=3)
    stays = Rules(immutable=[feature.name for feature in schema.features])
    rules = [Rules(max_changes=1), stays] * 6
    for prefer in ("believable", "nearest"):
        result = explainer.explain(queries, rules=rules, prefer=prefer, progress=False)
        assert set(result.status[1::2]) <= {"not_found", "impossible"}
        closest, own = result.closest.iloc[1::2], result.queries.iloc[1::2]
        pd.testing.assert_frame_equal(closest, own, check_dtype=False)
