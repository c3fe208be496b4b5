from dataclasses import replace

import pytest
import torch
from rows import random_rows

from counterveil.amortiser import is_free
from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.search.amortise import learn_for
from counterveil.search.constraints import Box, box_around
from counterveil.search.latent import LEARNING_RATE, search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.polish import Polishing
from counterveil.search.repair import gap_and_slope, gap_of, repair
from counterveil.search.sampling import legal_rows
from counterveil.search.snap import Snap


@pytest.fixture
def objective(veil, model, schema):
    queries = Encoding(schema).encode(random_rows(schema, 30, seed=5))
    points = torch.tensor(queries).float()
    targets = 1 - model(points).argmax(dim=1)
    return SearchObjective(
        model=adapt(model, schema),
        autoencoder=veil.autoencoder,
        weights=Weights.of("mixed"),
        queries=points,
        targets=targets,
        all_prototypes=veil.prototypes,
        box=Box(torch.zeros_like(points), torch.ones_like(points)),
    )


def test_objective_is_the_equation(objective, model, veil):
    delta = torch.randn(objective.prototypes.shape, generator=torch.Generator().manual_seed(1))
    values = objective(delta)
    for i in range(len(delta)):
        x = veil.autoencoder.decode((objective.prototypes[i] + delta[i])[None])
        cross_entropy = torch.nn.functional.cross_entropy(model(x), objective.targets[i : i + 1])
        distance = torch.linalg.vector_norm(x[0] - objective.queries[i])
        expected = 1 * cross_entropy + 0.5 * distance + 0.1 * torch.linalg.vector_norm(delta[i])
        assert float(values[i]) == pytest.approx(float(expected), rel=1e-4)


def test_the_papers_coefficients():
    assert Weights.of("mixed") == Weights(1, 0.5, 0.1)
    assert Weights.of("image") == Weights(1, 0.2, 20)
    assert Weights.of("binary") == Weights(1, 0.5, 10)


def test_iterations_lower_the_objective_from_the_prototype(objective):
    start = torch.zeros_like(objective.prototypes)
    assert torch.equal(search(objective, 0), start)
    delta = search(objective, 150)
    assert delta.isfinite().all()
    assert objective(delta).mean() < objective(start).mean()


def test_the_search_is_adams(objective):
    """The loop is written out so that rows can drop out; its steps are torch's Adam."""
    delta = torch.zeros_like(objective.prototypes, requires_grad=True)
    adam = torch.optim.Adam([delta], LEARNING_RATE)
    for _ in range(8):
        (delta.grad,) = torch.autograd.grad(objective(delta).sum(), delta)
        adam.step()
    torch.testing.assert_close(search(objective, 8), delta.detach(), rtol=1e-3, atol=1e-3)


def test_rows_at_rest_drop_out_and_keep_what_they_reached(objective):
    seen: list[int] = []
    found = search(objective, 2000, look=lambda numbers, points: seen.append(len(numbers)))
    assert seen[0] == len(objective.queries)
    assert len(seen) < 200  # all of them came to rest before the last iteration
    assert sorted(seen, reverse=True) == seen
    assert objective(found).mean() < objective(search(objective, 30)).mean()


def test_search_respects_the_box_on_the_way(objective, schema):
    encoding = Encoding(schema)
    box = box_around(encoding, objective.queries.double().numpy(), immutable=["income"])
    bounded = replace(objective, box=box)
    found = bounded.counterfactual(search(bounded, 20))
    torch.testing.assert_close(found[:, 1], objective.queries[:, 1])


def test_amortised_answers_are_as_good_as_those_of_many_iterations(objective, veil, schema):
    """On rows it never saw, one pass does what Algorithm 2 does in 300 iterations."""
    encoding = Encoding(schema)
    snap = Snap(encoding)
    objective = replace(objective, box=box_around(encoding, objective.queries.double().numpy()))
    amortiser = learn_for(
        veil, objective.model, objective.weights, snap,
        device=torch.device("cpu"), progress=False, most_steps=1500,
    )  # fmt: skip
    free = is_free(objective.box.lower, objective.box.upper)
    at_once = objective(amortiser(objective.queries, objective.targets, free)).mean()
    start = objective(torch.zeros_like(objective.prototypes)).mean()
    assert at_once < objective(search(objective, 300)).mean() + 0.25 * start
    refined = search(objective, 30, start=amortiser(objective.queries, objective.targets, free))
    assert objective(refined).mean() <= at_once


def test_polish_gives_back_what_is_not_needed(objective, model, schema):
    encoding = Encoding(schema)
    box = box_around(encoding, objective.queries.double().numpy())
    snap, guide, targets = Snap(encoding), adapt(model, schema), objective.targets
    far = snap(torch.rand_like(objective.queries), box)
    stands = (gap_of(guide.log_proba(far), targets) >= 0).nonzero()[:, 0]
    assert len(stands) > 3
    polishing = Polishing(
        home=snap(objective.queries, box)[stands], targets=targets[stands], box=box.select(stands),
        snap=snap, gap=lambda rows, goal: gap_of(guide.log_proba(rows), goal),
        slope=lambda rows, goal: gap_and_slope(guide, rows, goal)[1],
    )  # fmt: skip
    near = polishing(far[stands])
    assert not snap.broken(near, box.select(stands)).any()
    assert (gap_of(guide.log_proba(near), targets[stands]) >= 0).all()
    queries = snap(objective.queries, box)[stands]
    assert ((near - queries).norm(dim=1) <= (far[stands] - queries).norm(dim=1) + 1e-6).all()
    fewer = snap.changed_features(near, queries).sum(dim=1)
    assert (fewer <= snap.changed_features(far[stands], queries).sum(dim=1)).all()
    assert (
        fewer.float().mean()
        < 0.6 * snap.changed_features(far[stands], queries).sum(1).float().mean()
    )


def test_rows_for_a_student_are_legal_and_varied(veil, schema):
    encoding = Encoding(schema)
    rows = legal_rows(veil, Snap(encoding), 500, seed=0, device=torch.device("cpu"))
    encoding.encode(encoding.decode(rows.double().numpy()))
    assert len(rows.unique(dim=0)) > 400
    again = legal_rows(veil, Snap(encoding), 500, seed=0, device=torch.device("cpu"))
    assert torch.equal(rows, again)


def test_repair_reaches_the_target_by_single_moves(veil, model, schema, objective):
    encoding = Encoding(schema)
    queries = objective.queries
    box = box_around(encoding, queries.double().numpy())
    snap, guide = Snap(encoding), adapt(model, schema)
    start = snap(queries, box)
    mended = repair(start, objective.targets, box, snap, guide, steps=40)
    assert not snap.broken(mended, box).any()
    assert (guide.log_proba(mended).argmax(dim=1) == objective.targets).float().mean() > 0.9
    assert torch.equal(repair(start, objective.targets, box, snap, guide, steps=0), start)


def test_repair_within_a_budget_of_features(model, schema, objective):
    encoding = Encoding(schema)
    box = box_around(encoding, objective.queries.double().numpy())
    snap, guide = Snap(encoding), adapt(model, schema)
    start = snap(objective.queries, box)
    for most in (1, 2):
        budget = torch.full((len(start),), most)
        mended = repair(start, objective.targets, box, snap, guide, steps=40, need=9.0, most=budget)
        assert int(snap.changed_features(mended, start).sum(dim=1).max()) == most
