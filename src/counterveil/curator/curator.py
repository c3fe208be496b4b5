"""The Curator: validate -> reserve -> measure -> build -> write -> commit -> put in place.

Validation looks at what is public: the schema, the names of the columns, the number of rows. No
value of a row can stop a release, for that would be an exact answer about it. A veil that was paid
for is on the disk before its charge is committed.

>>> import pandas
>>> from counterveil.schema import Label, Numeric, Schema
>>> schema = Schema(
...     features=(Numeric(name="x", lower=0, upper=1),), label=Label(name="y", classes=(0, 1))
... )
>>> rows = pandas.DataFrame({"x": [0.1, 0.9], "y": [0, 1]})
>>> Curator(schema).release(rows, epsilon=1, epochs=1, progress=False)
Veil('table', mechanism functional: guarantee explainer, ε = 1, unsigned)
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from counterveil import files
from counterveil.build import TRAININGS, epochs_of, fit_networks
from counterveil.cluster import Cluster, Engine, cluster_of
from counterveil.curator import bounds, dpsgd, paper
from counterveil.curator.functional import make_plan, measure, record_bytes
from counterveil.curator.job import Job, ReleaseOptions, draft_note, sensible, versions, write_part
from counterveil.curator.plan import DELTAS, AtDelta, Plan, at_delta
from counterveil.curator.score import exact_score, measure_score
from counterveil.curator.scored import Score
from counterveil.curator.table import PrivateTable
from counterveil.errors import InternalError, RequestError, VeilError
from counterveil.hints import named
from counterveil.networks import ARCHITECTURES, one_thread, pick_device
from counterveil.options import takes
from counterveil.population import population_of
from counterveil.population.whole_scorecard import WholeScorecard
from counterveil.privacy import Budget, Level
from counterveil.privacy.ledger import Ledger, Reservation, Subject
from counterveil.privacy.recipe import Recipe
from counterveil.private_model import PrivateModel
from counterveil.schema import Schema
from counterveil.terminal import progress_bar
from counterveil.veil import Veil
from counterveil.veil_file import MEMBER_LIMITS

MECHANISMS = ("functional", "paper", "dpsgd")
_planning = takes(ReleaseOptions, only=("order", "groups"))
_writing = takes(ReleaseOptions, only=("save_to", "overwrite", "other_rows"))


class Curator:
    """Releases Veils from private rows that fit `schema`.

    - `ledger`: the file that accounts for what is spent on this dataset (`counterveil ledger
      open`).
    - `dataset`: its name there; by default the schema's.
    - `unit_column`, `max_records`: protect a person with all of their records instead of a single
      record. At most `max_records` of a person count, 1 if nothing is said.
    - `device`: where networks are trained: "cpu", "cuda", "mps" or "auto".
    - `engine`: where rows are counted: "here"; "ray" for all processors of this machine; or a
      `Cluster`. For mechanism functional and for scores, on Parquet files.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        ledger: str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        unit_column: str | None = None,
        max_records: int | None = None,
        device: str = "cpu",
        engine: Engine | Cluster = "here",
    ) -> None:
        self.schema, self.dataset = schema, dataset or schema.name
        self.ledger = None if ledger is None else Ledger(ledger)
        self.unit_column, self.max_records = unit_column, max_records
        self.device = pick_device(device)
        self.cluster = cluster_of(engine)

    @_planning
    def plan(self, private_data: Any, epsilon: float, delta: float = 0.0, **options: Any) -> Plan:
        """What `functional` would measure. Reads the number of rows, or of people: it is public."""
        return self.plans(private_data, [Budget(epsilon, delta)], **options)[0]

    @_planning
    def plans(self, private_data: Any, budgets: Sequence[Budget], **options: Any) -> list[Plan]:
        """The plan of each budget, as `plan` makes it; the rows are counted once."""
        table = self._table(private_data)
        asked = ReleaseOptions(**options)
        return [self._plan(table, sensible(budget), asked) for budget in budgets]

    @_planning
    def compare_deltas(
        self, private_data: Any, epsilon: float, delta: float = 0.0, **options: Any
    ) -> list[AtDelta]:
        """What a plan would be at this δ, at none and at usual ones; of mixed tables alone.

        Reads the number of rows, or of people, and nothing else: it is public.
        """
        if self.schema.family != "mixed":
            return []
        deltas = sorted({delta, *DELTAS})
        plans = self.plans(private_data, [Budget(epsilon, each) for each in deltas], **options)
        return [at_delta(plan, each) for plan, each in zip(plans, deltas, strict=True)]

    @_writing
    def bounds(
        self, private_data: Any, epsilon: float, delta: float = 0.0, **options: Any
    ) -> Schema:
        """The schema with noisy bounds for its numbers that a draft has read off the rows.

        (ε, δ)-DP (see `bounds`); the ledger is charged before the first row is read. A veil of the
        schema states the ε and δ of both, added up. A number of which nothing stands out of the
        noise stays as it is, and marked.
        """
        names = bounds.numbers_to_measure(self.schema)
        if not names:
            raise RequestError("no number of the schema has bounds that were read off the rows")
        asked = ReleaseOptions(**options)
        job = Job(self._table(private_data), sensible(Budget(epsilon, delta)), asked)
        price = bounds.price_of(self.schema, job.table, job.budget)
        job.how.check_file()
        paid = self._reserve(job, f"noisy bounds of {len(names)} numbers of {self.schema.name}")
        made = bounds.with_bounds(
            self.schema, names, bounds.measure_bounds(job.table, names, job.budget), price
        )
        content = made.to_json().encode()
        self._hand_out(content, hashlib.sha256(content).hexdigest(), job, paid)
        return made

    def _plan(self, table: PrivateTable, budget: Budget, asked: ReleaseOptions) -> Plan:
        how: Any = {"records": table.records, "order": asked.order, "groups": asked.groups}
        plan = make_plan(self.schema, table.size, budget, **how)
        if record_bytes(self.schema, plan) > MEMBER_LIMITS["record.safetensors"]:
            raise RequestError("the schema has too many classes and cells for a veil; merge some")
        return replace(plan, units=table.size)

    def check(self, private_data: Any) -> int:
        """Read every row, release nothing: does this table fit the schema? Returns the units.

        For the curator's eyes alone: the answer depends on the rows exactly, and no ε covers it.
        With a ledger, the look is written down there first.
        """
        table = self._table(private_data)
        if self.ledger:
            self.ledger.write_down(self.dataset, f"exact check of {self.schema.name}")
        table.check()
        return table.size

    @_writing
    def score(
        self,
        private_data: Any,
        model: PrivateModel,
        epsilon: float | None = None,
        delta: float = 0.0,
        **options: Any,
    ) -> Score:
        """How good `model`, made by `Veil.model`, is on held-out rows of other people.

        With `epsilon` the counts get noise and the score is (ε, δ)-DP in these rows (see `score`);
        the ledger is charged before the first row is read. Without, the score is exact: for the
        curator's eyes alone, no ε covers it, and a ledger writes the look down.
        """
        if model.schema != self.schema:
            raise RequestError("the private model is of another schema than the held-out rows")
        if self.cluster is not None and not isinstance(model.logits, WholeScorecard):
            raise RequestError(
                "a network decides by sums of floats, which other processors may round otherwise: "
                "score it on one machine, with engine 'here'"
            )
        table = self._table(private_data)
        if epsilon is None:
            if delta or options:
                raise RequestError("an exact score spends nothing and is written nowhere")
            if self.ledger:
                self.ledger.write_down(self.dataset, f"exact score on {self.schema.name}")
            return exact_score(table, model)
        job = Job(table, sensible(Budget(epsilon, delta)), ReleaseOptions(**options))
        job.how.check_file()
        paid = self._reserve(job, f"score of a private model on {self.schema.name}")
        score = measure_score(table, model, job.budget)
        self._hand_out(score.to_json(), score.digest, job, paid)
        return score

    @takes(ReleaseOptions)
    def release(
        self,
        private_data: Any,
        epsilon: float,
        delta: float = 0.0,
        *,
        mechanism: str = "functional",
        progress: bool = True,
        **options: Any,
    ) -> Veil:
        """Turn private rows into a Veil.

        `private_data`: a frame, an Arrow table, or the path of a CSV file, a Parquet file or a
        folder of them; it is read once, in batches. The ledger is charged before the first row is
        read, and the charge stands whatever happens then.

        `mechanism`: "functional" is (ε, δ)-DP; "dpsgd" would be with noise of real numbers, and
        needs the extra of that name; "paper" is the published method and guarantees nothing, and
        `epsilon=math.inf` adds no noise to it. A quarter of ε goes to `groups`, if there are any.
        For the rest see `ReleaseOptions`.
        """
        self._check_mechanism(mechanism)
        asked = ReleaseOptions(**options)
        if asked.groups and mechanism != "functional":
            raise RequestError("groups are counted by mechanism functional alone")
        budget = Budget(epsilon, delta)
        if mechanism != "paper":
            sensible(budget)
        job = Job(self._table(private_data), budget, asked, progress)
        bounds.check_unit(self.schema, job.table)
        job.how.check_file()
        if len(self.schema.to_json().encode()) > MEMBER_LIMITS["schema.json"]:
            raise RequestError("the schema is too large for a veil; it may have 8 MiB as JSON")
        if mechanism == "dpsgd":
            dpsgd.check(job.table, budget)
        plan = self._plan(job.table, budget, asked) if mechanism == "functional" else None
        with self.cluster or nullcontext():  # a cluster that cannot be had costs nothing
            reserved = self._reserve(job, f"release by {mechanism} of {self.schema.name}")
            if plan is not None:
                veil = self._by_functional(job, plan)
            else:
                veil = self._by_dpsgd(job) if mechanism == "dpsgd" else self._by_paper(job)
        return self._deliver(veil if asked.sign is None else veil.signed(asked.sign), job, reserved)

    def _check_mechanism(self, mechanism: str) -> None:
        if mechanism not in MECHANISMS:
            raise RequestError(f"unknown mechanism {mechanism!r}; use one of: {named(MECHANISMS)}")
        if mechanism == "paper" and self.ledger:
            raise RequestError(
                "mechanism paper guarantees nothing: no account can pay for it, and one that is "
                "open for these rows would be void; leave the ledger out"
            )
        if mechanism != "functional" and self.cluster is not None:
            raise RequestError(f"mechanism {mechanism} trains on the rows: it needs engine 'here'")

    def _reserve(self, job: Job, what: str) -> Reservation | None:
        if self.ledger is None:
            return None
        table = job.table
        names = json.dumps(sorted((*self.schema.columns, self.schema.label.name)))
        columns, by = hashlib.sha256(names.encode()).hexdigest(), table.unit_column or ""
        subject = Subject(table.unit, table.records, table.size, columns, unit_column=by)
        budget, other = job.budget, job.how.other_rows
        return self.ledger.reserve(self.dataset, budget, what, subject, other_rows=other)

    def _deliver(self, veil: Veil, job: Job, reserved: Reservation | None) -> Veil:
        """The veil as whoever opens its file sees it; the file is safe before the charge is."""
        content = veil.to_bytes()
        try:
            opened = Veil.from_bytes(content)
        except VeilError:
            raise InternalError("the veil cannot be opened; nothing was written") from None
        self._hand_out(content, opened.digest, job, reserved)
        return opened

    def _hand_out(
        self, content: bytes, digest: str, job: Job, reserved: Reservation | None
    ) -> None:
        """Write the file, if one is asked for, commit the charge, put the file in place."""
        part = None if job.how.save_to is None else write_part(job.how.save_to, content)
        if self.ledger and reserved:
            self.ledger.commit(reserved, digest)
        if part is not None and job.how.save_to is not None:
            files.put_in_place(part, job.how.save_to, overwrite=job.how.overwrite)

    def _table(self, private_data: Any) -> PrivateTable:
        return PrivateTable(
            private_data,
            self.schema,
            unit_column=self.unit_column,
            max_records=self.max_records,
            cluster=self.cluster,
        )

    @property
    def _threads(self) -> AbstractContextManager[None]:
        """Those of torch while networks train: one for mixed tables, the caller's otherwise."""
        return one_thread() if self.schema.family == "mixed" else nullcontext()

    def _by_functional(self, job: Job, plan: Plan) -> Veil:
        """Rows -> noisy record -> population -> networks; only the first step sees rows."""
        schema, table, how = self.schema, job.table, job.how
        with progress_bar("counting rows", 100, show=job.progress) as tick:
            table.watch(tick, plan.readings)
            record = measure(table, plan)
        population = population_of(schema, record)
        training = how.training or TRAININGS[schema.family]
        training = replace(training, epochs=how.epochs or training.epochs)
        epochs, title = epochs_of(population, training), "training on the noisy population"
        with progress_bar(title, epochs, show=job.progress) as tick, self._threads:
            recipe = Recipe(training, how.seed, str(self.device), torch.get_num_threads())
            made = fit_networks(
                population, schema, seed=how.seed, device=self.device, training=training, tick=tick
            )
        statement = job.promise("functional", record.accesses)
        told = {"plan": (*plan.reasons, *plan.warnings), "recipe": recipe}
        statement = statement.model_copy(update=told)
        return Veil(
            schema,
            made.autoencoder,
            made.prototypes,
            statement,
            made.surrogate,
            record,
            generator=made.generator,
        )

    def _by_dpsgd(self, job: Job) -> Veil:
        """Networks trained on the rows by noisy gradients."""
        usual, how = dpsgd.ARCHITECTURES[self.schema.family], job.how
        surrogate = how.training.surrogate if how.training else usual.surrogate
        architecture = replace(usual, epochs=how.epochs or usual.epochs, surrogate=surrogate)
        bar = progress_bar("training by DP-SGD", 2 * architecture.epochs, show=job.progress)
        with bar as tick, self._threads:
            made, accesses = dpsgd.release(
                job.table, job.budget, architecture, seed=how.seed, device=self.device, tick=tick
            )
        statement = job.promise("dpsgd", accesses)
        told = {"level": Level.NONE, "reasons": (*statement.reasons, dpsgd.NO_PROOF)}
        statement = statement.model_copy(update=told)
        return Veil(self.schema, made.autoencoder, made.prototypes, statement, made.surrogate)

    def _by_paper(self, job: Job) -> Veil:
        job.table.check()
        usual, how = ARCHITECTURES[self.schema.family], job.how
        architecture = replace(usual, epochs=how.epochs or usual.epochs)
        title = f"training under the functional mechanism, {job.budget}"
        with progress_bar(title, architecture.epochs, show=job.progress) as tick, self._threads:
            autoencoder, prototypes = paper.build_prototypes(
                job.table, job.budget, architecture, seed=how.seed, device=self.device, tick=tick
            )
        statement = paper.state(job.budget, architecture)
        reasons = (*statement.reasons, *draft_note(self.schema))
        statement = statement.model_copy(update={"reasons": reasons, "versions": versions()})
        return Veil(self.schema, autoencoder.cpu(), prototypes.cpu(), statement)
