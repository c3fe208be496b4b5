"""Games and checks of real releases, with the curator's own noise, of tiny tables.

The adversary sees one of the `VIEWS` of a veil, or whether there is one at all. What is computed
from noisy numbers can only lose information, so these games look for what reaches a release in some
other way. Training is short: hundreds of releases have to be made. The checks look at what leaves a
release of D and of D' and is not noise: the veil, the ledger, the messages and the command.
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import counterveil
from counterveil.audit import neighbours
from counterveil.audit.concentrated import overspent
from counterveil.audit.game import Check, Claim, Effort, Game, Scores, project
from counterveil.audit.pair import Pair
from counterveil.build import Networks, Training, fit_networks
from counterveil.curator import Curator
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array, Encoding
from counterveil.errors import CounterveilError, InputError
from counterveil.population import Population, population_of
from counterveil.population.grid import Grid
from counterveil.privacy import Budget, Rho, Share
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema
from counterveil.search import Explainer
from counterveil.terminal import PROGRESS
from counterveil.veil import Veil

SHORT = Training(128, 2, 64, 5e-3, surrogate=(8,), surrogate_epochs=2, generator_steps=2)
QUICKLY: dict[str, Any] = {"epochs": SHORT.epochs, "training": SHORT, "progress": False}
CRASHED = 3  # the exit code of a fault of counterveil
SEARCH_STEPS = 10
SECRET = 470_011  # a number that no message may hold
MEMBERS = ("manifest.json", "weights.safetensors", "record.safetensors")  # differ by the noise

Finding = Iterator[str]
Find = Callable[[Pair, Budget], Finding]  # what is wrong, seen in one way
Ran = tuple[int, str, str]  # exit code, standard output, standard error
Heard = tuple[int, str, str, dict[str, bytes]]  # and the files that are left
Run = Callable[[list[str], Path], Ran]  # arguments and the folder to run in


def view_games(
    mechanism: str, budget: Budget, effort: Effort, pair: Pair, views: Sequence[str] = ()
) -> Iterator[Game]:
    """The named views, or all of them, of the same real veils of a pair."""
    claim, runs = Claim(budget.epsilon, budget.delta), effort.runs_for(budget.epsilon)

    @cache
    def veils(table: int) -> list[Veil]:
        return [release(pair, budget, mechanism, table) for _ in range(runs)]

    def scores(view: Callable[[Veil], Array]) -> Scores:
        one, two = (np.stack([view(veil) for veil in veils(table)]) for table in (0, 1))
        return project(one, two)

    for name in views or VIEWS:
        yield Game(mechanism, name, pair.name, claim, runs, partial(scores, VIEWS[name]))


def outcome_games(
    mechanism: str, budget: Budget, runs: int, attempt: Callable[[Pair, PrivateTable], object]
) -> Iterator[Game]:
    """Whether the mechanism, run by `attempt`, refuses a table: an error is 1, no error is 0."""
    claim = Claim(budget.epsilon, budget.delta)

    def scores(pair: Pair) -> Scores:
        refused = np.zeros((2, runs))
        for table, run in np.ndindex(2, runs):
            try:
                attempt(pair, pair.tables[table])
            except InputError:
                refused[table, run] = 1
        return refused[0], refused[1]

    for pair in (make() for make in neighbours.LAST_ONES):
        yield Game(mechanism, "outcome", pair.name, claim, runs, partial(scores, pair))


def release(pair: Pair, budget: Budget, mechanism: str, table: int) -> Veil:
    """A real veil of D (table 0) or of D' (1). The adversary knows the fixed training seed."""
    asked, how = (budget.epsilon, budget.delta), {**pair.measured, **QUICKLY}
    frame, curator = (pair.one, pair.two)[table], Curator(pair.schema, **pair.units)
    return curator.release(frame, *asked, mechanism=mechanism, **how)


def networks_of(population: Population, schema: Schema) -> Networks:
    """What such a release trains on a population."""
    return fit_networks(population, schema, seed=0, device=torch.device("cpu"), training=SHORT)


def _weights_and_prototypes(veil: Veil) -> Array:
    made = veil.autoencoder, veil.surrogate, veil.generator
    networks = [network for network in made if network is not None]
    parts = [weights.reshape(-1) for network in networks for weights in network.parameters()]
    return torch.cat([*parts, veil.prototypes.reshape(-1)]).double().numpy()


def _counterfactuals(veil: Veil) -> Array:
    """Answers to one query in each cell of the first feature: rows, validity and probability."""
    encoding = Encoding(veil.schema)
    queries = encoding.decode(np.eye(veil.schema.width))
    target = veil.schema.label.classes[-1]
    search: Any = {"method": "iterations", "iterations": SEARCH_STEPS, "margin": 0.0}
    explainer = Explainer(veil, guidance="surrogate")
    answer = explainer.explain(queries, target, polish=False, progress=False, **search)
    rows = encoding.encode(answer.rows).reshape(-1)
    return np.concatenate([rows, answer.valid.astype(np.float64), answer.probability])


# What an adversary sees of a veil, as one vector: answers are guided by the surrogate.
VIEWS: dict[str, Callable[[Veil], Array]] = {
    "autoencoder + prototypes": _weights_and_prototypes,
    "prototypes": lambda veil: veil.prototypes.reshape(-1).double().numpy(),
    "counterfactuals": _counterfactuals,
}
FIRST_VIEW = (next(iter(VIEWS)),)


def checks_of(
    mechanism: str, budget: Budget, views: Mapping[str, Find], pairs: Iterable[Callable[[], Pair]]
) -> Iterator[Check]:
    """A check of every pair in every view."""
    claim = Claim(budget.epsilon, budget.delta)
    for pair in (make() for make in pairs):
        for view, find in views.items():
            yield Check(mechanism, view, pair.name, claim, partial(find, pair, budget))


def plan_differs(pair: Pair, budget: Budget) -> Finding:
    """Whether the curator plans by anything but the number of units, which D and D' share."""
    curator, asked = Curator(pair.schema, **pair.units), (budget.epsilon, budget.delta)
    plans = [curator.plan(frame, *asked, **pair.measured) for frame in (pair.one, pair.two)]
    if plans[0] != plans[1]:
        yield "the plan of D' is another one"
    if any(plan.units != pair.tables[0].size for plan in plans):
        yield "a plan is not made for the number of units"


def members_of(veil: Veil) -> dict[str, bytes]:
    return unpacked(veil.to_bytes())


def unpacked(file: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def public_differences(one: dict[str, bytes], two: dict[str, bytes]) -> Finding:
    """What differs between the members of two veils that noise has no part in."""
    if one.keys() != two.keys():
        yield "the veils of D and D' have other members"
    for name in (one.keys() & two.keys()) - set(MEMBERS):
        if one[name] != two[name]:
            yield f"{name} differs between the veils of D and D'"
    manifests = [json.loads(members["manifest.json"]) for members in (one, two)]
    if len({json.dumps(dict(manifest, sha256=0)) for manifest in manifests}) > 1:
        yield "the manifests of the veils of D and D' differ"
    for name in MEMBERS[1:]:
        if len(one[name]) != len(two[name]):
            yield f"{name} has another size for D'"


def veil_follows(pair: Pair, budget: Budget) -> Finding:
    """What a real veil holds that does not follow from its noisy record and public settings."""
    veils = [release(pair, budget, "functional", table) for table in (0, 1)]
    yield from public_differences(*map(members_of, veils))
    veil = veils[0]
    if veil.record is None:
        yield "the veil has no record"
        return
    made = networks_of(population_of(pair.schema, veil.record), pair.schema)
    rest = veil.statement, made.surrogate, veil.record  # and of nothing else of the veil
    anew = Veil(veil.schema, made.autoencoder, made.prototypes, *rest, generator=made.generator)
    if members_of(anew)["weights.safetensors"] != members_of(veil)["weights.safetensors"]:
        yield "the networks or prototypes are not those that the noisy record gives"


class WatchedTable(PrivateTable):
    """A private table that writes down, at every reading of its rows, the charges made so far."""

    def __init__(self, private_data: Any, curator: "WatchedCurator") -> None:
        super().__init__(private_data, curator.schema)
        read = self._source.batches

        def batches() -> Iterator[pd.DataFrame]:
            curator.charges_at_readings.append(len(curator.charges()))
            yield from read()

        self._source, self._curator = replace(self._source, batches=batches), curator

    def private_kept(self, grid: Grid) -> Any:
        kept = super().private_kept(grid)
        if kept is not None:
            self._curator.charges_at_readings.append(len(self._curator.charges()))
        return kept


class WatchedCurator(Curator):
    """The curator, with a watched table and an account of its own, for records."""

    def __init__(self, pair: Pair, budget: Budget, folder: str) -> None:
        path = Path(folder) / "ledger.db"
        Ledger(path).open_account("audit", Budget(10 * budget.epsilon, budget.delta))
        super().__init__(pair.schema, ledger=path, dataset="audit")
        self.charges_at_readings: list[int] = []

    def charges(self) -> tuple[Any, ...]:
        return () if self.ledger is None else self.ledger.entries()

    def _table(self, private_data: Any) -> PrivateTable:
        return WatchedTable(private_data, self)


def charged_first(
    readings: Sequence[int], charges: Sequence[Any], planned: int, charge: tuple[float, float, str]
) -> Finding:
    """What is wrong with the readings of the rows, or with the one charge that must come first.

    `readings`: how many charges there were at each of them; `charge`: ε, δ and digest.
    """
    if len(readings) != planned:
        yield f"the rows are read {len(readings)} times"
    if not all(readings):
        yield "the rows are read before the charge"
    if [(entry.epsilon, entry.delta, entry.digest) for entry in charges] != [charge]:
        yield "the ledger does not hold one charge of what was stated"


def read_once(pair: Pair, budget: Budget, mechanism: str = "functional") -> Finding:
    """Whether a release reads the rows as often as planned, after it has charged what it states."""
    with tempfile.TemporaryDirectory() as folder:
        curator = WatchedCurator(pair, budget, folder)
        asked, how = (budget.epsilon, budget.delta), {**pair.measured, **QUICKLY}
        veil = curator.release(pair.one, *asked, mechanism=mechanism, **how)
        readings, charges = curator.charges_at_readings, curator.charges()
    plan = replace(pair, planned=None).plan(budget)  # a release plans for the rows that there are
    planned = plan.readings if mechanism == "functional" else 1
    charge = budget.epsilon, budget.delta, veil.digest
    yield from charged_first(readings, charges, planned, charge)
    stated = veil.statement
    if (stated.epsilon, stated.delta) != (budget.epsilon, budget.delta):
        yield "the statement tells another ε or δ"
    shares: list[Share] = []
    for access in stated.accesses:
        if access.rho is not None:
            shares.append(Rho(access.rho))
        elif access.epsilon is not None:
            shares.append(Budget(access.epsilon, access.delta))
    if not shares or len(shares) < len(stated.accesses):
        yield "the accesses of the statement do not say what they spend"
    if words := overspent(shares, budget):
        yield f"the accesses of the statement: {words}"


def refusals(pair: Pair, budget: Budget, mechanism: str = "functional") -> Finding:
    """Which of both tables a release refuses."""
    for table, name in enumerate(("D", "D'")):
        try:
            release(pair, budget, mechanism, table)
        except InputError:
            yield f"a release of {name} is refused"


def values_in_errors() -> Finding:
    """Where an error tells the value of a cell that does not fit the schema."""
    pair = neighbours.what_goes_together()
    attempts: dict[str, Callable[[Pair], object]] = {
        "a release": lambda bad: release(bad, Budget(1.0), "functional", 0),
        "a check of the table": lambda bad: bad.tables[0].check(),
        "an encoding": lambda bad: Encoding(bad.schema).encode(bad.one),
        "labels": lambda bad: Encoding(bad.schema).labels(bad.one),
    }
    for column, value in (("x", f"secret {SECRET}"), ("z", float(SECRET)), ("label", f"{SECRET}")):
        frame = pair.one.astype({column: object})
        frame.loc[3, column] = value
        for what, attempt in attempts.items():
            try:
                attempt(replace(pair, one=frame))
            except CounterveilError as error:
                if str(SECRET) in str(error) or "secret" in str(error):
                    yield f"the error of {what} holds a value of column {column!r}"


def run_command(arguments: list[str], folder: Path) -> Ran:
    """Run the `counterveil` command of these sources in a process of its own."""
    source = Path(counterveil.__file__).parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r}); from counterveil import cli; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, PROGRESS: "lines"},  # as the studio asks for them
    )
    return done.returncode, done.stdout, done.stderr


def heard(pair: Pair, words: str, run: Run, veil: Veil | None = None) -> Iterator[Heard]:
    """All channels of a command that reads the rows of D, then of D': see `Heard`.

    `veil`: is there before, as x.veil.
    """
    if pair.unit_column is not None:
        words += f" --unit-column {pair.unit_column} --max-records {pair.max_records}"
    for frame in (pair.one, pair.two):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            frame.to_csv(place / "rows.csv", index=False)
            pair.schema.save(place / "schema.json")
            if veil is not None:
                veil.save(place / "x.veil")
            code, out, complaints = run([*words.split(), "--data", "rows.csv"], place)
            left = {path.name: path.read_bytes() for path in place.iterdir()}
        del left["rows.csv"]
        # The digest of a veil is that of its noise.
        yield code, re.sub(r"\b[0-9a-f]{12,64}\b", "digest", out), complaints, left


def said_otherwise(shown: Iterable[Sequence[Any]]) -> Finding:
    """Which channels of a command differ between D and D'."""
    names = "exit code", "standard output", "standard error", "files that are left"
    for name, one, two in zip(names, *shown, strict=True):
        if one != two:
            yield f"the {name} differs between D and D'"
        elif name == names[0] and one == CRASHED:
            yield "the command fails, so that nothing can be seen"


def command_differs(
    pair: Pair, budget: Budget, mechanism: str = "functional", run: Run = run_command
) -> Finding:
    """What `counterveil release` shows of D and of D' that differs, but for what is noise."""
    words = f"release --schema schema.json --epsilon {budget.epsilon!r} --epochs 1"
    words += f" --delta {budget.delta!r} --mechanism {mechanism} --out x.veil"
    shown = list(heard(pair, words, run))
    files = [unpacked(left.pop("x.veil")) if "x.veil" in left else {} for *_, left in shown]
    yield from said_otherwise(shown)
    if all(files):
        yield from public_differences(*files)
    elif any(files):
        yield "one of the tables gives a veil and the other none"
