"""The commands of the public side: a veil and a model, never the rows. `inspect` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Argument, Option

from counterveil.cli.options import Device, Json, ModelOptions, Results, one_of, seed_option
from counterveil.errors import RequestError
from counterveil.terminal import cell, class_named, out, print_json

if TYPE_CHECKING:
    from counterveil.search.rules import Rules


def inspect(
    veil_file: Annotated[Path, Argument(metavar="VEIL", help="A veil file.")],
    as_json: Json = False,
) -> None:
    """Show what a veil is and what it promises."""
    from counterveil.report import statement_panel
    from counterveil.veil import Veil

    veil = Veil.load(veil_file)
    schema = veil.schema
    if as_json:
        statement = veil.statement.model_dump(mode="json")
        described = json.loads(schema.to_json())
        print_json({"digest": veil.digest, "schema": described, "statement": statement})
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
    veil: Annotated[Path, Option(help="A veil file.")],
    queries: Annotated[Path, Option(help="Rows to explain: .csv or .parquet.")],
    model: Annotated[
        Path | None,
        Option(
            help="The model: .pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM); "
            "pickles: see --trust-pickle."
        ),
    ] = None,
    guidance: Annotated[
        str, Option(help="model, or surrogate: private end to end, consults no model.")
    ] = "model",
    target: Annotated[
        str | None,
        Option(help="The class to reach; by default the model's second most likely one."),
    ] = None,
    immutable: Annotated[
        list[str] | None, Option(help="A feature that must stay; repeat for more.")
    ] = None,
    k: Annotated[int, Option("--k", min=1, help="How many different answers a query.")] = 1,
    rules: Annotated[
        Path | None,
        Option(help="A JSON file: what may change (one object), or a list with one a query."),
    ] = None,
    max_changes: Annotated[
        int | None, Option(min=1, help="Change at most so many features.")
    ] = None,
    margin: Annotated[
        float | None, Option(help="How sure the model must be of an answer: 0 to below 1.")
    ] = None,
    method: Annotated[
        str, Option(help="amortised: at once, after learning to search; iterations: Alg. 2.")
    ] = "amortised",
    iterations: Annotated[
        int | None, Option(min=0, help="Steps of Algorithm 2, or to refine: 300 or none.")
    ] = None,
    polish: Annotated[bool | None, Option(help="Give back what an answer does not need.")] = None,
    warm_file: Annotated[
        bool, Option(help="Keep what was learnt of the model beside it, in MODEL.warm.")
    ] = True,
    warm_steps: Annotated[
        int | None, Option(min=1, help="How long to learn to search, at most.")
    ] = None,
    seed: Annotated[int, seed_option("For the variety of several answers.")] = 0,
    device: Device = "cpu",
    trust_pickle: Annotated[
        bool,
        Option("--trust-pickle", help="Open .pkl, .joblib, .pt and more: can run any code."),
    ] = False,
    model_input: Annotated[
        str, Option(help="What the model was fitted on: rows, encoding, or auto.")
    ] = "auto",
    model_outputs: Annotated[
        str, Option(help="What a torch or ONNX model answers: logits, probabilities, auto.")
    ] = "auto",
    model_classes: Annotated[
        str | None, Option(help="The classes of the model's columns in order: no,yes.")
    ] = None,
    model_epsilon: Annotated[
        float | None, Option(help="The ε that the model was trained with, if it was.")
    ] = None,
    model_delta: Annotated[float, Option(help="The same for δ.")] = 0.0,
    out_file: Annotated[
        Path | None, Option("--out", help="Write the rows: .csv, .parquet or .json.")
    ] = None,
    report: Annotated[Path | None, Option(help="Write an HTML page for people.")] = None,
    show: Annotated[int, Option(min=0, help="How many explanations to print.")] = 3,
    as_json: Json = False,
) -> None:
    """Explain the model's decision on each query: what would have to change?"""
    from counterveil.search import Explainer
    from counterveil.tables import read_table
    from counterveil.veil import Veil

    about_model = ModelOptions(
        file=model,
        trust_pickle=trust_pickle,
        inputs=model_input,
        outputs=model_outputs,
        classes=model_classes,
        epsilon=model_epsilon,
        delta=model_delta,
    )
    results = Results(rows=out_file, page=report, show=show, as_json=as_json)
    results.check(veil, queries, model)
    budget = about_model.budget(guidance)
    opened = Veil.load(veil)
    schema = opened.schema
    explainer = Explainer(
        opened,
        None if guidance == "surrogate" else about_model.load(schema),
        guidance=guidance,  # type: ignore[arg-type]
        model_budget=budget,
        warm_file=_warm_file(model) if warm_file and guidance == "model" else None,
        warm_steps=warm_steps,
        device=device,
    )
    result = explainer.explain(
        read_table(queries, schema),
        None if target is None else class_named(target, schema.label.classes),
        k=k,
        rules=_rules(rules, max_changes),
        immutable=immutable or (),
        method=one_of("--method", method, "amortised", "iterations"),
        iterations=iterations,
        polish=polish,
        margin=margin,
        seed=seed,
    )
    results.deliver(result)


def _warm_file(model: Path | None) -> Path | None:
    """Where the amortised search is kept that was learnt for `model`."""
    return None if model is None else model.with_name(model.name + ".warm")


def _rules(path: Path | None, max_changes: int | None) -> Rules | list[Rules] | None:
    """The rules of the JSON file at `path`, each with the limit of the command line."""
    from counterveil.files import read_bytes
    from counterveil.search.rules import Rules

    limit = {} if max_changes is None else {"max_changes": max_changes}

    def with_limit(content: Any) -> Rules:
        return Rules.of_mapping({**content, **limit} if isinstance(content, dict) else content)

    if path is None:
        return with_limit({}) if limit else None
    try:
        content = json.loads(read_bytes(path, "file of rules", RequestError))
    except (ValueError, RecursionError):
        raise RequestError(f"--rules {path}: not JSON") from None
    return (
        [with_limit(each) for each in content] if isinstance(content, list) else with_limit(content)
    )
