"""Relations, groups, steps and what may change: what they mean, and that they are solved."""

import contextlib
import itertools
import random
import time

import numpy as np
import pandas as pd
import pytest
import torch
from campaigns.exhaustive import every_value
from campaigns.random_rules import draw_record, draw_rules, draw_schema, frame_of
from campaigns.rule_judge import NO_RULES, violations
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows
from worlds import rules_that_fit

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.schema import Categorical, Label, Link, Numeric, Pixels, Schema
from counterveil.schema.columns import arrays_of
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.decoding import Given, decode_answers
from counterveil.search.constraints.projection import Snap
from counterveil.search.constraints.relations import Relation, check_relations
from counterveil.tables import plain_rows

LABEL = Label(name="y", classes=(0, 1))


# --- Ties against brute force, on tiny domains ---


RULES = ("immutable", "direction", "allowed", "steps", "relations", "together", "only_one",
         "transitions")  # fmt: skip


def small_world(dice):
    """A schema of few rows, a query, and rules as JSON has them."""
    while (schema := draw_schema(dice, small=True)).links:
        continue
    return schema, draw_record(schema, dice), rules_that_fit(schema, dice, RULES)


def every_row(schema, query, **fixed):
    """All rows of a small schema that make nothing unknown; with one value given."""
    names = [feature.name for feature in schema.features]
    lists = [
        [fixed[each.name]] if each.name in fixed
        else every_value(each) + [None] * (query[each.name] is None)
        for each in schema.features
    ]  # fmt: skip
    return (dict(zip(names, values, strict=True)) for values in itertools.product(*lists))


@pytest.mark.parametrize("part", range(4))
def test_whatever_is_possible_is_found(part):
    """Rows are settled if any row keeps the rules; and what is pinned stays, if that can be."""
    settled = 0
    for seed in range(part * 50, part * 50 + 50):
        dice = random.Random(seed)
        schema, query, content = small_world(dice)
        rules = Rules.of_mapping(content)
        encoding, snap = Encoding(schema), Snap(Encoding(schema))
        points = encoding.encode(frame_of(schema, [query]))
        box, own = box_around(encoding, points, rules), torch.tensor(points).float()
        block = dice.choice(encoding.blocks)
        value = dice.choice(every_value(block.feature))
        pinned = torch.zeros_like(own, dtype=torch.bool)
        pinned[:, block.at] = True
        moved = own.clone()
        moved[:, block.at] = torch.tensor(block.feature.encode_value(value)).float()
        wild = torch.rand(own.shape, generator=torch.Generator().manual_seed(seed))
        for start, pins in ((own, None), (wild, None), (moved, pinned)):
            rows = snap(start, box, pins)
            assert not snap.broken(rows, box).any()
            (row,) = plain_rows(encoding.decode(rows.double().numpy()))
            kept = not violations(schema, content, query, row)
            assert bool(box.ties_held(rows)) == kept, (seed, query, row, content)
            if not kept:
                others = every_row(schema, query)
                assert all(violations(schema, content, query, each) for each in others), seed
            settled += kept
        if value != query[block.feature.name]:
            rows = every_row(schema, query, **{block.feature.name: value})
            if not all(violations(schema, content, query, other) for other in rows):
                assert row[block.feature.name] == value, (seed, query, row, content)
    assert settled > 20


def test_rows_are_settled_alike_alone_and_beside_others():
    """Whatever rules the others have."""
    dice = random.Random(5)
    for seed in range(8):
        schema, *_ = small_world(dice)
        queries = [draw_record(schema, dice) for _ in range(30)]
        rules = [Rules.of_mapping(rules_that_fit(schema, dice, RULES)) for _ in queries]
        encoding, snap = Encoding(schema), Snap(Encoding(schema))
        points = encoding.encode(frame_of(schema, queries))
        wild = torch.rand(points.shape, generator=torch.Generator().manual_seed(seed))
        together = snap(wild, box_around(encoding, points, rules), wild > 0.8)
        for number, each in enumerate(rules):
            part = slice(number, number + 1)
            alone = box_around(encoding, points[part], each)
            assert torch.equal(snap(wild[part], alone, wild[part] > 0.8), together[part]), number


# --- Steps ---


def stepped_schema():
    features = (
        Numeric(name="credit", lower=100, upper=2950, step=500),
        Numeric(name="rate", lower=0, upper=1, missing=True),
        Numeric(name="months", lower=1, upper=60, integer=True, direction="increase"),
    )
    return Schema(features=features, label=LABEL)


def test_numbers_that_change_are_multiples_of_their_steps():
    schema, rng = stepped_schema(), np.random.default_rng(0)
    encoding, snap = Encoding(schema), Snap(Encoding(schema))
    rate = np.where(rng.random(600) < 0.3, np.nan, rng.random(600))
    cells = {"credit": rng.uniform(100, 2950, 600), "rate": rate}
    queries = pd.DataFrame({**cells, "months": rng.integers(1, 61, 600)})
    steps = {"rate": 0.1, "months": 12, "credit": 1000}
    points, rules = encoding.encode(queries), Rules(steps=steps)
    box = box_around(encoding, points, rules)
    wild = torch.rand(points.shape, generator=torch.Generator().manual_seed(0)) * 1.4 - 0.2
    wild[:, 2] = (wild[:, 2] > 0.9).float()  # seldom missing
    found = snap(wild, box)
    assert not snap.broken(found, box).any()
    torch.testing.assert_close(snap(found, box), found)
    answers = decode_answers(encoding, queries, points, found.double().numpy(), rules)
    for query, row in zip(plain_rows(queries), plain_rows(answers), strict=True):
        assert violations(schema, {**NO_RULES, "steps": steps}, query, row) == []
    decimals = answers["rate"].dropna()[(answers["rate"] != queries["rate"])]
    assert (decimals == decimals.round(1)).all()  # 0.3, not 0.30000000000000004
    assert (answers["credit"] != queries["credit"]).any()


def test_a_step_is_measured_from_zero_and_the_own_value_may_stay():
    schema = stepped_schema()
    encoding = Encoding(schema)
    points = encoding.encode(pd.DataFrame({"credit": [1337.0], "rate": [0.55], "months": [7]}))
    box, snap = box_around(encoding, points), Snap(encoding)
    nearest = {1337.0: 1337.0, 1400.0: 1337.0, 1450.0: 1500.0, 120.0: 500.0, 2900.0: 2500.0}
    for wanted, expected in nearest.items():
        unit = torch.tensor(points).float()
        unit[0, 0] = (wanted - 100) / 2850
        assert encoding.decode(snap(unit, box).double().numpy()).credit[0] == pytest.approx(
            expected
        )


# --- Relations in original units ---


def test_equal_numbers_are_exactly_equal_and_missing_ones_are_not_compared():
    rng, ends = np.random.default_rng(0), {"a": 7, "b": 1000, "c": 3_000_000}
    features = [
        Numeric(name=name, lower=0, upper=top, missing=name == "b") for name, top in ends.items()
    ]
    schema = Schema(features=tuple(features), label=LABEL)
    queries = pd.DataFrame({name: rng.uniform(0, top, 40) for name, top in ends.items()})
    queries["b"] = queries["b"].mask(rng.random(40) < 0.4)
    encoding, snap = Encoding(schema), Snap(Encoding(schema))
    rules, points = Rules(relations=[("a", "==", "b"), ("b", "<=", "c")]), encoding.encode(queries)
    box = box_around(encoding, points, rules)
    wild = torch.rand(points.shape, generator=torch.Generator().manual_seed(1))
    wild[:, 2] = torch.tensor(points[:, 2]).float()  # what is missing stays missing
    found = snap(wild, box)
    assert box.ties_held(found).all()
    answers = decode_answers(encoding, queries, points, found.double().numpy(), rules)
    known = answers["b"].notna()
    assert (answers["a"] == answers["b"])[known].all()
    assert (answers["b"] <= answers["c"])[known].all()
    assert known.sum() > 10
    assert (answers["b"].isna() == queries["b"].isna()).all()


def test_offsets_are_in_original_units_and_hold_exactly():
    rng, ends = np.random.default_rng(0), {"net pay": 7, "net": 1000, "net-2": 3_000_000}
    features = [
        Numeric(name=name, lower=-3, upper=top, integer=top == 1000) for name, top in ends.items()
    ]
    schema = Schema(features=tuple(features), label=LABEL)
    queries = pd.DataFrame({name: rng.integers(-3, top + 1, 60) for name, top in ends.items()})
    encoding = Encoding(schema)
    rules = Rules(relations=["net pay == net + 0.1", "net-2 <= net-2000", ("net", "<=", "net-2")])
    assert [str(each) for each in rules.relations_of(schema)] == [
        "net pay == net + 0.1",
        "net-2 <= net - 2000",  # no feature is called net-2000
        "net <= net-2",
    ]
    with pytest.raises(RequestError, match=r"net-2 <= net - 2000 .* can never hold together"):
        rules.tighten(schema)
    rules = Rules(relations=["net pay == net + 0.1", "net-2 <= net pay + 2.25"])
    points = encoding.encode(queries)
    box, snap = box_around(encoding, points, rules), Snap(encoding)
    found = snap(torch.rand(points.shape, generator=torch.Generator().manual_seed(1)), box)
    assert box.ties_held(found).all()
    answers = decode_answers(encoding, queries, points, found.double().numpy(), rules)
    np.testing.assert_allclose(answers["net pay"], answers["net"] + 0.1, rtol=1e-14)
    assert (answers["net-2"] <= answers["net pay"] + 2.25 + 1e-12).all()
    assert (answers["net pay"].map(lambda pay: len(str(abs(pay)))) == 3).all()  # 4.1
    changed = np.ones((60, 3), dtype=bool)
    cells = [[frame[name].to_numpy() for name in frame] for frame in (queries, answers)]
    assert Given(encoding, *cells, changed).keep(rules).all()
    cells[1][2] = cells[1][2] + 10.0
    assert not Given(encoding, *cells, changed).keep(rules).all()


def test_long_rules_are_read_at_once():
    """Expressions that step back over what they took would need minutes for some of these."""
    gap, digits, begun = " " * 900, "1" * 900, time.perf_counter()
    for text in (
        f"a <= b{gap}x",
        f"a{gap}x",
        f"a <= b + {digits}x",
        f"a{gap}x <= b{gap}x",
        "<" * 900,
    ):
        for number in range(99):
            with contextlib.suppress(RequestError):
                Relation.of_text(f"{text}{number}", ["a", "b"])
    pairs = [[f"a{n}", f"b{n}"] for n in range(9999)]
    Rules(together=pairs, only_one=list(zip(*pairs, strict=True)))
    features = {name: Numeric(name=name, lower=0, upper=9999) for name in "ab"}
    check_relations([Relation("a", "<=", "b", n) for n in range(1000)], features)
    assert time.perf_counter() - begun < 2
    for many in (["a <= b" + " " * 9999], [f"a <= b + {n}" for n in range(1001)]):
        with pytest.raises(RequestError, match="at most 1000"):
            Rules(relations=many).relations_of(
                Schema(features=tuple(features.values()), label=LABEL)
            )


def test_transitions_close_the_ways_of_what_follows():
    schema = Schema(
        features=(
            Categorical(name="job", categories=("x", "y", "z")),
            Categorical(name="kind", categories=("p", "q", "r")),
        ),
        label=LABEL,
        links=(Link(source="job", derived="kind", values={"x": "p", "y": "q", "z": "r"}),),
    )
    encoding = Encoding(schema)
    points = encoding.encode(pd.DataFrame({"job": ["x"], "kind": ["p"]}))
    box = box_around(encoding, points, Rules(transitions={"kind": [("p", "r")]}))
    assert box.upper[:, :3].tolist() == [[1, 0, 1]]


def test_rules_with_other_offsets_are_others():
    some = [(), (("a", "<=", "b"),), (("a", "<=", "b", 1),), (("a", "<=", "b", -1),), ("a <= b",)]
    assert len({Rules(relations=each) for each in some}) == len(some)
    assert Rules(relations=[["a", "<=", "b", 1]]) == Rules(relations=[("a", "<=", "b", 1.0)])
    assert Rules(relations=[["a", "<=", "b", 0]]) == Rules(relations=[("a", "<=", "b")])
    read = Rules(relations=["a <= b + 1", ("a", "==", "c", 2)])
    again = Rules(**{**dict(read), "max_changes": 2})
    assert again.relations == ("a <= b + 1", Relation("a", "==", "c", 2.0))
    same = Rules.of_mapping({"transitions": {"m": [["y", "n"], ["y", "n"]]}})
    assert same == Rules(transitions={"m": [("y", "n")]}) != Rules(transitions={"m": [("n", "y")]})
    assert hash(same) == hash(Rules(transitions={"m": [("y", "n")]}))


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_rows_that_hold_keep_the_rules_when_they_are_given_out(seed):
    """And who has no reason to move may stay, whatever is allowed."""
    dice = random.Random(seed)
    schema = draw_schema(dice)
    rows = [draw_record(schema, dice) for _ in range(4)]
    content = draw_rules(schema, dice) | {"max_changes": None}
    try:
        rules = Rules.of_mapping(content)
        rules.tighten(schema)
    except RequestError:
        return
    encoding, snap, queries = Encoding(schema), Snap(Encoding(schema)), frame_of(schema, rows)
    points = encoding.encode(queries)
    box, own = box_around(encoding, points, rules), torch.tensor(points).float()
    wild = torch.rand(own.shape, generator=torch.Generator().manual_seed(seed))
    for found in (snap(wild, box), snap(torch.where(wild < 0.3, wild, own), box)):
        assert not snap.broken(found, box).any()
        held = box.ties_held(found).numpy()
        answers = decode_answers(encoding, queries, points, found.double().numpy(), rules)
        again = encoding.encode(answers)
        starts = [block.start for block in encoding.blocks]
        changed = np.maximum.reduceat(np.abs(again - points), starts, axis=1) > 0
        cells = [arrays_of(frame) for frame in (queries, answers)]
        kept = Given(encoding, *cells, changed).keep(rules)
        assert kept[held].all(), (content, queries, answers)
    stays = box.ties_held(own)
    torch.testing.assert_close(snap(own, box)[stays], own[stays], rtol=0, atol=0)


# --- What rules mean together ---


def linked_schema():
    return Schema(
        features=(
            Categorical(name="education", categories=("school", "ba", "ma")),
            Numeric(name="years", lower=0, upper=20, integer=True),
            Numeric(name="income", lower=0, upper=100),
            Numeric(name="bonus", lower=0, upper=50, direction="increase"),
            Pixels(name="p", height=1, breadth=2),
        ),
        label=LABEL,
        links=(
            Link(source="education", derived="years", values={"school": 9, "ba": 13, "ma": 14}),
        ),
    )


def stays(schema, **rules):
    return {feature.name for feature in Rules(**rules).tighten(schema) if feature.immutable}


def test_rules_only_tighten_the_schema():
    schema = linked_schema()
    assert stays(schema, may_change=["income"]) == {"education", "years", "bonus", "p"}
    assert stays(schema, may_change=["education"]) == {"income", "bonus", "p"}
    assert stays(schema, may_change=["years", "income"]) == {"bonus", "p"}
    rules = Rules(may_change=["years", "income"], immutable=["income"])
    assert rules.held(schema) == {"income", "bonus", "p"}
    schema = stepped_schema()
    assert Rules(steps={"credit": 1000}).tighten(schema)[0].step == 1000
    with pytest.raises(RequestError, match="the schema has steps of 500; use a multiple of that"):
        Rules(steps={"credit": 750}).tighten(schema)
    with pytest.raises(RequestError, match=r"its step must be whole, not 1\.5"):
        Rules(steps={"months": 1.5}).tighten(schema)


def test_a_group_is_given_back_as_a_whole():
    schema = linked_schema()
    encoding = Encoding(schema)
    rows = {"education": ["ba", "ba"], "years": [13, 13], "income": [1.0, 2.0], "bonus": [3.0, 4.0]}
    points = encoding.encode(pd.DataFrame({**rows, "p0": [0, 0], "p1": [0, 0]}))
    rules = [Rules(together=[["education", "bonus"]]), Rules(together=[["income", "bonus"]])]
    box = box_around(encoding, points, rules)
    columns = torch.zeros(points.shape, dtype=torch.bool)
    columns[:, 5] = True  # bonus
    given_back = box.with_groups(columns).int().tolist()
    assert given_back == [[1, 1, 1, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"steps": {"incom": 1}}, "steps: no feature 'incom'; the schema has: education, years"),
        ({"steps": {"income": 0}}, "steps: 'income' must be a positive number from 1e-9 to 1e15"),
        ({"steps": ["income"]}, "steps: must say something for each feature"),
        ({"steps": {"education": 2}}, "steps: 'education' is no number; leave its step out"),
        ({"steps": {"p": 2}}, "steps: 'p' is no number"),
        ({"steps": {"years": 2}}, "steps: 'years' follows 'education'; leave its step out"),
        ({"steps": {"income": 30}, "allowed": {"income": [31, 59]}}, "no multiple of 30 is within"),
        ({"relations": "income<=bonus"}, "relations: must be a list of lists such as"),
        ({"relations": [["income", "<="]]}, "relations: each must be a list such as"),
        ({"relations": [["income", ">=", "bonus"]]}, "the sign must be <= or ==; name the smaller"),
        ({"relations": [["education", "<=", "income"]]}, "'education' is no number; relations are"),
        ({"relations": [["income", "<=", "years", -10], ["bonus", "<=", "income", -15]]},
         "bonus <= income - 15 can never hold, because 'bonus' is at least 0"),
        ({"relations": ["income <= bonus - 1", "bonus <= years", "years <= income + 0.5"]},
         "bonus - 1 and bonus <= years and years <= income [+] 0.5 can never hold tog"),
        ({"relations": ["years == income + 0.5"], "steps": {"income": 1}},
         "income and years must be equal: give all of them the same step, or none"),
        ({"relations": ["bonus == income + 3"], "steps": {"income": 2, "bonus": 2}},
         "bonus and income: the offset must be a multiple of 2"),
        ({"relations": [["income", "<=", "bonus", "1"]]}, "the offset must be a number up to 1e15"),
        ({"relations": ["income bonus"]}, "relations: 'income bonus' is not understood; write a"),
        ({"relations": ["incom <= bonus"]}, "no feature 'incom'; .* did you mean 'income'"),
        ({"relations": ["income >= bonus"]}, "the sign must be <= or ==; name the smaller"),
        ({"relations": ["income <= 60"]}, "'income <= 60' compares with a number; use 'allowed'"),
        ({"relations": ["income == income"]}, "'income' is compared with itself"),
        ({"together": [["income"]]}, "together: the group income needs two features or more"),
        ({"together": ["income", "bonus"]}, "together: each group must be a list of feature names"),
        ({"together": {"income": "bonus"}}, "together: must be a list of groups"),
        ({"together": [["income", "bonos"]]}, "together: no feature 'bonos'"),
        ({"together": [["income", "bonus"], ["bonus", "education"]]}, "'bonus' is in two groups"),
        ({"together": [["income", "years"]]}, "together: 'years' follows 'education'; name that"),
        *(({rule: said}, "'p' are pixels; they can only be immutable") for rule, said in {
            "together": [["income", "p"]], "allowed": {"p": [0, 9]}, "direction": {"p": "increase"},
        }.items()),
        ({"only_one": [["income", "bonus"]], "together": [["bonus", "education", "income"]]},
         "only_one: income, bonus must change together; leave one out"),
        ({"transitions": ["education"]}, "transitions: must say something for each feature"),
        ({"transitions": {"education": "ba"}}, "'education' must be a list of pairs such as"),
        ({"transitions": {"education": [["ba", None]]}}, "'education' must be a list of pairs"),
        ({"transitions": {"educaton": []}}, "transitions: no feature 'educaton'.*'education'"),
        ({"transitions": {"education": [["ba", "schol"]]}},
         "'education' has no value 'schol'; it has: school, ba, ma; did you mean 'school'"),
        ({"transitions": {"income": [[1, 2]]}}, "'income' is a number; .*: use steps, allowed or"),
        ({"transitions": {"p": [[1, 2]]}}, "transitions: 'p' are pixels"),
        ({"may_change": "income"}, "may_change: must be a list of feature names"),
        ({"may_change": []}, "may_change: names no feature; name those that may change"),
        ({"may_change": ["agee"]}, "may_change: no feature 'agee'"),
    ],
)  # fmt: skip
def test_rules_that_contradict_are_refused_in_one_line(content, words):
    with pytest.raises(RequestError, match=words) as caught:
        Rules.of_mapping(content).tighten(linked_schema())
    assert "\n" not in str(caught.value)


# --- Answers ---

TIED = {
    "steps": {"income": 0.5},
    "relations": [["children", "<=", "income"], ["debt", "<=", "income"]],
    "together": [["income", "age", "member"]],
    "only_one": [["housing", "degree"], ["degree", "debt"]],
    "transitions": {"housing": [["rent", "own"], ["own", "free"]]},
}


@pytest.fixture(scope="module")
def queries(schema):
    return random_rows(schema, 150, seed=12).drop(columns="loan").query("age < 100")


def broken_rules(result, content):
    rows = zip(plain_rows(result.queries), plain_rows(result.rows), result.valid, strict=True)
    found = []
    for query, row, valid in rows:
        assert valid or query == row
        found += violations(result.schema, {**NO_RULES, **content}, query, row) if valid else []
    return found


@pytest.fixture(scope="module")
def explainers(explainer, veil):
    return {
        "model": explainer,
        "private model": Explainer(veil),
        "surrogate": Explainer(veil, guidance="surrogate"),
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("decides", "search"),
    [
        ("model", {"k": 2}), ("model", {"method": "iterations", "iterations": 30}),
        ("private model", {}), ("private model", {"prefer": "nearest"}), ("surrogate", {}),
    ],
)  # fmt: skip
def test_every_search_solves_the_rules(explainers, queries, decides, search):
    explainer = explainers[decides]
    rules = Rules.of_mapping(TIED)
    result = explainer.explain(queries, "granted", rules=rules, progress=False, **search)
    assert result.flip_ratio > 0.97
    assert broken_rules(result, TIED) == []
    mended = result.queries["children"] > result.queries["income"]
    assert result.valid[mended.fillna(False).to_numpy(bool)].any()  # a query that broke a relation


@pytest.mark.parametrize("prefer", ["believable", "nearest"])
def test_queries_without_ties_are_answered_as_before(explainer, queries, prefer):
    """Also beside queries with ties."""
    free, tied = Rules(max_changes=2), Rules.of_mapping(TIED)
    few = queries.head(20)
    how = {"prefer": prefer, "progress": False}
    alone = explainer.explain(few[::2], "granted", rules=free, **how)
    both = explainer.explain(few, "granted", rules=[free, tied] * 10, **how)
    pd.testing.assert_frame_equal(
        both.rows[::2].reset_index(drop=True), alone.rows.reset_index(drop=True)
    )
    assert both.status[::2].tolist() == alone.status.tolist()


def test_an_answer_that_breaks_a_rule_is_never_given_out(explainer, queries, monkeypatch):
    """Even where the search believes that its rows keep the ties."""
    monkeypatch.setattr(Box, "settle", lambda box, rows, pinned=None: rows)
    monkeypatch.setattr(Box, "ties_held", lambda box, rows: torch.ones(len(rows), dtype=torch.bool))
    result = explainer.explain(queries, "granted", rules=Rules.of_mapping(TIED), progress=False)
    assert broken_rules(result, TIED) == []
    lost = result.status == "not_found"
    assert lost.mean() > 0.3
    assert all(result.reason[lost])


def test_where_no_row_keeps_the_rules_the_reason_says_so(explainer, queries):
    broken = queries[(queries["children"] > queries["income"]).fillna(False)].head(5)
    rules = Rules(relations=[("children", "<=", "income")], immutable=["children", "income"])
    result = explainer.explain(broken, "granted", rules=rules, progress=False)
    assert set(result.status) <= {"not_found", "already"}
    missing = result.status == "not_found"
    assert set(result.reason[missing]) == {"children <= income cannot hold within the other rules"}


def test_few_rows_are_all_tried(explainer, model, queries):
    """With two features that may change, no row of the menu is overlooked."""
    rules = Rules(may_change=["housing", "income"], steps={"income": 5}, max_changes=1)
    result = explainer.explain(queries, "granted", rules=rules, progress=False)
    encoding = explainer.encoding
    for number in np.flatnonzero(result.status == "not_found").tolist():
        query = result.queries.iloc[[number]]
        tried = [query.assign(housing=value) for value in ("rent", "own", "free")]
        tried += [query.assign(income=value) for value in (0.0, 5.0, 10.0)]
        points = torch.tensor(encoding.encode(pd.concat(tried))).float()
        assert (model(points)[:, 1] <= 0).all()
    assert (result.status == "found").any()
