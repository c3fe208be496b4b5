"""The commands of the private side: they read the rows. `schema draft`, `check`, `release`."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from typer import Argument, Typer

from counterveil.cli import options
from counterveil.cli.options import command, option, seed_option
from counterveil.errors import DataError, RequestError
from counterveil.files import check_new, check_output
from counterveil.hints import named
from counterveil.terminal import cell, complain, out, print_json, say, warn, working, wrote

if TYPE_CHECKING:
    from counterveil.curator import Curator

DATA = option(
    ...,
    "The private table: .csv, .parquet, .arrow, a folder of Parquet files, or its address, s3://…",
)
MECHANISMS = ("functional", "dpsgd", "paper")
MOST_REASONS = 20  # lines about columns that a draft leaves out

schema_app = Typer(
    no_args_is_help=True,
    help="Public descriptions of tables.\n\n"
    "A schema names the columns, their bounds and categories, and what an answer may change. It "
    "travels inside every veil: it must come from public knowledge, not from the rows.",
)


@command(
    schema_app,
    "draft",
    "the private rows. Writes the draft; what it says of the rows is private.",
    "schema draft loans.csv --label granted --out loans.schema.json",
    "schema draft loans.xlsx --label granted --exclude remarks > loans.schema.json",
)
def schema_draft(
    file: Path = Argument(..., help="The table: .csv, .parquet, .arrow or .xlsx."),
    label: str | None = option(
        None, "The column that the model predicts; without it, some are suggested."
    ),
    exclude: list[str] | None = option(None, "A column to leave out; repeat for more."),
    out_file: Path | None = option(None, "A file .json, instead of the terminal.", "--out"),
    overwrite: bool = options.OVERWRITE,
    ledger: Path | None = options.LEDGER,
    dataset: str | None = options.DATASET,
) -> None:
    """Draft a schema from a table, for you to edit. Reads the private rows.

    The draft LOOKS AT THE DATA: its bounds and categories are those of the rows. Before you release
    anything, replace them by public knowledge and remove "drafted" from the file, or leave there a
    list of the columns that you have not replaced. Of numbers, counterveil schema bounds can
    measure bounds with noise. Columns that cannot be features are left out: identifiers, dates,
    free text, constants. Standard error says which, and what is for you to decide; both tell about
    the rows. With --ledger, the look is written down there.
    """
    check_output(out_file, file)
    options.check_table(file)
    options.check_ending(out_file, ".json")
    if out_file is not None:
        check_new(out_file, overwrite=overwrite)
    if ledger is not None:
        from counterveil.privacy.ledger import Ledger

        Ledger(ledger).write_down(dataset or file.stem, f"exact draft of a schema of {file.stem}")
    working(f"reading {file}")
    from counterveil.curator.infer_schema import draft_schema, read_for_draft

    draft = draft_schema(read_for_draft(file), label, exclude=exclude or (), name=file.stem)
    if out_file is None:
        sys.stdout.write(draft.schema.to_json())
    else:
        draft.schema.save(out_file)
        wrote(out_file)
    for words in _left_out(draft.left_out):
        complain("left out: ", words, "yellow")
    for words in draft.decisions:
        complain("decide: ", words, "cyan")
    warn(
        "this draft LOOKED AT THE DATA. Replace its bounds and categories by public knowledge, "
        'then remove "drafted" from the file.'
    )


@command(
    schema_app,
    "bounds",
    "the private rows. Writes the schema, and the charge in the ledger.",
    "schema bounds loans.draft.json --data loans.csv --epsilon 0.1 --ledger ledger.db "
    "--out loans.schema.json",
)
def schema_bounds(
    *,
    schema: Path = Argument(..., help="A drafted schema: a JSON file."),
    data: Path = DATA,
    epsilon: float = option(..., "The privacy budget; smaller is more private."),
    delta: float = option(0.0, "0 for pure ε."),
    out_file: Path = option(..., "The schema to write, X.json.", "--out"),
    overwrite: bool = options.OVERWRITE,
    rows: options.OfRows,
    other_rows: bool = option(False, "As for release."),
) -> None:
    """Measure bounds of numbers with noise, in place of those that a draft read off the rows.

    Each number under "drafted" is counted on a public ladder; what stands out of the noise gives
    its bounds, and whether it is whole and may be missing. They are ε-DP; a veil of the schema
    states this ε and its own, added up. Numbers beyond the bounds count as the nearest bound.
    Categories and classes stay marked: replace them by what a form or a code book lists.
    """
    from counterveil.schema import Schema

    check_output(out_file, data, rows.ledger)
    options.check_ending(out_file, ".json")
    curator = rows.curator(Schema.load(schema))
    if rows.ledger is None:
        warn_of_no_ledger(curator.dataset, data, schema, out_file)
    asked: Any = {"save_to": out_file, "overwrite": overwrite, "other_rows": other_rows}
    with telling_what_was_charged(rows.ledger, curator.dataset):
        made = curator.bounds(options.place_of(data), epsilon, delta, **asked)
    wrote(out_file)
    for feature in made.features:
        if feature.name in curator.schema.unreviewed and feature.name not in made.unreviewed:
            say(f"{feature.name}: {feature.values_in_words}")
    if made.unreviewed:
        warn(f"values read off the rows are left, for you to replace: {named(made.unreviewed)}")


def _left_out(reasons: Mapping[str, str]) -> Iterator[str]:
    """A line for each column that was left out, with the reason; columns with the same share one.

    >>> list(_left_out({"a": "is constant", "b": "holds dates", "c": "is constant"}))
    ['a, c: each is constant', 'b holds dates']
    """
    columns: dict[str, list[str]] = {}
    for column, why in reasons.items():
        columns.setdefault(why, []).append(column)
    for why, names in islice(columns.items(), MOST_REASONS):
        yield f"{named(names)}{': each' if len(names) > 1 else ''} {why}"
    more = sum(map(len, islice(columns.values(), MOST_REASONS, None)))
    if more:
        yield f"{more} more columns"


def check(
    *,
    data: Path = DATA,
    schema: Path = option(..., "Its public schema: a JSON file."),
    rows: options.OfRows,
) -> None:
    """Look whether all rows fit the schema. WHAT IT FINDS IS PRIVATE.

    A release never refuses a row: numbers outside the bounds go to the nearest bound, unknown
    categories to a fixed place, rows with an unknown label count for nothing. This command finds
    such rows and stops at the first. Its answer is exact, and no ε covers it: it is for the eyes of
    whoever may see the rows. With --ledger, the look is written down there.
    """
    from counterveil.schema import Schema

    warn(
        "WHAT THIS COMMAND FINDS IS PRIVATE: an exact answer about the rows, which no ε covers. "
        "Keep it, and whether it passed, to those who may see the rows"
    )
    units = rows.curator(Schema.load(schema)).check(data)
    say(f"all rows fit the schema: {units:,} {'people' if rows.unit_column else 'rows'}")


def release(
    *,
    data: Path = DATA,
    schema: Path = option(..., "Its public schema: a JSON file."),
    epsilon: float = option(..., "The privacy budget; smaller is more private."),
    delta: float = option(0.0, "0 for pure ε; otherwise far below one over the number of rows."),
    out_file: Path | None = option(None, "The veil to write, X.veil.", "--out"),
    overwrite: bool = options.OVERWRITE,
    mechanism: str = option(
        "functional",
        "functional: proved ε. dpsgd and paper: guarantee nothing.",
        values=MECHANISMS,
    ),
    rows: options.OfRows,
    other_rows: bool = options.OTHER_ROWS,
    sign: Path | None = option(None, "Sign it with this key; see counterveil keys new."),
    order: int | None = option(
        None,
        "Overrule the plan: 1 measures features alone, 2 what goes together, too.",
        min=1,
        max=2,
    ),
    groups: str | None = option(
        None, "Columns whose groups counterveil fairness will compare: sex,race. A quarter of ε."
    ),
    dry_run: bool = option(
        False, "Print the plan, and what a δ would buy; release nothing.", "--dry-run"
    ),
    epochs: int | None = option(None, "Instead of the usual number."),
    seed: int = seed_option("For training; the noise takes none."),
    device: str = options.DEVICE,
    parts: options.OfParts,
    as_json: bool = options.JSON,
) -> None:
    """Turn private rows into a veil. Reads the private rows.

    The ledger is charged before the first row is read, and a charge is never given back. No value
    of a row can stop the release or show in its messages: whatever does not fit the schema goes to
    a fixed place. To find such rows first, see counterveil check.

    With --on ray the rows of Parquet files are counted in parts by several workers; the exact sums
    are added up, and get their noise, in one place. All machines of the cluster see private rows.
    """
    from counterveil.privacy import Budget
    from counterveil.privacy.ledger import Ledger
    from counterveil.schema import Schema
    from counterveil.signature import SigningKey, signer_dict, signer_line

    # What costs nothing to see comes before what takes seconds to load.
    check_output(out_file, data, schema, rows.ledger, sign)
    options.check_table(data)
    Budget(epsilon, delta)
    if mechanism not in MECHANISMS:
        raise RequestError(f"unknown mechanism {mechanism!r}; use one of: {named(MECHANISMS)}")
    if not dry_run:
        if out_file is None:
            raise RequestError("give --out X.veil, or --dry-run to release nothing")
        check_new(out_file, overwrite=overwrite)
    if rows.ledger is not None:
        Ledger(rows.ledger).accounts()
    public = Schema.load(schema)
    key = None if sign is None else SigningKey.load(sign)
    working("loading what a release needs")
    curator = rows.curator(public, device=device, engine=parts.engine)
    if public.drafted:
        warn(
            "the schema is a draft that looked at the data: the veil will guarantee nothing. Read "
            f"off the rows: {named(public.unreviewed)}"
        )
    if math.isinf(epsilon) and mechanism == "paper":
        warn("--epsilon inf adds no noise: nothing is protected")
    named_groups = [name.strip() for name in groups.split(",")] if groups else []
    planned: dict[str, Any] = {"order": order, "groups": named_groups}
    place = options.place_of(data)
    if dry_run:
        asked = (place, epsilon, delta) if mechanism == "functional" else None
        _show_plan(curator, asked, as_json=as_json, **planned)
        return
    assert out_file is not None
    if mechanism == "functional":
        for words in curator.plan(place, epsilon, delta, **planned).warnings:
            warn(words)
    if rows.ledger is None and mechanism != "paper":
        warn_of_no_ledger(curator.dataset, data, schema, out_file)
    with telling_what_was_charged(rows.ledger, curator.dataset):
        veil = curator.release(
            place,
            epsilon,
            delta,
            mechanism=mechanism,
            **planned,
            seed=seed,
            epochs=epochs,
            save_to=out_file,
            overwrite=overwrite,
            sign=key,
            other_rows=other_rows,
        )
    if as_json:
        statement, signature = veil.statement.model_dump(mode="json"), signer_dict(veil.signer)
        digest = {"veil": str(out_file), "digest": veil.digest}
        print_json({**digest, "signature": signature, "statement": statement})
    else:
        wrote(out_file, f"  ({veil.digest[:12]})")
        say(veil.statement.headline)
        say(signer_line(veil.signer))


def _show_plan(
    curator: "Curator",
    asked: tuple[Any, float, float] | None,
    *,
    as_json: bool,
    **how: Any,
) -> None:
    """The plan of rows, ε and δ, if there is one, beside what it would be at other δ."""
    from counterveil.curator.plan import HEADINGS, meaning_of_delta

    plan = None if asked is None else curator.plan(*asked, **how)
    deltas = [] if asked is None else curator.compare_deltas(*asked, **how)
    unit = "record" if curator.unit_column is None else "person"
    meaning = "" if plan is None else meaning_of_delta(plan.units, unit)
    if as_json:
        content = None if plan is None else {"headline": plan.headline, **asdict(plan)}
        rows = [asdict(each) for each in deltas]
        print_json({"released": False, "plan": content, "deltas": rows, "delta_means": meaning})
        return
    for line in ["this mechanism has no plan"] if plan is None else plan.text().splitlines():
        say(line)
    if deltas and asked is not None:
        table = Table(*HEADINGS, title=f"at ε = {asked[1]:g}")
        for each in deltas:
            table.add_row(*map(cell, each.cells), style="bold" if each.delta == asked[2] else "")
        out.print(table)
        say(meaning)
    say("nothing was released or charged")
    say("no value of a row was read: run counterveil check first, to see whether all rows fit")


@contextmanager
def telling_what_was_charged(ledger: Path | None, dataset: str) -> Iterator[None]:
    """Where rows cannot be read to their end, say that the account was charged all the same."""
    from counterveil.privacy.ledger import Ledger

    def spent() -> list[object]:
        accounts = () if ledger is None else Ledger(ledger).accounts()
        return [account.spent for account in accounts if account.dataset == dataset]

    before = spent()
    try:
        yield
    except DataError:
        if spent() != before:
            warn(
                "the ledger was charged before the rows were read, and nothing was released: the "
                "charge stays. counterveil check looks at rows first, and charges no ε"
            )
        raise


def warn_of_no_ledger(dataset: str, *beside: Path) -> None:
    from counterveil.privacy.ledger import find_account

    folders = {Path.cwd(), *(path.absolute().parent for path in beside)}
    try:
        found = find_account(sorted(folders), dataset)
    except RequestError as error:  # a ledger that cannot be read
        warn(f"no --ledger: nothing keeps account of what is spent on these rows; {error}")
        return
    if found is not None:
        warn(
            f"this release is charged to no account, but {found} has one for {dataset!r}: what it "
            f"spends is missing there. Give --ledger {found}"
        )
    else:
        warn(
            "no --ledger: nothing keeps account of what is spent on these rows. Every further "
            "release adds its ε"
        )
