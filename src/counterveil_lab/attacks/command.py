"""The command `counterveil-lab attack`: the red team on your own veil and model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterveil.errors import InputError, RequestError
from counterveil.terminal import class_named, complain, say, wrote


def attack(
    veil: Annotated[Path, typer.Option(help="A veil file.")],
    model: Annotated[
        Path,
        typer.Option(
            help="The model: .pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM); "
            "pickles: see --trust-pickle."
        ),
    ],
    data: Annotated[
        Path, typer.Option(help="The rows that model and veil were made from: .csv or .parquet.")
    ],
    others: Annotated[
        Path, typer.Option(help="Rows of the same kind that neither has seen, with the label.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rows, queries and shadows: minutes.")
    ] = False,
    out_file: Annotated[
        Path, typer.Option("--out", help="The page; its numbers go beside it as .json.")
    ] = Path("attack.html"),
    attribute: Annotated[
        str, typer.Option(help="The column of categories that the attacker tries to infer.")
    ] = "race",
    trust_pickle: Annotated[
        bool,
        typer.Option("--trust-pickle", help="Open .pkl, .joblib, .pt and more: can run any code."),
    ] = False,
    model_input: Annotated[
        str, typer.Option(help="What the model was fitted on: rows, encoding, or auto.")
    ] = "auto",
    model_outputs: Annotated[
        str, typer.Option(help="What a torch or ONNX model answers: logits, probabilities, auto.")
    ] = "auto",
    model_classes: Annotated[
        str | None, typer.Option(help="The classes of the model's columns in order: no,yes.")
    ] = None,
) -> None:
    """Attack your own veil and model: extraction, membership, attributes, linkage."""
    try:
        _attack(veil, model, data, others, quick, out_file, attribute, trust_pickle,
                model_input, model_outputs, model_classes)  # fmt: skip
    except InputError as error:
        complain("error: ", error, "red")
        raise typer.Exit(2) from None


def _attack(
    veil: Path, model: Path, data: Path, others: Path, quick: bool, page: Path, attribute: str,
    trust_pickle: bool, inputs: str, outputs: str, classes: str | None,
) -> None:  # fmt: skip
    from counterveil.files import check_output
    from counterveil.models import load_model
    from counterveil.tables import read_table
    from counterveil.veil import Veil
    from counterveil_lab.attacks import suite

    _one_of("--model-input", inputs, "auto", "rows", "encoding")
    _one_of("--model-outputs", outputs, "auto", "logits", "probabilities")
    if page.suffix.lower() not in {".html", ".htm"}:
        raise RequestError(f"--out {page}: name the page .html")
    for path in (page, page.with_suffix(".json")):
        check_output(path, veil, model, data, others)
    loaded = Veil.load(veil)
    schema = loaded.schema
    known = schema.label.classes
    named = None if classes is None else [class_named(text, known) for text in classes.split(",")]
    judge = load_model(
        model,
        schema,
        trust_pickle=trust_pickle,
        inputs=inputs,  # type: ignore[arg-type]
        outputs=outputs,  # type: ignore[arg-type]
        classes=named,
    )
    findings = suite.attack(
        loaded, judge, read_table(data, schema), read_table(others, schema), quick=quick,
        attribute=attribute, say=lambda words: say(f"· {words}", "dim"),
    )  # fmt: skip
    for words in findings.verdicts:
        say(words)
    for path in findings.save(page):
        wrote(path)
    say("What is promised: " + loaded.statement.headline, "dim")


def _one_of(option: str, given: str, *known: str) -> None:
    if given not in known:
        raise RequestError(f"{option} must be one of: {', '.join(known)}")
