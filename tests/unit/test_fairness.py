"""Fairness by groups: exact figures against pandas, and people whom the veil knows."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError, VeilError
from counterveil.population import population_of
from counterveil.population.again import noise_again
from counterveil.schema import Categorical, Schema
from counterveil.search import fairness
from counterveil.search.results.fairness import MEASURES, NOT_KNOWN, TOO_FEW, Cell, Known
from counterveil.veil import Veil

RULES = {"max_changes": 1, "progress": False}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    for name, value in {"DRAWN": 2000, "DRAWS": 1, "AGAIN": 2, "ANSWERED": 40}.items():
        monkeypatch.setattr(fairness, name, value)


def test_exact_figures_are_those_of_pandas(explainer, rows):
    people = rows.head(300)
    found = explainer.fairness(["housing"], "granted", people=people, **RULES)
    refused = pd.Series(explainer.decide(people).argmax(axis=1) == 0, index=people.index)
    told = explainer.explain(people, "granted", immutable=["housing"], **RULES)
    frame = pd.DataFrame(
        {"refused": refused, "answered": told.valid, "effort": told.effort, "changes": told.changed}
    ).groupby(people["housing"].fillna("missing").to_numpy())
    for group in found.groups:
        own, cells = (
            frame.get_group(group.values["housing"]),
            {c.measure.name: c for c in group.cells},
        )
        no, answered = own[own["refused"]], own[own["refused"] & own["answered"]]
        expected = {
            "refused": own["refused"].mean(),
            "answered": no["answered"].mean(),
            "effort": answered["effort"].mean(),
            "changes": answered["changes"].mean(),
        }
        for name, value in expected.items():
            if cells[name].estimate is not None:
                assert cells[name].estimate.value == pytest.approx(value)
    assert found.exact
    assert found.to_dict()["private"]
    assert "EXACT" in found.to_html()


def test_people_of_the_veil(explainer):
    found = explainer.fairness(["member", "degree"], "granted", **RULES)
    assert len(found.groups) == 2 + 3 + 2 * 3
    refused = found.groups[0].cells[0].estimate
    assert refused is not None
    assert refused.low < refused.value < refused.high
    assert json.loads(json.dumps(found.to_dict()))["groups"][0]["values"] == {"member": "no"}
    assert "guarantee" in found.to_html()
    assert set(found.frame()["measure"]) <= {measure.name for measure in MEASURES}
    again = explainer.fairness(["member", "degree"], "granted", **RULES)
    assert again.to_dict() == found.to_dict()


@pytest.mark.parametrize(
    ("groups", "target", "words"),
    [
        (["income"], "granted", "number"),
        (["incom"], "granted", "incom"),
        ([], "granted", "at least one"),
        (["member", "member"], "granted", "once"),
        (["member"], "perhaps", "which class"),
    ],
)
def test_wrong_questions(explainer, groups, target, words):
    with pytest.raises(Exception, match=words):
        explainer.fairness(groups, target, progress=False)


def test_a_stand_in_is_not_asked(explainer):
    stand_in = Explainer(explainer.veil, guidance="surrogate")
    with pytest.raises(RequestError, match="guidance"):
        stand_in.fairness(["member"], "granted", progress=False)


def test_groups_and_intervals_are_told_with_care():
    values = np.tile([0.0, 1.0], 200)

    def cell(people, noise):
        measure = MEASURES[0]
        return Cell.of(measure, Known.of(measure, values, people, noise, like=np.inf))

    assert cell(10, 0.0).text == TOO_FEW
    assert cell(1000, 0.4).text == NOT_KNOWN
    assert cell(1000, 0.05).estimate is not None
    exact, vague = (cell(np.inf, noise).estimate for noise in (0.0, 0.05))
    assert exact is not None
    assert vague is not None
    assert vague.high - vague.low > exact.high - exact.low
    for measure in MEASURES:
        values = np.array([1.0] * 60 + [0.0 if measure.is_share else 0.6] * 4)
        known = Known.of(measure, values, 60.0, 0.0, like=np.inf)
        estimate = Cell.of(measure, known).estimate
        assert estimate is not None
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= measure.most


def test_noise_again_is_that_of_the_record(explainer):
    record = explainer.veil.record
    assert record is not None
    other = noise_again(record, np.random.default_rng(0))
    for one, two in zip(record.measurements, other.measurements, strict=True):
        moved = (two.values - one.values).astype(float)
        if one.name == "ranges":
            assert not moved.any()
        elif moved.size > 100:
            assert moved.std() == pytest.approx(one.variance**0.5, rel=0.5)


@pytest.fixture(scope="module")
def grouped(release_once, schema, rows):
    """A veil with hardly any noise, of rows in which members who rent are old."""
    of_group = (rows["member"] == "yes") & (rows["housing"] == "rent")
    told = rows.assign(age=np.where(of_group, 90, rows["age"].clip(18, 60)))
    return release_once(schema, told, 1000.0, epochs=1, order=1, groups=("member", "housing"))


def test_a_veil_knows_the_groups_that_were_named(grouped):
    people = grouped.population().by_groups()
    rng = np.random.default_rng(0)
    points, _ = people.sample(4000, rng)
    frame = Encoding(grouped.schema).decode(points)
    of_group = (frame["member"] == "yes") & (frame["housing"] == "rent")
    assert of_group.mean() == pytest.approx(1 / 8, abs=0.04)
    assert (frame["age"][of_group] > 70).mean() > 0.8
    assert (frame["age"][~of_group] > 70).mean() < 0.1
    assert Veil.from_bytes(grouped.to_bytes()).digest == grouped.digest
    assert any("groups: member, housing" in reason for reason in grouped.statement.plan)


def test_groups_that_are_refused(grouped, schema, rows):
    for places in ((), (7,), (7, 7), (0, 4), (7, 99)):
        with pytest.raises(VeilError, match="noisy record"):
            population_of(grouped.schema, replace(grouped.record, groups=places))
    curator = Curator(schema)
    with pytest.raises(RequestError, match="number"):
        curator.plan(rows, 1.0, groups=["income"])
    many = [Categorical(name=f"c{n}", categories=tuple("abcdefghi")) for n in range(2)]
    wide = Schema(features=(*many, *schema.features), label=schema.label)
    with pytest.raises(RequestError, match="81 groups"):
        Curator(wide).plan(rows.assign(c0="a", c1="a"), 1.0, groups=["c0", "c1"])
    with pytest.raises(RequestError, match="functional"):
        curator.release(rows, 1.0, mechanism="paper", groups=["member"], progress=False)
