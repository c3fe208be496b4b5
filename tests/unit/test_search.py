import pytest
import torch
from rows import random_rows

from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.search.constraints import Box, box_around
from counterveil.search.latent import search
from counterveil.search.objective import SearchObjective, Weights
from counterveil.search.repair import repair
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
        prototypes=veil.prototypes[targets],
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
    torch.testing.assert_close(search(objective, 0), objective.counterfactual(start))
    before = objective(start).mean()
    found = search(objective, 150)
    assert found.isfinite().all()
    distance = (found - objective.queries).norm(dim=1)
    assert (
        distance.mean() < (objective.counterfactual(start) - objective.queries).norm(dim=1).mean()
    )
    log_proba = objective.model.log_proba(found)
    reached = -log_proba.gather(1, objective.targets[:, None]).mean() + 0.5 * distance.mean()
    assert reached < before


def test_search_respects_the_box_on_the_way(objective, schema):
    encoding = Encoding(schema)
    box = box_around(encoding, objective.queries.double().numpy(), ["income"])
    bounded = SearchObjective(**{**vars(objective), "box": box})
    found = search(bounded, 20)
    torch.testing.assert_close(found[:, 1], objective.queries[:, 1])


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
