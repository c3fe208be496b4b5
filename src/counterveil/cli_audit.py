"""The `counterveil audit` command: try to refute the claims of the mechanisms."""

from __future__ import annotations

import json
import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from counterveil.console import MOST_SEED, complain, out, warn, wrote
from counterveil.errors import RequestError
from counterveil.files import check_output
from counterveil.progress import progress_bar


class Audited(StrEnum):
    """What can be audited."""

    FUNCTIONAL = "functional"
    DPSGD = "dpsgd"
    PAPER = "paper"
    CONTROLS = "controls"
    ALL = "all"


EPSILONS, DRAWS, RUNS = (0.1, 0.5, 1.0, 3.0), 100_000, 300
QUICK_EPSILONS, QUICK_DRAWS, QUICK_RUNS = (1.0,), 20_000, 60


def audit(
    mechanism: Annotated[Audited, typer.Option(help="Whose claims to test.")] = Audited.ALL,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="A claimed ε; repeat for more. [.1, .5, 1, 3]")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=100, help="Draws of coefficients a side. [100000]")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=20, help="Real releases a side. [300]")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write X.json, and X.csv beside it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute or two: ε = 1, 20000 draws, 60 runs.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="For draws; real noise takes none.")
    ] = 0,
) -> None:
    """Try to refute what is promised: a lower bound on ε from the distinguishing game.

    Two tables differ in one record. Can what is released tell them apart better than the claimed ε
    allows? A bound above the claim refutes it; a bound of 0 means "not detected", never "private".

    Exit code 1: a promise was refuted, or a mechanism with a known fault was not caught.
    """
    from counterveil.audit import Effort, failures, games
    from counterveil.audit.report import NOTE, content, save, tables
    from counterveil.curator import dpsgd

    for claimed in epsilon or ():
        if not (math.isfinite(claimed) and claimed > 0):
            raise RequestError("--epsilon must be a finite number above 0, for example 0.5")
    if out_file is not None and out_file.suffix != ".json":
        raise RequestError(f"--out {out_file}: name the file .json")
    if out_file is not None:
        check_output(out_file)
    command = _command(mechanism, epsilon, draws, runs, out_file, quick, seed)
    effort = Effort(
        draws=draws or (QUICK_DRAWS if quick else DRAWS),
        runs=runs or (QUICK_RUNS if quick else RUNS),
        seed=seed,
    )
    if mechanism in (Audited.ALL, Audited.CONTROLS) and not dpsgd.installed():
        warn("mechanism dpsgd is not audited; it needs: pip install 'counterveil[dpsgd]'")
    planned = games(mechanism, epsilon or (QUICK_EPSILONS if quick else EPSILONS), effort)
    rows = []
    with progress_bar("auditing", len(planned)) as tick:
        for number, game in enumerate(planned):
            tick(number, f"{game.mechanism}, ε = {game.claim.epsilon:g}: {game.view}, {game.pair}")
            rows.append(game.play())
    written = save(rows, command, out_file) if out_file is not None else ()
    if as_json:
        text = json.dumps(content(rows, command), ensure_ascii=False, indent=2)
        sys.stdout.write(f"{text}\n")
    else:
        out.print(*tables(rows), sep="\n")
        out.print(NOTE, style="dim")
        for path in written:
            wrote(path)
    found = failures(rows, mechanism)
    for words in found:
        complain("failed: ", words, "red")
    if found:
        raise typer.Exit(1)


def _command(
    mechanism: Audited, epsilon: list[float] | None, draws: int | None, runs: int | None,
    out_file: Path | None, quick: bool, seed: int,
) -> str:  # fmt: skip
    """The command as one would type it."""
    words = ["counterveil audit"]
    words += [f"--mechanism {mechanism}"] if mechanism is not Audited.ALL else []
    words += [f"--epsilon {claimed:g}" for claimed in epsilon or ()]
    words += [f"--draws {draws}"] if draws is not None else []
    words += [f"--runs {runs}"] if runs is not None else []
    words += ["--quick"] if quick else []
    words += [f"--seed {seed}"] if seed else []
    words += [f"--out {out_file}"] if out_file is not None else []
    return " ".join(words)
