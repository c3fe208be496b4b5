"""Claims about people: what is told is compared with held-out people of the class."""

from dataclasses import replace

import numpy as np
import pandas as pd
from campaigns.claims import claims_of

from counterveil.schema import Label, Numeric, Schema
from counterveil.search.results.quality import AnswerQuality
from counterveil_lab.datasets import Dataset
from results import explanations

SCHEMA = Schema(
    label=Label(name="loan", classes=("no", "yes")),
    features=(
        Numeric(name="hours", lower=0, upper=9, integer=True, missing=True),
        Numeric(name="debt", lower=0, upper=9),
    ),
)


def test_each_claim_stands_beside_its_truth():
    people = pd.DataFrame({
        "hours": pd.array([1, 5, 6, None, 9], dtype="Int64"),
        "debt": [1.0, 2.0, 3.0, 4.0, 0.0],
        "loan": ["yes", "yes", "yes", "yes", "no"],
    })  # fmt: skip
    data = Dataset("small", SCHEMA, people, people, None, "")
    before, after = {"hours": 2, "debt": 5.0}, {"hours": 5, "debt": 2.0}
    nothing = np.zeros(1)
    beyond, places = np.array([[0.3, 0.8]]), np.full((1, 2, 2), np.nan)
    quality = AnswerQuality(nothing, nothing, nothing, beyond, places)
    result = explanations(SCHEMA, [before], [after], quality=lambda: quality)
    assert list(claims_of(result, data)) == [(0.3, 0.5), (0.8, 0.5)]
    noisy = explanations(
        SCHEMA, [before], [after], quality=lambda: replace(quality, veil_knows=False)
    )
    assert list(claims_of(noisy, data)) == []
