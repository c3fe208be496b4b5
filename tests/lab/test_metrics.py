"""Metrics against brute force."""

import math

import numpy as np
import pytest
import torch

from counterveil.encoding import Encoding
from counterveil_lab import metrics
from results import explanations


def brute_force(rows, schema, reference):
    encode = Encoding(schema).encode
    real = encode(reference)
    return float(np.mean([min(np.linalg.norm(real - point, axis=1)) for point in encode(rows)]))


def test_plausibility_is_the_distance_to_the_nearest_record(schema, rows):
    asked, reference = rows.head(100), rows.tail(400)
    found = metrics.plausibility(asked, schema, reference)
    assert found == pytest.approx(brute_force(asked, schema, reference), rel=1e-12)
    assert metrics.plausibility(rows.head(50), schema, rows) == 0.0
    assert math.isnan(metrics.plausibility(rows.head(0), schema, rows))


@pytest.mark.parametrize("room", [1, 1000, 2**24])
def test_parts_do_not_change_the_answer(monkeypatch, room):
    points, real = (torch.rand(count, 7, generator=torch.Generator().manual_seed(count))
                    for count in (41, 300))  # fmt: skip
    monkeypatch.setattr(metrics, "ROOM", room)
    exact = (points.double()[:, None] - real.double()[None]).square().sum(-1).sqrt().amin(1)
    assert torch.allclose(metrics.nearest(points, real), exact, rtol=1e-12)


def answers(schema, rows, status):
    """Explanations in which the income of every found answer was raised to 10."""
    queries = rows.head(len(status)).reset_index(drop=True)[list(schema.columns)]
    found = np.array(status) == "found"
    after = queries.assign(income=np.where(found, 10.0, queries.income))
    encode = Encoding(schema).encode
    distance = np.linalg.norm(encode(after) - encode(queries), axis=1)
    told = {"status": np.array(status), "changed": found.astype(int), "distance": distance}
    return explanations(schema, queries, after, **told)


def test_measure_takes_means_over_what_was_found(schema, rows):
    result = answers(schema, rows, ["found", "not_found", "found", "already", "found"])
    reference = rows.tail(300)
    row = metrics.measure(result, reference)
    assert set(row) == {"flip_ratio", "legal", "distance", "changed_features", "plausibility"}
    assert (row["flip_ratio"], row["legal"], row["changed_features"]) == (0.75, 1.0, 1.0)
    assert row["distance"] == pytest.approx((1 - rows.income[[0, 2, 4]] / 10).mean())
    assert row["plausibility"] == pytest.approx(brute_force(result.frame(), schema, reference))
    values = metrics.measure(answers(schema, rows, ["already", "already"]), rows).values()
    assert all(math.isnan(value) for value in values)


def test_legal_share_counts_rows(schema, rows):
    some = rows.head(10).copy()
    some.loc[3, "income"] = 11.0
    assert metrics.legal_share(some, schema) == 0.9
