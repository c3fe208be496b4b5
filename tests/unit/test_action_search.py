"""The search over actions: what the menu offers, what answers cost, what is said with a no."""

import json
import pickle
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows
from torch import nn

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.population.rounding import roundest
from counterveil.schema import Label, Numeric, Schema
from counterveil.search.actions import search
from counterveil.search.actions.actions import Actions
from counterveil.search.actions.beam import HELPS
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.menu import menu_of
from counterveil.search.actions.people import RAREST
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import box_around
from counterveil.search.constraints.rules import Rules
from counterveil.search.results import wording
from counterveil.search.results.refusals import Status


@pytest.fixture(scope="module")
def refused(schema, model):
    rows = random_rows(schema, 200, seed=31)
    points = torch.tensor(Encoding(schema).encode(rows)).float()
    return rows[(model(points).argmax(dim=1) == 0).numpy()].head(60).reset_index(drop=True)


@pytest.mark.parametrize(
    ("low", "high", "near", "whole", "found"),
    [
        (7210.0, 7740.0, 7480.0, True, 7500.0), (39.6, 40.4, 40.0, True, 40.0),
        (0.2, 0.2, 0.2, False, 0.2), (-830.0, -770.0, -805.0, False, -800.0),
        (0.7712, 0.7893, 0.78, False, 0.78), (3.0, 3.4, 3.2, True, 3.0),
    ],
)  # fmt: skip
def test_values_on_the_menu_are_round(low, high, near, whole, found):
    assert roundest(low, high, near, whole=whole) == pytest.approx(found, rel=1e-12)


def test_the_menu_is_legal_and_leaves_out_the_far_tail_and_what_noise_made(veil, schema, rows):
    encoding, population = Encoding(schema), veil.population()
    menu = menu_of(encoding, population)
    moved = np.where(menu.mask, menu.points, encoding.encode(rows.head(1)))
    decoded = encoding.decode(moved)
    near = np.abs(encoding.encode(decoded) - moved).max(axis=1)
    assert near[menu.offered.numpy()].max() < 1e-6
    assert set(menu.feature.tolist()) == {*range(len(schema.features))}
    for entry, number in enumerate(menu.feature.tolist()):
        assert decoded.iloc[entry][encoding.blocks[number].feature.name] is not pd.NA
    for number, block in enumerate(encoding.blocks):
        if block.feature.is_one_number:
            places, _ = population.percentiles(number)
            last = places[-2] + 0.25 * (places[-1] - places[-2])
            mine = menu.offered & (menu.feature == number)
            assert menu.value[mine].max() <= last + 0.01
    place = [feature.name for feature in population.grid.schema.features].index("housing")
    table = population.tables[place]
    table[:, 2] = 0.001 * population.totals  # one person in a thousand
    menu = menu_of(encoding, population)
    assert menu.offered[menu.feature == place].tolist() == [True, True, False]


def test_density_percentiles_and_codes_are_those_of_the_population(veil, explainer, schema, rows):
    people, population = explainer._components.believable.people, veil.population()
    points = Encoding(schema).encode(rows)
    encoded = torch.tensor(points).float()
    cells = people.cells(encoded)
    codes = cells - people.starts
    assert (codes.numpy() == population.grid.codes(points)).mean() > 0.999  # float32 at an edge
    kept = population.potentials_from(RAREST)
    found = torch.stack([people.log_density(cells, torch.full((600,), c)) for c in (0, 1)], dim=1)
    assert np.allclose(found, kept.log_density(codes.numpy()), atol=1e-3)
    exact = population.potentials.log_density(codes.numpy())
    assert (found.numpy() >= exact - 1e-3).all()
    shares = people.percentile(encoded).numpy()
    income = np.argsort(rows["income"].to_numpy())
    assert (np.diff(shares[:, 1][income]) >= -1e-6).all()
    ranks = people.plausibility(cells, torch.ones(600, dtype=torch.long))
    assert ((ranks >= 0) & (ranks <= 1)).all()


def costs_of(explainer, rows, prefer="believable", **more):
    """What rows of the search cost for these queries, towards `granted`, and all their actions."""
    points = explainer.encoding.encode(rows)
    batch = QueryBatch(
        torch.tensor(points).float(),
        torch.ones(len(rows), dtype=torch.long),
        box_around(explainer.encoding, points),
        **more,
    )
    parts = explainer._components
    context = parts.believable if prefer == "believable" else parts.nearest
    costs = BatchCosts(context, Question(parts.target_model), batch)
    offered = prefer == "believable"
    return costs, Actions.of(context.menu, batch, parts.projection, offered=offered)


def test_a_number_that_hardly_anybody_has_costs_more(explainer, rows):
    """From the median outwards, and not on the way back."""
    low, median, high, top = np.quantile(rows["income"], [0.1, 0.5, 0.9, 1.0])
    pair = rows.head(1).assign(income=median), rows.head(1).assign(income=top)
    tails = {}
    for query in pair:
        costs, _ = costs_of(explainer, query)
        for name, income in {"low": low, "median": median, "high": high, "top": top}.items():
            asked = torch.tensor(explainer.encoding.encode(query.assign(income=income))).float()
            far = costs.context.people.tail(asked)[0, 1]
            effort = float(costs.terms(asked, torch.zeros(1, dtype=torch.long))[0])
            tails[query is pair[1], name] = float(far), effort
    assert tails[False, "low"][0] == tails[False, "median"][0] == tails[False, "high"][0] == 0
    assert tails[False, "top"][0] > 1
    there, back = tails[False, "top"][1], tails[True, "median"][1]
    assert there == pytest.approx(back + tails[False, "top"][0], abs=1e-3)


@pytest.mark.parametrize("prefer", ["believable", "nearest"])
def test_one_change_costs_no_more_than_any_single_action(explainer, refused, prefer):
    """A brute force over the menu finds nothing cheaper than the search does."""
    costs, actions = costs_of(explainer, refused, prefer)
    result = explainer.explain(refused, "granted", max_changes=1, prefer=prefer, progress=False)
    found = explainer.cost_of(refused, result.rows, "granted", prefer=prefer)
    for number in range(len(refused)):
        entry = actions.is_open[number].nonzero()[:, 0]
        query = torch.full_like(entry, number)
        best = float(costs.cost(actions.take(costs.queries[query], query, entry), query).min())
        if np.isfinite(best):
            assert result.valid[number]
            assert found[number] <= best + 1e-3


def test_sets_of_two_actions_are_found(explainer, refused):
    """The answer costs little more than the cheapest row of two actions that help by themselves."""
    few = refused.head(8)
    costs, actions = costs_of(explainer, few)
    result = explainer.explain(few, "granted", max_changes=2, progress=False)
    found, ratios = explainer.cost_of(few, result.rows, "granted"), []
    for number in range(len(few)):
        entry = actions.is_open[number].nonzero()[:, 0]
        query = torch.full_like(entry, number)
        alone = costs.margin(actions.take(costs.queries[query], query, entry), query)
        helps = alone - costs.margin(costs.queries[number : number + 1], query[:1])
        entries = entry[helps > HELPS * costs.context.unit].tolist()
        pairs = torch.tensor([*product(entries, repeat=2)])
        query = torch.full((len(pairs),), number)
        rows = actions.take(costs.queries[query], query, pairs[:, 0])
        rows = actions.take(rows, query, pairs[:, 1])
        best = float(costs.cost(rows, query).min())
        assert result.valid[number] == np.isfinite(best)
        ratios += [found[number] / best] if np.isfinite(best) else []
    assert np.mean(ratios) <= 1.03


def test_answers_are_accepted_legal_and_the_same_again(explainer, model, schema, refused):
    result = explainer.explain(refused, "granted", progress=False)
    assert result.flip_ratio > 0.95
    points = torch.tensor(Encoding(schema).encode(result.rows)).float()
    assert (model(points).argmax(dim=1).numpy()[result.valid] == 1).all()
    assert (result.rows["region"] == refused["region"]).all()
    again = explainer.explain(refused, "granted", progress=False)
    pd.testing.assert_frame_equal(result.rows, again.rows)
    halves = [
        explainer.explain(part, "granted", progress=False) for part in (refused[:30], refused[30:])
    ]
    together = pd.concat([half.rows for half in halves], ignore_index=True)
    pd.testing.assert_frame_equal(result.rows, together)


def test_worth_is_told_in_numbers_words_and_json(explainer, refused):
    result = explainer.explain(refused, "granted", progress=False)
    valid = result.valid
    for name in ("effort", "plausibility", "stability"):
        values = getattr(result, name)[valid]
        assert ((values >= 0) & (values <= (10 if name == "effort" else 1))).all()
        assert np.isnan(result.summary()[name][~valid]).all()
    told = json.loads(json.dumps(result.to_dict()))["explanations"]
    for record, found in zip(told, valid, strict=True):
        assert (record["effort"] is None) == (not found)
    query = int(result.found[0])
    assert "comparison" in result.explain(query)
    assert "comparison" not in result.text(query)
    one = result.only([query])
    assert one.effort.shape == (1,)
    assert one.text(0) == result.text(query)
    again = pickle.loads(pickle.dumps(result))  # and travels without the model
    assert np.array_equal(again.stability, result.stability)
    assert again.only([query]).text(0) == result.text(query)


def test_a_committee_is_learnt_when_its_word_is_wanted(veil, model, refused, monkeypatch):
    taught = []

    def noted(learn, *given):
        taught.append(learn.__name__)
        return learn(*given)

    for name in ("committee_of_model", "committee_of_people"):
        monkeypatch.setattr(search, name, partial(noted, getattr(search, name)))
    nearest = Explainer(veil, model)
    result = nearest.explain(refused.head(3), prefer="nearest", progress=False)
    assert len(result.frame()) == len(result.found)
    assert taught == []
    assert result.stability.shape == (3,)
    assert taught == ["committee_of_model"]
    Explainer(veil, guidance="surrogate").explain(refused.head(3), progress=False)
    assert taught == ["committee_of_model", "committee_of_people"]


def test_several_answers_are_different_ways(explainer, refused):
    within = refused[~(refused["debt"].abs() > 2.5)].head(20)  # no rule moves them already
    result = explainer.explain(within, "granted", k=3, progress=False)
    costs = []
    for query in result.found:
        ways = [
            {column for column, *_ in result.changes_of(int(query), rank)}
            for rank in range(3)
            if result.valid[result.at(int(query), rank)]
        ]
        assert all(not one <= two and not two <= one for one, two in combinations(ways, 2))
        costs.append(len(ways))
    assert np.mean(costs) > 1.2


def test_costs_keep_a_feature_as_it_is(explainer, refused):
    free = explainer.explain(refused, "granted", progress=False)
    often = max(range(8), key=lambda at: _changes(free, at))
    name = free.schema.features[often].name
    dear = explainer.explain(refused, "granted", rules=Rules(costs={name: 50.0}), progress=False)
    assert _changes(dear, often) < 0.75 * _changes(free, often)


def linear_model(schema, features, bias):
    """A linear model that grants by these columns of the encoding alone."""
    layer = nn.Linear(schema.width, 2)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, bias]))
        for block in Encoding(schema).blocks:
            if block.feature.name in features:
                layer.weight[1, block.start] = features[block.feature.name]
    return layer


def test_a_no_is_proved_for_a_model_that_adds_up(veil, schema, rows):
    """Income gives 3 at most: with a bias of -4 nobody is granted, with -2.5 some are."""
    few = rows.head(10)
    never = Explainer(veil, linear_model(schema, {"income": 3.0}, -4.0))
    result = never.explain(few, "granted", progress=False)
    assert set(result.status) == {"impossible"}
    assert np.allclose(result.best_probability, 1 / (1 + np.exp(1.0)), atol=0.01)
    assert "Proved" in result.text(0)
    some = Explainer(veil, linear_model(schema, {"income": 3.0}, -2.5))
    assert set(some.explain(few, "granted", progress=False).status) <= {"found", "already"}
    held = some.explain(few, "granted", immutable=["income"], progress=False)
    assert set(held.status) <= {"impossible", "already"}
    number = int(np.flatnonzero(held.status == "impossible")[0])
    assert held.opens[number].feature == "income"
    assert held.opens[number].probability > 0.5


def test_a_no_is_not_proved_where_the_structure_is_not_known(veil, schema, rows):
    linear = linear_model(schema, {"income": 3.0}, -4.0)

    def f(frame):
        return (
            linear(torch.tensor(Encoding(schema).encode(frame)).float()).softmax(1).detach().numpy()
        )

    result = Explainer(veil, f).explain(rows.head(5), "granted", progress=False)
    assert set(result.status) == {"not_found"}
    assert (result.asked > 10).all()
    assert "was asked about" in result.text(0)


def test_a_rule_in_the_way_is_told(veil, schema, rows):
    model = linear_model(schema, {"income": 2.0, "debt": 2.0}, -3.0)
    result = Explainer(veil, model).explain(rows.head(20), "granted", max_changes=1, progress=False)
    rules = {each.rule for each in result.opens if each is not None}
    assert "max_changes" in rules
    assert "more than 1 feature might change" in " ".join(map(result.text, range(20)))
    # The closest row changes debt, and income alone would do: one change is enough.
    explainer = Explainer(veil, linear_model(schema, {"income": 3.0, "debt": 0.3}, -2.0))
    poor = rows.head(6).assign(income=0.0)
    rules = Rules(may_change=("debt",), max_changes=1)
    result = explainer.explain(poor, "granted", rules=rules, progress=False)
    assert set(result.status) == {"impossible"}
    assert {each.feature for each in result.opens} == {"income"}
    changed = [[column for column, *_ in result.refusal_of(n).opened] for n in range(len(poor))]
    assert changed == [["income"]] * len(poor)


def test_the_closest_row_keeps_rules_that_couple_features(veil, schema, rows):
    """Of two features only one may change: the closest row changes the one that brings more."""
    explainer = Explainer(veil, linear_model(schema, {"income": 3.0, "debt": 1.0}, -9.0))
    poor = rows.head(6).assign(income=0.0, debt=0.0)
    rules = Rules(may_change=("income", "debt"), only_one=(("income", "debt"),))
    result = explainer.explain(poor, "granted", rules=rules, progress=False)
    assert set(result.status) == {"impossible"}
    for number in range(len(poor)):
        ((column, _, after),) = result.refusal_of(number).changes
        assert (column, after) == ("income", 10)


NAMED = Schema(
    label=Label(name="loan", classes=("no", "yes")),
    features=(
        Numeric(name="hours", lower=0, upper=60, integer=True),
        Numeric(name="status", lower=0, upper=9, integer=True, value_names={
            "0": "on time", "1": "partly settled", "2": "unpaid"}),
        Numeric(name="grade", lower=1, upper=8, integer=True, value_names={
            str(each): f"grade {each}" for each in range(1, 9)}),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "share", "words"),
    [
        (("hours", 30, 45), 0.4, "at least 4 in 10 have 45 or more for hours"),
        (("hours", None, 45), 0.4, "45 or more"),
        (("hours", 50, 45), 0.7, "at least 7 in 10 have 45 or less for hours"),
        (("hours", 30, 60), 0.1, "at least 1 in 10 have 60 for hours"),
        (("hours", 30, 0), 0.3, "have 0 for hours"),
        (("status", 2, 1), 0.3, "have on time or partly settled for status"),
        (("status", 1, 5), 0.3, "have 5 or more for status"),
        (("grade", 3, 7), 0.3, "have grade 7 or grade 8 for grade"),
        (("grade", 3, 4), 0.9, None),  # too many names
        (("hours", 30, 45), 0.0, None),
        (("hours", 30, 45), float("nan"), None),
        (("hours", 30, 45), None, None),
    ],
)
def test_a_changed_number_is_compared_with_people_of_the_class(change, share, words):
    said = wording.compared(NAMED, change, share)
    assert words in said if words else not said
    people = wording.people_with("repaid in full", ["at least 4 …", "at least 3 …"])
    assert people == "Of people whose decision is “repaid in full”, at least 4 … and at least 3 …."


def test_what_a_veil_does_not_know_is_said(explainer, refused, schema, rows):
    result = explainer.explain(refused.head(5), "granted", k=2, progress=False)
    assert result.veil_knows
    noisy = replace(result, quality=lambda: replace(result.quality, veil_knows=False))
    query = int(result.found[0])
    assert "too noisy" not in result.explain(query) + result.to_html()
    assert noisy.explain(query).count(wording.TOO_NOISY) == 1
    assert "comparison" not in noisy.explain(query)
    assert "stability" not in noisy.measures(query)
    assert wording.TOO_NOISY in noisy.to_html()
    assert noisy.to_dict()["veil_knows"] is False
    assert noisy.text(query) == f"{result.text(query)} {wording.TOO_NOISY}"
    for table in (noisy.summary(), noisy.table(), pd.DataFrame(noisy.to_dict()["explanations"])):
        assert table[["effort", "plausibility", "stability"]].isna().all(axis=None)
    assert noisy.table().warning.tolist() == [
        wording.TOO_NOISY * each for each in noisy.valid.tolist()
    ]
    assert "warning" not in result.table()
    known = explainer.explain(refused.head(5), "granted", progress=False)
    assert known.knows_pairs
    assert wording.NO_PAIRS not in known.explain(int(known.found[0]))
    veil = Curator(schema).release(rows, 3.0, order=1, epochs=1, progress=False)
    result = Explainer(veil).explain(refused.head(5), "granted", progress=False)
    assert result.explain(int(result.found[0])).count(wording.NO_PAIRS) == 1
    assert result.to_dict()["knows_pairs"] is False
    assert wording.NO_PAIRS in result.text(int(result.found[0]))
    assert result.summary().warning.eq(wording.NO_PAIRS).any()
    assert "that is not known here" in result.letter(int(result.found[0]))


def test_nobody_is_told_to_owe_more(veil, refused):
    """Not even where it would help, nor as what a lifted rule would open."""

    class Owing(nn.Module):
        def forward(self, points):
            score = 20 * (points[:, 2] - 0.9) - 40 * points[:, 3]  # debt, and whether it is missing
            return torch.stack([-score, score], dim=1)

    schema = veil.schema
    features = [
        each.model_copy(update={"good": "down", "allowed": None}) if each.name == "debt" else each
        for each in schema.features
    ]
    kind = replace(veil, schema=schema.model_copy(update={"features": tuple(features)}))
    some = refused.assign(debt=0.0).head(4)
    told = Explainer(kind, Owing()).explain(some, "granted", progress=False)
    assert not told.answers
    assert told.opens == [None] * 4
    asked = Rules(direction={"debt": "any"})
    assert Explainer(kind, Owing()).explain(some, "granted", rules=asked, progress=False).answers


def _changes(result, feature):
    name = result.schema.features[feature].name
    return sum(column == name for column in result.changes()["column"])


@pytest.fixture(scope="module")
def bills(release_once):
    """A veil of people whose three bills go together, and a model that looks at the last alone."""
    names = [f"bill_{month}" for month in (1, 2, 3)]
    schema = Schema(
        name="bills",
        label=Label(name="late", classes=("yes", "no")),
        features=tuple(
            Numeric(name=name, lower=0, upper=1000, integer=True) for name in (*names, "age")
        ),
    )
    dice = np.random.default_rng(0)
    level = dice.uniform(100, 900, 6000)
    rows = pd.DataFrame(
        {name: np.clip(level + dice.normal(0, 25, 6000), 0, 1000).round() for name in names}
    )
    rows["age"] = dice.integers(20, 80, 6000)
    rows["late"] = np.where(level > 500, "yes", "no")
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0, 0, 8.0, 0], [0, 0, -8.0, 0]]))
        model.bias.copy_(torch.tensor([-4.0, 4.0]))
    return release_once(schema, rows, 20.0, epochs=2), model, rows


def test_features_that_go_together_follow(bills):
    veil, model, rows = bills
    queries = rows[(rows.bill_3 > 650) & (rows.bill_3 < 850)].head(30).reset_index(drop=True)
    explainer = Explainer(veil, model)
    answers = explainer.explain(queries, target="no", progress=False)
    assert answers.valid.all()
    assert (answers.rows.bill_3 < 500).all()  # the model asks for no more
    for name in ("bill_1", "bill_2"):
        assert (answers.rows[name] < queries[name]).mean() > 0.9
    assert (answers.rows.age == queries.age).mean() > 0.9
    held = explainer.explain(queries, target="no", immutable=["bill_1"], progress=False)
    assert (held.rows.bill_1 == queries.bill_1).all()
    few = explainer.explain(queries, target="no", max_changes=1, progress=False)
    changed = sum(few.rows[name] != queries[name] for name in veil.schema.columns)
    assert (changed[few.valid] == 1).all()


def test_where_the_veil_is_noise_nothing_changes_or_counts_that_the_model_ignores():
    dice, names = np.random.default_rng(0), [f"x{number}" for number in range(6)]
    rows = pd.DataFrame({name: dice.normal(50, 5, 300).round(1) for name in names})
    rows["y"] = np.where(rows.x0 + rows.x1 - rows.x2 > 50, "yes", "no")
    features = tuple(Numeric(name=name, lower=0, upper=100) for name in names)
    schema = Schema(name="few", features=features, label=Label(name="y", classes=("no", "yes")))

    def model(asked):
        chance = 1 / (1 + np.exp(50 - asked.x0 - asked.x1 + asked.x2))
        return np.stack([1 - chance, chance], axis=1)

    veil = Curator(schema).release(rows, 0.05, epochs=1, progress=False)
    queries = rows[names].head(20)
    result = Explainer(veil, model).explain(queries, "yes", progress=False)
    assert result.veil_knows is False
    assert len(result.found) + result.count(Status.ALREADY) == len(queries)
    assert (result.rows[names[3:]] == queries[names[3:]]).all(axis=None)
    assert not result.reasons_of(int(result.found[0]))
    result = Explainer(veil).explain(queries, progress=False)  # what learnt from noise is no reason
    letters = result.mail_merge()
    assert letters.reason_1.eq("").all()
    assert letters.warning.str.contains("too uncertain").all()
    assert letters.letter.str.contains("too uncertain").all()
    assert "ist zu ungenau" in result.letter(0, "de")
