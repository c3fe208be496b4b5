"""The last word on the rows that a search has found: the model's, on the rows as given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
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
        frame, points = request.asked.frame, request.asked.encoded
        if k > 1:  # one row an answer
            query_of = np.repeat(np.arange(len(frame)), k)
            frame, points = frame.loc[query_of].reset_index(drop=True), points[query_of]
            if rules is not None and not isinstance(rules, Rules):
                rules = [rules[query] for query in query_of.tolist()]
        before = request.before.repeat_interleave(k, dim=0)
        targets = request.batch.targets.repeat_interleave(k)
        predicted = before.argmax(dim=1)
        already = predicted == targets
        if self.decided_by is DecidedBy.STAND_IN and request.target_was_named:
            # f~ does not know what was decided: a class that was asked for is always sought.
            already = torch.zeros_like(already)
        wanted = accepted.flatten() & ~already
        tried = np.where(wanted.numpy()[:, None], rows.flatten(0, 1).double().numpy(), points)
        answers = constraints.decode_answers(encoding, frame, points, tried, rules)
        given_out = Rows.of_frame(answers, encoding)
        encoded, after = given_out.encoded, self.model.ask(given_out)
        valid = (after.argmax(dim=1) == targets) & wanted
        lost = (wanted & ~valid).numpy()
        if lost.any():
            answers = answers.where(pd.Series(~lost), frame)
            encoded[lost] = points[lost]
        moved = np.abs(encoded - points)
        block_starts = [block.start for block in encoding.blocks]
        log_proba = torch.where(valid[:, None], after, before)
        ways = [already.numpy(), valid.numpy()]
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
            queries=frame,
            rows=answers,
            status=np.select(ways, [Status.ALREADY, Status.FOUND], Status.NOT_FOUND),
            predicted=predicted.numpy(),
            target=targets.numpy(),
            probability=log_proba.exp().gather(1, targets[:, None])[:, 0].double().numpy(),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=(np.maximum.reduceat(moved, block_starts, axis=1) > 0).sum(axis=1),
            iterations=request.iterations,
            k=k,
            reason=_reasons(request, valid.numpy(), already.numpy(), self.decided_by),
            fixed=request.fixed,
            signer=self.veil.signer,
            index=request.index,
            decided_by=self.decided_by,
            assess=partial(self.assess, points, encoded, targets.numpy()),
        )


def _reasons(request: Request, valid: Array, already: Array, decided_by: DecidedBy) -> Array:
    """Why there is no answer, for each that is missing, (queries · k,); "" for all others."""
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
