"""The last word on the rows that a search has found: the model's, on the rows as given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.models import Rows, TargetModel
from counterveil.privacy import Statement
from counterveil.schema import Schema
from counterveil.search.batch import Found, QueryBatch
from counterveil.search.constraints import bounds as constraints
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.decoding import Given, decode_cells
from counterveil.search.constraints.projection import Snap
from counterveil.search.constraints.rules import Rules
from counterveil.search.results.answers import NO_FURTHER, Status, later, with_index
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.wording import DecidedBy
from counterveil.search.results.worth import Worth
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

    @property
    def rules_of_answers(self) -> ManyRules:
        """The rules of every answer: those of its query."""
        if self.rules is None or isinstance(self.rules, Rules):
            return self.rules
        return [rules for rules in self.rules for _ in range(self.k)]


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
        k, rules = request.k, request.rules_of_answers
        queries = request.asked.repeated(k)  # one row an answer
        points = queries.encoded
        before = request.before.numpy().repeat(k, axis=0)
        targets = request.batch.targets.numpy().repeat(k)
        predicted = before.argmax(axis=1)
        already = predicted == targets
        if self.decided_by is DecidedBy.STAND_IN and request.target_was_named:
            # f~ does not know what was decided: a class that was asked for is always sought.
            already = np.zeros_like(already)
        wanted = accepted.numpy().ravel() & ~already
        tried = np.where(wanted[:, None], rows.flatten(0, 1).numpy(), points)
        cells = decode_cells(encoding, queries.cells, points, tried, rules)
        given_out = queries.with_cells(cells)
        encoded, after = given_out.encoded, self.model.ask(given_out)
        valid = (after.argmax(dim=1).numpy() == targets) & wanted
        if request.batch.box.ties is not None:
            valid &= self._legal(request, queries, given_out)
        lost = wanted & ~valid
        if lost.any():
            encoded[lost] = points[lost]
        moved = np.abs(encoded - points)
        log_proba = np.where(valid[:, None], after.numpy(), before)
        probability = np.exp(log_proba[np.arange(len(targets)), targets])
        status = np.where(valid, Status.FOUND.value, Status.NOT_FOUND.value)
        return Explanations(
            schema=self.veil.schema,
            statement=self.statement,
            queries=later(lambda: with_index(queries.frame, request.index, k)),
            rows=later(lambda: with_index(_without(given_out, lost, queries), request.index, k)),
            status=np.where(already, Status.ALREADY.value, status),
            predicted=predicted,
            target=targets,
            probability=probability.astype(np.float64),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=_changed(encoding, moved).sum(axis=1),
            iterations=request.iterations,
            k=k,
            reason=_reasons(request, valid, already, self),
            fixed=request.fixed,
            signer=self.veil.signer,
            index=request.index,
            decided_by=self.decided_by,
            assess=partial(self.assess, points, encoded, targets),
        )

    def _legal(self, request: Request, queries: Rows, answers: Rows) -> Array:
        """Which answers keep every rule as they are given out, (answers,)."""
        changed = _changed(self.encoding, np.abs(answers.encoded - queries.encoded))
        given = Given(self.encoding, queries.cells, answers.cells, changed)
        box = request.batch.repeated(request.k).box
        broken = self._snap.broken(torch.as_tensor(answers.encoded, dtype=torch.float32), box)
        return given.keep(request.rules_of_answers) & ~broken.numpy()

    @cached_property
    def _snap(self) -> Snap:
        return Snap(self.encoding)


def _without(rows: Rows, lost: Array, queries: Rows) -> pd.DataFrame:
    """The rows as a frame, those of `queries` in the place of the lost ones, (rows,)."""
    return rows.frame.where(pd.Series(~lost), queries.frame) if lost.any() else rows.frame


def _changed(encoding: Encoding, moved: Array) -> Array:
    """Which features moved, (rows, features), by how far their encoded columns did."""
    starts = [block.start for block in encoding.blocks]
    return np.asarray(np.maximum.reduceat(moved, starts, axis=1) > 0)


def _why_not_kept(schema: Schema, rules: Rules) -> str:
    """Why no row keeps the ties of some rules, as far as can be said."""
    names = schema.shown_name
    told = [f"{names(left)} {sign} {names(right)}" for left, sign, right in rules.related]
    if told:
        return f"{' and '.join(told)} cannot hold within the other rules"
    return "no row keeps all of the rules"


def _reasons(request: Request, valid: Array, already: Array, judge: Judge) -> Array:
    """Why there is no answer, for each that is missing, (queries · k,); "" for all others."""
    if (valid | already).all():
        return np.full(len(valid), "", dtype=object)
    batch, k, asked, schema = request.batch, request.k, judge.decided_by.asked, judge.veil.schema
    reasons = np.full(len(valid), f"no row within the rules convinced {asked}", dtype=object)
    if batch.max_changes is not None:
        for number, most in enumerate(batch.max_changes.tolist()):
            if most < constraints.ANY_NUMBER:
                said = f"no row with at most {most} changes convinced {asked}"
                reasons[number * k : (number + 1) * k] = said
    for number in np.flatnonzero(~batch.box.can_be_kept.numpy()).tolist():
        rules = request.rules if isinstance(request.rules, Rules) else (request.rules or ())[number]
        reasons[number * k : (number + 1) * k] = _why_not_kept(schema, rules)
    nothing_may_change = (batch.box.upper <= batch.box.lower).all(dim=1).numpy()
    reasons[nothing_may_change.repeat(k)] = "the rules leave nothing that may change"
    has_first = valid.reshape(-1, k)[:, :1].repeat(k, axis=1)
    reasons[(has_first & (np.arange(k) > 0)).ravel()] = NO_FURTHER
    reasons[valid | already] = ""
    return reasons
