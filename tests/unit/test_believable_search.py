"""Believable answers: what the menu offers, what the beam finds, what an answer is worth."""

import json
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from counterveil.search.actions.asking import Margin
from counterveil.search.actions.beliefs import RAREST
from counterveil.search.actions.believable import BelievableSearch
from counterveil.search.actions.closer import closer
from counterveil.search.actions.cost import Asked
from rows import random_rows

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows, TorchModel
from counterveil.population.rounding import roundest
from counterveil.search.actions import ground
from counterveil.search.actions.beam import Candidates
from counterveil.search.actions.menu import menu_of
from counterveil.search.constraints.bounds import box_around
from counterveil.search.constraints.rules import Rules
from counterveil.search.results import wording


@pytest.fixture(scope="module")
def explainer(veil, model):
    return Explainer(veil, model)


@pytest.fixture(scope="module")
def refused(schema, model):
    rows = random_rows(schema, 200, seed=31)
    points = torch.tensor(Encoding(schema).encode(rows)).float()
    return rows[(model(points).argmax(dim=1) == 0).numpy()].head(60).reset_index(drop=True)


@pytest.mark.parametrize(
    ("low", "high", "near", "whole", "found"),
    [
        (7210.0, 7740.0, 7480.0, True, 7500.0),
        (39.6, 40.4, 40.0, True, 40.0),
        (0.2, 0.2, 0.2, False, 0.2),
        (-830.0, -770.0, -805.0, False, -800.0),
        (0.7712, 0.7893, 0.78, False, 0.78),
        (3.0, 3.4, 3.2, True, 3.0),
    ],
)
def test_values_on_the_menu_are_round(low, high, near, whole, found):
    assert roundest(low, high, near, whole=whole) == pytest.approx(found, rel=1e-12)


@pytest.mark.long
def test_every_entry_of_the_menu_is_legal_in_the_unit_it_is_told_in(veil, schema, rows):
    menu, encoding = menu_of(veil.population()), Encoding(schema)
    moved = np.where(menu.mask, menu.points, encoding.encode(rows.head(1)))
    decoded = encoding.decode(moved)
    assert np.allclose(encoding.encode(decoded), moved, atol=1e-6)
    names = [schema.features[number].name for number in menu.feature.tolist()]
    assert "region" not in names  # immutable
    assert set(names) == {feature.name for feature in schema.features} - {"region"}
    blocks = encoding.blocks
    for entry, number in enumerate(menu.feature.tolist()):
        cells = veil.population().grid.cells[number]
        assert cells.codes(moved[entry : entry + 1, blocks[number].at])[0] == menu.code[entry]
        assert decoded.iloc[entry][blocks[number].feature.name] is not pd.NA


def test_a_category_that_noise_may_have_made_is_not_on_the_menu(veil):
    population = veil.population()
    place = [feature.name for feature in population.grid.schema.features].index("housing")
    table = population.tables[place]
    table[:, 2] = 0.001 * population.totals  # one person in a thousand
    menu = menu_of(population)
    assert menu.code[menu.places[place]].tolist() == [0, 1]


def test_density_percentiles_and_codes_are_those_of_the_population(veil, explainer, schema, rows):
    beliefs, population = explainer._ground.beliefs, veil.population()
    points = Encoding(schema).encode(rows)
    encoded = points.astype(np.float32)
    codes = beliefs.codes(encoded)
    assert (codes == population.grid.codes(points)).mean() > 0.999  # float32 at an edge
    known = population.potentials
    kept = replace(
        known,
        alone=tuple(np.maximum(table, RAREST) for table in known.alone),
        pairs=tuple((one, two, np.maximum(table, RAREST)) for one, two, table in known.pairs),
    )
    found = np.stack([beliefs.log_density(codes, np.full(600, c)) for c in (0, 1)], axis=1)
    assert np.allclose(found, kept.log_density(codes), atol=1e-3)
    exact = population.log_density(points)
    assert np.isfinite(exact).all()
    assert (found >= exact - 1e-3).all()
    shares = beliefs.percentiles(encoded)
    assert shares.min() >= 0
    assert shares.max() <= 1
    income = np.argsort(rows["income"].to_numpy())
    assert (np.diff(shares[:, 1][income]) >= -1e-6).all()
    ranks = beliefs.rank(found[:, 1], np.ones(600, dtype=int))
    assert ((ranks >= 0) & (ranks <= 1)).all()


def asked_about(explainer, rows, **more):
    """What the search is asked for the rows towards `granted`."""
    points = explainer.encoding.encode(rows)
    box, queries = box_around(explainer.encoding, points), points.astype(np.float32)
    ground, goals = explainer._ground, np.ones(len(rows), dtype=np.intp)
    start = ground.snap(torch.from_numpy(queries), box).numpy()
    sides = box.lower.numpy(), box.upper.numpy()
    return Asked(ground, Margin(explainer.model), start, goals, *sides, **more)


def cost_of(asked, query, rows):
    """J of rows for one query, measured on the rows themselves; infinite where f refuses."""
    ground, beliefs = asked.ground, asked.ground.beliefs
    whose = np.full(len(rows), query)
    before, codes = asked.queries[whose], beliefs.codes(rows)
    changed = ground.snap.changed_features(torch.from_numpy(rows), torch.from_numpy(before)).numpy()
    way = np.abs(beliefs.heights(rows) - beliefs.heights(before))
    counted = beliefs.is_number & beliefs.known(before)
    effort = np.where(counted, way, ground.prices.category) + ground.prices.change
    density, goals = beliefs.log_density(codes, asked.targets[whose]), asked.targets[whose]
    own = beliefs.log_density(beliefs.codes(before), goals)
    floor = np.maximum(own, beliefs.floor(ground.prices.floor)[goals])
    margin = asked.margin(rows, goals)
    short = np.maximum(ground.prices.safe - margin / ground.unit, 0)
    cost = (effort * changed).sum(axis=1) + ground.prices.refused * short**2
    cost += ground.prices.implausible * np.maximum(floor - density, 0)
    cost += asked.doubt(ground.committee.sums(codes), whose)
    return np.where(margin >= 0, cost, np.inf)


def test_one_change_is_the_cheapest_of_all_single_changes(explainer, refused):
    """A brute force over the menu finds nothing cheaper than the beam does."""
    asked = asked_about(explainer, refused, max_changes=np.ones(len(refused), dtype=int))
    menu = asked.ground.menu
    search = BelievableSearch(asked)
    single = Candidates.cheapest(search._levels(), len(refused), 1)
    for query in range(len(refused)):
        entries = search.moves.entry[np.isfinite(search.moves.effort[query])]
        rows = np.where(menu.mask[entries], menu.points[entries], asked.queries[query])
        assert single.cost[query, 0] == pytest.approx(cost_of(asked, query, rows).min(), rel=1e-3)


def test_what_the_tables_say_of_a_row_is_what_the_row_says_itself(explainer, refused):
    """Effort, density and doubt are added up move by move; the last step keeps them right."""
    asked = asked_about(explainer, refused)
    search = BelievableSearch(asked, k=2)
    found = Candidates.of(search._levels(), len(refused), 6)
    seen = 0
    for query, place in zip(*np.nonzero(np.isfinite(found.cost)), strict=True):
        moves = found.moves[query, place]
        entries = search.moves.entry[moves[moves >= 0]]
        row = asked.rows_after(np.array([query]), entries[None])
        assert found.cost[query, place] == pytest.approx(cost_of(asked, query, row)[0], abs=1e-3)
        seen += len(entries) > 1
    assert seen > 100
    assert asked.ground.beliefs.pairs  # features of these people depend on each other
    chosen = found.different_ways(2, search.moves.feature)
    before = chosen.cost.copy()
    rows = closer(asked, search.moves.entry, chosen)
    for query, place in zip(*np.nonzero(np.isfinite(before)), strict=True):
        after = cost_of(asked, query, rows[query, place][None])[0]
        assert after <= before[query, place] + 1e-3


def test_a_number_moves_closer_where_that_costs_less(explainer, refused):
    """From any number of the menu that f accepts, the last step finds no dearer and nearer ones."""
    asked = asked_about(explainer, refused)
    moves, shorter = BelievableSearch(asked).moves, 0
    for move in np.flatnonzero(asked.ground.beliefs.is_number[moves.feature]).tolist():
        column = asked.ground.beliefs.first_column[moves.feature[move]]
        for query in np.flatnonzero(np.isfinite(moves.effort[:, move])).tolist():
            row = asked.rows_after(np.array([query]), moves.entry[[[move]]])
            before = np.full((len(refused), 1), np.inf, np.float32)
            before[query] = cost_of(asked, query, row)
            taken = np.full((len(refused), 1, 1), move)
            unusual = asked.unusual[:, None] + moves.unusual[:, [move]]
            single = Candidates(taken, moves.effort[:, [move]], unusual, before)
            after = closer(asked, moves.entry, single)[query]
            assert cost_of(asked, query, after)[0] <= before[query, 0] + 1e-3
            way = [abs(each[0, column] - asked.queries[query, column]) for each in (row, after)]
            shorter += way[1] < way[0] - 1e-6
    assert shorter > 50


def test_max_changes_finds_what_pairs_of_the_menu_hold(explainer, model, schema, refused):
    """Where two values of the menu are enough, two changes are not called impossible."""
    encoding, ground = Encoding(schema), explainer._ground
    result = explainer.explain(refused, "granted", rules=Rules(max_changes=2), progress=False)
    assert (result.changed[result.valid] <= 2).all()
    missing = [at for at in range(len(result)) if result.status[at] == "not_found"][:10]
    points = encoding.encode(refused).astype(np.float32)
    box = box_around(encoding, points)
    for at in missing:
        lower, upper = box.lower[at].numpy(), box.upper[at].numpy()
        legal = ((ground.menu.points >= lower - 1e-6) | ~ground.menu.mask).all(axis=1)
        legal &= ((ground.menu.points <= upper + 1e-6) | ~ground.menu.mask).all(axis=1)
        entries = np.flatnonzero(legal).tolist()
        pairs = [
            pair
            for pair in combinations(entries, 2)
            if ground.menu.feature[pair[0]] != ground.menu.feature[pair[1]]
        ]
        one, two = np.array(pairs).T
        tried = np.where(ground.menu.mask[one], ground.menu.points[one], points[at])
        tried = np.where(ground.menu.mask[two], ground.menu.points[two], tried)
        assert not (model(torch.from_numpy(tried)).argmax(dim=1) == 1).any()


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
    assert "of other models, made from the veil for comparison, would agree." in result.text(query)
    assert "effort" in result.measures(query)
    assert "stability" in " ".join(result.meanings)
    one = result.only([query])
    assert one.effort.shape == (1,)
    assert one.text(0) == result.text(query)


def test_what_answers_are_worth_travels_without_the_model(explainer, refused):
    result = explainer.explain(refused.head(5), "granted", progress=False)
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.stability, result.stability)
    query = int(result.found[0])
    assert again.only([query]).text(0) == result.text(query)


def test_a_committee_is_learnt_when_its_word_is_wanted(veil, model, refused, monkeypatch):
    taught = []
    for name in ("committee_of_model", "committee_of_people"):
        learn = getattr(ground, name)
        monkeypatch.setattr(
            ground, name, lambda *given, _learn=learn: _noted(taught, _learn, given)
        )
    nearest = Explainer(veil, model)
    result = nearest.explain(refused.head(3), prefer="nearest", progress=False)
    assert len(result.frame()) == len(result.found)
    assert taught == []
    assert result.stability.shape == (3,)
    assert taught == ["committee_of_model"]
    Explainer(veil, guidance="surrogate").explain(refused.head(3), progress=False)
    assert taught == ["committee_of_model", "committee_of_people"]


def _noted(taught, learn, given):
    taught.append(learn.__name__)
    return learn(*given)


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


def test_what_only_the_nearest_search_knows_is_not_mixed_up(explainer, veil, model, refused):
    few = refused.head(3)
    with pytest.raises(RequestError, match="polish is for Algorithm 2"):
        explainer.explain(few, prefer="believable", polish=True, progress=False)
    with pytest.raises(RequestError, match="method 'iterations' is for Algorithm 2"):
        explainer.explain(few, prefer="believable", method="iterations", progress=False)
    with pytest.raises(RequestError, match="prefer must be 'believable' or 'nearest'"):
        explainer.explain(few, prefer="cheap", progress=False)
    nearest = Explainer(veil, model)
    result = nearest.explain(few, prefer="nearest", progress=False)
    assert (result.distance[result.valid] > 0).all()


def test_a_model_without_a_gradient_is_asked_itself(veil, schema, model, refused):
    asked = []

    def f(rows: pd.DataFrame):
        asked.append(len(rows))
        return model(torch.tensor(Encoding(schema).encode(rows)).float()).softmax(dim=1).numpy()

    result = Explainer(veil, f).explain(refused, "granted", progress=False)
    assert result.flip_ratio > 0.95
    assert sum(asked) > len(refused)


class Away(torch.Tensor):
    """A tensor on another device, for a machine that has none: it can only be brought back."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        assert function is torch.Tensor.cpu, f"{function} with a tensor of another device"
        return args[0].back()

    def back(self):
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)


class ModelElsewhere(TorchModel):
    """A model that takes points on its own device only, and answers there."""

    def ask(self, rows):
        if rows.from_frame:
            return super().ask(Rows.of_points(rows.points, self.encoding)).double()
        return super().ask(Rows.of_points(rows.points.back(), self.encoding)).as_subclass(Away)


def test_the_search_stays_on_the_cpu_and_asks_the_model_where_it_is(
    veil, schema, model, refused, monkeypatch
):
    usual = Explainer(veil, model).explain(refused, "granted", progress=False)
    elsewhere, place, move = ModelElsewhere(model, schema), torch.device("cpu", 7), torch.Tensor.to

    def to(tensor, where, *more, **options):
        there = isinstance(where, torch.device) and where == place
        return tensor.as_subclass(Away) if there else move(tensor, where, *more, **options)

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(ModelElsewhere, "device", place)
    found = Explainer(veil, elsewhere).explain(refused, "granted", progress=False)
    pd.testing.assert_frame_equal(found.rows, usual.rows)


def test_a_changed_number_is_compared_with_people_of_the_class(schema):
    said = wording.compared(schema, ("income", 3.0, 5.25), 0.71, "granted")
    assert said == ["At least 7 of 10 people with granted have 5.25 or less for income."]
    assert wording.compared(schema, ("debt", 3.0, 1.0), 0.18, "granted") == [
        "At least 8 of 10 people with granted have 1 or more for debt."
    ]
    assert wording.compared(schema, ("income", 3.0, 9.9), 0.99, "granted") == [
        "Nearly everybody with granted has 9.9 or less for income."
    ]
    assert wording.compared(schema, ("income", 3.0, 3.1), 0.02, "granted") == []
    assert wording.compared(schema, ("housing", "rent", "own"), float("nan"), "granted") == []
    assert wording.agreement(0.875) == (
        "88% of other models, made from the veil for comparison, would agree."
    )


def test_the_surrogate_says_nothing_of_the_model(veil, refused):
    explainer = Explainer(veil, guidance="surrogate")
    result = explainer.explain(refused, "granted", progress=False)
    assert result.flip_ratio > 0.9
    assert "The model was not asked" in result.text(int(result.found[0]))
    points = Rows.of_frame(result.rows, explainer.encoding)
    assert (explainer.model.ask(points).argmax(dim=1).numpy()[result.valid] == 1).all()


def _changes(result, feature):
    name = result.schema.features[feature].name
    return sum(column == name for column in result.changes()["column"])
