"""Public bounds that are ten times too wide change believable answers no more than noise does."""

import numpy as np
import pytest
from campaigns.populations import widened

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil_lab.believability import WISHES, BoostedTrees
from counterveil_lab.datasets import load

pytestmark = pytest.mark.slow


class Clipped:
    """f over the rows of any bounds: it was taught with the usual ones."""

    def __init__(self, schema, train):
        self._f, self._schema = BoostedTrees(schema, train, 0), schema
        self.classes_ = self._f.classes_

    def predict_proba(self, rows):
        kept = rows.copy()
        for feature in self._schema.features:
            if feature.number_range is not None:
                kept[feature.name] = kept[feature.name].clip(*feature.number_range)
        return self._f.predict_proba(kept)


def test_bounds_ten_times_too_wide_give_the_same_answers():
    data, wish = load("adult", seed=0), WISHES["adult"]
    f, asked = Clipped(data.schema, data.train), data.test.head(120)
    usual, wide = (
        Explainer(
            Curator(widened(data.schema, times)).release(
                data.train, 3.0, 1e-9, epochs=2, progress=False
            ),
            f,
        ).explain(asked, wish.target, immutable=wish.personal, progress=False)
        for times in (1, 10)
    )
    assert usual.flip_ratio == wide.flip_ratio == 1
    assert wide.effort[wide.valid].mean() < 1.2 * usual.effort[usual.valid].mean()
    assert abs(wide.changed[wide.valid].mean() - usual.changed[usual.valid].mean()) < 0.4
    both = np.flatnonzero(usual.valid & wide.valid)
    one, two = ([columns_of(each, int(at)) for at in both] for each in (usual, wide))
    assert np.mean([first == second for first, second in zip(one, two, strict=True)]) > 0.6
    for column in ("capital_gain", "capital_loss"):
        highest = [each.rows[column][both].max() for each in (usual, wide)]
        assert highest[1] <= data.schema.feature(column).upper


def columns_of(result, query):
    return {column for column, *_ in result.changes_of(query)}
