"""What an Explainer is given, made ready for the search, and words for what it could not give."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.errors import CallLimitError, RequestError
from counterveil.models import TargetModel, TorchModel, adapt
from counterveil.privacy import Budget, Statement
from counterveil.search.answer import Questions
from counterveil.search.constraints import ANY_NUMBER, ManyRules
from counterveil.search.explanations import NO_FURTHER
from counterveil.search.rules import Rules
from counterveil.veil import Veil

STUDENT_ROWS, FEWEST_STUDENT_ROWS = 20_000, 200


def guide_model(veil: Veil, model: Any, guidance: str) -> TargetModel:
    """What the search may consult: f, or f~ and then f is not even kept."""
    if guidance == "surrogate":
        if veil.surrogate is None:
            raise RequestError(
                f"this veil has no surrogate (mechanism {veil.statement.mechanism}); "
                "use guidance 'model', or release with mechanism functional"
            )
        return TorchModel(veil.surrogate, veil.schema, outputs="logits")
    if guidance != "model":
        raise RequestError("guidance must be 'model' or 'surrogate'")
    if model is None:
        raise RequestError("guidance 'model' needs a model; or use guidance='surrogate'")
    return adapt(model, veil.schema)


def statement_of(veil: Veil, guidance: str, model_budget: Budget | None) -> Statement:
    """What is promised of answers found with this guidance."""
    if guidance == "surrogate":
        return veil.statement.guided_by_surrogate()
    return veil.statement if model_budget is None else veil.statement.composed_with(model_budget)


def rows_for_a_student(model: TargetModel) -> int:
    """How many rows a student may be taught on; half of the calls, if limited, is for answers."""
    left, batch = model.calls_left, model.batch
    if left is None:
        return STUDENT_ROWS
    rows = STUDENT_ROWS * min(1, left // 2) if batch is None else batch * (left // 2)
    if rows < FEWEST_STUDENT_ROWS:
        raise CallLimitError(
            f"{left} calls of at most {batch} rows are too few to learn how the model answers; "
            "allow more calls or larger batches"
        )
    return min(STUDENT_ROWS, rows)


def features_changed(encoding: Encoding, moved: Array) -> Array:
    """How many features differ, for each row of absolute differences."""
    starts = [block.start for block in encoding.blocks]
    return (np.maximum.reduceat(moved, starts, axis=1) > 0).sum(axis=1)


def reasons(questions: Questions, valid: Tensor, already: Tensor, k: int) -> Array:
    """Why there is no answer, for every one that there is not; "" otherwise."""
    box = questions.box
    stuck = (box.upper <= box.lower).all(dim=1).numpy().repeat(k)
    words = np.full(len(valid), "no row within the rules convinced the model", dtype=object)
    if questions.most is not None:
        for number, most in enumerate(questions.most.tolist()):
            if most < ANY_NUMBER:
                said = f"no row with at most {most} changes convinced the model"
                words[number * k : (number + 1) * k] = said
    words[stuck] = "the rules leave nothing that may change"
    first = valid.numpy().reshape(-1, k)[:, :1].repeat(k, axis=1)
    further = first & (np.arange(k) > 0)
    words[further.ravel()] = NO_FURTHER
    words[valid.numpy() | already.numpy()] = ""
    return words


def fixed_features(rules: ManyRules, immutable: Collection[str]) -> tuple[str, ...]:
    """Features held for every query besides those of the schema."""
    for_all = rules.immutable if isinstance(rules, Rules) else ()
    return tuple(sorted({*for_all, *immutable}))
