"""What may be said of a release, a plan or a score, and what one of them is about."""

import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, InstanceOf, StrictInt

from counterveil import files
from counterveil.build import Training
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, RequestError
from counterveil.hints import named
from counterveil.options import Must, Options, Seed
from counterveil.privacy import Access, Budget, Level, Statement
from counterveil.privacy.budget import plus
from counterveil.privacy.statement import TARGET_MODEL, access_to_bounds
from counterveil.schema import Schema
from counterveil.signature import SigningKey

MOST_EPOCHS = 100_000
LEAST_EPSILON, MOST_EPSILON = 1e-6, 1e4  # of a private mechanism: beyond, arithmetic overflows


class ReleaseOptions(Options):
    """What is measured, how networks are trained on it, and where the outcome goes."""

    order: Annotated[
        Literal[1, 2] | None, Must(" must be 1 (features alone) or 2 (what goes together, too)")
    ] = None
    """Overrules the plan: 1 measures features alone, 2 what goes together, too."""
    groups: Annotated[Sequence[str], Must(" must be a list of columns")] = ()
    """Columns such as sex and race, whose groups `Explainer.fairness` compares."""
    seed: Seed = 0
    """Steers samples, weights and batches; noise takes no seed."""
    epochs: Annotated[
        StrictInt | None,
        Field(ge=1, le=MOST_EPOCHS),
        Must(f" must be a whole number from 1 to {MOST_EPOCHS}"),
    ] = None
    """In the place of the usual number."""
    training: Annotated[InstanceOf[Training] | None, Must(" must be a Training")] = None
    """In the place of the usual samples, epochs, batches and layers of `functional`, and of the
    layers of the surrogate of `dpsgd`; `paper` trains as the paper says."""
    save_to: Annotated[str | InstanceOf[os.PathLike[str]] | None, Must(" must be a path")] = None
    """The file to write before the charge is committed, so that no crash can lose what was paid
    for: it is whole beside that file, as X.veil.TOKEN.part, until it takes its place."""
    overwrite: Annotated[bool, Must(" must be True or False")] = False
    """Whether an existing file may be replaced."""
    sign: Annotated[
        InstanceOf[SigningKey] | None, Must(" must be a SigningKey: SigningKey.load(path)")
    ] = None
    """The key that signs the veil."""
    other_rows: Annotated[bool, Must(" must be True or False")] = False
    """Declares that the rows are of other people than those of an account that looks the same
    (`Ledger.reserve`)."""

    def check_file(self) -> None:
        if self.save_to is not None:
            files.check_new(self.save_to, overwrite=self.overwrite)


@dataclass(frozen=True)
class Job:
    """One release: the rows, what may be spent on them, how to train, where the veil goes."""

    table: PrivateTable
    budget: Budget
    how: ReleaseOptions
    progress: bool = False

    def promise(self, mechanism: str, accesses: tuple[Access, ...]) -> Statement:
        """What a private mechanism promises; nothing if its schema was read off the rows."""
        schema, table, budget = self.table.schema, self.table, self.budget
        paid = schema.measured
        return Statement(
            level=Level.NONE if schema.drafted else Level.EXPLAINER,
            mechanism=mechanism,
            epsilon=plus(budget.epsilon, paid.epsilon) if paid else budget.epsilon,
            delta=plus(budget.delta, paid.delta) if paid else budget.delta,
            unit=table.unit,
            max_records=table.records,
            accesses=(*access_to_bounds(schema), *accesses),
            public_inputs=(
                f"the schema {schema.name!r}: columns, bounds, categories, classes",
                f"the number of {'people' if table.unit == 'person' else 'rows'}, {table.size}",
                "bins, clips and shares of the budget, computed from these, ε and δ",
            ),
            reasons=draft_note(schema),
            exclusions=(TARGET_MODEL,),
            versions=versions(),
        )


def write_part(path: str | os.PathLike[str], content: bytes) -> Path:
    """The veil on the disk, beside its place; if that cannot be written, it is not lost."""
    try:
        return files.write_part(path, content)
    except RequestError as error:
        kept = files.write_part(Path(tempfile.gettempdir()) / Path(path).name, content)
        raise RequestError(f"{error}; the file is paid for, and whole at {kept}") from None


def sensible(budget: Budget) -> Budget:
    """The budget, if a private mechanism can compute with it."""
    if not LEAST_EPSILON <= budget.epsilon <= MOST_EPSILON:
        raise BudgetError(
            f"epsilon must be between {LEAST_EPSILON:g} and {MOST_EPSILON:g} for a private "
            "mechanism, for example 0.75"
        )
    return budget


def draft_note(schema: Schema) -> tuple[str, ...]:
    """Why a veil of this schema promises nothing, if it is a draft."""
    note = (
        "the schema is a draft read off the private rows: bounds and categories were published as "
        f"they are in the rows, and nobody has replaced those of {named(schema.unreviewed)}"
    )
    return (note,) if schema.drafted else ()


def versions() -> dict[str, str]:
    packages = ("counterveil", "opendp", "torch", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
