"""`counterveil model`: the private model of a veil: `export`, `predict`, and `score`.

`export` and `predict` need the veil alone. `score` reads private rows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import Argument, Typer

from counterveil.cli import options
from counterveil.cli.options import TRUST, choice, command, open_veil, option
from counterveil.cli.private import warn_of_no_ledger
from counterveil.errors import RequestError
from counterveil.files import check_new, write_whole
from counterveil.terminal import print_facts, print_json, print_table, say, warn, wrote

CLASSES = choice(
    None,
    "population: classes weigh as among the people; even: the same. The first is usual, the second "
    "where the veil has no noisy record.",
    *("even", "population"),
)


@dataclass(frozen=True)
class HeldOut(options.OfRows):
    """Whose held-out rows they are."""

    dataset: str | None = option(
        None, "The account of the held-out rows; needed with --ledger: they are other people."
    )


model_app = Typer(
    no_args_is_help=True,
    help="The private model of a veil, to be deployed itself.\n\n"
    "It was learnt from the noisy population alone: whoever asks it, and however often, learns "
    "about the training rows what the veil's ε allows. Without a model, [b]explain[/b] explains "
    "this one.",
)


@command(model_app, "export", "the veil alone.", "model export loans.veil --onnx loans.onnx")
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
    model = open_veil(veil_file, trust).model(classes)  # type: ignore[arg-type]
    for path in wanted.values():
        save_private_model(model, path, overwrite=overwrite)
        wrote(path)
    say(model.statement.headline, "dim")


@command(
    model_app,
    "predict",
    "the veil and the rows to decide on; no private rows.",
    "model predict --veil loans.veil --rows people.csv --out decisions.csv",
)
def predict(
    *,
    veil: options.OfVeil,
    rows: Path = option(..., "Rows in original units: .csv, .parquet, .arrow or .xlsx."),
    out_file: Path = option(..., "Write classes and probabilities: .csv, .parquet.", "--out"),
    classes: str | None = CLASSES,
    overwrite: bool = options.OVERWRITE,
) -> None:
    """Decide on rows: a class for each, and the probability of every class."""
    import pandas as pd

    from counterveil.tables import file_content, read_table

    options.check_outputs({"--out": out_file}, *veil.files, rows)
    check_new(out_file, overwrite=overwrite)
    options.check_ending(out_file, ".csv", ".parquet", ".json")
    model = veil.open().model(classes)  # type: ignore[arg-type]
    asked = read_table(rows, model.schema)
    shares = model.predict_proba(asked)
    decided = pd.Series(model.classes_[shares.argmax(axis=1)], name="decision")
    names = [f"probability of {name}" for name in model.classes_]
    table = pd.concat([decided, pd.DataFrame(shares, columns=names)], axis=1)
    write_whole(out_file, file_content(table, out_file, escape=True))
    wrote(out_file)
    say(model.statement.headline, "dim")


@command(
    model_app,
    "score",
    "private rows that were held out. Writes the charge, or the look, in the ledger.",
    "model score --veil loans.veil --data held_out.csv",
    "model score --veil loans.veil --data held_out.csv --epsilon 0.1 --ledger ledger.db "
    "--dataset held-out --out score.json",
)
def score(
    *,
    veil: options.OfVeil,
    data: Path = option(
        ...,
        "Held-out private rows with labels: .csv, .parquet, .arrow, a folder of Parquet files.",
    ),
    classes: str | None = CLASSES,
    epsilon: float | None = option(None, "Add noise, and spend this ε of the held-out rows."),
    delta: float = option(0.0, "0 for pure ε."),
    rows: HeldOut,
    other_rows: bool = options.OTHER_ROWS,
    out_file: Path | None = option(None, "With --epsilon: write the score, X.json.", "--out"),
    overwrite: bool = options.OVERWRITE,
    as_json: bool = options.JSON,
) -> None:
    """How good is the private model on held-out rows? Reads private rows.

    With --epsilon, noise is added to the counts, the ledger is charged before the first row is
    read, and the score may be published. Without it the score is EXACT AND PRIVATE: no ε covers it,
    it is for the eyes of whoever may see the rows, and with --ledger the look is written down.
    """
    from counterveil.curator.scored import HEADINGS

    options.check_outputs({"--out": out_file}, *veil.files, data, rows.ledger)
    if rows.ledger is not None and rows.dataset is None:
        raise RequestError(
            "--ledger needs --dataset: the account of the held-out rows, who are other people than "
            "those behind the veil; if they are the same, name that account"
        )
    if epsilon is None and (delta or other_rows or out_file is not None):
        raise RequestError("--delta, --other-rows and --out belong to a noisy score: --epsilon")
    options.check_ending(out_file, ".json")
    model = veil.open().model(classes)  # type: ignore[arg-type]
    curator = rows.curator(model.schema)
    if epsilon is None:
        warn(
            "WHAT THIS COMMAND FINDS IS PRIVATE: an exact score, which no ε covers. Keep it to "
            "those who may see the held-out rows, or give --epsilon"
        )
        found = curator.score(data, model)
    else:
        if rows.ledger is None:
            warn_of_no_ledger(curator.dataset, data, veil.veil)
        asked: Any = {"save_to": out_file, "overwrite": overwrite, "other_rows": other_rows}
        found = curator.score(data, model, epsilon, delta, **asked)
    if as_json:
        print_json(found.to_dict())
        return
    print_table(HEADINGS, found.rows)
    print_facts(found.facts)
    say(found.how, "bold red" if found.measurement is None else "dim")
    if out_file is not None:
        wrote(out_file)
