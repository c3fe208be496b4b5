"""A private model of every kind decides on each row by itself: bit by bit, whatever is beside it.

Rows of the attack lie where the decision turns, to the last bit of a float: there networks answer
otherwise in larger batches, and one row more or less moved all the others in a score.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import random_rows

from counterveil.audit.score import NOTHING
from counterveil.cluster import Cluster
from counterveil.curator import Curator
from counterveil.curator.score import ScoreCounts
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.networks import classifier, convolutional, seeded
from counterveil.private_model import PrivateModel, logits_alone
from counterveil.schema import Binary, Label, Pixels, Schema

LABEL = Label(name="y", classes=(0, 1))
BITS = Schema(label=LABEL, features=tuple(Binary(name=f"b{i}") for i in range(60)))
IMAGE = Schema(label=LABEL, features=(Pixels(name="p", height=8, breadth=8),))
KINDS = ["mixed", "bits", "images", "dpsgd"]


def network_of(kind, veil):
    """The private model, and rows around the place where it turns."""
    if kind == "mixed":
        model = veil.model()
        rows = Encoding(veil.schema).encode(random_rows(veil.schema, 60, seed=3))
        return model, rows
    if kind == "images":
        image = IMAGE.images[0]
        net, schema = seeded(lambda: convolutional(image, (4, 8, 16), 2), 1), IMAGE
    else:
        schema = BITS if kind == "bits" else veil.schema
        net = seeded(lambda: classifier(schema.width, (64, 32), 2), 2)
    rows = np.random.default_rng(0).random((60, schema.width))
    rows = rows.round() if kind == "bits" else rows
    with torch.no_grad():  # half of the rows decide for either class
        odds = logits_alone(net, rows) @ [-1, 1]
        net[-1].bias[1] -= float(np.median(odds))
    return PrivateModel(schema, net, NOTHING), rows


def at_the_turn(model, rows):
    """A row at which the decision turns: no float32 lies between it and one that goes the other."""
    network = model.logits
    chosen = logits_alone(network, rows).argmax(axis=1)
    one, two = (rows[np.flatnonzero(chosen == each)[0]].astype(np.float32) for each in (0, 1))
    for _ in range(60):
        middle = (one + two) / 2
        if logits_alone(network, middle[None]).argmax() == 0:
            one = middle
        else:
            two = middle
    return one


@pytest.fixture(scope="module")
def kinds(veil):
    made = {kind: network_of(kind, veil) for kind in KINDS}
    return {kind: (model, at_the_turn(model, rows), rows) for kind, (model, rows) in made.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 5])
@settings(max_examples=8, deadline=None)
@given(beside=st.integers(0, 40), seed=st.integers(0, 10**6))
def test_a_row_is_decided_alone(kinds, kind, threads, beside, seed):
    model, edge, rows = kinds[kind]
    dice, usual = np.random.default_rng(seed), torch.get_num_threads()
    table = np.concatenate([edge[None], rows[dice.permutation(len(rows))[:beside]], edge[None]])
    order, network = dice.permutation(len(table)), model.logits
    alone = np.concatenate([logits_alone(network, row[None]) for row in table])
    torch.set_num_threads(threads)
    try:
        together = logits_alone(network, table)
        shuffled = logits_alone(network, np.asfortranarray(table[order]))
    finally:
        torch.set_num_threads(usual)
    assert np.array_equal(together, alone)
    assert np.array_equal(shuffled, alone[order])


@pytest.mark.parametrize("kind", KINDS)
def test_one_label_moves_the_counts_by_two_at_most(kinds, kind):
    """The break: nine equal rows, one of them with an unknown label, were 17 apart."""
    model, edge, _ = kinds[kind]
    for edges in (None, np.array([0.0])):
        counts = []
        for rows in (9, 8):
            sums = ScoreCounts(model, edges)
            sums.add(np.repeat(edge[None].astype(np.float64), rows, axis=0), np.zeros(rows, int))
            counts.append(sums.counts)
        assert np.abs(counts[0] - counts[1]).sum() == 1


def test_floats_are_not_scored_by_machines_that_may_differ(kinds):
    """With people, a record more moves rows to another worker, which may add floats otherwise."""
    model, *_ = kinds["bits"]
    curator = Curator(BITS)
    curator.cluster = Cluster()
    with pytest.raises(RequestError, match="one machine"):
        curator.score("rows.parquet", model, 1.0)
