"""Believable answers for images: what P~ says of them, what is painted, what is given out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from counterveil import Explainer
from counterveil.build import Training
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import Rows
from counterveil.networks import classifier, convolutional, fit, seeded
from counterveil.schema import Binary, Label, Schema
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import Box
from counterveil.search.constraints.rules import Rules
from counterveil.search.images.descent import ImageSearch
from counterveil.search.images.ground import VIEWS
from counterveil.search.images.painters import Redrawn, Retouched
from counterveil_lab.targets import encoded

SHORT = Training(6000, 3, 256, 2e-3, (32, 32), 4, generator_steps=100)
QUERIES = 24


@pytest.fixture(scope="module")
def points(digits):
    """Held-out images and their classes."""
    return encoded(digits.test, digits.schema)


@pytest.fixture(scope="module")
def veil(digits_veil):
    return digits_veil


@pytest.fixture(scope="module")
def plain_veil(release_once, digits):
    """Of low frequencies: it has no generator."""
    return release_once(digits.schema, digits.train, 5.0, training=replace(SHORT, epochs=1))


def _taught(digits, new, epochs):
    rows, labels = encoded(digits.train, digits.schema)
    network = seeded(new, 3)

    def loss_of(some):
        return torch.nn.functional.cross_entropy(network(rows[some]), labels[some])

    fit(network, loss_of, len(rows), epochs=epochs, batch=32, rate=3e-3, seed=0)
    return network


@pytest.fixture(scope="module")
def model(digits):
    return _taught(digits, lambda: convolutional(digits.schema.images[0], (8, 16, 32), 10), 12)


@pytest.fixture(scope="module")
def stranger(digits):
    """A network of another kind that no search sees."""
    return _taught(digits, lambda: classifier(64, (64,), 10), 12)


@pytest.fixture(scope="module")
def explainer(veil, model):
    return Explainer(veil, model)


@pytest.fixture(scope="module")
def asked(digits, points, model):
    """Queries, and a class for each that the model does not give it."""
    queries, now = digits.test.head(QUERIES), model(points[0][:QUERIES]).argmax(dim=1)
    return queries, ((now + 1 + torch.arange(QUERIES) % 9) % 10).tolist()


@pytest.fixture(scope="module")
def result(explainer, asked):
    return explainer.explain(*asked, progress=False)


def rows_of(result):
    return torch.as_tensor(Encoding(result.schema).encode(result.rows), dtype=torch.float32)


def agree(network, result):
    """The share of answers that a network puts into their target class."""
    found = network(rows_of(result)).argmax(dim=1).numpy() == result.target
    return float(found[result.valid].mean())


def batch_of(queries, targets):
    whole = torch.zeros_like(queries), torch.ones_like(queries)
    return QueryBatch(queries, targets, Box(*whole))


@pytest.mark.long
def test_every_query_has_an_answer_that_the_model_accepts(result, model):
    assert result.flip_ratio >= 0.99
    assert agree(model, result) == 1.0
    assert result.rows.to_numpy().min() >= 0
    assert result.rows.to_numpy().max() <= 16


def test_a_network_that_no_search_saw_accepts_them_and_not_the_nearest(
    explainer, asked, result, stranger
):
    nearest = explainer.explain(*asked, prefer="nearest", progress=False)
    assert agree(stranger, result) > 0.9
    assert agree(stranger, nearest) < agree(stranger, result) - 0.2
    assert result.quality.stability.mean() > nearest.quality.stability.mean()


def test_answers_stay_nearer_to_the_query_than_images_of_the_class_are(explainer, result):
    beliefs = explainer._components.believable.beliefs
    before = torch.as_tensor(Encoding(result.schema).encode(result.queries), dtype=torch.float32)
    drawn, after = beliefs.samples[torch.as_tensor(result.target)], rows_of(result)  # many a class
    manner = beliefs.manner(before)
    assert (after - before).abs().mean() < (drawn - before[:, None]).abs().mean()
    others = beliefs.manner(drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2])
    off = (beliefs.manner(after) - manner).abs().mean(), (others - manner[:, None]).abs().mean()
    assert off[0] < 0.7 * off[1]


def test_the_same_again_and_whatever_is_asked_beside(explainer, asked, result):
    again = explainer.explain(*asked, progress=False)
    pd.testing.assert_frame_equal(result.rows, again.rows)
    queries, targets = asked
    half = explainer.explain(queries.iloc[10:16], targets[10:16], progress=False)
    off = np.abs(half.rows.to_numpy() - result.rows.to_numpy()[10:16]).mean()
    assert off < 0.1  # of 16 levels: rounding of floats may move a pixel


def test_worth_is_told_in_numbers_words_and_json(explainer, result):
    worth, ground = result.quality, explainer._components.believable
    before, after = (
        torch.as_tensor(Encoding(result.schema).encode(each)).float()
        for each in (result.queries, result.rows)
    )
    assert np.allclose(worth.effort, (after - before).abs().mean(dim=1), atol=1e-6)
    assert ((worth.plausibility >= 0) & (worth.plausibility <= 1)).all()
    votes, weights = np.zeros(len(after)), 0.0
    for member, weight in zip(ground.members, (1.0, ground.trust), strict=True):
        network = member.model
        for number in range(VIEWS):
            seen = ground.views(after, number)
            said = network.ask(Rows.of_points(seen, network.encoding)).argmax(dim=1).numpy()
            votes += weight * (said == result.target)
        weights += weight * VIEWS
    assert np.allclose(worth.stability, votes / weights)
    assert "is still taken for" in result.explain(0)
    assert any(each.startswith("The effort is the mean change") for each in result.meanings)
    told = json.loads(json.dumps(result.to_dict()))["explanations"][0]
    assert told["effort"] == pytest.approx(worth.effort[0])


def test_several_answers_differ(explainer, asked):
    queries, targets = (each[:6] for each in asked)
    result = explainer.explain(queries, targets, k=3, progress=False)
    assert result.answers > len(queries)  # how many more there are depends on the noise
    rows, valid = rows_of(result).unflatten(0, (-1, 3)), result.valid.reshape(-1, 3)
    for images, found in zip(rows, valid, strict=True):
        several = images[torch.as_tensor(found)]
        apart = torch.cdist(several, several, p=1) / 64 + torch.eye(len(several))
        assert float(apart.min()) > 0.02
    many = explainer.explain(queries.head(1), targets[:1], k=70, progress=False)
    assert int(valid[0].sum()) <= many.answers < 70


@pytest.mark.long
def test_rules_hold(explainer, asked):
    queries, targets = (each[:8] for each in asked)
    fixed = explainer.explain(queries.head(1), targets[:1], immutable=["pixel"], progress=False)
    assert not fixed.answers
    assert fixed.reason[0] == "the rules leave nothing that may change"
    dear = explainer.explain(queries, targets, rules=Rules(costs={"pixel": 20.0}), progress=False)
    free = explainer.explain(queries, targets, progress=False)
    assert dear.quality.effort.mean() < free.quality.effort.mean()
    sure = explainer.explain(queries, targets, margin=0.99, progress=False)
    assert sure.flip_ratio == 1.0
    assert (sure.probability >= 0.99).all()


@pytest.mark.parametrize("kind", [Redrawn, Retouched])
def test_frozen_pixels_stay(explainer, veil, plain_veil, model, points, kind):
    ground = explainer._components.believable
    if kind is Retouched:
        ground = Explainer(plain_veil, model)._components.believable
    assert isinstance(ground.painter, kind)
    queries = points[0][:12]
    targets = (model(queries).argmax(dim=1) + 3) % 10
    batch = batch_of(queries, targets)
    held = torch.zeros(8, 8, dtype=torch.bool)
    held[:, :3] = True
    columns = held.flatten().expand(12, -1)
    rows, accepted = ImageSearch(ground, batch.holding(columns))(k=1, seed=0)
    assert torch.equal(rows[:, 0][columns], queries[columns])
    assert accepted.any()
    assert (model(rows[:, 0]).argmax(dim=1) == targets)[accepted[:, 0]].all()
    assert (rows * 16 == (rows * 16).round()).all()


def test_without_a_generator_the_query_gets_a_smooth_change(plain_veil, model, stranger, asked):
    explainer = Explainer(plain_veil, model)
    result = explainer.explain(*asked, progress=False)
    nearest = explainer.explain(*asked, prefer="nearest", progress=False)
    assert isinstance(explainer._components.believable.painter, Retouched)
    assert result.flip_ratio >= 0.99
    assert agree(model, result) == 1.0
    assert agree(stranger, result) > agree(stranger, nearest) + 0.2


@pytest.mark.parametrize("guidance", ["model", "surrogate"])
def test_the_private_model_alone_is_enough(veil, asked, model, guidance):
    explainer = Explainer(veil, guidance=guidance)
    result = explainer.explain(*asked, progress=False)
    assert len(explainer._components.believable.members) == 1
    assert result.flip_ratio >= 0.99
    assert agree(veil.surrogate, result) > 0.98  # shares of the classes may decide otherwise
    assert agree(model, result) > 0.8


@pytest.mark.slow
def test_a_model_without_a_gradient_has_the_last_word(veil, model, digits, asked):
    def probabilities(rows):
        points = torch.as_tensor(Encoding(digits.schema).encode(rows), dtype=torch.float32)
        return model(points).softmax(dim=1).numpy()

    queries, targets = (each[:8] for each in asked)
    result = Explainer(veil, probabilities).explain(queries, targets, progress=False)
    assert result.flip_ratio == 1.0
    assert agree(model, result) == 1.0


def test_an_untrusted_population_is_not_followed(veil, points):
    class Turned(torch.nn.Module):
        """Names every class as the next one: nothing that P~ says is true of it."""

        def forward(self, rows):
            return veil.surrogate(rows).roll(1, dims=1)

    ground = Explainer(veil, Turned())._components.believable
    assert ground.trust == 0.0
    assert isinstance(ground.painter, Retouched)
    assert [each.weight for each in ground.members] == [2.0, 0.0]
    rows, targets = points[0][:5], torch.arange(5)
    assert not ground.implausible(rows, targets).any()


def test_real_images_are_likelier_in_their_own_class(explainer, points):
    beliefs, (rows, classes) = explainer._components.believable.beliefs, points
    every = [beliefs.likelihood(rows, torch.full_like(classes, goal)) for goal in range(10)]
    found = torch.stack(every, dim=1)
    own, others = found.gather(1, classes[:, None]), found.mean(dim=1, keepdim=True)
    assert (own > others).float().mean() > 0.9
    ranks = beliefs.rank(own[:, 0], classes)
    assert ((ranks >= 0) & (ranks <= 1)).all()
    assert (beliefs.rank(beliefs.floor(0.3), torch.arange(10)) <= 0.3).all()


def test_sets_of_bits_have_the_nearest_answers_alone(release_once):
    names = [f"b{number}" for number in range(12)]
    schema = Schema(
        features=tuple(Binary(name=name) for name in names),
        label=Label(name="y", classes=("a", "b")),
    )
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 2, (300, 12)), columns=names)
    rows["y"] = np.where(rows["b0"] > 0, "a", "b")
    veil = release_once(schema, rows, 20.0, training=replace(SHORT, epochs=1, samples=300))
    explainer = Explainer(veil)
    assert explainer.explain(rows.head(5), progress=False).quality is None
    with pytest.raises(RequestError, match="a population of a mixed table or of images"):
        explainer.explain(rows.head(5), prefer="believable", progress=False)
