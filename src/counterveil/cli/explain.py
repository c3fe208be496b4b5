"""`counterveil explain`: a veil, a model and queries; never the private rows."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Exit

from counterveil.cli import options
from counterveil.cli.options import CHANGES, OUTPUT, open_veil, option, read_rules, seed_option
from counterveil.errors import RequestError
from counterveil.hints import either
from counterveil.terminal import out, print_json, say, warn, wrote

if TYPE_CHECKING:
    from counterveil.privacy import ModelBudget
    from counterveil.search import Explainer, Explanations
    from counterveil.search.bulk import Summary

MOST_LINES = 20  # about rows that are left out
ENDINGS = (".csv", ".parquet", ".json", ".xlsx", ".html")
SEARCH = "The search"


def explain(
    veil: Path = option(..., "A veil file."),
    trust: list[Path] | None = options.TRUST,
    queries: Path | None = option(None, "Rows to explain: .csv, .parquet, .arrow or .xlsx."),
    where: list[str] | None = option(
        None,
        "NAME=VALUE; repeat for more. With --queries: only the rows that have these values, in any "
        "column. Without: the row itself, with a value for every feature; an empty one is missing.",
    ),
    model: Path | None = option(
        None,
        "The model: .pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM); "
        "pickles: see --trust-pickle. Without one: the veil's private model.",
        panel=options.MODEL,
    ),
    guidance: str = option(
        "model",
        "model, or surrogate: never asks the model that decides, the private one stands in.",
        values=("model", "surrogate"),
        panel=options.MODEL,
    ),
    target: str | None = option(
        None, "The class to reach; by default the model's second most likely one."
    ),
    immutable: list[str] | None = option(
        None, "A feature that must stay; repeat for more.", panel=CHANGES
    ),
    k: int = option(1, "How many different answers a query.", "--k", min=1, max=1000),
    rules: Path | None = option(
        None,
        "A JSON file: one object for all queries, or a list with one a query; with immutable, "
        "may_change, direction, allowed, transitions, steps, relations, together, only_one, "
        "max_changes, costs (docs/rules.md).",
        panel=CHANGES,
    ),
    max_changes: int | None = option(
        None, "Change at most so many features.", min=1, panel=CHANGES
    ),
    prefer: str | None = option(
        None,
        "believable: little effort, like people of the class, stable; nearest: the least L2 "
        "change. By default believable where the veil has a population of a mixed table or of "
        "images.",
        values=("believable", "nearest"),
        panel=SEARCH,
    ),
    margin: float | None = option(
        None, "How sure the model must be of an answer: 0 to below 1.", panel=SEARCH
    ),
    method: str | None = option(
        None,
        "actions: sets of actions, in mixed tables; iterations: Algorithm 2, in any. By default "
        "actions where the veil has a population of a mixed table.",
        values=("actions", "iterations"),
        panel=SEARCH,
    ),
    iterations: int | None = option(
        None, "Steps of Algorithm 2, at most. [300]", min=0, panel=SEARCH
    ),
    polish: bool | None = option(
        None, "Give back what an answer of Algorithm 2 does not need.", panel=SEARCH
    ),
    seed: int = seed_option("For the variety of several answers.", panel=SEARCH),
    device: str = options.DEVICE,
    trust_pickle: bool = options.TRUST_PICKLE,
    model_input: str = options.MODEL_INPUT,
    model_outputs: str = options.MODEL_OUTPUTS,
    model_classes: str | None = options.MODEL_CLASSES,
    model_epsilon: float | None = option(
        None, "The ε that the model was trained with, if it was.", panel=options.MODEL
    ),
    model_delta: float = option(0.0, "The same for δ.", panel=options.MODEL),
    model_unit: str | None = option(
        None,
        "Whom that ε protects: record or person.",
        values=("record", "person"),
        panel=options.MODEL,
    ),
    model_relation: str | None = option(
        None,
        "Which tables that ε compares: replace-one or add-remove.",
        values=("replace-one", "add-remove"),
        panel=options.MODEL,
    ),
    out_file: Path | None = option(
        None,
        "Write the rows: .csv, .xlsx, .parquet or .json; the page of --report: .html; or a folder, "
        "in parts, for tables of any size.",
        "--out",
        panel=OUTPUT,
    ),
    copied: list[str] | None = option(
        None,
        "A column of the queries that goes with the answers; repeat for more. By default all "
        "that the schema does not have, such as a key.",
        "--copy",
        "--id",
        panel=OUTPUT,
    ),
    part_rows: int = option(50_000, "Rows of a part.", min=1, max=1_000_000, panel=options.PARTS),
    on: str = options.ON,
    ray_address: str | None = options.RAY_ADDRESS,
    workers: int | None = options.WORKERS,
    raw_csv: bool = option(
        False,
        "In a .csv, leave texts as they are that a spreadsheet takes for formulas.",
        "--raw-csv",
        panel=OUTPUT,
    ),
    report: Path | None = option(None, "Write an HTML page for people.", panel=OUTPUT),
    letters: Path | None = option(
        None, "Write a letter for each row, .txt and .html, to this folder.", panel=OUTPUT
    ),
    mail_merge: Path | None = option(
        None,
        "Write a .csv of a row a person: decision, reasons, changes, letter.",
        panel=OUTPUT,
    ),
    language: str = option("en", "Of letters: en or de.", values=("en", "de"), panel=OUTPUT),
    letter_template: Path | None = option(
        None, "Your own template of letters (docs/letters.md).", panel=OUTPUT
    ),
    certificates: Path | None = option(
        None,
        "Write a certificate of every answer, to check later with verify: a folder, a file each; "
        "or X.jsonl, one a line.",
        panel=OUTPUT,
    ),
    sign: Path | None = option(
        None, "Sign the certificates with this key, X.key (keys new).", panel=OUTPUT
    ),
    show: int = option(3, "How many explanations to print.", min=0, panel=OUTPUT),
    as_json: bool = options.JSON,
) -> None:
    """Explain the model's decision on each query: what would have to change?

    Without --model, the veil's private model decides and is explained: answers are private in the
    training rows, end to end.

    Where --out is a folder (it is one, or ends in /), Parquet files are explained part by part, in
    constant memory; the same command goes on after it was cut off. With --on ray several workers do
    so.
    """
    import pandas as pd

    from counterveil.cli.letters import write_letters
    from counterveil.cli.where import asked_rows, without_bad_rows
    from counterveil.search import Explainer
    from counterveil.search.results.certificate import is_file, save_certificates
    from counterveil.signature import SigningKey

    engine = options.engine_of(on, ray_address, workers)
    to_folder = _is_folder(out_file)
    for_one_run = report or letters or mail_merge or certificates
    no_model = model_epsilon is not None and (guidance == "surrogate" or model is None)
    _refuse(
        {
            "a folder of answers is for --queries of many rows, without --where, --report, "
            "--letters, --mail-merge and --certificates": to_folder
            and (for_one_run or where or queries is None),
            "--on ray is for answers in parts: give --out a folder": not to_folder and on == "ray",
            "--sign signs certificates: give --certificates, too": sign and certificates is None,
            "no target model is consulted: leave --model-epsilon out": no_model,
        }
    )
    outputs = {"--out": None if to_folder else out_file, "--report": report}
    outputs["--mail-merge"] = mail_merge
    if certificates is not None and is_file(certificates):
        outputs["--certificates"] = certificates
    read = (veil, queries, model, rules, letter_template, sign, *(trust or ()))
    options.check_outputs(outputs, *read)
    key = None if sign is None else SigningKey.load(sign)
    budget = _model_budget(model_epsilon, model_delta, model_unit, model_relation)
    opened = open_veil(veil, trust)
    schema = opened.schema
    rows, refused = pd.DataFrame(), list[str]()
    if not to_folder:
        rows, refused = without_bad_rows(asked_rows(queries, where, schema), schema)
    target_model = None
    if guidance != "surrogate" and model is not None:
        about_model = (schema, model_input, model_outputs, model_classes)
        target_model = options.model_file(model, *about_model, trust_pickle=trust_pickle)
    explainer = Explainer(
        opened,
        target_model,
        guidance=guidance,  # type: ignore[arg-type]
        model_budget=budget,
        device=device,
    )
    goal = None if target is None else schema.label.class_called(target)
    asked: dict[str, Any] = {
        "k": k,
        "rules": read_rules(rules, max_changes),
        "immutable": immutable or (),
        "copied": copied or None,
        "prefer": prefer,
        "method": method,
        "iterations": iterations,
        "polish": polish,
        "margin": margin,
        "seed": seed,
    }
    if to_folder:
        asked |= {"engine": engine, "part_rows": part_rows}
        places = options.place_of(queries or Path()), options.place_of(out_file or Path())
        summary = explainer.explain_files(*places, goal, **asked)
        _show_summary(summary, explainer, as_json=as_json)
        return
    result = explainer.explain(rows, goal, **asked)
    _write(result, out_file, report, raw_csv=raw_csv)
    written = write_letters(
        result, letters, mail_merge, language, letter_template, escape=not raw_csv
    )
    if certificates is not None:
        save_certificates(result, certificates, key)
    if as_json:
        print_json(result.to_dict() | ({"refused": refused} if refused else {}))
    else:
        _show(result, show, [*filter(None, (out_file, report, certificates, *written))])
    if refused:
        _report(refused)
        raise Exit(1)


def _show(result: "Explanations", most: int, written: list[Path]) -> None:
    """Print the first `most` answers, how the search went, and what was written."""
    from counterveil.report import explanation_table
    from counterveil.signature import signer_line

    for query in result.found[:most]:
        out.print(explanation_table(result, int(query)))
    say(result.headline)
    say(result.decided_by.meaning)
    for path in written:
        wrote(path)
    say(result.statement.headline, "dim")
    say(f"the veil is {signer_line(result.signer)}", "dim")


def _report(refused: list[str]) -> None:
    """Say which rows were left out, a line each, and how many."""
    for line in refused[:MOST_LINES]:
        warn(line)
    rows = "row was" if len(refused) == 1 else "rows were"
    warn(f"{len(refused)} {rows} left out; mend what is said above, and ask about them again")


def _refuse(mistakes: dict[str, Any]) -> None:
    """A RequestError with the first of these words that is true of what was asked."""
    for words, is_so in mistakes.items():
        if is_so:
            raise RequestError(words)


def _write(
    result: "Explanations", out_file: Path | None, report: Path | None, *, raw_csv: bool
) -> None:
    """Write the rows and the page, where they are asked for."""
    from counterveil.files import write_whole

    if out_file is not None:
        result.save(out_file, escape=not raw_csv)
    if report is not None:
        write_whole(report, result.to_html().encode("utf-8", "replace"))


def _is_folder(path: Path | None) -> bool:
    """Whether --out means a folder: one that is there, or a name without an ending."""
    if path is None or (not path.is_dir() and path.suffix.lower() in ENDINGS):
        return False
    if path.is_dir() or not path.suffix:
        return True
    raise RequestError(f"--out {path}: name the file {either(ENDINGS)}, or a folder")


def _show_summary(summary: "Summary", explainer: "Explainer", *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(summary))
        return
    say(summary.headline)
    say(explainer.decided_by.meaning)
    wrote(Path(summary.folder))
    say(explainer.statement.headline, "dim")


def _model_budget(
    epsilon: float | None, delta: float, unit: str | None, relation: str | None
) -> "ModelBudget | None":
    """The budget of the model as its options declare it."""
    from counterveil.privacy import ModelBudget

    if epsilon is None:
        if delta or unit or relation:
            raise RequestError(
                "--model-delta, --model-unit, --model-relation: needs --model-epsilon"
            )
        return None
    if unit is None or relation is None:
        raise RequestError(
            "--model-epsilon needs --model-unit (record or person) and --model-relation "
            "(replace-one or add-remove): look them up where the model was trained"
        )
    return ModelBudget(
        epsilon,
        delta,
        unit=options.one_of("--model-unit", unit, "record", "person"),
        relation=options.one_of("--model-relation", relation, "replace-one", "add-remove"),
    )
