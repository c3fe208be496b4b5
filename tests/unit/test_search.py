from dataclasses import replace

import pytest
import torch
from rows import random_rows

from counterveil.encoding import Encoding
from counterveil.models import Rows, adapt
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.projection import Snap
from counterveil.search.paper.algorithm2 import (
    LEARNING_RATE,
    SearchObjective,
    Weights,
    minimise,
)
from counterveil.search.paper.moves import GreedyRepair, Polish
from counterveil.search.paper.student import distil, legal_rows


@pytest.fixture
def objective(veil, model, schema):
    queries = Encoding(schema).encode(random_rows(schema, 30, seed=5))
    points = torch.tensor(queries).float()
    targets = 1 - model(points).argmax(dim=1)
    return SearchObjective(
        model=adapt(model, schema), autoencoder=veil.autoencoder, weights=Weights.of("mixed"),
        queries=points, targets=targets, prototypes=veil.prototypes,
        box=Box(torch.zeros_like(points), torch.ones_like(points)),
    )  # fmt: skip


def test_objective_is_the_equation(objective, model, veil):
    start = objective.no_perturbation
    delta = torch.randn(start.shape, generator=torch.Generator().manual_seed(1))
    values = objective(delta)
    for i in range(len(delta)):
        prototype = veil.prototypes[objective.targets[i]]
        x = veil.autoencoder.decode((prototype + delta[i])[None])
        cross_entropy = torch.nn.functional.cross_entropy(model(x), objective.targets[i : i + 1])
        distance = torch.linalg.vector_norm(x[0] - objective.queries[i])
        expected = 1 * cross_entropy + 0.5 * distance + 0.1 * torch.linalg.vector_norm(delta[i])
        assert float(values[i]) == pytest.approx(float(expected), rel=1e-4)


def test_the_papers_coefficients():
    assert Weights.of("mixed") == Weights(1, 0.5, 0.1)
    assert Weights.of("image") == Weights(1, 0.2, 20)
    assert Weights.of("binary") == Weights(1, 0.5, 10)


def test_the_search_is_adams(objective):
    delta = objective.no_perturbation.requires_grad_(True)
    adam = torch.optim.Adam([delta], LEARNING_RATE)
    for _ in range(8):
        (delta.grad,) = torch.autograd.grad(objective(delta).sum(), delta)
        adam.step()
    torch.testing.assert_close(minimise(objective, 8), delta.detach(), rtol=1e-5, atol=1e-5)


def test_polish_gives_back_what_is_not_needed(objective, model, schema):
    encoding = Encoding(schema)
    box = box_around(encoding, objective.queries.double().numpy())
    snap, guide, targets = Snap(encoding), Question(adapt(model, schema)), objective.targets
    margin = guide.margin_as_is
    start = snap(objective.queries, box)
    far = snap(torch.rand_like(objective.queries), box)
    accepted = (margin(far, targets) >= 0).nonzero()[:, 0]
    assert len(accepted) > 3
    some = QueryBatch(objective.queries, targets, box).select(accepted)
    polish = Polish(guide, guide, snap, some)
    near, far, queries = polish(far[accepted]), far[accepted], start[accepted]
    assert not snap.broken(near, box.select(accepted)).any()
    assert (margin(near, targets[accepted]) >= 0).all()
    assert ((near - queries).norm(dim=1) <= (far - queries).norm(dim=1) + 1e-6).all()
    fewer = snap.changed_features(near, queries).sum(dim=1)
    before = snap.changed_features(far, queries).sum(dim=1)
    assert (fewer <= before).all()
    assert fewer.float().mean() < 0.6 * before.float().mean()


def test_rows_for_a_student_are_legal_and_varied(veil, schema):
    encoding = Encoding(schema)
    rows = legal_rows(veil, Snap(encoding), 500, seed=0)
    encoding.encode(encoding.decode(rows.double().numpy()))
    assert len(rows.unique(dim=0)) > 400
    again = legal_rows(veil, Snap(encoding), 500, seed=0)
    assert torch.equal(rows, again)


@pytest.fixture
def batch(objective, schema):
    box = box_around(Encoding(schema), objective.queries.double().numpy())
    return QueryBatch(objective.queries, objective.targets, box)


def test_repair_reaches_the_target_by_single_moves(model, schema, batch):
    snap, guide = Snap(Encoding(schema)), adapt(model, schema)
    repair = GreedyRepair(Question(guide), Question(guide), snap)
    mended = repair(batch)
    assert not snap.broken(mended, batch.box).any()
    decided = guide.ask(Rows.of_points(mended, guide.encoding)).argmax(dim=1)
    assert (decided == batch.targets).float().mean() > 0.9
    assert torch.equal(repair(batch, steps=0), snap(batch.queries, batch.box))


@pytest.mark.parametrize("most", [1, 2])
def test_repair_changes_no_more_features_than_it_may(model, schema, batch, most):
    snap, guide = Snap(Encoding(schema)), Question(adapt(model, schema))
    limited = replace(batch, max_changes=torch.full((len(batch),), most))
    mended = GreedyRepair(guide, guide, snap)(limited, beyond=9.0)
    start = snap(batch.queries, batch.box)
    assert int(snap.changed_features(mended, start).sum(dim=1).max()) == most


def test_a_misleading_student_is_corrected_by_the_model(model, schema, batch):
    """Of the moves that a student proposes, the model's own margin chooses."""
    snap, asked = Snap(Encoding(schema)), adapt(model, schema)
    answers = asked.ask(Rows.of_points(batch.queries, asked.encoding))
    student = distil(asked, batch.queries, answers, seed=0)  # of 30 rows
    shares = []
    for model_asked in (student, asked):
        mended = GreedyRepair(Question(student), Question(model_asked), snap)(batch)
        decided = asked.ask(Rows.of_points(mended, asked.encoding)).argmax(dim=1)
        shares.append(float((decided == batch.targets).float().mean()))
    assert shares[1] > shares[0]
    assert shares[1] > 0.9


def test_a_student_learns_the_model(veil, model, schema):
    snap, teacher = Snap(Encoding(schema)), adapt(model, schema)
    learnt, others = (
        Rows.of_points(legal_rows(veil, snap, 2000, seed=seed), teacher.encoding) for seed in (0, 1)
    )
    student = distil(teacher, learnt.points, teacher.ask(learnt), seed=0)
    assert student.differentiable
    agree = student.ask(others).argmax(dim=1) == teacher.ask(others).argmax(dim=1)
    assert agree.float().mean() > 0.9
