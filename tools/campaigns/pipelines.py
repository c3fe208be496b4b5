"""Models of scikit-learn as people have them: pipelines over rows in original units.

Nothing here is of counterveil, so that earlier versions of it can be measured with the same models.
"""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

Kind = Literal["logistic", "boosted"]


def pipeline(kind: Kind, table: pd.DataFrame, labels: pd.Series) -> Any:
    """A fitted pipeline; `table`: the features alone, without gaps. Classes count evenly."""
    words = list(table.select_dtypes(exclude="number"))
    numbers = [name for name in table if name not in words]
    if kind == "logistic":
        columns = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), words), (StandardScaler(), numbers)
        )
        last: Any = LogisticRegression(max_iter=1000, class_weight="balanced")
    else:
        columns = make_column_transformer(
            (OrdinalEncoder(), words), ("passthrough", numbers), verbose_feature_names_out=False
        )
        last = HistGradientBoostingClassifier(random_state=0, class_weight="balanced")
    return make_pipeline(columns, last).fit(table, labels)
