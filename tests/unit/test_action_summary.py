"""The few actions that would help most: every figure is what plain counting gives."""

import json

import numpy as np
import pytest
from boosters import classifier, package_of

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.errors import InputError
from counterveil.schema import Categorical, Numeric
from counterveil.search.action_summary import Change, _shared

RULES = Rules(may_change=["income", "housing", "age", "degree"], allowed={"income": (0, 9)})
FREE = ("income", "housing", "age", "degree")


@pytest.fixture(scope="module")
def people(rows):
    return rows.drop(columns="loan").head(300)


@pytest.fixture(scope="module")
def found(explainer, people):
    return explainer.summary_of_actions(people, "granted", groups=["member", "region"], rules=RULES)


def after(row, changes):
    """The row with the changes that it needs; None where the rules forbid them."""
    new = dict(row)
    for change in changes:
        column, sign, value = change["column"], change["sign"], change["value"]
        own = row[column]
        is_met = own == value if sign == "=" else own >= value if sign == ">=" else own <= value
        if is_met:
            continue
        new[column] = value
        order = ("none", "school", "college")
        falls = column == "degree" and order.index(value) < order.index(own)
        falls |= column == "age" and value < own
        if column not in FREE or falls or (column == "income" and value > 9):
            return None
    return new


def decide(explains, rows):
    """Which rows there are, and get the class."""
    there = np.array([row is not None for row in rows])
    there[there] = explains.decide([row for row in rows if row is not None]).argmax(axis=1) == 1
    return there


def test_each_share_is_what_counting_gives(explainer, people, found):
    records = people.astype(object).where(people.notna(), None).to_dict("records")
    without = [
        row for row, gets in zip(records, decide(explainer, records), strict=True) if not gets
    ]
    groups = {"everybody": lambda row: True}
    groups |= {
        f"member: {value}": lambda row, v=value: row["member"] == v for value in ("no", "yes")
    }
    groups |= {f"region: {value}": lambda row, v=value: row["region"] == v for value in (1, 2, 3)}
    assert found.table.group.unique().tolist() == [*groups]
    for name, part in found.table.groupby("group"):
        members = [row for row in without if groups[name](row)]
        helped = np.zeros(len(members), dtype=bool)
        for told in part.itertuples():
            assert told.people == sum(map(groups[name], records))
            assert told.without == len(members)
            mine = decide(explainer, [after(row, told.changes) for row in members])
            assert told.helps == pytest.approx(mine.mean())
            assert (mine & ~helped).mean() >= 0.02
            helped |= mine
            assert told.so_far == pytest.approx(helped.mean())
            assert told.effort > 0
            is_so = [after(row, told.changes) == row for row in records]
            assert told.have_it == pytest.approx(np.mean(is_so))
            assert told.have_it >= 0.02
    assert found.table.so_far.max() > 0.3


def test_it_is_shown_in_every_form(found):
    assert "told exactly" in found.headline
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["actions"][0]["changes"]
    for shown in (found.text, found.to_html()):
        assert found.table.action[0].split("; ")[0] in shown
        assert "member: yes" in shown


@pytest.mark.long
def test_from_the_veil_with_trees_and_with_the_private_model(veil, rows, schema):
    trees = classifier(package_of("lightgbm"))
    trees.fit(Encoding(schema).encode(rows), (rows.loan == "granted").astype(int))
    from counterveil.models import adapt

    adapted = adapt(trees, schema, inputs="encoding", classes=["refused", "granted"])
    for model in (adapted, None):
        found = Explainer(veil, model).summary_of_actions(draw=200, most=2)
        assert "from the veil" in found.headline
        assert 1 <= len(found.table) <= 2
        again = Explainer(veil, model).summary_of_actions(draw=200, most=2)
        assert found.text == again.text


def test_who_needs_nothing_and_whom_nothing_helps(explainer, people):
    got = people[explainer.decide(people).argmax(axis=1) == 1]
    none = explainer.summary_of_actions(got)
    assert "already" in none.text
    assert json.dumps(none.to_dict(), allow_nan=False)
    assert none.to_html()
    ignored = explainer.summary_of_actions(people, rules=Rules(may_change=["children"]))
    assert "no usual action helps" in ignored.text
    lacking = people[explainer.decide(people).argmax(axis=1) == 0]
    assert "too few to tell" in explainer.summary_of_actions(lacking.head(5)).text


def test_bad_requests(explainer, people):
    for groups, words in ((["income"], "is a number"), (["incom"], "incom")):
        with pytest.raises(InputError, match=words):
            explainer.summary_of_actions(people, groups=groups)


def test_changes_that_many_can_make():
    income = Numeric(name="income", lower=0, upper=60_000)
    assert _shared(income, 20.0, 41_234.5) == Change("income", ">=", 45_000)
    assert _shared(income, 50_000.0, 41_934.5) == Change("income", "<=", 40_000)
    assert _shared(income, None, 59_999.0).value == 60_000
    names = {"9": "high school", "13": "bachelor", "14": "master"}
    grade = Numeric(name="grade", lower=1, upper=14, integer=True, value_names=names)
    assert Change("grade", ">=", 13).in_words(grade) == "grade: bachelor or master"
    assert Change("income", ">=", 42_000).in_words(income) == "income: at least 42,000"
    home = Categorical(name="home", categories=("rent", "own"))
    assert Change("home", "=", "own").in_words(home) == "home: own"
