"""The last word on the rows that a search has found: the model's, on the rows as given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.models import Rows, TargetModel
from counterveil.privacy import Statement
from counterveil.search import constraints
from counterveil.search.answers import NO_FURTHER, Status
from counterveil.search.constraints import ManyRules
from counterveil.search.explanations import Explanations
from counterveil.search.pipeline import Found, QueryBatch
from counterveil.search.rules import Rules
from counterveil.search.wording import DecidedBy
from counterveil.search.worth import Worth
from counterveil.veil import Veil

Assess = Callable[[Array, Array, Array], Worth | None]  # (queries, answers, targets), encoded


@dataclass(frozen=True)
class Request:
    """What was asked: k answers to each of the queries `asked`."""

    asked: Rows
    index: pd.Index[Any] | None  # of the caller's table
    batch: QueryBatch  # the queries as the search takes them
    before: Tensor  # log-probabilities of the queries by the model, (queries, classes)
    rules: ManyRules
    fixed: tuple[str, ...]  # features held for every query besides those of the schema
    k: int
    target_was_named: bool  # by the caller
    iterations: int  # that the search was allowed


@dataclass(frozen=True)
class Judge:
    """What answers are judged by. `assess` says what they are worth; it is called late or never."""

    veil: Veil
    encoding: Encoding
    model: TargetModel
    decided_by: DecidedBy
    statement: Statement
    assess: Assess

    def __call__(self, request: Request, found: Found) -> Explanations:
        """The model has the last word, on the rows (queries, k, width) as they are given out."""
        (rows, accepted), encoding = found, self.encoding
        k, rules = request.k, request.rules
        queries = request.asked.repeated(k)  # one row an answer
        points = queries.encoded
        if rules is not None and not isinstance(rules, Rules):
            rules = [each for each in rules for _ in range(k)]
        before = request.before.numpy().repeat(k, axis=0)
        targets = request.batch.targets.numpy().repeat(k)
        predicted = before.argmax(axis=1)
        already = predicted == targets
        if self.decided_by is DecidedBy.STAND_IN and request.target_was_named:
            # f~ does not know what was decided: a class that was asked for is always sought.
            already = np.zeros_like(already)
        wanted = accepted.numpy().ravel() & ~already
        tried = np.where(wanted[:, None], rows.flatten(0, 1).numpy(), points)
        cells = constraints.decode_cells(encoding, queries.cells, points, tried, rules)
        given_out = queries.with_cells(cells)
        encoded, after, answers = given_out.encoded, self.model.ask(given_out), given_out.frame
        valid = (after.argmax(dim=1).numpy() == targets) & wanted
        lost = wanted & ~valid
        if lost.any():
            answers = answers.where(pd.Series(~lost), queries.frame)
            encoded[lost] = points[lost]
        moved = np.abs(encoded - points)
        block_starts = [block.start for block in encoding.blocks]
        log_proba = np.where(valid[:, None], after.numpy(), before)
        probability = np.exp(log_proba[np.arange(len(targets)), targets])
        status = np.where(valid, Status.FOUND.value, Status.NOT_FOUND.value)
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
            queries=queries.frame,
            rows=answers,
            status=np.where(already, Status.ALREADY.value, status),
            predicted=predicted,
            target=targets,
            probability=probability.astype(np.float64),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=(np.maximum.reduceat(moved, block_starts, axis=1) > 0).sum(axis=1),
            iterations=request.iterations,
            k=k,
            reason=_reasons(request, valid, already, self.decided_by),
            fixed=request.fixed,
            signer=self.veil.signer,
            index=request.index,
            decided_by=self.decided_by,
            assess=partial(self.assess, points, encoded, targets),
        )


def _reasons(request: Request, valid: Array, already: Array, decided_by: DecidedBy) -> Array:
    """Why there is no answer, for each that is missing, (queries · k,); "" for all others."""
    if (valid | already).all():
        return np.full(len(valid), "", dtype=object)
    batch, k, asked = request.batch, request.k, decided_by.asked
    reasons = np.full(len(valid), f"no row within the rules convinced {asked}", dtype=object)
    if batch.max_changes is not None:
        for number, most in enumerate(batch.max_changes.tolist()):
            if most < constraints.ANY_NUMBER:
                said = f"no row with at most {most} changes convinced {asked}"
                reasons[number * k : (number + 1) * k] = said
    nothing_may_change = (batch.box.upper <= batch.box.lower).all(dim=1).numpy()
    reasons[nothing_may_change.repeat(k)] = "the rules leave nothing that may change"
    has_first = valid.reshape(-1, k)[:, :1].repeat(k, axis=1)
    reasons[(has_first & (np.arange(k) > 0)).ravel()] = NO_FURTHER
    reasons[valid | already] = ""
    return reasons
