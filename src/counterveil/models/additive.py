"""Whether the log-odds of a model add up over features, read off its structure.

Where they do, the best row within some rules is known: every feature at its best value. That is a
proof, so nothing here is guessed from a model's answers. These add up, and for others the answer is
None:

- "linear", numbers in proportion: one linear layer of torch over the encoding; logistic regression
  and its like of scikit-learn, over the encoding, or over columns that are scaled, filled in or
  encoded one by one;
- "steps", numbers along a line that bends here and there: the scorecard of a private model.
"""

from typing import Any, Literal

import numpy as np
from torch import nn

from counterveil.encoding import Array, Encoding
from counterveil.population.whole_scorecard import WholeScorecard
from counterveil.schema import Schema

Additive = Literal["linear", "steps"]

LINEAR = {"LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis"}
COLUMN_BY_COLUMN = {"StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"}
OF_CATEGORIES = {"OneHotEncoder", "OrdinalEncoder"}
HARMLESS = (nn.Identity, nn.Flatten, nn.Softmax, nn.LogSoftmax, nn.Dropout)


def additive_module(module: nn.Module) -> Additive | None:
    """How the log-odds of a module over the encoding add up over features; None if unknown."""
    kinds = [type(layer) for layer in _layers(module) or ()]
    if kinds == [nn.Linear]:
        return "linear"
    return "steps" if kinds == [WholeScorecard] else None


def _layers(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a plain chain that change log-odds; None for any other module."""
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    if type(module) is not nn.Sequential:
        return [module]
    found: list[nn.Module] = []
    for each in module:
        inner = _layers(each)
        if inner is None:
            return None
        found += inner
    return [layer for layer in found if not isinstance(layer, HARMLESS)]


def kinks_of(module: nn.Module, encoding: Encoding) -> dict[int, Array]:
    """Where the lines of numbers bend in a module that adds up in "steps", by encoded column.

    Values in the unit cube, ascending.
    """
    (card,) = _layers(module) or []
    assert isinstance(card, WholeScorecard)
    columns = card.columns.cpu().numpy()
    starts, slopes = card.starts.cpu().numpy(), card.slopes.cpu().numpy()
    found = {}
    for block in encoding.blocks:
        if block.feature.is_one_number:
            mine = columns == block.start
            bends = np.concatenate([starts[mine], starts[mine] + 1 / slopes[mine]])
            found[block.start] = np.unique(bends[(bends > 0) & (bends < 1)])
    return found


def additive_estimator(estimator: Any, schema: Schema) -> Additive | None:
    """How the log-odds of a scikit-learn estimator add up over columns; None if unknown."""
    name = _of_sklearn(estimator)
    if name == "Pipeline":
        *before, last = [step for _, step in estimator.steps]
        fine = all(_is_column_by_column(step, list(schema.columns), schema) for step in before)
        return additive_estimator(last, schema) if fine else None
    if name not in LINEAR:
        return None
    several = len(schema.label.classes) > 2
    one_by_one = "liblinear", "ovr"  # each class against the rest: such log-odds do not add up
    settings = getattr(estimator, "solver", None), getattr(estimator, "multi_class", None)
    return None if several and any(each in one_by_one for each in settings) else "linear"


def _of_sklearn(step: Any) -> str:
    """The name of the class of a step of scikit-learn's own; "" for any other."""
    known = type(step).__module__.startswith("sklearn.")
    return type(step).__name__ if known else ""


def _is_column_by_column(step: Any, columns: list[str], schema: Schema) -> bool:
    """Whether what a transformer makes of each of `columns` depends on that column alone.

    Of a number in proportion, of a category on which one it is.
    """
    if step is None or isinstance(step, str):
        return step in {None, "passthrough", "drop"}
    name = _of_sklearn(step)
    if name == "Pipeline":
        return all(_is_column_by_column(inner, columns, schema) for _, inner in step.steps)
    if name == "ColumnTransformer":
        return all(
            _is_column_by_column(inner, _names(at, columns), schema)
            for _, inner, at in step.transformers_
        )
    if name in OF_CATEGORIES:
        numbers = {each.name for each in schema.features if each.is_one_number}
        return numbers.isdisjoint(columns)
    return name in COLUMN_BY_COLUMN or (name == "SimpleImputer" and not step.add_indicator)


def _names(at: Any, columns: list[str]) -> list[str]:
    """The columns that a ColumnTransformer names; all of them where it does so in another way."""
    given = [at] if isinstance(at, str) else at
    named = isinstance(given, list) and all(isinstance(each, str) for each in given)
    return list(given) if named else columns
