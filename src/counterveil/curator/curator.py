"""The Curator: validate -> reserve -> measure -> commit -> Veil.

>>> import pandas
>>> from counterveil.schema import Label, Numeric, Schema
>>> schema = Schema(
...     features=(Numeric(name="x", lower=0, upper=1),), label=Label(name="y", classes=(0, 1))
... )
>>> rows = pandas.DataFrame({"x": [0.1, 0.9], "y": [0, 1]})
>>> Curator(schema).release(rows, epsilon=1, epochs=1, progress=False)
Veil('table', mechanism functional: guarantee explainer, ε = 1)
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from counterveil.autoencoder import ARCHITECTURES, pick_device
from counterveil.curator import dpsgd, paper
from counterveil.curator.functional import measure
from counterveil.curator.plan import Plan, make_plan
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, RequestError
from counterveil.postprocess import TRAININGS, mould
from counterveil.privacy import Access, Budget, Level, Statement
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema
from counterveil.search.amortise import shipped
from counterveil.terminal import progress_bar
from counterveil.veil import Veil

MECHANISMS = ("functional", "paper", "dpsgd")


class Curator:
    """Releases Veils from private rows that fit `schema`.

    `ledger`: the file that accounts for what is spent on this dataset (`counterveil ledger open`);
    `dataset`: its name there, by default the schema's. `unit_column` and `max_records` protect a
    person with all of their records instead of a single record.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        ledger: str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        unit_column: str | None = None,
        max_records: int = 1,
        device: str = "cpu",
    ) -> None:
        self.schema = schema
        self.ledger = None if ledger is None else Ledger(ledger)
        self.dataset = dataset or schema.name
        self.unit_column = unit_column
        self.max_records = max_records
        self.device = pick_device(device)

    def plan(
        self, private_data: Any, epsilon: float, delta: float = 0.0, *, order: int | None = None
    ) -> Plan:
        """What `functional` would measure. Reads the number of rows, which is public; no row."""
        return make_plan(
            self.schema,
            self._table(private_data).size,
            _private(Budget(epsilon, delta)),
            records=self.max_records if self.unit_column else 1,
            order=order,
        )

    def check(self, private_data: Any) -> int:
        """Read every row, release nothing, charge nothing: can this table be released?

        For the curator's eyes: the answer depends on the rows exactly. Returns the number of units.
        """
        table = self._table(private_data)
        table.check()
        return table.size

    def release(
        self,
        private_data: Any,
        epsilon: float,
        delta: float = 0.0,
        *,
        mechanism: str = "functional",
        order: int | None = None,
        seed: int = 0,
        epochs: int | None = None,
        progress: bool = True,
    ) -> Veil:
        """Turn private rows into a Veil.

        `private_data`: a frame, an Arrow table, or the path of a CSV file, a Parquet file or a
        folder of them; it is read once, in batches. The ledger is charged before the first row is
        read, and the charge stands whatever happens then.

        `mechanism`: "functional" is (ε, δ)-DP; "dpsgd" is too, by floating-point noise, and needs
        the extra of that name; "paper" is the published method and guarantees nothing, and
        `epsilon=math.inf` adds no noise to it. `order` overrules the plan. `epochs`
        replaces the usual number. `seed` steers training; noise takes no seed.
        """
        if mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise RequestError(f"unknown mechanism {mechanism!r}; use one of: {known}")
        if epochs is not None and epochs < 1:
            raise RequestError("epochs must be at least 1")
        if order not in {None, 1, 2}:
            raise RequestError("order must be 1 (single features) or 2 (pairs too)")
        budget = Budget(epsilon, delta)
        if mechanism != "paper":
            _private(budget)
        elif self.ledger:
            raise RequestError(
                "mechanism paper guarantees nothing, so there is nothing to charge; "
                "leave the ledger out"
            )
        table = self._table(private_data)
        if mechanism == "dpsgd":
            dpsgd.check(table, budget)
        what = f"release by {mechanism} of {self.schema.name}"
        reserved = self.ledger.reserve(self.dataset, budget, what) if self.ledger else None
        if mechanism == "paper":
            table.check()
            veil = self._by_paper(table, budget, seed, epochs, progress)
        elif mechanism == "dpsgd":
            veil = self._by_dpsgd(table, budget, seed, epochs, progress)
        else:
            veil = self._by_functional(table, budget, order, seed, epochs, progress)
        most_steps = None if epochs is None else 50 * epochs
        veil = shipped(veil, device=self.device, progress=progress, most_steps=most_steps)
        if self.ledger and reserved:
            self.ledger.commit(reserved, veil.digest)
        return veil

    def _table(self, private_data: Any) -> PrivateTable:
        return PrivateTable(
            private_data,
            self.schema,
            unit_column=self.unit_column,
            max_records=self.max_records,
        )

    def _by_functional(
        self, table: PrivateTable, budget: Budget, order: int | None, seed: int,
        epochs: int | None, progress: bool,
    ) -> Veil:  # fmt: skip
        plan = make_plan(self.schema, table.size, budget, records=table.records, order=order)
        population, accesses = measure(table, plan)
        total = epochs or TRAININGS[self.schema.family].epochs
        with progress_bar("training on the noisy population", total, show=progress) as tick:
            moulded = mould(
                population, self.schema, seed=seed, device=self.device, epochs=epochs, tick=tick
            )
        statement = self._state("functional", table, budget, accesses)
        statement = statement.model_copy(update={"plan": (*plan.reasons, *plan.warnings)})
        return Veil(
            self.schema, moulded.autoencoder, moulded.prototypes, statement, moulded.surrogate
        )

    def _by_dpsgd(
        self, table: PrivateTable, budget: Budget, seed: int, epochs: int | None, progress: bool
    ) -> Veil:
        architecture = dpsgd.ARCHITECTURES[self.schema.family]
        architecture = replace(architecture, epochs=epochs or architecture.epochs)
        with progress_bar("training by DP-SGD", 2 * architecture.epochs, show=progress) as tick:
            autoencoder, prototypes, surrogate, accesses = dpsgd.release(
                table, budget, architecture, seed=seed, device=self.device, tick=tick
            )
        statement = self._state("dpsgd", table, budget, accesses)
        floats = "attacks on the floating-point noise of training"
        statement = statement.model_copy(update={"exclusions": (*statement.exclusions, floats)})
        return Veil(self.schema, autoencoder, prototypes, statement, surrogate)

    def _state(
        self, mechanism: str, table: PrivateTable, budget: Budget, accesses: tuple[Access, ...]
    ) -> Statement:
        """What a private mechanism promises; nothing if its schema was read off the rows."""
        return Statement(
            level=Level.NONE if self.schema.drafted else Level.EXPLAINER,
            mechanism=mechanism,
            epsilon=budget.epsilon,
            delta=budget.delta,
            unit="person" if table.unit_column else "record",
            max_records=table.records,
            accesses=accesses,
            public_inputs=(
                f"the schema {self.schema.name!r}: columns, bounds, categories, classes",
                f"the number of {'people' if table.unit_column else 'rows'}, {table.size}",
                "bins, clips and shares of the budget, computed from these, ε and δ",
            ),
            reasons=_draft_note(self.schema),
            exclusions=("the target model and everything it reveals",),
            versions=_versions(),
        )

    def _by_paper(
        self, table: PrivateTable, budget: Budget, seed: int, epochs: int | None, progress: bool
    ) -> Veil:
        architecture = ARCHITECTURES[self.schema.family]
        architecture = replace(architecture, epochs=epochs or architecture.epochs)
        title = f"training under the functional mechanism, {budget}"
        with progress_bar(title, architecture.epochs, show=progress) as tick:
            autoencoder, prototypes = paper.build_prototypes(
                table, budget, architecture, seed=seed, device=self.device, tick=tick
            )
        statement = paper.state(budget, architecture, _draft_note(self.schema), _versions())
        return Veil(self.schema, autoencoder.cpu(), prototypes.cpu(), statement)


def _private(budget: Budget) -> Budget:
    if not budget.adds_noise:
        raise BudgetError("epsilon must be finite for a private mechanism, for example 0.75")
    return budget


def _draft_note(schema: Schema) -> tuple[str, ...]:
    if not schema.drafted:
        return ()
    return (
        "the schema is a draft read off the private rows, and nobody has reviewed it: its bounds "
        "and categories were published as they are in the rows",
    )


def _versions() -> dict[str, str]:
    packages = ("counterveil", "opendp", "torch", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
