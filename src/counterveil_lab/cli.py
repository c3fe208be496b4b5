"""The `counterveil-lab` command: run experiments and benchmarks, store results, attack a veil."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from counterveil.cli.options import (
    MODEL_CLASSES,
    MODEL_INPUT,
    MODEL_OUTPUTS,
    TRUST_PICKLE,
    check_outputs,
    open_model,
    option,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure counterveil: every experiment by name, results stored with command and commit.",
)
notes = Console(stderr=True)
OUT = option(Path("results"), "Where results go.", "--out")
NAMES = option(None, "Only these, separated by commas.")
QUICK = option(False, "Toy size, to see it work.", "--quick")
PAGE = "The page: one HTML file."
FILES = ".pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM)"
BENCHMARK = (
    "release: reading and counting over rows. search: time and quality of answers beside other "
    "methods, on one core. serve: the service under load. scale: very many rows on workers. "
    "gpu: answers a second of a CUDA device."
)
PARTS = "believable, peers, warm-up, batch, features, floor, boosted or objective"
PAPER_EPOCHS = (
    "Train mechanism paper for so many epochs. The published ones are 300 on tables, 30 on images "
    "and 500 on sets of bits: without a GPU very long for the last."
)
INPUTS = (
    "gpu: a folder with veil, model and queries; left there if there are none yet, for a machine "
    "that can release nothing."
)
DOCS = (
    "The documentation: also write results.md in this folder, and make the tables anew that "
    "README.md beside it and its pages quote."
)


@app.command("list")
def list_experiments() -> None:
    """The experiments there are."""
    from counterveil_lab.experiments.table import EXPERIMENTS

    for name, experiment in EXPERIMENTS.items():
        sys.stdout.write(f"{name:20} {experiment.about}\n")
    sys.stdout.write(f"{'all':20} every one of them, one after the other\n")


@app.command()
def holes() -> None:
    """Run the counter-examples to the published proof (docs/soundness.md) and print them."""
    from rich.table import Table

    from counterveil_lab.holes import findings

    table = Table("hole", "claim", "measured", "claim stands")
    for found in findings():
        table.add_row(found.hole, found.claim, found.measured, "yes" if found.holds else "no")
    Console().print(table)


@app.command()
def run(
    name: str = typer.Argument(help="An experiment of `counterveil-lab list`, or all."),
    seeds: int = option(3, "How many repetitions.", min=1),
    quick: bool = QUICK,
    workers: int = option(2, "Processes at a time.", min=1),
    folder: Path = OUT,
    data: Path | None = option(None, "The folder of datasets, instead of COUNTERVEIL_DATA."),
    datasets: str | None = NAMES,
    mechanisms: str | None = NAMES,
    add: bool = option(False, "Keep stored rows of other commits and commands too.", "--add"),
    cache: Path | None = option(
        None, "Keep models and veils here for later; empty it when the code changes."
    ),
    paper_epochs: int | None = option(None, PAPER_EPOCHS, min=1),
) -> None:
    """Run an experiment; a run that was cut short goes on where it stopped.

    With --datasets and --mechanisms (in tables also cadex, vae, dice) parts add up in one file.
    """
    from counterveil_lab.experiments.runner import CasesFailed, Options
    from counterveil_lab.experiments.table import run_named

    chosen = _listed(datasets), _listed(mechanisms)
    options = Options(folder, seeds, quick, workers, *chosen, add, data, cache, paper_epochs, _say)
    with _one_line_errors():
        try:
            failures = run_named(name, options)
        except CasesFailed as error:
            failures = {name: str(error)}
    for failed, reason in failures.items():
        notes.print(f"[red]failed:[/red] {failed}: {reason}", highlight=False)
    if failures:
        raise typer.Exit(1)
    notes.print(f"stored in {folder}")


@app.command("train-paper")
def train_paper(
    datasets: str = option(..., "These datasets, separated by commas."),
    cache: Path = option(..., "Leave veils here; give the same folder to `run`."),
    seeds: int = option(3, "How many repetitions.", min=1),
    epsilons: str = option("0.025,0.75", "These ε, separated by commas; none: without noise."),
    device: str = option("auto", "cpu, cuda, mps, or auto for the best there is."),
) -> None:
    """Train mechanism paper for many seeds and ε as one batched model, best on a GPU."""
    import os

    from counterveil.networks import pick_device
    from counterveil_lab.experiments import batched_paper, releases

    os.environ[releases.CACHE] = str(cache)
    none = releases.NO_NOISE
    listed = tuple(none if word == none else float(word) for word in _listed(epsilons) or ())
    with _one_line_errors():
        for name in _listed(datasets) or ():
            made = batched_paper.leave_veils(name, seeds, listed, pick_device(device), _say)
            _say(f"{name}: {made} veils trained")


@app.command()
def bench(
    name: str = typer.Argument(help=BENCHMARK),
    quick: bool = QUICK,
    only: str | None = option(None, f"search: one part of it, into files of its own: {PARTS}."),
    seeds: int = option(1, "search: repetitions of what peers says of quality.", min=1),
    datasets: str | None = option(None, "search: only these in objective, separated by commas."),
    inputs: Path | None = option(None, INPUTS),
    folder: Path = OUT,
) -> None:
    """Run a benchmark."""
    from counterveil_lab.bench import BENCHMARKS, run_benchmark

    if name not in BENCHMARKS:
        _refuse(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    if name != "search" and (only is not None or seeds > 1 or datasets is not None):
        _refuse("--only, --seeds and --datasets are for the benchmark search")
    if name != "gpu" and inputs is not None:
        _refuse("--inputs is for the benchmark gpu")
    search: dict[str, Any] = {"only": only, "seeds": seeds, "datasets": _listed(datasets)}
    options = {"search": search, "gpu": {"inputs": inputs}}.get(name, {})
    command = f"counterveil-lab bench {shlex.quote(name)}{' --quick' if quick else ''}"
    command += f" --only {shlex.quote(only)}" if only else ""
    command += f" --seeds {seeds}" if seeds > 1 else ""
    command += f" --datasets {shlex.quote(datasets)}" if datasets else ""
    with _one_line_errors():
        run_benchmark(name, folder, command, quick=quick, say=_say, **options)
    stem = f"bench-{name}" + (f"-{only}" if only else "")
    notes.print(f"stored in {folder}/{stem}.json and .csv")


@app.command()
def report(
    folder: Path = option(Path("results"), "Stored results.", "--results"),
    page: Path = option(Path("results/report.html"), PAGE, "--out"),
    docs: Path | None = option(None, DOCS),
) -> None:
    """All stored results on one page, beside what the paper prints; nothing is measured."""
    from counterveil_lab.report.page import write

    if not folder.is_dir():
        _refuse(f"no folder {folder}; say --results FOLDER")
    with _one_line_errors():
        for line in write(folder, page, docs):
            _say(line)


@app.command()
def attack(
    veil: Path = option(..., "A veil file."),
    model: Path = option(..., f"The model: {FILES}; pickles: see --trust-pickle."),
    data: Path = option(..., "The rows that model and veil were made from: .csv or .parquet."),
    others: Path = option(..., "Rows of the same kind that neither has seen, with the label."),
    quick: bool = QUICK,
    page: Path = option(Path("attack.html"), PAGE, "--out"),
    attribute: str = option("race", "The column of categories that the attacker tries to infer."),
    trust_pickle: bool = TRUST_PICKLE,
    model_input: str = MODEL_INPUT,
    model_outputs: str = MODEL_OUTPUTS,
    model_classes: str | None = MODEL_CLASSES,
) -> None:
    """Attack your own veil and model: extraction, membership, attributes, linkage.

    The numbers go beside the page as .json. With --quick fewer rows, queries and shadows.
    """
    from counterveil.errors import RequestError
    from counterveil.tables import read_table
    from counterveil.terminal import progress_line, say, wrote
    from counterveil.veil import Veil

    def told(words: str, done: int, total: int) -> None:
        say(f"· {words}", "dim")
        progress_line("attack", done, total, words)

    with _one_line_errors():
        import sklearn  # noqa: F401 - needed after some minutes; it is missed at once

        from counterveil_lab.attacks import suite

        if page.suffix.lower() not in {".html", ".htm"}:
            raise RequestError(f"--out {page}: name the page .html")
        numbers = page.with_suffix(".json")
        check_outputs({"--out": page, "the numbers beside it": numbers}, veil, model, data, others)
        loaded = Veil.load(veil)
        target = open_model(
            model,
            loaded.schema,
            model_input,
            model_outputs,
            model_classes,
            trust_pickle=trust_pickle,
        )
        findings = suite.attack(
            loaded,
            target,
            read_table(data, loaded.schema),
            read_table(others, loaded.schema),
            quick=quick,
            attribute=attribute,
            told=told,
        )
        for words in findings.verdicts:
            say(words)
        for path in findings.save(page):
            wrote(path)
        say("What is promised: " + loaded.statement.headline, "dim")


@app.command()
def fuzz(
    cases: int = option(10_000, "How many cases.", min=1),
    first: int = option(0, "The number of the first one.", min=0),
    case: int | None = option(None, "Only the case of this number, and show it.", min=0),
    seed: int = option(0, "A case is the same for the same seed and number.", min=0),
    workers: int = option(2, "Processes at a time.", min=1),
    keep: Path | None = option(None, "Keep the files of cases that fail here."),
    add: bool = option(False, "Keep the rows of earlier cases in the same file.", "--add"),
    folder: Path = OUT,
) -> None:
    """Run the commands on damaged files and odd arguments; see docs/errors.md for what must hold.

    Exit code 1: a case failed. Each is shown with its number; --case NUMBER runs it again.
    """
    from counterveil_lab.fuzz.run import run_cases, summary
    from counterveil_lab.results import Results

    numbers = range(first, first + cases) if case is None else [case]
    done = []
    for one in run_cases(numbers, seed, workers=workers, keep=keep):
        done.append(one)
        if one.failures or case is not None:
            sys.stdout.write(one.text() + "\n")
            sys.stdout.flush()
        if len(done) % 500 == 0:
            _say(f"{len(done)} cases, {sum(bool(each.failures) for each in done)} failed")
    failed = sum(bool(each.failures) for each in done)
    if case is None:
        command = f"counterveil-lab fuzz --first {first} --cases {cases} --seed {seed}"
        Results(folder, "fuzz", command, fresh=not add, keep=add).add(*summary(done, seed))
        notes.print(f"{len(done)} cases, {failed} failed; stored in {folder}/fuzz.csv")
    if failed:
        raise typer.Exit(1)


@app.command()
def fuzz_rules(
    cases: int = option(10_000, "How many queries, each with rules of its own.", min=1),
    seed: int = option(0, "The cases are the same for the same seed.", min=0),
    folder: Path = OUT,
) -> None:
    """Ask every kind of search for answers under random rules, and check each against the rules.

    Exit code 1: an answer broke a rule, or one was missed. It is shown with its query and rules.
    """
    from counterveil_lab.fuzz.rules_run import run_worlds
    from counterveil_lab.results import Results

    command = f"counterveil-lab fuzz-rules --cases {cases} --seed {seed}"
    results, done, failed = Results(folder, "fuzz-rules", command, fresh=True), 0, 0
    for row, failures in run_worlds(cases, seed):
        results.add(row)
        done, failed = done + int(row["cases"]), failed + len(failures)
        for words in failures:
            sys.stdout.write(words + "\n")
            sys.stdout.flush()
        _say(f"{done} cases, {failed} failed")
    notes.print(f"{done} cases, {failed} failed; stored in {folder}/fuzz-rules.csv")
    if failed:
        raise typer.Exit(1)


@app.command()
def fuzz_service(
    requests: int = option(100_000, "How many requests.", min=1),
    seed: int = option(0, "The requests are the same for the same seed.", min=0),
    folder: Path = OUT,
) -> None:
    """Ask the service random things: nothing but refusals and answers may come, and no value back.

    Exit code 1: a request failed. It is shown.
    """
    from counterveil_lab.fuzz.service_run import run_requests, table
    from counterveil_lab.results import Results

    rows, failed = [], 0
    for row, failures in run_requests(requests, seed):
        rows.append(row)
        failed += len(failures)
        for words in failures[:20]:
            sys.stdout.write(words + "\n")
        if len(rows) % 10 == 0:
            _say(f"{len(rows)},000 requests, {failed} failed")
    command = f"counterveil-lab fuzz-service --requests {requests} --seed {seed}"
    results = Results(folder, "fuzz-service", command, fresh=True)
    results.add({**table(rows), "failed": failed})
    notes.print(f"{requests} requests, {failed} failed; stored in {folder}/fuzz-service.csv")
    if failed:
        raise typer.Exit(1)


@app.command()
def faults(
    names: list[str] | None = typer.Argument(None, help="Faults with these words; none: all."),
    workers: int = option(2, "Processes at a time.", min=1, max=2),
    folder: Path = OUT,
) -> None:
    """Plant known faults in copies of the product: does the audit catch each of them?

    The sound code plays the same games. Exit code 1: a fault was not caught, or the sound code was.
    """
    from counterveil.curator import dpsgd
    from counterveil_lab import faults as planted
    from counterveil_lab.results import Results

    with _one_line_errors():
        dpsgd.check_installed()
        words = [name.lower() for name in names or ()]
        chosen = [
            fault
            for fault in planted.FAULTS
            if not words or any(word in fault.name.lower() for word in words)
        ]
        if not chosen:
            _refuse(f"no fault is called {' or '.join(words)}; leave the name out for all")
        asked = " ".join(["counterveil-lab faults", *map(shlex.quote, names or ())])
        stored = Results(folder, "audit_faults", asked, fresh=True)
        stored.add(*planted.run_all(chosen, workers=workers, say=_say))
    failed = planted.failures(stored.rows)
    for failure in failed:
        notes.print(f"[red]failed:[/red] {failure}", highlight=False)
    notes.print(f"stored in {folder}/audit_faults.json and .csv")
    if failed:
        raise typer.Exit(1)


def _listed(words: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None as it is."""
    names = [word.strip() for word in (words or "").split(",")]
    return tuple(name for name in names if name) or None


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What the user got wrong is one line and exit status 2."""
    from counterveil.errors import InputError

    try:
        yield
    except InputError as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        _refuse(f"the lab needs {error.name}: pip install 'counterveil[lab]'")


def _refuse(words: str) -> NoReturn:
    notes.print(f"[red]error:[/red] {escape(words)}", highlight=False, soft_wrap=True)
    raise typer.Exit(2) from None


def _say(words: str) -> None:
    notes.print(f"[dim]·[/dim] {words}", highlight=False)


def main() -> None:
    """Run the command."""
    app()


if __name__ == "__main__":
    main()
