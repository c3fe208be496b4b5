"""The Explainer: encode -> choose targets -> search -> the model decides on the rows as given."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from counterveil.cluster import Cluster, Engine
from counterveil.encoding import Array
from counterveil.errors import InternalError, RequestError
from counterveil.models import ModelFile, Rows, TargetModel
from counterveil.networks import pick_device
from counterveil.options import takes
from counterveil.privacy import ModelBudget, Statement
from counterveil.schema import Category
from counterveil.search import bulk
from counterveil.search.action_summary import ActionSummary, summary_of_actions
from counterveil.search.actions.costs import BatchCosts, Context
from counterveil.search.asking import Question
from counterveil.search.batch import Answers, Found, QueryBatch
from counterveil.search.components import SearchComponents, consulted_model
from counterveil.search.constraints import bounds
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.rules import Rules
from counterveil.search.fairness import fairness_of
from counterveil.search.options import Guidance, Prefer, SearchOptions, rules_in
from counterveil.search.paper.algorithm2 import TargetClasses, Weights, select_targets
from counterveil.search.results.builder import Request, ResultBuilder
from counterveil.search.results.certificate import Certificate
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.fairness import Fairness
from counterveil.search.results.wording import DecidedBy
from counterveil.search.verification import Verdict, verify
from counterveil.signature import PublicKey
from counterveil.tables import as_frame, carried
from counterveil.terminal import Tick, progress_bar
from counterveil.veil import Veil


class Explainer:
    """Explains the decisions of `model` with what `veil` knows of the people.

    - `veil`: a Veil, or the path of its file.
    - `model`: a torch module over the encoding, an estimator with predict_proba, the path of a
      model's file (`load_model`), a function from rows to class probabilities, or an adapter of
      `counterveil.models` with options. Without a model the veil's own private model,
      `veil.model()`, is the one that decides and is explained: answers are private in the training
      rows, end to end.
    - `guidance`: "model" consults the model that decides. "surrogate" never asks it and lets the
      private model stand in for it: answers are private end to end, too, and only expected to
      carry over.
    - `model_budget`: the declared privacy of the target model, if it was trained with any, to be
      added to the veil's.
    - `weights`: α, β, γ of Algorithm 2; by default the paper's for this family of data.
    - `device`: "cpu", "cuda", "mps" or "auto".
    - `chunk`: how many queries are searched together; it bounds the memory.
    """

    def __init__(
        self,
        veil: Veil | str | os.PathLike[str],
        model: Any = None,
        *,
        guidance: Guidance = "model",
        model_budget: ModelBudget | None = None,
        weights: Weights | None = None,
        device: str = "cpu",
        chunk: int = 8192,
    ) -> None:
        if chunk < 1:
            raise RequestError("chunk must be at least 1")
        self.chunk = chunk
        self.veil = veil if isinstance(veil, Veil) else Veil.load(veil)
        if isinstance(model, (str, os.PathLike)):
            model = ModelFile(model)
        consulted, decided_by, named = consulted_model(self.veil, model, guidance)
        statement = self.veil.statement
        if decided_by is not DecidedBy.MODEL:
            if model_budget is not None:
                raise RequestError("no target model is consulted: leave its budget out")
            statement = statement.guided_by_surrogate()
        elif model_budget is not None:
            statement = statement.composed_with(model_budget)
        self.guidance = guidance
        own: Any = {"model": None if decided_by is DecidedBy.STAND_IN else model}
        own |= {"guidance": guidance, "model_budget": model_budget, "weights": weights}
        self._keywords = own | {"device": device, "chunk": chunk}  # of the same Explainer elsewhere
        self.weights = weights or Weights.of(self.veil.schema.family, guidance)
        self.device = pick_device(device)
        self._components = SearchComponents(
            self.veil, consulted, decided_by, self.weights, self.device
        )
        self._components.warn_of_column_order()
        self.encoding = self._components.encoding
        self._builder = ResultBuilder(self._components, statement, named)

    @property
    def model(self) -> TargetModel:
        """What is consulted. It cannot be set: the statement is about this one."""
        return self._components.model

    @property
    def decided_by(self) -> DecidedBy:
        """Whose decisions the answers turn around."""
        return self._components.decided_by

    @property
    def statement(self) -> Statement:
        """What the answers promise."""
        return self._builder.statement

    def warm_up(self, *, prefer: Prefer | None = None, progress: bool = True) -> None:
        """Learn what the search needs to know of the model: seconds, once.

        The first `explain` does it otherwise. `prefer`: which search; by default the usual one.
        The search for the nearest answers of a mixed table learns nothing.
        """
        self._components.shows_progress = progress
        options = self.options(SearchOptions.model_validate({"prefer": prefer}))
        if options.prefer == "believable":
            _ = self._components.believable
        elif options.method == "iterations":
            _ = self._components.paper_search

    def options(self, said: SearchOptions) -> SearchOptions:
        """The options of the search that is asked for, checked; the others are the usual ones."""
        statement, schema = self.veil.statement, self.veil.schema
        return said.settled(
            self.guidance,
            can_believe=self._components.population is not None,
            can_act=schema.family == "mixed" and statement.mechanism != "paper",
        )

    @takes(SearchOptions, Rules)
    def explain(
        self,
        queries: Any,
        target: TargetClasses = None,
        *,
        k: int = 1,
        rules: ManyRules = None,
        immutable: Collection[str] = (),
        copied: Collection[str] | None = None,
        progress: bool = True,
        **options: Any,
    ) -> Explanations:
        """`k` counterfactuals for every row of `queries`.

        - `queries`: a table in original units (any frame, a mapping of columns, a list of records),
          the path of its file, or one record as a mapping or a Series. The index of a pandas frame
          is that of the answers. Here and in rules, columns and values may be called what people
          call them (`label` and `value_names` of the schema).
        - `target`: a class of the label set, what people call it, or how it is written ("0" for 0);
          or a list with one for each query. By default the class that the model finds most likely
          after the one it predicts.
        - `rules`: what may change, for all queries, or a list with one `Rules` for each.
        - `immutable`: features that must stay, besides those of schema and rules.
        - `copied`: columns of the queries that go with the answers to every file and page; by
          default those that the schema does not have, such as a key.
        - `options`: single rules as keywords, such as max_changes=2, in the place of `rules`; and
          the fields of `SearchOptions`: `prefer` "believable" answers or the "nearest" ones (see
          docs/method.md), method, iterations, keep, polish, margin and seed.

        It is enough that the target class wins. The one exception is the search for the nearest
        with guidance `surrogate`: it seeks a probability of .95 and does not polish answers.
        """
        rules, said = rules_in({"k": k, **options}, rules)
        rules, immutable = bounds.of_table(rules, immutable, self.veil.schema)
        search = self.options(said)
        has_index = isinstance(queries, (pd.DataFrame, pd.Series))
        table = as_frame(queries, self.veil.schema)
        index = table.index if has_index else None
        asked = Rows.of_frame(table, self.encoding)
        also = carried(table, self.veil.schema, copied)
        types = dict(table.dtypes) if isinstance(queries, pd.DataFrame) else {}
        dtypes = {self.veil.schema.column_called(name): each for name, each in types.items()}
        dtypes |= types
        before = self.model.ask(asked)
        batch = self._batch(asked, before, target, rules, immutable)
        for_all = rules.held(self.veil.schema) if isinstance(rules, Rules) else ()
        fixed = tuple(sorted({*for_all, *immutable}))
        sought = before.argmax(dim=1) != batch.targets
        if self.decided_by is DecidedBy.STAND_IN and target is not None:
            # f~ does not know what f has decided: a class that was named is sought for everybody.
            sought = torch.ones_like(sought)
        how = search.k, sought, search.iterations, 0.0 if search.soft_margin else search.margin
        request = Request(asked, index, also, dtypes, batch, before, rules, immutable, fixed, *how)
        return self._builder(request, self._search(request, search, progress))

    def verify(
        self,
        certificate: Certificate,
        query: Any = None,
        *,
        rules: Rules | None = None,
        trusted: Sequence[PublicKey] = (),
    ) -> Verdict:
        """Check the certificate of an answer with this veil and this model.

        - `query`: the row that was asked about, or a table with it. Without it only signature and
          digests can be checked.
        - `rules`: those that the certificate must name, if not any.
        - `trusted`: one of these keys must have signed it, if any are given.
        """
        return verify(self, certificate, query, rules=rules, trusted=trusted)

    def summary_of_actions(
        self,
        people: Any = None,
        target: Category | None = None,
        *,
        most: int = 5,
        groups: Collection[str] = (),
        rules: Rules | None = None,
        draw: int = 1000,
    ) -> ActionSummary:
        """The few actions that would help most of those who do not get a class, best first.

        - `people`: a table, about which the figures are then exact; by default `draw` people from
          the veil, at no further ε.
        - `target`: the class; by default the last of the label.
        - `most`: how many actions, of everybody and of each group.
        - `groups`: categories and binary features, told value by value as well.
        - `rules`: what everybody may change.
        """
        return summary_of_actions(self, people, target, most, groups, rules, draw)

    @takes(SearchOptions, Rules)
    def explain_files(  # noqa: PLR0913
        self,
        queries: str | os.PathLike[str],
        out: str | os.PathLike[str],
        target: Category | None = None,
        *,
        rules: Rules | None = None,
        copied: Sequence[str] | None = None,
        engine: Engine | Cluster = "here",
        part_rows: int = bulk.PART_ROWS,
        progress: bool = True,
        **options: Any,
    ) -> bulk.Summary:
        """Explain a table of any size: from Parquet files, to Parquet files in the folder `out`.

        Both are paths, or addresses such as s3://bucket/folder. The answers to a part of the table
        are a file as `Explanations.save` writes it; `query` is the number of the row in the whole
        table. A run that was cut off goes on when it is called again, and no row is explained
        twice. A model that was given as a path travels to workers as a file, any other one as a
        pickle.

        - `engine`: "here"; "ray" for all processors of this machine; or a `Cluster`.
        - `part_rows`: of a part, at most: what a run that is cut off has to do again.
        - The rest is as for `explain`, with one target and one `Rules` for all.
        """
        asked = {"target": target, "rules": rules, "copied": copied, **options}
        places = os.fspath(queries), os.fspath(out)
        return bulk.explain_files(self, *places, asked, engine, part_rows, progress)

    @takes(SearchOptions, Rules)
    def fairness(
        self,
        groups: Sequence[str],
        target: Category,
        *,
        people: Any = None,
        rules: Rules | None = None,
        immutable: Collection[str] = (),
        progress: bool = True,
        **options: Any,
    ) -> Fairness:
        """What the decisions and the answers are like for groups of people, with intervals.

        - `groups`: columns with a list of values, such as sex and race. Every value is a group, and
          so are two values of two columns.
        - `target`: the class that people want.
        - `people`: a table of people. The numbers are then theirs, exactly, and as private as they
          are. By default people are drawn from the veil, which costs no ε.
        - `rules`, `immutable`, `options`: as for `explain`. The columns of `groups` stay in every
          answer.
        """
        how: Any = {"rules": rules, "immutable": immutable, "progress": progress, **options}
        return fairness_of(self, groups, target, people, **how)

    def decide(self, rows: Any) -> Array:
        """What the model that decides says of rows: the probability of each class.

        `rows`: a table in original units, or one record as a mapping. Returns (rows, classes), in
        the order of the label's classes.
        """
        if self.decided_by is DecidedBy.STAND_IN:
            raise RequestError("the target model is not consulted: guidance is 'surrogate'")
        return self.model.ask(Rows.of_frame(rows, self.encoding)).exp().double().numpy()

    def cost_of(
        self,
        queries: Any,
        rows: Any,
        target: TargetClasses,
        *,
        prefer: Prefer | None = None,
        rules: ManyRules = None,
    ) -> Array:
        """What rows of a mixed table cost as answers to queries: what the search minimises.

        `queries`, `rows`: tables in original units, as many rows each. Returns (rows,), infinite
        where the model does not give the target class. Whether rows keep the rules is not asked;
        `rules` are for the costs of features.
        """
        options = self.options(SearchOptions.model_validate({"prefer": prefer}))
        asked, given = (Rows.of_frame(each, self.encoding) for each in (queries, rows))
        rules, _ = bounds.of_table(rules, (), self.veil.schema)
        batch = self._batch(asked, self.model.ask(asked), target, rules)
        components, nearest = self._components, options.prefer == "nearest"
        context = components.nearest if nearest else components.believable
        if not isinstance(context, Context):
            raise RequestError(
                "costs are of mixed tables; with prefer 'believable' of a population"
            )
        question = Question(components.target_model, options.margin)
        costs = BatchCosts(context, question, batch.to(self.device))
        whose = torch.arange(len(batch), device=self.device)
        return costs.cost(given.points.to(self.device), whose).cpu().double().numpy()

    def answer_tensors(self, batch: QueryBatch, options: SearchOptions | None = None) -> Found:
        """Encoded answers to encoded queries, and which are accepted: no table is made.

        Rows (queries, width) and (queries,), on the device of the explainer.
        """
        found = self._components.search(batch, options or self.options(SearchOptions()), 1)
        return found.rows[:, 0], found.accepted[:, 0]

    def _batch(
        self,
        asked: Rows,
        before: Tensor,
        target: TargetClasses,
        rules: ManyRules,
        immutable: Collection[str] = (),
    ) -> QueryBatch:
        """The queries as the search takes them; `before`: what the model says of them."""
        return QueryBatch(
            asked.points,
            select_targets(before, target, self.veil.schema.label),
            bounds.box_around(self.encoding, asked.encoded, rules, immutable),
            bounds.column_costs(self.encoding, rules, len(asked)),
            bounds.max_changes_of(rules, len(asked)),
            before,
        )

    def _search(self, request: Request, options: SearchOptions, progress: bool) -> Answers:
        """`k` answers to each query that is sought, legal and within the rules."""
        batch, k, components = request.batch, request.k, self._components
        components.shows_progress = progress
        found, sought = Answers.nothing(batch.queries, k), request.sought.nonzero()[:, 0]
        if not len(sought):
            return found
        by_actions, parts = options.method == "actions", sought.split(self.chunk)
        each = self.chunk if by_actions else max(options.iterations, 1)  # ticks of a part
        total = len(sought) if by_actions else len(parts) * each
        with progress_bar("searching", total, show=progress) as tick:
            for number, part in enumerate(parts):
                some = batch if len(part) == len(batch) else batch.select(part)
                answered = components.search(some, options, k, _shifted(tick, number * each))
                rows, box = answered.rows.flatten(0, 1), some.repeated(k).box
                if bool(components.projection.broken(rows, box).any()):
                    raise InternalError("an answer broke a rule of the schema; please report this")
                found.put(part, answered)
            tick(total)
        return found


def _shifted(tick: Tick, start: int) -> Tick:
    return lambda done, words="": tick(start + done, words)
