"""The `counterveil` command.

Exit codes: 0 done; 2 something given is wrong (one line on standard error says what and how to mend
it); 3 a fault of counterveil itself; 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from counterveil.errors import InputError, InternalError, RequestError

# Torch takes seconds to load: each command imports what it needs, so that --help answers at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Explain model decisions by counterfactuals without leaking the training rows.\n\n"
    "The private side turns rows into a veil, once ([b]schema draft[/b], [b]release[/b]). The "
    "public side needs the veil and the model only ([b]inspect[/b], [b]explain[/b]).\n\n"
    "New here? Run [b]counterveil demo[/b].",
)
schema_app = typer.Typer(no_args_is_help=True, help="Public descriptions of tables.")
app.add_typer(schema_app, name="schema")

out = Console()
notes = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto for the best there is.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from counterveil import __version__

        sys.stdout.write(f"counterveil {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="And exit.")
    ] = False,
) -> None:
    pass


@schema_app.command("draft")
def schema_draft(
    file: Annotated[Path, typer.Argument(help="The table: .csv or .parquet.")],
    label: Annotated[str, typer.Option(help="The column that the model predicts.")],
    exclude: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; repeat for more.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write here instead of to the terminal.")
    ] = None,
) -> None:
    """Draft a schema from a table, for you to edit.

    The draft LOOKS AT THE DATA: its bounds and categories are those of the rows. Before you release
    anything, replace them by public knowledge and remove "drafted" from the file.
    """
    from counterveil.curator.draft import draft_schema
    from counterveil.tables import read_table

    schema = draft_schema(read_table(file), label, exclude=exclude or (), name=file.stem)
    if out_file is None:
        sys.stdout.write(schema.to_json())
    else:
        schema.save(out_file)
    _warn("this draft LOOKED AT THE DATA. Replace its bounds and categories by public knowledge, "
          'then remove "drafted" from the file.')  # fmt: skip


@app.command()
def release(
    data: Annotated[Path, typer.Option(help="The private table: .csv or .parquet.")],
    schema: Annotated[Path, typer.Option(help="Its public schema: a JSON file.")],
    epsilon: Annotated[float, typer.Option(help="The privacy budget; smaller is more private.")],
    out_file: Annotated[Path, typer.Option("--out", help="The veil to write, X.veil.")],
    mechanism: Annotated[str, typer.Option(help="paper: Algorithm 1 as published.")] = "paper",
    seed: Annotated[int, typer.Option(help="For initial weights; the noise takes none.")] = 0,
    epochs: Annotated[int | None, typer.Option(help="Instead of the paper's number.")] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Turn private rows into a veil. The only command that reads private rows."""
    from counterveil.curator import Curator
    from counterveil.schema import Schema
    from counterveil.tables import read_table

    public = Schema.load(schema)
    if public.drafted:
        _warn("the schema is a draft that looked at the data; the veil's statement will say so")
    curator = Curator(public, device=device)
    veil = curator.release(
        read_table(data, public), epsilon, mechanism=mechanism, seed=seed, epochs=epochs
    )
    veil.save(out_file)
    if as_json:
        _print_json({"veil": str(out_file), "digest": veil.digest,
                     "statement": veil.statement.model_dump(mode="json")})  # fmt: skip
        return
    out.print(f"wrote [b]{out_file}[/b]  ({veil.digest[:12]})")
    out.print(veil.statement.headline)


@app.command()
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
        _print_json({"digest": veil.digest, "schema": json.loads(schema.to_json()),
                     "statement": veil.statement.model_dump(mode="json")})  # fmt: skip
        return
    facts = Table.grid(padding=(0, 2))
    classes = ", ".join(str(name) for name in schema.label.classes[:12])
    facts.add_row("table", schema.name)
    facts.add_row("label", f"{schema.label.name}: {classes}")
    facts.add_row("features", f"{len(schema.columns)} columns, {schema.width} encoded numbers")
    facts.add_row("digest", veil.digest)
    out.print(facts)
    out.print(statement_panel(veil.statement))


@app.command()
def explain(
    veil: Annotated[Path, typer.Option(help="A veil file.")],
    model: Annotated[Path, typer.Option(help="The model: .pt2, .skops (pickles: see below).")],
    queries: Annotated[Path, typer.Option(help="Rows to explain: .csv or .parquet.")],
    target: Annotated[
        str | None, typer.Option(help="The class to reach; by default the nearest other one.")
    ] = None,
    immutable: Annotated[
        list[str] | None, typer.Option(help="A feature that must stay; repeat for more.")
    ] = None,
    iterations: Annotated[int, typer.Option(help="Steps of Algorithm 2.")] = 300,
    seed: Annotated[int, typer.Option(help="For models without gradients.")] = 0,
    device: Device = "cpu",
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Open .pkl, .joblib, .pt: can run any code.")
    ] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .csv, .parquet or .json.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page for people.")] = None,
    show: Annotated[int, typer.Option(help="How many explanations to print.")] = 3,
    as_json: Json = False,
) -> None:
    """Explain the model's decision on each query: what would have to change?"""
    from counterveil.files import write_whole
    from counterveil.models import load_model
    from counterveil.report import explanation_table, explanations_page
    from counterveil.search import Explainer
    from counterveil.tables import read_table
    from counterveil.veil import Veil

    loaded = Veil.load(veil)
    if out_file is not None and out_file.suffix.lower() not in {".csv", ".parquet", ".json"}:
        raise RequestError(f"--out {out_file}: name the file .csv, .parquet or .json")
    explainer = Explainer(
        loaded, load_model(model, loaded.schema, trust_pickle=trust_pickle), device=device
    )
    result = explainer.explain(
        read_table(queries, loaded.schema),
        _class_named(target, loaded.schema.label.classes),
        immutable=immutable or (),
        iterations=iterations,
        seed=seed,
    )
    if out_file is not None:
        result.save(out_file)
    if report is not None:
        write_whole(report, explanations_page(result).encode())
    if as_json:
        _print_json(result.to_dict())
        return
    for query in result.valid.nonzero()[0][:show]:
        out.print(explanation_table(result, int(query)))
    out.print(result.headline)
    for path in (out_file, report):
        if path is not None:
            out.print(f"wrote [b]{path}[/b]")
    out.print(f"[dim]{loaded.statement.headline}[/dim]")


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the results go.")] = Path("demo"),
    queries: Annotated[int, typer.Option(min=3, help="How many rows to explain.")] = 500,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs a veil; the paper has 300.")] = 60,
    seed: Annotated[int, typer.Option(help="For split, weights and search.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
) -> None:
    """See it work: embedded census data, a model, veils over ε, explanations, report.html."""
    from counterveil.demo.run import run_demo
    from counterveil.report import explanation_table

    outcome = run_demo(folder, queries=queries, epochs=epochs, seed=seed, workers=workers,
                       say=lambda words: notes.print(f"[dim]·[/dim] {words}"))  # fmt: skip
    table = Table(title=f"{queries} queries, mechanism paper", title_justify="left")
    for heading in ("noise", "flip ratio", "distance", "legal rows", "ms a query"):
        table.add_column(heading, justify="left" if heading == "noise" else "right")
    for line in outcome.measurements:
        table.add_row(line.name, f"{line.flip_ratio:.3f}", f"{line.distance:.2f}",
                      f"{line.legal:.3f}", f"{1000 * line.seconds_per_query:.2f}")  # fmt: skip
    out.print(table)
    for query in range(len(outcome.shown)):
        out.print(explanation_table(outcome.shown, query))
    out.print(f"[dim]{outcome.shown.statement.headline}[/dim]")
    out.print(f"report: [b]{outcome.report}[/b]")
    veil = folder / "adult-0.75.veil"
    out.print(f"next:   counterveil inspect {veil}")
    out.print(f"        counterveil explain --veil {veil} --model {folder / 'model.pt2'} "
              f"--queries {folder / 'queries.csv'} --target '>50K'", soft_wrap=True)  # fmt: skip


def _class_named(text: str | None, classes: Sequence[Any]) -> Any:
    """The class whose name reads `text`; an unknown one is left for the explainer to refuse."""
    return next((name for name in classes if str(name) == text), text)


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _warn(words: str) -> None:
    notes.print(f"[yellow]warning:[/yellow] {words}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; every expected error is one line and exit code 2."""
    try:
        app(args=arguments)
    except InputError as error:
        notes.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True, markup=True)
        sys.exit(2)
    except InternalError as error:
        notes.print(f"[red]fault of counterveil:[/red] {error}", highlight=False, soft_wrap=True)
        sys.exit(3)
    except KeyboardInterrupt:
        notes.print("interrupted; nothing was written")
        sys.exit(130)
