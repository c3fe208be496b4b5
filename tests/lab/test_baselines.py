"""Baselines on problems whose answer is known, and the rules that hold for all of them."""

import importlib.util
import math
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_frame
from torch import nn

from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import CallableModel, TargetModel, adapt
from counterveil.schema import Binary, Categorical, Label, Numeric, Schema
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Dice, Nice, Revise, Vae, train_vae
from counterveil_lab.baselines.base import Nearest, Problem
from counterveil_lab.baselines.dice import OneClass, Words

Build = Callable[[Schema, TargetModel, pd.DataFrame, int], Baseline]
needs_dice = pytest.mark.skipif(
    importlib.util.find_spec("dice_ml") is None,
    reason="dice-ml is not installed; pip install 'counterveil[lab]'",
)
LABEL = Label(name="y", classes=("no", "yes"))
PLANE = Schema(
    label=LABEL, features=(Numeric(name="a", lower=0, upper=1), Numeric(name="b", lower=0, upper=1))
)
SHAPES = Schema(
    label=LABEL,
    features=(
        Numeric(name="size", lower=0, upper=20, integer=True),
        Categorical(name="colour", categories=("red", "green", "blue")),
        Categorical(name="maker", categories=("x", "y"), immutable=True),
        Binary(name="sold", values=("no", "yes")),
    ),
)


class Linear(nn.Module):
    """f: yes where the weighted sum is above 0."""

    def __init__(self, weights, bias):
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights))
        self.bias = bias

    def forward(self, points):
        score = points @ self.weights + self.bias
        return torch.stack([-score, score], dim=1)


class Same(Vae):
    """A VAE whose latent space is the encoding: distances in it are known."""

    def encode(self, points):
        return points, torch.zeros_like(points)

    def decode(self, latent):
        return latent


def same(schema):
    return Same(schema.width, (2, 2))


def plane_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.random(count), "b": rng.random(count)})
    return frame.assign(y=np.where(frame.a + frame.b > 1, "yes", "no"))


def shape_rows(count):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "size": rng.integers(0, 21, count), "colour": rng.choice(["red", "green", "blue"], count),
        "maker": rng.choice(["x", "y"], count), "sold": rng.choice(["no", "yes"], count),
    })  # fmt: skip
    return frame.assign(y=np.where(frame.colour == "red", "yes", "no"))


def plane_model():
    return adapt(Linear([5.0, 5.0], -5.0), PLANE)  # yes where a + b > 1


def colour_model():
    return adapt(Linear([0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0], -2.0), SHAPES)  # yes where red


def constant_model(schema):
    return adapt(Linear([0.0] * schema.width, -1.0), schema)


def some(kind, **options):
    """What builds a baseline of this kind."""
    return lambda schema, model, train, seed: kind(schema, model, train, seed=seed, **options)


def dice(method):
    return some(Dice, method=method, **QUICK.get(method, {}))


QUICK = {"gradient": {"min_iter": 30, "max_iter": 40}, "genetic": {"maxiterations": 20}}
OWN = {
    "cadex-0": some(Cadex, epochs=600),
    "cadex-0.5": some(Cadex, threshold=0.5, epochs=600),
    "cchvae": some(Cchvae, shells=60, samples=100, layers=(16, 4), epochs=15),
    "revise": some(Revise, iterations=60, layers=(16, 4), epochs=15),
    "nice-none": some(Nice, reward="none"),
    "nice-sparsity": some(Nice),
    "nice-proximity": some(Nice, reward="proximity"),
    "nice-plausibility": lambda schema, model, train, seed: Nice(
        schema, model, train, seed=seed, reward="plausibility",
        vae=train_vae(train, schema, seed=seed, layers=(16, 4), epochs=3),
    ),
}  # fmt: skip
DICE = {f"dice-{name}": dice(name) for name in ("gradient", "random", "genetic", "kdtree")}
own = pytest.mark.parametrize("build", OWN.values(), ids=OWN)
every = pytest.mark.parametrize(
    "build",
    [*OWN.values(), *(pytest.param(build, marks=needs_dice) for build in DICE.values())],
    ids=[*OWN, *DICE],
)


def ones(count):
    return torch.ones(count, dtype=torch.long)


# Known answers


def gaps(queries):
    """L1 distance to the line a + b = 1."""
    return 1 - queries.a - queries.b


def refused(count):
    return plane_rows(200, seed=1).query("y == 'no'").head(count).reset_index(drop=True)


def l1(queries, rows):
    return (rows[["a", "b"]] - queries[["a", "b"]]).abs().sum(axis=1)


def answered(kind, queries, weights=(5.0, 5.0), bias=-5.0, *, train=None, k=1, **options):
    """What a method finds for people on the plane, all of whom have an answer."""
    model = adapt(Linear([*weights], bias), PLANE)
    method = kind(PLANE, model, plane_rows(10) if train is None else train, **options)
    answers = method.explain(queries, ones(len(queries)), k=k)
    assert answers.found.all()
    return answers


def test_cadex_walks_straight_over_a_plane():
    queries = refused(10)
    answers = answered(Cadex, queries)
    room = 1 - queries[["a", "b"]].max(axis=1)
    free = 2 * room > gaps(queries) + 0.01  # both numbers can go all the way
    moved = answers.rows[["a", "b"]] - queries[["a", "b"]]
    assert np.allclose(moved.a[free], moved.b[free], atol=1e-4)  # Adam: equal steps
    assert (l1(queries, answers.rows) - gaps(queries)).between(0, 0.005).all()


@pytest.mark.parametrize(("kind", "options"), [(Cchvae, {}), (Revise, {"iterations": 200})])
def test_searches_in_a_latent_space_go_at_most_one_step_too_far(kind, options):
    queries = refused(10)
    answers = answered(kind, queries, vae=same(PLANE), **options)
    usual = kind(PLANE, plane_model(), plane_rows(10), vae=same(PLANE))
    step = usual.step if kind is Cchvae else usual.rate  # which moves both numbers
    assert (l1(queries, answers.rows) - gaps(queries)).between(0, 2 * step).all()


@pytest.mark.parametrize(
    ("reward", "answer"),
    [("none", (0.9, 0.5)), ("sparsity", (0.9, 0.2)), ("proximity", (0.3, 0.5))],
)
def test_nice_takes_over_values_of_the_nearest_accepted_row(reward, answer):
    # f accepts the third, which is not of the class.
    train = pd.DataFrame({"a": [0.9, 1.0, 0.35, 0.0], "b": [0.5, 1.0, 0.4, 0.0]})
    train["y"] = ["yes", "yes", "no", "no"]
    queries = pd.DataFrame({"a": [0.3], "b": [0.2]})
    answers = answered(Nice, queries, (1.0, 1.0), -0.7, train=train, reward=reward)
    assert answers.rows.iloc[0].tolist() == pytest.approx(answer)


def test_nice_weighs_what_it_gains_by_how_much_more_likely_the_row_becomes():
    class OnlyB(Vae):
        """Knows every a, and takes b for .5."""

        def encode(self, points):
            return points, points

        def decode(self, latent):
            return torch.stack([latent[:, 0], torch.full_like(latent[:, 1], 0.5)], dim=1)

    train = pd.DataFrame({"a": [0.9, 0.0], "b": [0.5, 0.0], "y": ["yes", "no"]})
    queries = pd.DataFrame({"a": [0.3], "b": [0.2]})
    options = {"reward": "plausibility", "vae": OnlyB(2)}
    answers = answered(Nice, queries, (1.0, 1.0), -0.7, train=train, **options)
    assert answers.rows.iloc[0].tolist() == pytest.approx((0.3, 0.5))


def test_nice_looks_for_a_donor_whose_free_values_are_enough():
    rows = pd.DataFrame(
        {"size": [1, 9, 20], "colour": "red", "maker": ["x", "y", "y"], "sold": "no"}
    ).assign(y=["no", "yes", "yes"])
    weights = torch.zeros(SHAPES.width)
    weights[0], weights[5] = 1.0, 0.5  # the size, and maker y
    model = adapt(Linear(weights.tolist(), -0.9), SHAPES)
    query = rows.head(1)
    answers = Nice(SHAPES, model, rows).explain(query, ones(1))
    assert answers.found.all()
    assert answers.rows["size"].tolist() == [20]  # 9 would do only with another maker
    assert answers.rows.maker.tolist() == ["x"]


@every
def test_the_deciding_category_is_found(build):
    rows = shape_rows(300)
    queries = rows[rows.colour != "red"].head(4).reset_index(drop=True)
    method = build(SHAPES, colour_model(), rows, 0)
    answers = method.explain(queries, ones(4))
    assert answers.found.all()
    assert (answers.rows.colour == "red").all()
    assert (answers.rows.maker == queries.maker).all()
    row = answers.metrics(rows)
    assert row["flip_ratio"] == 1.0
    if type(method) is Cadex:  # what does not matter stays
        assert (row["changed_features"], row["distance"]) == (1.0, pytest.approx(math.sqrt(2)))


def test_cadex_keeps_to_the_strongest_number_and_leaves_it_out_the_second_time():
    queries = pd.DataFrame({"a": [0.1, 0.3], "b": [0.2, 0.4]})
    rows = answered(Cadex, queries, (6.0, 2.0), -4.0, top_k=1).rows
    assert (rows.b == queries.b).all()
    assert np.allclose(rows.a, (4 - 2 * queries.b) / 6, atol=0.005)
    rows = answered(Cadex, queries.head(1), (6.0, 5.0), k=2, top_k=1).rows
    assert (rows.b[0], rows.a[1]) == (0.2, 0.1)


@pytest.mark.parametrize(
    "build",
    [
        *(OWN[name] for name in ("cadex-0", "cchvae", "revise")),
        *(pytest.param(DICE[name], marks=needs_dice) for name in ("dice-gradient", "dice-random")),
    ],
)
def test_any_of_several_classes_can_be_asked_for(build):
    schema = Schema(label=Label(name="y", classes=("p", "q", "r")), features=PLANE.features)
    layer = nn.Linear(2, 3)  # p near the origin, q along a, r along b
    layer.weight.data = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    layer.bias.data = torch.tensor([4.0, 0.0, 0.0])
    train = plane_rows(200).assign(y="p")
    queries = pd.DataFrame({"a": [0.2, 0.2, 0.9], "b": [0.1, 0.1, 0.2]})
    targets = torch.tensor([1, 2, 2])
    answers = build(schema, adapt(layer, schema), train, 0).explain(queries, targets)
    assert answers.found.all()
    assert (answers.rows.a[0] > 4 / 9) & (answers.rows.b[[1, 2]] > 4 / 9).all()


# Rules


@own
def test_answers_are_legal_and_keep_the_rules(build, schema, rows, model):
    adapted, k = adapt(model, schema), 2
    predicted = ask_frame(adapted, rows).argmax(dim=1).numpy()
    queries = rows[predicted == 0].head(12).reset_index(drop=True)
    answers = build(schema, adapted, rows, 0).explain(queries, ones(12), k=k)
    assert len(answers.rows) == len(answers.found) == 12 * k
    assert answers.k == k
    assert answers.metrics()["flip_ratio"] > 0.5
    assert answers.metrics()["legal"] == 1.0
    before = queries.loc[np.repeat(np.arange(12), k)].reset_index(drop=True)
    assert (answers.rows.region == before.region).all()
    assert (answers.rows.age >= before.age).all()
    judged = ask_frame(adapted, answers.rows).argmax(dim=1).numpy() == 1
    assert (judged == answers.found).all()
    by_query = answers.found.reshape(12, k)
    assert (np.diff(by_query.astype(int), axis=1) <= 0).all()  # those found come first


@pytest.mark.long
@every
def test_a_seed_gives_one_result(build):
    rows = shape_rows(150)
    queries = rows[rows.colour != "red"].head(2)
    np.random.seed(1)
    first, second = (
        build(SHAPES, colour_model(), rows, 3).explain(queries, ones(2)) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first.rows, second.rows)
    after = np.random.random()
    np.random.seed(1)
    assert after == np.random.random()  # nobody else's generator was touched


@pytest.mark.parametrize("build", [OWN["cadex-0.5"], OWN["cchvae"], OWN["revise"]])
def test_a_query_is_answered_alike_alone_and_in_company(build):
    rows = shape_rows(150)
    queries = rows[rows.colour != "red"].head(4)
    method = build(SHAPES, colour_model(), rows, 0)
    together = method.explain(queries, ones(4)).rows
    alone = method.explain(queries.iloc[[2]], ones(1)).rows
    pd.testing.assert_frame_equal(alone, together.iloc[[2]].reset_index(drop=True))


@every
def test_what_is_not_found_is_said_and_stays_the_query(build, monkeypatch):
    monkeypatch.setattr("counterveil_lab.baselines.dice.MOST_QUESTIONS", 200)
    rows = shape_rows(60)
    answers = build(SHAPES, constant_model(SHAPES), rows, 0).explain(rows.head(2), ones(2), k=2)
    assert not answers.found.any()
    assert answers.asked.all()
    queries = rows.loc[[0, 0, 1, 1], list(SHAPES.columns)].reset_index(drop=True)
    pd.testing.assert_frame_equal(answers.rows, queries, check_dtype=False)
    row = answers.metrics()
    assert (row.pop("flip_ratio"), row.pop("flip_ratio_any")) == (0.0, 0.0)
    assert all(math.isnan(value) for value in row.values())


def test_a_query_of_the_target_class_is_not_counted():
    queries = pd.DataFrame({"a": [0.1, 0.9], "b": [0.2, 0.9]})
    answers = Cadex(PLANE, plane_model(), plane_rows(10)).explain(queries, ones(2))
    assert (answers.asked.tolist(), answers.found.tolist()) == ([True, False], [True, False])
    assert answers.metrics()["flip_ratio"] == 1.0
    assert answers.rows.a[1] == 0.9


def test_the_nearest_different_rows_are_kept():
    queries = pd.DataFrame({"a": [0.0], "b": [0.0]})
    problem = Problem.pose(plane_model(), queries, ones(1), 2)
    nearest = Nearest(problem)
    seen = torch.tensor([[[0.9, 0.9], [0.6, 0.6], [0.6, 0.6], [0.1, 0.1], [0.8, 0.8]]])
    nearest.look(problem.numbers, seen, problem.accepted(seen, problem.numbers))
    assert torch.equal(nearest.rows, torch.tensor([[[0.6, 0.6], [0.8, 0.8]]]))
    nearest.look(problem.numbers, seen[:, 1:2], torch.tensor([[True]]))
    assert torch.equal(nearest.rows, torch.tensor([[[0.6, 0.6], [0.8, 0.8]]]))


# The VAE


def test_the_vae_learns_its_rows():
    rows = shape_rows(400)
    points = torch.as_tensor(Encoding(SHAPES).encode(rows), dtype=torch.float32)

    def error(vae):
        return float((vae.decode(vae.encode(points)[0]) - points).square().mean())

    learned, untrained = (
        train_vae(rows, SHAPES, layers=(64, 6), epochs=epochs) for epochs in (40, 0)
    )
    assert error(learned) < error(untrained) / 2
    assert not any(parameter.requires_grad for parameter in learned.parameters())


# What cannot be


def test_a_gradient_is_needed_but_for_cchvae():
    def ask(frame):
        yes = (frame.a + frame.b > 1).to_numpy(float)
        return np.stack([1 - yes, yes], axis=1)

    given = PLANE, CallableModel(ask, PLANE), plane_rows(5)
    assert Cchvae(*given, vae=same(PLANE)).explain(refused(3), ones(3)).found.all()
    for method in (Cadex, Revise):
        with pytest.raises(RequestError, match="gradient"):
            method(*given)


def test_bad_requests_are_refused(schema):
    cadex = Cadex(PLANE, plane_model(), plane_rows(5))
    queries = refused(3)
    for targets, k, words in (
        (ones(2), 1, "targets"),
        (ones(3) + 1, 1, "class numbers"),
        (ones(3), 0, "k must be"),
    ):
        with pytest.raises(RequestError, match=words):
            cadex.explain(queries, targets, k=k)
    for other, options, words in (
        (schema, {}, "another schema"),
        (PLANE, {"threshold": 1.0}, "threshold"),
        (PLANE, {"top_k": 0}, "top_k"),
    ):
        with pytest.raises(RequestError, match=words):
            Cadex(other, plane_model(), plane_rows(5), **options)


def test_dice_refuses_missing_values_and_says_what_to_install(schema, rows, model, monkeypatch):
    with pytest.raises(RequestError, match="'debt' may be missing"):
        Dice(schema, adapt(model, schema), rows)
    monkeypatch.setitem(sys.modules, "dice_ml", None)
    with pytest.raises(RequestError, match="pip install 'counterveil"):
        Dice(PLANE, plane_model(), plane_rows(5))


# dice-ml sees the same f


def test_words_go_there_and_back():
    encoding = Encoding(SHAPES)
    points = encoding.encode(shape_rows(50))
    words = Words(encoding)
    assert np.allclose(words.hear(words.say(points)), points)
    assert words.free == ["x0000000", "x0000001", "x0000006"]


@needs_dice
def test_dice_asks_the_same_model():
    rows = shape_rows(80)
    method = Dice(SHAPES, adapt(Linear([2.0, 4.0, -1.0, 0.5, 0.3, 0.7, 1.0], -2.0), SHAPES), rows)
    asked, words = method._asked, method._words
    assert isinstance(asked, OneClass)
    asked.target = 1
    points = Encoding(SHAPES).encode(rows)
    theirs = method._explainer.model.transformer.transform(words.say(points))
    answers = asked(torch.as_tensor(theirs.to_numpy(np.float32)))[:, 0]
    expected = ask_frame(method.model, rows)[:, 1].exp().float()
    assert torch.allclose(answers, expected, atol=1e-5)
