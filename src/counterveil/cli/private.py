"""The commands of the private side: they read the rows. `schema draft` and `release`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from counterveil.cli.options import Device, Json, seed_option
from counterveil.errors import RequestError
from counterveil.terminal import print_json, say, warn, wrote

if TYPE_CHECKING:
    from counterveil.curator import Curator

schema_app = Typer(no_args_is_help=True, help="Public descriptions of tables.")


@schema_app.callback()
def _schema() -> None:
    pass


@schema_app.command("draft")
def schema_draft(
    file: Annotated[Path, Argument(help="The table: .csv or .parquet.")],
    label: Annotated[str, Option(help="The column that the model predicts.")],
    exclude: Annotated[
        list[str] | None, Option(help="A column to leave out; repeat for more.")
    ] = None,
    out_file: Annotated[
        Path | None, Option("--out", help="Write here instead of to the terminal.")
    ] = None,
) -> None:
    """Draft a schema from a table, for you to edit. Reads the private rows.

    The draft LOOKS AT THE DATA: its bounds and categories are those of the rows. Before you release
    anything, replace them by public knowledge and remove "drafted" from the file.
    """
    from counterveil.curator.draft import draft_schema
    from counterveil.files import check_output
    from counterveil.tables import read_table

    if out_file is not None:
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
    data: Annotated[
        Path, Option(help="The private table: .csv, .parquet, or a folder of Parquet files.")
    ],
    schema: Annotated[Path, Option(help="Its public schema: a JSON file.")],
    epsilon: Annotated[float, Option(help="The privacy budget; smaller is more private.")],
    delta: Annotated[
        float, Option(help="0 for pure ε; otherwise far below one over the number of rows.")
    ] = 0.0,
    out_file: Annotated[Path | None, Option("--out", help="The veil to write, X.veil.")] = None,
    mechanism: Annotated[
        str,
        Option(help="functional: proved ε. dpsgd: needs δ. paper: guarantees nothing."),
    ] = "functional",
    ledger: Annotated[
        Path | None, Option(help="Charge this account; see counterveil ledger open.")
    ] = None,
    dataset: Annotated[
        str | None, Option(help="Its name in the ledger; by default the schema's.")
    ] = None,
    unit_column: Annotated[
        str | None, Option(help="Who a record belongs to: protects people, not records.")
    ] = None,
    max_records: Annotated[
        int, Option(min=1, help="Of each person, at most so many records are used.")
    ] = 1,
    order: Annotated[int | None, Option(min=1, max=2, help="Overrule the plan: 1 or 2.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the plan, check all rows, release nothing.")
    ] = False,
    no_check: Annotated[
        bool,
        Option("--no-check", help="Do not look at all rows before they are charged for."),
    ] = False,
    epochs: Annotated[int | None, Option(help="Instead of the usual number.")] = None,
    seed: Annotated[int, seed_option("For training; the noise takes none.")] = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Turn private rows into a veil. Reads the private rows.

    All rows are checked first, for your eyes: a table that does not fit the schema costs nothing.
    Then the ledger is charged, before the mechanism reads its first row, and a charge is never
    given back.
    """
    from counterveil.curator import Curator
    from counterveil.files import check_output
    from counterveil.schema import Schema

    if out_file is not None:
        check_output(out_file, data, schema, *(() if ledger is None else (ledger,)))
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
    if dry_run:
        _dry_run(curator, data, epsilon, delta, order, mechanism)
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


def _dry_run(
    curator: Curator, data: Path, epsilon: float, delta: float, order: int | None, mechanism: str
) -> None:
    """Print the plan and check every row. What it finds is meant for the curator alone."""
    if mechanism == "functional":
        for line in curator.plan(data, epsilon, delta, order=order).text().splitlines():
            say(line)
    else:
        say(f"mechanism {mechanism}: there is no plan")
    units = curator.check(data)
    say(f"the table fits the schema: {units:,} units; nothing was released or charged")
