"""The commands of the private side: they read the rows. `schema draft` and `release`."""

import math
import sys
from pathlib import Path

from typer import Argument, Typer

from counterveil.cli.options import DEVICE, JSON, option, seed_option
from counterveil.errors import RequestError
from counterveil.terminal import print_json, say, warn, wrote

schema_app = Typer(no_args_is_help=True, help="Public descriptions of tables.")


@schema_app.callback()
def _schema() -> None:
    pass


@schema_app.command("draft")
def schema_draft(
    file: Path = Argument(..., help="The table: .csv or .parquet."),
    label: str = option(..., "The column that the model predicts."),
    exclude: list[str] | None = option(None, "A column to leave out; repeat for more."),
    out_file: Path | None = option(None, "Write here instead of to the terminal.", "--out"),
) -> None:
    """Draft a schema from a table, for you to edit. Reads the private rows.

    The draft LOOKS AT THE DATA: its bounds and categories are those of the rows. Before you release
    anything, replace them by public knowledge and remove "drafted" from the file.
    """
    from counterveil.curator.infer_schema import draft_schema
    from counterveil.files import check_output
    from counterveil.tables import read_table

    check_output(out_file, file)
    schema = draft_schema(read_table(file), label, exclude=exclude or (), name=file.stem)
    if out_file is None:
        sys.stdout.write(schema.to_json())
    else:
        schema.save(out_file)
        wrote(out_file)
    warn(
        "this draft LOOKED AT THE DATA. Replace its bounds and categories by public knowledge, "
        'then remove "drafted" from the file.'
    )


def release(
    data: Path = option(..., "The private table: .csv, .parquet, or a folder of Parquet files."),
    schema: Path = option(..., "Its public schema: a JSON file."),
    epsilon: float = option(..., "The privacy budget; smaller is more private."),
    delta: float = option(0.0, "0 for pure ε; otherwise far below one over the number of rows."),
    out_file: Path | None = option(None, "The veil to write, X.veil.", "--out"),
    mechanism: str = option(
        "functional", "functional: proved ε. dpsgd: needs δ. paper: guarantees nothing."
    ),
    ledger: Path | None = option(None, "Charge this account; see counterveil ledger open."),
    dataset: str | None = option(None, "Its name in the ledger; by default the schema's."),
    unit_column: str | None = option(
        None, "Who a record belongs to: protects people, not records."
    ),
    max_records: int = option(1, "Of each person, at most so many records are used.", min=1),
    order: int | None = option(None, "Overrule the plan: 1 or 2.", min=1, max=2),
    dry_run: bool = option(False, "Print the plan, check all rows, release nothing.", "--dry-run"),
    no_check: bool = option(
        False, "Do not look at all rows before they are charged for.", "--no-check"
    ),
    epochs: int | None = option(None, "Instead of the usual number."),
    seed: int = seed_option("For training; the noise takes none."),
    device: str = DEVICE,
    as_json: bool = JSON,
) -> None:
    """Turn private rows into a veil. Reads the private rows.

    All rows are checked first, for your eyes: a table that does not fit the schema costs nothing.
    Then the ledger is charged, before the mechanism reads its first row, and a charge is never
    given back.
    """
    from counterveil.curator import Curator
    from counterveil.files import check_output
    from counterveil.schema import Schema

    check_output(out_file, data, schema, ledger)
    public = Schema.load(schema)
    curator = Curator(
        public,
        ledger=ledger,
        dataset=dataset,
        unit_column=unit_column,
        max_records=max_records,
        device=device,
    )
    if public.drafted:
        warn("the schema is a draft that looked at the data: the veil will guarantee nothing")
    if math.isinf(epsilon) and mechanism == "paper":
        warn("--epsilon inf adds no noise: nothing is protected")
    if dry_run:  # what it finds is meant for the curator alone
        text = f"mechanism {mechanism}: there is no plan"
        if mechanism == "functional":
            text = curator.plan(data, epsilon, delta, order=order).text()
        for line in text.splitlines():
            say(line)
        units = curator.check(data)
        say(f"the table fits the schema: {units:,} units; nothing was released or charged")
        return
    if out_file is None:
        raise RequestError("give --out X.veil, or --dry-run to release nothing")
    if mechanism == "functional":
        for words in curator.plan(data, epsilon, delta, order=order).warnings:
            warn(words)
        if not no_check:
            curator.check(data)
    veil = curator.release(
        data, epsilon, delta, mechanism=mechanism, order=order, seed=seed, epochs=epochs
    )
    veil.save(out_file)
    if as_json:
        statement = veil.statement.model_dump(mode="json")
        print_json({"veil": str(out_file), "digest": veil.digest, "statement": statement})
    else:
        wrote(out_file, f"  ({veil.digest[:12]})")
        say(veil.statement.headline)
