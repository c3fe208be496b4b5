import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from rows import random_rows

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.errors import DataError, RequestError
from counterveil.models import CallableModel, save_exported
from counterveil.schema import Label, Numeric, Schema
from counterveil.search import Rules


@pytest.fixture(scope="module")
def queries(schema):
    return random_rows(schema, 60, seed=9)


@pytest.fixture(scope="module")
def result(explainer, queries):
    return explainer.explain(queries, progress=False)


def test_found_means_that_the_model_says_so_on_the_row_given_out(result, model, schema):
    assert result.flip_ratio > 0.8
    rows = result.frame()
    points = torch.tensor(Encoding(schema).encode(rows)).float()
    assert (model(points).argmax(dim=1).numpy() == result.target[result.valid]).all()
    assert (result.target != result.predicted).all()
    proba = model(points).softmax(dim=1).numpy()
    chosen = proba[np.arange(len(rows)), result.target[result.valid]]
    np.testing.assert_allclose(result.probability[result.valid], chosen, atol=1e-5)


def test_rules_hold_exactly_in_original_units(result, queries):
    rows = result.rows
    assert (rows.region == queries.region).all()
    assert (rows.age >= queries.age).all()
    moved = result.valid & (rows.debt.notna() & (rows.debt != queries.debt)).to_numpy()
    assert rows.debt[moved].between(-2.5, 2.5).all()
    outside = queries.debt.notna() & ~queries.debt.between(-2.5, 2.5)
    assert (rows.debt == queries.debt)[outside].any()  # what is not allowed may stay


def test_last_is_the_papers_way_and_best_is_never_farther(explainer, queries):
    last = explainer.explain(queries, method="iterations", keep="last", progress=False)
    best = explainer.explain(queries, method="iterations", progress=False)
    both = last.valid & best.valid
    assert best.flip_ratio >= last.flip_ratio
    assert (best.distance[both] <= last.distance[both] + 1e-6).mean() > 0.95


def test_distance_and_changes_are_those_of_the_rows(result, queries, schema):
    encoding = Encoding(schema)
    moved = encoding.encode(result.rows) - encoding.encode(queries)
    np.testing.assert_allclose(result.distance, np.linalg.norm(moved, axis=1))
    counted = result.changes().groupby("query").size()
    assert (counted == result.changed[counted.index - 1]).all()
    assert (result.distance[~result.valid] == 0).all()
    for number in np.flatnonzero(result.valid)[:20]:
        changed = {column for column, _, _ in result.changes_of(int(number))}
        for column in set(result.schema.columns) - changed:
            before, after = queries.iloc[number][column], result.rows.iloc[number][column]
            assert (pd.isna(before) and pd.isna(after)) or before == after


@pytest.mark.long
def test_not_found_keeps_the_query_and_has_no_nan(veil, schema, queries):
    stubborn = CallableModel(lambda frame: np.tile([0.9, 0.1], (len(frame), 1)), schema)
    explainer = Explainer(veil, stubborn)
    result = explainer.explain(queries.head(5), iterations=3, progress=False)
    assert set(result.status) == {"not_found"}
    assert result.flip_ratio == 0
    assert len(result.frame()) == 0
    assert result.changes().empty
    assert np.isfinite(result.probability).all()
    assert "No way to granted" in result.text(0)
    assert json.loads(json.dumps(result.to_dict()))["mean_distance"] is None


def test_targets_and_margins_are_met(explainer, queries):
    result = explainer.explain(queries, "granted", progress=False)
    already = result.status == "already"
    assert (already == (result.predicted == 1)).all()
    assert already.any()
    assert (result.target == 1).all()
    assert (result.distance[already] == 0).all()
    assert "already says granted" in result.text(int(np.flatnonzero(already)[0]))
    wanted = ["granted", "refused"] * (len(queries) // 2)
    result = explainer.explain(queries, wanted, iterations=5, progress=False)
    assert result.target.tolist() == [1, 0] * (len(queries) // 2)
    with pytest.raises(RequestError, match="2 classes for 60 queries"):
        explainer.explain(queries, wanted[:2], progress=False)
    sure = explainer.explain(queries, margin=0.9, progress=False)
    assert sure.flip_ratio > 0.9
    assert (sure.probability[sure.valid] >= 0.9).all()


def test_unspecified_target_is_the_runner_up(release_once):
    label = Label(name="y", classes=("a", "b", "c"))
    schema = Schema(features=(Numeric(name="x", lower=0, upper=1),), label=label)
    table = pd.DataFrame({"x": np.linspace(0, 1, 30), "y": list("abc") * 10})
    veil = release_once(schema, table, 10, epochs=1)
    fixed = np.array([0.2, 0.5, 0.3])
    explainer = Explainer(veil, lambda frame: np.tile(fixed, (len(frame), 1)))
    result = explainer.explain(table.head(3), iterations=1, progress=False)
    assert result.predicted.tolist() == [1, 1, 1]
    assert result.target.tolist() == [2, 2, 2]


@pytest.mark.long
def test_same_seed_same_answer_whatever_the_chunks(explainer, veil, model, queries):
    whole = explainer.explain(queries, iterations=40, progress=False)
    small = Explainer(veil, model, chunk=7)
    parts = small.explain(queries, iterations=40, progress=False)
    assert (whole.status == parts.status).all()
    # Matrix products round by size; a halving of the way may then end one step (1/32) apart.
    np.testing.assert_allclose(whole.distance, parts.distance, atol=1 / 32)
    afresh = Explainer(veil, model)
    again = afresh.explain(queries, iterations=40, progress=False)
    pd.testing.assert_frame_equal(whole.rows, again.rows)


def test_requests_that_cannot_be_met(explainer, veil, model, queries):
    with pytest.raises(RequestError, match=r"no class 'approved'; .* the texts refused, granted"):
        explainer.explain(queries, "approved", progress=False)
    with pytest.raises(RequestError, match="list of feature names"):
        explainer.explain(queries, immutable="age", progress=False)
    with pytest.raises(RequestError, match="chunk"):
        Explainer(veil, model, chunk=0)
    for wrong, words in (([], "empty"), (3, "got int"), ({"age": [1, 2], "income": [1]}, "length")):
        with pytest.raises(DataError, match=words):
            explainer.explain(wrong, progress=False)


def test_rows_come_in_any_everyday_form(explainer, queries, tmp_path):
    few = queries.head(2)
    wanted = explainer.explain(few, progress=False).explain()
    few.to_csv(tmp_path / "few.csv", index=False)
    few.to_feather(tmp_path / "few.arrow")
    few.to_parquet(tmp_path / "few.parquet")
    few.to_excel(tmp_path / "few.xlsx", index=False)
    files = [tmp_path / f"few.{kind}" for kind in ("csv", "arrow", "parquet", "xlsx")]
    records = few.to_dict(orient="records")
    columns = {"list": few.to_dict(orient="list"), "series": few.to_dict(orient="series")}
    forms = [*files, str(files[0]), records, *columns.values(), pa.Table.from_pandas(few)]
    for form in forms:
        assert explainer.explain(form, progress=False).explain() == wanted
    first = explainer.explain(queries.head(1), progress=False).explain(0)
    for form in (queries.iloc[0], records[0]):
        assert explainer.explain(form, progress=False).explain(0) == first


def test_the_callers_index_survives(explainer, queries, tmp_path):
    who = pd.Index([f"person {number}" for number in range(len(queries))], name="who")
    named = queries.set_axis(who)
    result = explainer.explain(named, progress=False)
    assert list(result.frame().index) == list(named.index[result.valid])
    for frame in (result.rows, result.queries, result.summary()):
        pd.testing.assert_index_equal(frame.index, who)
    first = result.changes().index[0]
    assert first == who[result.found[0]]
    pd.testing.assert_frame_equal(result.only([3]).rows, result.rows.iloc[[3]])
    for kind, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet), ("json", pd.read_json)):
        result.save(tmp_path / f"cf.{kind}")
        assert list(read(tmp_path / f"cf.{kind}")["who"]) == list(who)
    one = named.loc[result.frame().index[0]]
    assert list(explainer.explain(one, progress=False).frame().index) == [one.name]
    several = explainer.explain(named.head(2), k=2, progress=False)
    assert several.rows.index.names == ["who", "answer"]
    several.save(tmp_path / "cf.csv")
    assert list(pd.read_csv(tmp_path / "cf.csv").columns[:3]) == ["who", "query", "answer"]
    assert explainer.explain(queries.head(2).to_dict("records"), progress=False).index is None


def test_a_frame_has_the_callers_types_and_further_columns(explainer, queries):
    own = {"age": "int8", "region": "float64", "children": "Int8", "debt": "float64"}
    own |= {"degree": "category", "member": "string"}
    known = queries[queries.degree == "none"].assign(customer=7).astype(own)
    found = explainer.explain(known, "granted", progress=False).frame()
    assert len(found)
    assert found.columns[0] == "customer"
    for name in ("age", "region", "children", "debt", "member", "customer"):
        assert found[name].dtype == known[name].dtype, name
    assert set(found.degree.cat.categories) == {"none", *found.degree.dropna()}
    coarse = known.astype({"income": "float16"})  # what is found may have more digits
    result = explainer.explain(coarse, "granted", progress=False)
    pd.testing.assert_series_equal(
        result.frame().income, result.rows[result.valid].income, check_dtype=False
    )
    records = explainer.explain(known.to_dict("records"), "granted", progress=False)
    assert records.frame().age.dtype == np.int64


def test_an_index_called_like_other_columns(explainer, queries, tmp_path):
    for name in ("query", "age"):
        explainer.explain(queries.head(2).rename_axis(name), progress=False).save(
            tmp_path / "f.csv"
        )
        table = pd.read_csv(tmp_path / "f.csv")
        assert table.columns[0] == f"counterveil_{name}"
        assert list(table["query"]) == [1, 2]


def test_rules_as_keywords(explainer, queries):
    by_rules = explainer.explain(queries, rules=Rules(max_changes=1), progress=False)
    by_keyword = explainer.explain(queries, max_changes=1, progress=False)
    pd.testing.assert_frame_equal(by_rules.rows, by_keyword.rows)
    with pytest.raises(RequestError, match="not both"):
        explainer.explain(queries, rules=Rules(), max_changes=1, progress=False)
    with pytest.raises(RequestError, match=r"no option .max_change.; did you mean .max_changes."):
        explainer.explain(queries, max_change=1, progress=False)


@pytest.mark.parametrize(
    ("classes", "asked", "found"),
    [
        ((0, 1), "0", 0), ((0, 1), 1.0, 1), ((0, 1), True, 1), ((0, 1), np.int64(1), 1),
        (("0", "1"), 1, "1"), (("no", "yes"), "yes", "yes"), (("no", "yes"), np.str_("yes"), "yes"),
        ((False, True), "true", True), ((False, True), 1, True), ((False, True), True, True),
    ],
)  # fmt: skip
def test_a_class_is_known_however_it_is_written(classes, asked, found):
    called = Label(name="y", classes=classes).class_called(asked)
    assert called == found
    assert type(called) is type(found)
    assert Label(name="y", classes=classes).class_called("2") == "2"  # no class: refused later


def test_paths_are_enough(veil, model, schema, queries, tmp_path):
    veil.save(tmp_path / "x.veil")
    save_exported(model, schema, tmp_path / "model.pt2")
    explainer = Explainer(tmp_path / "x.veil", tmp_path / "model.pt2")
    assert explainer.explain(queries.head(5), progress=False).flip_ratio > 0


def test_too_many_answers_are_refused_at_once(explainer, rows):
    for k in (0, 10**10):
        with pytest.raises(RequestError, match="k must be a whole number from 1 to 1000"):
            explainer.explain(rows.head(3), k=k)
    with pytest.raises(RequestError, match="iterations must be"):
        explainer.explain(rows.head(3), iterations=10**10)


def test_a_model_whose_calls_are_counted_is_asked_once_about_each_answer(
    veil, model, schema, queries
):
    asked = []

    def remote(rows):
        asked.append(len(rows))
        points = torch.tensor(Encoding(schema).encode(rows)).float()
        return model(points).softmax(dim=1).detach().numpy()

    few_calls = CallableModel(remote, schema, batch=500, max_calls=100)
    result = Explainer(veil, few_calls).explain(queries, progress=False)
    assert len(asked) <= 100
    decided = remote(result.frame()).argmax(axis=1)
    assert result.valid.any()
    assert (decided == result.target[result.valid]).all()


def test_where_the_private_model_is_never_sure_a_class_that_wins_is_enough(veil, queries):
    explainer = Explainer(veil, guidance="surrogate")
    few = {"prefer": "nearest", "max_changes": 1, "progress": False}
    result = explainer.explain(queries, **few)
    sure = explainer.explain(queries, margin=0.95, **few)
    assert sure.valid.sum() < result.valid.sum()


@pytest.mark.parametrize("inputs", ["rows", "encoding"])
def test_the_model_is_asked_about_numbers_as_they_are_given_out(release_once, inputs):
    """225,000 of four million is 225,000.009 in float32: a tree that splits there would refuse."""
    features = (
        Numeric(name="price", lower=0, upper=4_050_000, immutable=True),
        Numeric(name="score", lower=0, upper=1),
    )
    schema = Schema(name="loans", label=Label(name="paid", classes=(0, 1)), features=features)
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"price": rng.uniform(0, 4e6, 300), "score": rng.random(300)})
    veil = release_once(schema, people.assign(paid=(people.score > 0.5).astype(int)), 50.0)

    def tree(rows):
        if inputs == "encoding":
            yes = (rows[:, 0] <= 225_000 / 4_050_000) & (rows[:, 1] > 0.5)
        else:
            yes = ((rows.price <= 225_000) & (rows.score > 0.5)).to_numpy()
        return np.where(yes[:, None], [0.2, 0.8], [0.8, 0.2])

    queries = pd.DataFrame({"price": [225_000.0], "score": [0.2]})
    explainer = Explainer(veil, CallableModel(tree, schema, inputs=inputs))
    for prefer in ("believable", "nearest"):
        result = explainer.explain(queries, 1, prefer=prefer, progress=False)
        assert result.valid.all()
        assert result.rows.price[0] == 225_000
