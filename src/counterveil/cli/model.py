"""`counterveil model`: the private model of a veil: `export`, `predict`, and `score`.

`export` and `predict` need the veil alone. `score` reads private rows.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from typer import Argument, Typer

from counterveil.cli import options
from counterveil.cli.options import TRUST, manual, open_veil, option
from counterveil.cli.private import LEDGER, MAX_RECORDS, UNIT_COLUMN, warn_of_no_ledger
from counterveil.errors import RequestError
from counterveil.terminal import cell, out, print_facts, print_json, say, warn, wrote

if TYPE_CHECKING:
    from counterveil.curator.scored import Score
    from counterveil.private_model import PrivateModel

CLASSES = option(
    None,
    "population: classes weigh as among the people; even: the same. The first is usual, the second "
    "where the veil has no noisy record.",
    values=("population", "even"),
)
HELD_OUT = "Held-out private rows with labels: .csv, .parquet, .arrow, a folder of Parquet files."

model_app = Typer(
    no_args_is_help=True,
    help="The private model of a veil, to be deployed itself.\n\n"
    "It was learnt from the noisy population alone: whoever asks it, and however often, learns "
    "about the training rows what the veil's ε allows. Without a model, [b]explain[/b] explains "
    "this one.",
)


@model_app.command(
    "export", epilog=manual("the veil alone.", "model export loans.veil --onnx loans.onnx")
)
def export(
    veil_file: Path = Argument(..., metavar="VEIL", help="A veil file."),
    onnx: Path | None = option(None, "Write an ONNX model, X.onnx."),
    pt2: Path | None = option(None, "Write a program of torch.export, X.pt2."),
    classes: str | None = CLASSES,
    overwrite: bool = options.OVERWRITE,
    trust: list[Path] | None = TRUST,
) -> None:
    """Write the private model as a file: encoded rows in, class probabilities out.

    The file answers over the encoding of the schema; docs/private-model.md says how to feed it.
    """
    from counterveil.files import check_new
    from counterveil.models import save_private_model

    files = {"--onnx": onnx, "--pt2": pt2}
    wanted = {name: path for name, path in files.items() if path is not None}
    if not wanted:
        raise RequestError("give --onnx X.onnx or --pt2 X.pt2")
    options.check_outputs(files, veil_file, *(trust or ()))
    for name, path in wanted.items():
        if path.suffix.lower() != f".{name[2:]}":
            raise RequestError(f"{name} {path}: name the file .{name[2:]}")
        check_new(path, overwrite=overwrite)
    model = _private_model(veil_file, classes, trust)
    for path in wanted.values():
        save_private_model(model, path, overwrite=overwrite)
        wrote(path)
    say(model.statement.headline, "dim")


@model_app.command(
    "predict",
    epilog=manual(
        "the veil and the rows to decide on; no private rows.",
        "model predict --veil loans.veil --rows people.csv --out decisions.csv",
    ),
)
def predict(
    veil: Path = option(..., "A veil file."),
    rows: Path = option(..., "Rows in original units: .csv, .parquet, .arrow or .xlsx."),
    out_file: Path = option(..., "Write classes and probabilities: .csv, .parquet.", "--out"),
    classes: str | None = CLASSES,
    overwrite: bool = options.OVERWRITE,
    trust: list[Path] | None = TRUST,
) -> None:
    """Decide on rows: a class for each, and the probability of every class."""
    import pandas as pd

    from counterveil.files import check_new, write_whole
    from counterveil.tables import file_content, read_table

    options.check_outputs({"--out": out_file}, veil, rows, *(trust or ()))
    check_new(out_file, overwrite=overwrite)
    options.check_ending(out_file, ".csv", ".parquet", ".json")
    model = _private_model(veil, classes, trust)
    asked = read_table(rows, model.schema)
    shares = model.predict_proba(asked)
    decided = pd.Series(model.classes_[shares.argmax(axis=1)], name="decision")
    names = [f"probability of {name}" for name in model.classes_]
    table = pd.concat([decided, pd.DataFrame(shares, columns=names)], axis=1)
    write_whole(out_file, file_content(table, out_file, escape=True))
    wrote(out_file)
    say(model.statement.headline, "dim")


@model_app.command(
    "score",
    epilog=manual(
        "private rows that were held out. Writes the charge, or the look, in the ledger.",
        "model score --veil loans.veil --data held_out.csv",
        "model score --veil loans.veil --data held_out.csv --epsilon 0.1 --ledger ledger.db "
        "--dataset held-out --out score.json",
    ),
)
def score(
    veil: Path = option(..., "The veil with the private model."),
    data: Path = option(..., HELD_OUT),
    classes: str | None = CLASSES,
    epsilon: float | None = option(None, "Add noise, and spend this ε of the held-out rows."),
    delta: float = option(0.0, "0 for pure ε."),
    ledger: Path | None = LEDGER,
    dataset: str | None = option(
        None, "The account of the held-out rows; needed with --ledger: they are other people."
    ),
    other_rows: bool = option(
        False, "These are other people than those of an account that looks the same."
    ),
    unit_column: str | None = UNIT_COLUMN,
    max_records: int | None = MAX_RECORDS,
    out_file: Path | None = option(None, "With --epsilon: write the score, X.json.", "--out"),
    overwrite: bool = options.OVERWRITE,
    trust: list[Path] | None = TRUST,
    as_json: bool = options.JSON,
) -> None:
    """How good is the private model on held-out rows? Reads private rows.

    With --epsilon, noise is added to the counts, the ledger is charged before the first row is
    read, and the score may be published. Without it the score is EXACT AND PRIVATE: no ε covers it,
    it is for the eyes of whoever may see the rows, and with --ledger the look is written down.
    """
    from counterveil.curator import Curator

    options.check_outputs({"--out": out_file}, veil, data, ledger, *(trust or ()))
    if ledger is not None and dataset is None:
        raise RequestError(
            "--ledger needs --dataset: the account of the held-out rows, who are other people than "
            "those behind the veil; if they are the same, name that account"
        )
    if epsilon is None and (delta or other_rows or out_file is not None):
        raise RequestError("--delta, --other-rows and --out belong to a noisy score: --epsilon")
    options.check_ending(out_file, ".json")
    model = _private_model(veil, classes, trust)
    units: Any = {"unit_column": unit_column, "max_records": max_records}
    curator = Curator(model.schema, ledger=ledger, dataset=dataset, **units)
    if epsilon is None:
        warn(
            "WHAT THIS COMMAND FINDS IS PRIVATE: an exact score, which no ε covers. Keep it to "
            "those who may see the held-out rows, or give --epsilon"
        )
        found = curator.score(data, model)
    else:
        if ledger is None:
            warn_of_no_ledger(dataset or curator.dataset, data, veil)
        asked: Any = {"save_to": out_file, "overwrite": overwrite, "other_rows": other_rows}
        found = curator.score(data, model, epsilon, delta, **asked)
    if as_json:
        print_json(found.to_dict())
        return
    _show(found)
    if out_file is not None:
        wrote(out_file)


def _private_model(path: Path, classes: str | None, trust: list[Path] | None) -> "PrivateModel":
    weights = (
        None if classes is None else options.one_of("--classes", classes, "even", "population")
    )
    return open_veil(path, trust).model(weights)


def _show(score: "Score") -> None:
    """The score for a person."""
    from counterveil.curator.scored import HEADINGS

    table = Table(*HEADINGS)
    for row in score.rows:
        table.add_row(*map(cell, row))
    out.print(table)
    print_facts(score.facts)
    say(score.how, "bold red" if score.measurement is None else "dim")
