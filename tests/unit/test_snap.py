"""What leaves the search is a legal row inside the query's rules, whatever goes in."""

import pandas as pd
import pytest
import torch
from rows import random_rows

from counterveil.encoding import Encoding
from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Schema
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.decoding import as_people_write
from counterveil.search.constraints.projection import Snap


def test_nearest_by_brute_force():
    schema = Schema(
        features=(
            Numeric(name="n", lower=0, upper=4, integer=True),
            Categorical(name="c", categories=("a", "b", "c")),
            Binary(name="b"),
        ),
        label=Label(name="y", classes=(0, 1)),
    )
    encoding = Encoding(schema)
    grid = pd.DataFrame(
        [(n, c, b) for n in range(5) for c in "abc" for b in (0, 1)], columns=["n", "c", "b"]
    )
    legal = torch.tensor(encoding.encode(grid)).float()
    points = torch.rand(200, encoding.width, generator=torch.Generator().manual_seed(0))
    box = Box(torch.zeros_like(points), torch.ones_like(points))
    nearest = legal[torch.cdist(points, legal).argmin(dim=1)]
    torch.testing.assert_close(Snap(encoding)(points, box), nearest)


def test_broken_notices_every_kind_of_violation(schema):
    encoding = Encoding(schema)
    points = encoding.encode(random_rows(schema, 1))
    box, snap = box_around(encoding, points), Snap(encoding)
    good = torch.tensor(points).float()
    good[:, 2:4] = torch.tensor([0.5, 1.0]) if good[0, 3] else good[:, 2:4]
    wrongs = []
    for column, value in ((0, 0.0), (0, good[0, 0] + 0.5 / 82), (1, 1.5), (1, torch.nan)):
        wrongs.append(good.clone())
        wrongs[-1][0, column] = value
    wrongs.append(good.clone())
    wrongs[-1][0, -1] = 0.5  # half a member
    wrongs.append(good.clone())
    wrongs[-1][0, 6:10] = 0.25  # a bit of every housing
    for wrong in wrongs:
        assert snap.broken(wrong, box).all()


def test_an_own_value_outside_stays_where_it_is_nearer():
    schema = Schema(
        features=(Numeric(name="hours", lower=0, upper=100, integer=True, allowed=(20, 60)),),
        label=Label(name="y", classes=(0, 1)),
    )
    encoding, snap = Encoding(schema), Snap(Encoding(schema))
    box = box_around(encoding, encoding.encode(pd.DataFrame({"hours": [68]})))
    assert box.stays.tolist() == [[True]]
    assert box.queries.tolist() == [[pytest.approx(0.68)]]
    wanted = {1.0: 0.68, 0.68: 0.68, 0.65: 0.68, 0.63: 0.6, 0.6: 0.6, 0.456: 0.46, 0.0: 0.2}
    for point, nearest in wanted.items():
        row = snap(torch.tensor([[point]]), box)
        assert row.item() == pytest.approx(nearest)
        assert not snap.broken(row, box).any()
    assert snap.broken(torch.tensor([[0.67]]), box).all()
    assert box.project(torch.tensor([[0.68]])).item() == pytest.approx(0.6)
    held = box.holding(torch.tensor([[True]]), box.queries)
    assert snap(torch.tensor([[0.3]]), held).item() == pytest.approx(0.68)
    inside = box_around(encoding, encoding.encode(pd.DataFrame({"hours": [50]})))
    assert inside.stays is None
    assert inside.queries is None


def test_a_derived_feature_may_come_before_its_source():
    schema = Schema(
        features=(
            Numeric(name="derived", lower=0, upper=10),
            Numeric(name="other", lower=0, upper=1),
            Categorical(name="source", categories=("a", "b")),
        ),
        label=Label(name="y", classes=(0, 1)),
        links=(Link(source="source", derived="derived", values={"a": 1, "b": 2}),),
    )
    snap = Snap(Encoding(schema))
    rows, queries = torch.tensor([[0.1, 0.5, 1, 0]]), torch.tensor([[0.2, 0.5, 0, 1]])
    changed = snap.changed_features(rows, queries)
    assert changed.tolist() == [[False, False, True]]
    assert snap.columns_of_features(changed).tolist() == [[True, False, True, True]]


def test_invented_rows_have_numbers_as_people_write_them():
    schema = Schema(
        label=Label(name="y", classes=(0, 1)),
        features=(
            Numeric(name="debt", lower=0, upper=10_000, missing=True),
            Numeric(name="amount", lower=500, upper=40_000, integer=True, step=500),
            Numeric(name="savings", lower=-40_000, upper=26_331, integer=True, missing=True),
            Numeric(name="year", lower=1900, upper=2020, integer=True),
        ),
    )
    rows = pd.DataFrame({"debt": [7635.1084243849, None], "amount": [26_331, 501],
                         "savings": pd.array([26_330, None], dtype="Int64"),
                         "year": [1987, 2020]})  # fmt: skip
    found = as_people_write(schema, rows)
    assert found.dtypes.equals(rows.dtypes)
    assert found.iloc[0].tolist() == [7640, 26_500, 26_300, 1987]
    assert found.isna().sum().sum() == 2
    assert found.amount[1] == 500
