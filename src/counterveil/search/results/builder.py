"""From rows that a search has found to Explanations: the model decides on rows as given out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from counterveil.encoding import Array, Encoding
from counterveil.models import Rows
from counterveil.population import MixedPopulation
from counterveil.population.shares import SureShares
from counterveil.privacy import Statement
from counterveil.schema import Schema
from counterveil.search.asking import Question
from counterveil.search.batch import Answers, QueryBatch
from counterveil.search.components import SearchComponents
from counterveil.search.constraints.bounds import ANY_NUMBER, SAME, Box, ManyRules, distinct_rules
from counterveil.search.constraints.decoding import Given, decode_cells
from counterveil.search.constraints.rules import Rules
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.put_off import PutOff
from counterveil.search.results.reasons import Gain, ReasonFinder
from counterveil.search.results.refusals import NO_FURTHER, UNCONVINCED, Status
from counterveil.search.results.region_finder import RegionFinder
from counterveil.search.results.tables import with_index


@dataclass(frozen=True)
class Request:
    """What was asked: k answers to each of the queries `asked`."""

    asked: Rows
    index: pd.Index[Any] | None  # of the caller's table
    carried: pd.DataFrame | None  # its further columns
    dtypes: Mapping[str, Any]  # and the types of the others, if it is of pandas
    batch: QueryBatch  # the queries as the search takes them
    before: Tensor  # log-probabilities of the queries by the model, (queries, classes)
    rules: ManyRules
    immutable: Collection[str]  # features that must stay, besides those of schema and rules
    fixed: tuple[str, ...]  # features held for every query besides those of the schema
    k: int
    sought: Tensor  # which queries do not have their target class already, (queries,)
    iterations: int  # that the search was allowed
    least: float = 0.0  # how probable the target class must be


@dataclass(frozen=True)
class ResultBuilder:
    """What results are made with. `model`: how certificates name the model."""

    components: SearchComponents
    statement: Statement
    model: dict[str, str]

    @cached_property
    def origin(self) -> dict[str, Any]:
        """What certificates say of veil and model."""
        return {"veil": self.components.veil.digest, "model": self.model}

    def __call__(self, request: Request, found: Answers) -> Explanations:
        """The result for what was found; the model is asked about rows exactly as given out."""
        encoding, model = self.components.encoding, self.components.model
        k, rules = request.k, request.rules
        distinct, which = distinct_rules(rules, len(request.asked), request.immutable)
        if rules is not None and not isinstance(rules, Rules):
            rules = [each for each in rules for _ in range(k)]  # one an answer
        queries = request.asked.repeated(k)  # one row an answer
        points = queries.encoded
        before = request.before.numpy().repeat(k, axis=0)
        targets = request.batch.targets.numpy().repeat(k)
        predicted = before.argmax(axis=1)
        already = ~request.sought.numpy().repeat(k)
        wanted = found.accepted.numpy().ravel() & ~already
        tried = np.where(wanted[:, None], found.rows.flatten(0, 1).numpy(), points)
        cells = decode_cells(encoding, queries.cells, points, tried, rules)
        given_out = queries.with_cells(cells)
        encoded, after = given_out.encoded, request.before.repeat_interleave(k, dim=0)
        if wanted.any():  # else these are the queries
            after = model.ask(given_out)
        valid = (after.argmax(dim=1).numpy() == targets) & wanted
        box = request.batch.repeated(k).box
        if request.batch.box.ties is not None:
            valid &= self.legal(queries, given_out, rules, box)
        lost = wanted & ~valid
        if lost.any():
            encoded[lost] = points[lost]
        moved = np.abs(encoded - points)
        log_proba = np.where(valid[:, None], after.numpy(), before)
        probability = np.exp(log_proba[np.arange(len(targets)), targets])
        known: dict[str, Any] = {}
        impossible = np.zeros_like(valid)
        if found.says_why:
            missing = ~(valid | already).reshape(-1, k).any(axis=1)
            known, is_target = self._without_answer(request, found, missing)
            sought = wanted.reshape(-1, k).any(axis=1)
            impossible[::k] = missing & found.proved.numpy() & ~is_target & ~sought
        kinds = {Status.ALREADY: already, Status.FOUND: valid, Status.IMPOSSIBLE: impossible}
        names = [kind.value for kind in kinds]
        status = np.select([*kinds.values()], names, Status.NOT_FOUND.value)
        rows, of_answers = (queries, given_out, rules, box), (targets, valid, probability)
        finder = RegionFinder(self.components, self.legal, *rows, *of_answers, request.least)
        return Explanations(
            schema=encoding.schema,
            statement=self.statement,
            queries=lambda: with_index(queries.frame, request.index, k),
            rows=lambda: with_index(_without(given_out, lost, queries), request.index, k),
            status=status,
            predicted=predicted,
            target=targets,
            probability=probability.astype(np.float64),
            distance=np.sqrt((moved**2).sum(axis=1)),
            changed=_changed(encoding, moved).sum(axis=1),
            iterations=request.iterations,
            k=k,
            reason=_reasons(request, status, self.components),
            fixed=request.fixed,
            signer=self.components.veil.signer,
            index=request.index,
            carried=request.carried,
            dtypes=request.dtypes,
            decided_by=self.components.decided_by,
            rules=[distinct[each] for each in which],
            origin=lambda: self.origin,
            quality=partial(self.components.quality, points, encoded, targets),
            regions=PutOff(len(valid), finder),
            gains=PutOff(len(request.asked), partial(self._gains, request)),
            **known,
        )

    def _gains(self, request: Request, at: Array) -> list[list[Gain]]:
        """What counts most against the people of the queries `at`; nothing where P~ is not known.

        A model whose calls are counted is not asked. Where P~ is mostly noise, nothing is a reason.
        """
        model, population = self.components.model, self.components.population
        if not isinstance(population, MixedPopulation) or model.calls_left is not None:
            return [[] for _ in at]
        if not SureShares(population).veil_knows:
            return [[] for _ in at]
        now, targets = request.before.argmax(dim=1).numpy(), request.batch.targets.numpy()
        points = request.batch.queries.cpu()
        return ReasonFinder(Question(model), population, points, now, targets)(at)

    def _without_answer(
        self, request: Request, told: Answers, missing: Array
    ) -> tuple[dict[str, Any], Array]:
        """Fields of Explanations about the queries that are `missing` an answer, (queries,).

        Also returns whether the closest row has the target class after all, as it is given out,
        (queries,). A row that breaks a rule as given out is replaced by the query itself.
        """
        asked, index, batch = request.asked, request.index, request.batch
        encoding = self.components.encoding
        points, best = asked.encoded, np.full(len(asked), np.nan)
        tried = np.where(missing[:, None], told.closest.numpy(), points)
        cells = decode_cells(encoding, asked.cells, points, tried, request.rules)
        rows, broken = asked.with_cells(cells), np.zeros_like(missing)
        if batch.box.ties is not None:
            broken = missing & ~self.legal(asked, rows, request.rules, batch.box)
        is_target = np.zeros_like(missing)
        if missing.any():
            frame = _without(rows, broken, asked)[missing].reset_index(drop=True)
            said = self.components.model.ask(Rows.of_frame(frame, encoding))
            goals = batch.targets[torch.as_tensor(missing)]
            best[missing] = said.gather(1, goals[:, None])[:, 0].exp().numpy()
            is_target[missing] = (said.argmax(dim=1) == goals).numpy()
        pairs = zip(told.opens, points, strict=True)
        opened = np.stack([own if each is None else each.row for each, own in pairs])
        known = {
            "asked": told.asked.numpy(),
            "best_probability": best,
            "closest": lambda: with_index(_without(rows, broken, asked), index, 1),
            "opens": told.opens,
            "opened": lambda: with_index(_decoded(encoding, asked, opened), index, 1),
        }
        return known, is_target

    def legal(self, queries: Rows, answers: Rows, rules: ManyRules, box: Box) -> Array:
        """Which answers keep schema and rules as they are given out, (answers,)."""
        encoding = self.components.encoding
        changed = _changed(encoding, np.abs(answers.encoded - queries.encoded))
        given = Given(encoding, queries.cells, answers.cells, changed)
        broken = self.components.projection.broken(answers.points, box)
        return given.keep(rules) & ~broken.cpu().numpy()


def _without(rows: Rows, lost: Array, queries: Rows) -> pd.DataFrame:
    """The rows as a frame, those of `queries` in the place of the lost ones, (rows,)."""
    return rows.frame.where(pd.Series(~lost), queries.frame) if lost.any() else rows.frame


def _changed(encoding: Encoding, moved: Array) -> Array:
    """Which features moved, (rows, features), by how far their encoded columns did."""
    starts = [block.start for block in encoding.blocks]
    return np.asarray(np.maximum.reduceat(moved, starts, axis=1) > 0)


def _decoded(encoding: Encoding, queries: Rows, points: Array) -> pd.DataFrame:
    """Encoded rows as a frame, whatever the rules are; features that did not move are as before.

    Numbers have seven digits: the search computes in floats that have no more.
    """
    moved = _changed(encoding, np.maximum(np.abs(points - queries.encoded) - SAME, 0.0))
    frame, decoded = queries.frame.copy(), encoding.decode(points)
    for place, block in enumerate(encoding.blocks):
        feature, here = block.feature, pd.Series(moved[:, place])
        for column in feature.columns if here.any() else ():
            values = decoded[column]
            if feature.number_range is not None and not feature.is_whole:
                values = values.map(lambda value: float(f"{value:.7g}"))
            frame[column] = values.where(here, frame[column])
    return frame


def _why_not_kept(schema: Schema, rules: Rules) -> str:
    """Why no row keeps the ties of some rules, as far as can be said."""
    names, relations = schema.shown_name, rules.relations_of(schema)
    told = " and ".join(each.in_words(names(each.left), names(each.right)) for each in relations)
    return f"{told} cannot hold within the other rules" if told else "no row keeps all of the rules"


def _reasons(request: Request, status: Array, components: SearchComponents) -> Array:
    """Why there is no answer, for each that is missing, (queries · k,); "" for all others."""
    given = np.isin(status, (Status.FOUND.value, Status.ALREADY.value))
    if given.all():
        return np.full(len(status), "", dtype=object)
    batch, k, asked = request.batch, request.k, components.decided_by.asked
    reasons = np.full(len(batch), f"{UNCONVINCED} {asked}", dtype=object)
    for number, most in enumerate(() if batch.max_changes is None else batch.max_changes.tolist()):
        if most < ANY_NUMBER:
            changes = "1 change" if most == 1 else f"{most} changes"
            reasons[number] = f"no row with at most {changes} convinced {asked}"
    proved = status[::k] == Status.IMPOSSIBLE.value
    reasons[proved] = f"proved: no row within the rules convinces {asked}"
    for number in np.flatnonzero(~batch.box.can_be_kept.numpy()).tolist():
        rules = request.rules if isinstance(request.rules, Rules) else (request.rules or ())[number]
        reasons[number] = _why_not_kept(components.veil.schema, rules)
    nothing_may_change = (batch.box.upper <= batch.box.lower).all(dim=1).numpy()
    reasons[nothing_may_change] = "the rules leave nothing that may change"
    every = np.full((len(batch), k), NO_FURTHER, dtype=object)
    every[:, 0] = reasons
    return np.where(given, "", every.ravel())
