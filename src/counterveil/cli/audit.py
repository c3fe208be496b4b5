"""The `counterveil audit` command: try to refute the claims of the mechanisms."""

import math
from enum import StrEnum
from pathlib import Path

from typer import Exit

from counterveil.cli.options import JSON, check_ending, check_outputs, option, seed_option
from counterveil.errors import RequestError
from counterveil.terminal import complain, out, print_json, progress_bar, warn, wrote

Audited = StrEnum("Audited", ["FUNCTIONAL", "DPSGD", "SCORE", "PAPER", "CONTROLS", "ALL"])
EPSILONS, DRAWS, RUNS = (0.1, 0.5, 1.0, 3.0), 100_000, 300
QUICK_EPSILONS, QUICK_DRAWS, QUICK_RUNS = (1.0,), 20_000, 60


def audit(
    mechanism: Audited = option(Audited.ALL, "Whose claims to test."),
    epsilon: list[float] | None = option(None, "A claimed ε; repeat for more. [.1, .5, 1, 3]"),
    draws: int | None = option(None, "Draws of coefficients a side. [100000]", min=100),
    runs: int | None = option(None, "Real releases a side. [300]", min=20),
    out_file: Path | None = option(None, "Write X.json, and X.csv beside it.", "--out"),
    as_json: bool = JSON,
    quick: bool = option(False, "Fewer games: ε = 1, 20000 draws, 60 runs.", "--quick"),
    seed: int = seed_option("For draws; real noise takes none."),
    workers: int = option(1, "Games at a time, each in a process.", min=1, max=256),
) -> None:
    """Try to refute what is promised: a lower bound on ε from the distinguishing game.

    Two tables differ in one record. Can what is released tell them apart better than the claimed ε
    allows? A bound above the claim refutes it; a bound of 0 means "not detected", never "private".

    Exit code 1: a promise was refuted, or a mechanism with a known fault was not caught.
    """
    from counterveil.audit import Effort, failures, games, play_all
    from counterveil.audit.report import NOTE, content, save, tables
    from counterveil.curator import dpsgd

    for claimed in epsilon or ():
        if not (math.isfinite(claimed) and claimed > 0):
            raise RequestError("--epsilon must be a finite number above 0, for example 0.5")
    check_ending(out_file, ".json")
    table = None if out_file is None else out_file.with_suffix(".csv")
    check_outputs({"--out": out_file, "the table beside it": table})
    given: list[tuple[str, object]] = [
        ("--mechanism", "" if mechanism is Audited.ALL else mechanism),
        *(("--epsilon", f"{claimed:g}") for claimed in epsilon or ()),
        ("--draws", draws),
        ("--runs", runs),
        ("--quick", quick),
        ("--seed", seed),
        ("--out", out_file),
    ]
    words = [name if value is True else f"{name} {value}" for name, value in given if value]
    command = " ".join(["counterveil audit", *words])
    effort = Effort(
        draws=draws or (QUICK_DRAWS if quick else DRAWS),
        runs=runs or (QUICK_RUNS if quick else RUNS),
        seed=seed,
    )
    if mechanism in (Audited.ALL, Audited.CONTROLS) and not dpsgd.installed():
        warn("mechanism dpsgd is not audited; it needs: pip install 'counterveil[dpsgd]'")
    planned = games(mechanism, epsilon or (QUICK_EPSILONS if quick else EPSILONS), effort)
    with progress_bar("auditing", len(planned)) as tick:
        rows = play_all(planned, workers, tick)
    written = save(rows, command, out_file) if out_file is not None else ()
    if as_json:
        print_json(content(rows, command))
    else:
        out.print(*tables(rows), sep="\n")
        out.print(NOTE, style="dim")
        for path in written:
            wrote(path)
    failed = failures(rows, mechanism)
    for failure in failed:
        complain("failed: ", failure, "red")
    if failed:
        raise Exit(1)
