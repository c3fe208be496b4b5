"""`counterveil demo`: the whole way, on the embedded Adult table.

Train a model, release veils over a range of ε by the published mechanism and by the one with a
proved ε, explain held-out rows, and write report.html. The schema, the queries, the model and the
compared veils stay in the folder, so that the other commands can be tried on them.
"""

import math
import multiprocessing
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split, encoded, train_target
from counterveil.encoding import Encoding
from counterveil.files import write_whole
from counterveil.models import save_exported
from counterveil.privacy import Level
from counterveil.report import Curve, VeilScore, demo_page, explanation_table, score_table
from counterveil.schema import Schema
from counterveil.search import Explainer, Explanations
from counterveil.terminal import cell, notes, out, progress_bar, say
from counterveil.veil import Veil


class Release(NamedTuple):
    """A veil to make: a mechanism at an ε, which is infinite for no noise."""

    mechanism: str
    epsilon: float

    @property
    def noise(self) -> str:
        return f"ε = {self.epsilon:g}" if math.isfinite(self.epsilon) else "no noise"

    @property
    def file(self) -> str:
        start = "adult-paper" if self.mechanism == "paper" else "adult"
        noise = f"{self.epsilon:g}" if math.isfinite(self.epsilon) else "no-noise"
        return f"{start}-{noise}.veil"


CURVE = (0.75, 0.1, 0.025, 0.005, 5e-4)
PAPER = tuple(Release("paper", epsilon) for epsilon in (math.inf, *CURVE))
FUNCTIONAL = (Release("functional", 0.75), Release("functional", 0.025))
COMPARED = (*(Release("paper", epsilon) for epsilon in (math.inf, 0.75, 0.025)), *FUNCTIONAL)
SHOWN = FUNCTIONAL[0]
LEGEND = (
    "query: a row whose decision is explained; the model was not trained on it",
    "promise: whether it is proved that ε limits what the veil reveals about any one training row",
    "flip ratio: share of the queries for which a row was found that the model decides otherwise",
    "distance: mean L2 distance from query to found row, every encoded number between 0 and 1",
    "legal: share of the found rows that could stand in the table",
)


def run_demo(folder: Path, *, queries: int, epochs: int, seed: int, workers: int) -> None:
    """Run the demo, write its files into `folder` and print what was found.

    `epochs`: of a veil of mechanism paper.
    """
    torch.set_num_threads(1)  # the networks are too small to gain from a second thread
    schema, split = adult_schema(), adult_split(seed)
    asked = split.test.head(queries)
    _note(f"training the model to be explained on {len(split.train):,} rows of the 1994 census")
    model = train_target(split.train, schema, seed=seed)
    points, classes = encoded(split.test, schema)
    with torch.no_grad():
        accuracy = float((model(points).argmax(dim=1) == classes).float().mean())
    _note(f"its accuracy on rows it has not seen: {accuracy:.3f}")
    paper = f"{len(PAPER)} veils by the published method (mechanism paper, {epochs} epochs each)"
    _note(f"releasing {paper} and {len(FUNCTIONAL)} with a proved ε (mechanism functional)")
    veils = release_all((*FUNCTIONAL, *PAPER), seed, epochs, workers)
    errors = {which: reconstruction_error(veil, split.test) for which, veil in veils.items()}
    explainers = {each: Explainer(veils[each], model) for each in COMPARED}
    for which in FUNCTIONAL:
        _note(f"functional, {which.noise}: learning to search; once for each veil and model")
        explainers[which].warm_up()
    _note(f"explaining {len(asked)} rows that the model has not seen, with {len(COMPARED)} veils")
    found = {each: _explained(each, explainers[each], asked, errors[each]) for each in COMPARED}
    scores = [score for _, score in found.values()]
    shown = three_to_show(found[SHOWN][0])
    curve = Curve(CURVE, tuple(errors[Release("paper", e)] for e in CURVE), errors[PAPER[0]])
    facts = {
        "training rows": f"{len(split.train):,}",
        "queries": f"{len(asked)}",
        "accuracy of the model": f"{accuracy:.3f}",
        "training epochs of paper": f"{epochs} (published: 300)",
    }
    _note("people drawn from the veil: what would help most of them, and women beside men")
    goal = schema.label.classes[1]
    actions = explainers[SHOWN].summary_of_actions(target=goal, groups=["sex"])
    groups = explainers[SHOWN].fairness(["sex"], goal, progress=False)
    page = demo_page(scores, curve, shown, facts, actions, groups)
    write_whole(folder / "report.html", page.encode())
    schema.save(folder / "adult.schema.json")
    write_whole(folder / "queries.csv", asked.to_csv(index=False).encode())
    for which in COMPARED:
        veils[which].save(folder / which.file)
    save_exported(model, schema, folder / "model.pt2")
    _print_outcome(folder, scores, shown, f"{queries} queries, explained with five veils")


def _note(words: str) -> None:
    """Print a step before it starts, on standard error."""
    notes.print(cell(f"· {words}", "dim"), soft_wrap=True)


def _print_outcome(folder: Path, scores: list[VeilScore], shown: Explanations, title: str) -> None:
    statement = shown.statement
    out.print(score_table(scores, title))
    names = ", ".join(map(shown.schema.shown_name, shown.schema.immutable_names))
    for words in (*LEGEND, f"fixed, as nobody can act on it: {names}"):
        say(words, "dim")
    say("")
    say(f"three of the answers (mechanism {statement.mechanism}, {statement.amount}):")
    for query in range(len(shown)):
        out.print(explanation_table(shown, query))
    for words in shown.meanings:
        say(words, "dim")
    say("")
    say(f"privacy of these answers: {statement.headline}; {statement.level.meaning}")
    say(f"report: {folder / 'report.html'}")
    files = (folder / name for name in ("adult-0.75.veil", "model.pt2", "queries.csv"))
    veil, model, asked = (shlex.quote(str(file)) for file in files)
    explain = f"counterveil explain --veil {veil} --model {model} --queries {asked}"
    say(f"next:   counterveil inspect {veil}")
    say(f"        {explain} --target '>50K'")


def _explained(
    which: Release, explainer: Explainer, asked: pd.DataFrame, error: float
) -> tuple[Explanations, VeilScore]:
    """The answers with one veil, and their line of the table; `error`: of reconstruction.

    Mechanism paper by Algorithm 2 as published, functional as usual.
    """
    how: dict[str, Any] = (
        {"method": "iterations", "keep": "last"} if which.mechanism == "paper" else {}
    )
    started = time.perf_counter()
    result = explainer.explain(asked, progress=False, **how)
    seconds = time.perf_counter() - started
    return result, VeilScore(
        mechanism=which.mechanism,
        noise=which.noise,
        promise="none" if result.statement.level is Level.NONE else "proved",
        reconstruction=error,
        flip_ratio=result.flip_ratio,
        distance=result.mean_distance,
        legal=legal_share(result.frame(), result.schema),
        seconds_per_query=seconds / len(result),
    )


@torch.no_grad()
def reconstruction_error(veil: Veil, frame: pd.DataFrame) -> float:
    """Mean squared error of the veil's autoencoder on `frame`, over all encoded numbers."""
    points = torch.as_tensor(Encoding(veil.schema).encode(frame), dtype=torch.float32)
    return float((veil.autoencoder(points) - points).square().mean())


def legal_share(rows: pd.DataFrame, schema: Schema) -> float:
    """The share of rows that the schema accepts."""
    bad = Encoding(schema).bad_rows(rows)
    return (len(rows) - len(bad)) / len(rows) if len(rows) else 1.0


def three_to_show(result: Explanations) -> Explanations:
    """Three answers towards the second class: few changes, little effort, different features."""
    table = result.summary()
    towards = table[(table.status == "found") & (result.target == 1)]
    best: dict[frozenset[str], int] = {}
    for query in towards.sort_values(["changed_features", "effort"])["query"] - 1:
        best.setdefault(frozenset(column for column, *_ in result.changes_of(query)), query)
    return result.only([*best.values()][:3] or [0])


def release_all(
    wanted: Sequence[Release], seed: int, epochs: int, workers: int
) -> dict[Release, Veil]:
    """Every wanted veil, each made in a process of its own, `workers` at a time."""
    veils: dict[Release, Veil] = {}
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        with progress_bar("releasing", len(wanted)) as tick:
            with _ignoring_interrupts():  # workers inherit it: an interrupt is for this process
                jobs = {pool.submit(_release_one, which, seed, epochs): which for which in wanted}
            for job in as_completed(jobs):
                veils[jobs[job]] = job.result()
                tick(len(veils), "veils")
    except BaseException:  # an error or an interrupt stops all workers at once
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    pool.shutdown()
    return veils


def _release_one(which: Release, seed: int, epochs: int) -> Veil:
    torch.set_num_threads(1)
    return Curator(adult_schema()).release(
        adult_split(seed).train,
        which.epsilon,
        mechanism=which.mechanism,
        seed=seed,
        epochs=epochs if which.mechanism == "paper" else None,
        progress=False,
    )


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Interrupts are ignored inside; only the main thread may set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
