"""The commands of the public side: a veil and a model, never the rows. `inspect` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from counterveil.console import (
    MOST_SEED,
    Device,
    Json,
    cell,
    class_named,
    out,
    print_json,
    say,
    wrote,
)
from counterveil.errors import RequestError

if TYPE_CHECKING:
    from counterveil.models import TargetModel
    from counterveil.privacy import Budget
    from counterveil.schema import Schema
    from counterveil.search.rules import Rules


def inspect(
    veil_file: Annotated[Path, typer.Argument(metavar="VEIL", help="A veil file.")],
    as_json: Json = False,
) -> None:
    """Show what a veil is and what it promises."""
    from counterveil.report import statement_panel
    from counterveil.veil import Veil

    veil = Veil.load(veil_file)
    schema = veil.schema
    if as_json:
        print_json({"digest": veil.digest, "schema": json.loads(schema.to_json()),
                    "statement": veil.statement.model_dump(mode="json")})  # fmt: skip
        return
    classes = ", ".join(str(name) for name in schema.label.classes[:12])
    facts = Table.grid(padding=(0, 2))
    facts.add_row("table", cell(schema.name))
    facts.add_row("label", cell(f"{schema.label.name}: {classes}"))
    facts.add_row("features", f"{len(schema.columns)} columns, {schema.width} encoded numbers")
    facts.add_row("surrogate", "none" if veil.surrogate is None else "yes: --guidance surrogate")
    facts.add_row("digest", veil.digest)
    out.print(facts)
    out.print(statement_panel(veil.statement))


def explain(
    veil: Annotated[Path, typer.Option(help="A veil file.")],
    queries: Annotated[Path, typer.Option(help="Rows to explain: .csv or .parquet.")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model: .pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM); "
            "pickles: see --trust-pickle."
        ),
    ] = None,
    guidance: Annotated[
        str, typer.Option(help="model, or surrogate: private end to end, consults no model.")
    ] = "model",
    target: Annotated[
        str | None,
        typer.Option(help="The class to reach; by default the model's second most likely one."),
    ] = None,
    immutable: Annotated[
        list[str] | None, typer.Option(help="A feature that must stay; repeat for more.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="How many different answers a query.")] = 1,
    rules: Annotated[
        Path | None,
        typer.Option(help="A JSON file: what may change (one object), or a list with one a query."),
    ] = None,
    max_changes: Annotated[
        int | None, typer.Option(min=1, help="Change at most so many features.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="How sure the model must be of an answer: 0 to below 1.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="amortised: at once, after learning to search; iterations: Alg. 2.")
    ] = "amortised",
    iterations: Annotated[
        int | None, typer.Option(min=0, help="Steps of Algorithm 2, or to refine: 300 or none.")
    ] = None,
    polish: Annotated[
        bool | None, typer.Option(help="Give back what an answer does not need.")
    ] = None,
    warm_file: Annotated[
        bool, typer.Option(help="Keep what was learnt of the model beside it, in MODEL.warm.")
    ] = True,
    warm_steps: Annotated[
        int | None, typer.Option(min=1, help="How long to learn to search, at most.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="For the variety of several answers.")
    ] = 0,
    device: Device = "cpu",
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
    model_epsilon: Annotated[
        float | None, typer.Option(help="The ε that the model was trained with, if it was.")
    ] = None,
    model_delta: Annotated[float, typer.Option(help="The same for δ.")] = 0.0,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .csv, .parquet or .json.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page for people.")] = None,
    show: Annotated[int, typer.Option(min=0, help="How many explanations to print.")] = 3,
    as_json: Json = False,
) -> None:
    """Explain the model's decision on each query: what would have to change?"""
    from counterveil.files import check_output, write_whole
    from counterveil.report import explanation_table, explanations_page
    from counterveil.search import Explainer
    from counterveil.tables import read_table
    from counterveil.veil import Veil

    written = [path for path in (out_file, report) if path is not None]
    for path in written:
        check_output(path, veil, queries, *(() if model is None else (model,)))
    if out_file is not None and out_file.suffix.lower() not in {".csv", ".parquet", ".json"}:
        raise RequestError(f"--out {out_file}: name the file .csv, .parquet or .json")
    declared = _declared(model_epsilon, model_delta, guidance)
    loaded = Veil.load(veil)
    schema = loaded.schema
    opened = None
    if guidance != "surrogate":
        opened = _open(
            model, schema, trust_pickle,
            _one_of("--model-input", model_input, "auto", "rows", "encoding"),
            _one_of("--model-outputs", model_outputs, "auto", "logits", "probabilities"),
            model_classes,
        )  # fmt: skip
    kind: Literal["model", "surrogate"] = guidance  # type: ignore[assignment]
    kept = None
    if warm_file and model is not None and kind == "model":
        kept = model.with_name(model.name + ".warm")
    explainer = Explainer(
        loaded, opened, guidance=kind, model_budget=declared, warm_file=kept,
        warm_steps=warm_steps, device=device,
    )  # fmt: skip
    result = explainer.explain(
        read_table(queries, schema),
        None if target is None else class_named(target, schema.label.classes),
        k=k,
        rules=_rules(rules, max_changes),
        immutable=immutable or (),
        method=_one_of("--method", method, "amortised", "iterations"),  # type: ignore[arg-type]
        iterations=iterations,
        polish=polish,
        margin=margin,
        seed=seed,
    )
    if out_file is not None:
        result.save(out_file)
    if report is not None:
        write_whole(report, explanations_page(result).encode())
    if as_json:
        print_json(result.to_dict())
        return
    for query in result.found[:show]:
        out.print(explanation_table(result, int(query)))
    say(result.headline)
    for path in written:
        wrote(path)
    say(result.statement.headline, "dim")


def _open(
    model: Path | None, schema: Schema, trust_pickle: bool, inputs: str, outputs: str,
    classes: str | None,
) -> TargetModel:  # fmt: skip
    from counterveil.models import load_model

    if model is None:
        raise RequestError("give --model FILE, or --guidance surrogate to consult none")
    known = schema.label.classes
    named = None if classes is None else [class_named(text, known) for text in classes.split(",")]
    return load_model(
        model,
        schema,
        trust_pickle=trust_pickle,
        inputs=inputs,  # type: ignore[arg-type]
        outputs=outputs,  # type: ignore[arg-type]
        classes=named,
    )


def _rules(path: Path | None, max_changes: int | None) -> Rules | list[Rules] | None:
    """The rules of a file, each with the limit of the command line."""
    from counterveil.files import read_bytes
    from counterveil.search.rules import Rules

    limit = {} if max_changes is None else {"max_changes": max_changes}
    if path is None:
        return Rules.of_mapping(limit) if limit else None
    try:
        content = json.loads(read_bytes(path, "file of rules", RequestError))
    except (ValueError, RecursionError):
        raise RequestError(f"--rules {path}: not JSON") from None
    if isinstance(content, list):
        return [_with_limit(each, limit) for each in content]
    return _with_limit(content, limit)


def _with_limit(content: Any, limit: dict[str, int]) -> Rules:
    from counterveil.search.rules import Rules

    return Rules.of_mapping({**content, **limit} if isinstance(content, dict) else content)


def _declared(epsilon: float | None, delta: float, guidance: str) -> Budget | None:
    """The budget of the model, as whoever trained it says."""
    from counterveil.privacy import Budget

    if epsilon is None:
        if delta:
            raise RequestError("--model-delta needs --model-epsilon")
        return None
    if guidance == "surrogate":
        raise RequestError("--guidance surrogate consults no model: leave --model-epsilon out")
    return Budget(epsilon, delta)


def _one_of(option: str, given: str, *known: str) -> str:
    if given not in known:
        raise RequestError(f"{option} must be one of: {', '.join(known)}")
    return given
