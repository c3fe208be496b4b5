"""Long campaigns against the product itself: random input, and planted faults."""

import shlex
import sys
from pathlib import Path

import typer

from counterveil.cli.options import option
from counterveil_lab.cli.shared import OUT, OVERWRITE, app, notes, one_line_errors, refuse, say


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
            say(f"{len(done)} cases, {sum(bool(each.failures) for each in done)} failed")
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
        say(f"{done} cases, {failed} failed")
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
            say(f"{len(rows)},000 requests, {failed} failed")
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
    overwrite: bool = OVERWRITE,
    folder: Path = OUT,
) -> None:
    """Plant known faults in copies of the product: does the audit catch each of them?

    The sound code plays the same games. Exit code 1: a fault was not caught, or the sound code was.
    """
    from counterveil.curator import dpsgd
    from counterveil_lab import faults as planted
    from counterveil_lab.results import Results, begin_anew

    with one_line_errors():
        dpsgd.check_installed()
        words = [name.lower() for name in names or ()]
        chosen = [
            fault
            for fault in planted.FAULTS
            if not words or any(word in fault.name.lower() for word in words)
        ]
        if not chosen:
            refuse(f"no fault is called {' or '.join(words)}; leave the name out for all")
        asked = " ".join(["counterveil-lab faults", *map(shlex.quote, names or ())])
        begin_anew(folder, "audit_faults", overwrite=overwrite)
        stored = Results(folder, "audit_faults", asked)
        stored.add(*planted.run_all(chosen, workers=workers, say=say))
    failed = planted.failures(stored.rows)
    for failure in failed:
        notes.print(f"[red]failed:[/red] {failure}", highlight=False)
    notes.print(f"stored in {folder}/audit_faults.parquet")
    if failed:
        raise typer.Exit(1)
