"""Believable answers: what the menu offers, what the beam finds, what an answer is worth."""

import json
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from rows import random_rows

from counterveil import Explainer
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows, TorchModel
from counterveil.population.rounding import roundest
from counterveil.search import ground, wording
from counterveil.search.beliefs import RAREST
from counterveil.search.believable import BelievableSearch
from counterveil.search.constraints import box_around
from counterveil.search.menu import menu_of
from counterveil.search.repair import margin_beyond
from counterveil.search.rules import Rules


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


def test_every_entry_of_the_menu_is_legal_in_the_unit_it_is_told_in(veil, schema, rows):
    menu, encoding = menu_of(veil.population()), Encoding(schema)
    row = torch.tensor(encoding.encode(rows.head(1))).float()
    moved = torch.where(menu.mask, menu.points, row).double().numpy()
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
    tensor = torch.as_tensor(points, dtype=torch.float32)
    codes = beliefs.codes(tensor)
    assert (codes.numpy() == population.grid.codes(points)).mean() > 0.999  # float32 at an edge
    known = population.potentials
    kept = replace(
        known,
        alone=tuple(np.maximum(table, RAREST) for table in known.alone),
        pairs=tuple((one, two, np.maximum(table, RAREST)) for one, two, table in known.pairs),
    )
    found = torch.stack([beliefs.log_density(codes, torch.full((600,), c)) for c in (0, 1)], dim=1)
    assert np.allclose(found.numpy(), kept.log_density(codes.numpy()), atol=1e-3)
    exact = population.log_density(points)
    assert np.isfinite(exact).all()
    assert (found.numpy() >= exact - 1e-3).all()
    shares = beliefs.percentiles(tensor)
    assert float(shares.min()) >= 0
    assert float(shares.max()) <= 1
    income = np.argsort(rows["income"].to_numpy())
    assert (np.diff(shares[:, 1].numpy()[income]) >= -1e-6).all()
    ranks = beliefs.rank(found[:, 1], torch.ones(600, dtype=torch.long))
    assert ((ranks >= 0) & (ranks <= 1)).all()


def test_one_change_is_the_cheapest_of_all_single_changes(explainer, model, schema, refused):
    """A brute force over the menu finds nothing cheaper than the beam does."""
    encoding, ground = Encoding(schema), explainer._ground
    points = encoding.encode(refused)
    queries = torch.as_tensor(points, dtype=torch.float32)
    targets, box = torch.ones(len(refused), dtype=torch.long), box_around(encoding, points)
    queries = ground.snap(queries, box)

    def margin(rows, goals):
        return margin_beyond(explainer.model, 0.0, rows, goals)

    limit = torch.ones(len(refused), dtype=torch.long)
    search = BelievableSearch(ground, queries, targets, box, margin, None, limit)
    start = search._start()
    effort, gain = search._single_moves(start)
    single = search._extended(start, torch.arange(len(refused)), effort, gain)
    for query in range(0, len(refused), 7):
        entries = torch.isfinite(effort[query]).nonzero()[:, 0]
        rows = torch.where(ground.menu.mask[entries], ground.menu.points[entries], queries[query])
        accepted = margin(rows, torch.ones(len(rows), dtype=torch.long)) >= 0
        cost = effort[query, entries][accepted]
        found = single.cost[query]
        assert torch.isfinite(found).any() == (len(cost) > 0 and bool(accepted.any()))
        if len(cost):
            assert float(found.min()) >= float(cost.min()) - 1e-5  # J is never below the effort


def test_max_changes_finds_what_pairs_of_the_menu_hold(explainer, model, schema, refused):
    """Where two values of the menu are enough, two changes are not called impossible."""
    encoding, ground = Encoding(schema), explainer._ground
    result = explainer.explain(refused, "granted", rules=Rules(max_changes=2), progress=False)
    assert (result.changed[result.valid] <= 2).all()
    missing = [at for at in range(len(result)) if result.status[at] == "not_found"][:10]
    points = torch.as_tensor(encoding.encode(refused), dtype=torch.float32)
    box = box_around(encoding, points.double().numpy())
    for at in missing:
        legal = ((ground.menu.points >= box.lower[at] - 1e-6) | ~ground.menu.mask).all(dim=1)
        legal &= ((ground.menu.points <= box.upper[at] + 1e-6) | ~ground.menu.mask).all(dim=1)
        entries = legal.nonzero()[:, 0].tolist()
        pairs = [
            pair
            for pair in combinations(entries, 2)
            if ground.menu.feature[pair[0]] != ground.menu.feature[pair[1]]
        ]
        one, two = torch.tensor(pairs).T
        tried = torch.where(ground.menu.mask[one], ground.menu.points[one], points[at])
        tried = torch.where(ground.menu.mask[two], ground.menu.points[two], tried)
        assert not (model(tried).argmax(dim=1) == 1).any()


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
    assert "of the models that might as well have been trained would agree." in result.text(query)
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
    nearest = Explainer(veil, model, warm_steps=1)
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
    with pytest.raises(RequestError, match="polish is for prefer 'nearest'"):
        explainer.explain(few, prefer="believable", polish=True, progress=False)
    with pytest.raises(RequestError, match="method 'iterations' is for prefer 'nearest'"):
        explainer.explain(few, prefer="believable", method="iterations", progress=False)
    with pytest.raises(RequestError, match="prefer must be 'believable' or 'nearest'"):
        explainer.explain(few, prefer="cheap", progress=False)
    nearest = Explainer(veil, model, warm_steps=1)
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


def test_a_changed_number_is_compared_with_people_of_the_class():
    said = wording.compared(("income", 3.0, 5.25), 0.71, "granted")
    assert said == ["income 5.25 is more than 7 of 10 people with granted have."]
    assert wording.compared(("debt", 3.0, 1.0), 0.18, "granted") == [
        "debt 1 is less than 8 of 10 people with granted have."
    ]
    assert wording.compared(("income", 3.0, 9.9), 0.99, "granted") == []
    assert wording.compared(("housing", "rent", "own"), float("nan"), "granted") == []
    assert wording.agreement(0.875) == (
        "88% of the models that might as well have been trained would agree."
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
