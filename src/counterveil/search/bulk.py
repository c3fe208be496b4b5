"""Explaining tables of any size: Parquet files in, Parquet files out, part by part.

A part is some consecutive rows of the queries, and its answers are one file, which appears whole or
not at all. A run that was cut off goes on where it was: parts that are there are not explained
again. `run.json` in the folder says what was asked of whom, and another question is refused there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from counterveil.cluster import Cluster, cluster_of
from counterveil.errors import DataError, InternalError, RequestError
from counterveil.models import ModelFile
from counterveil.parts import Fragments, parquet_files
from counterveil.schema import Category
from counterveil.search.choices import Choices, FileChoices, rules_in
from counterveil.search.folder import Folder
from counterveil.search.results import wording
from counterveil.search.results.answers import Status
from counterveil.search.results.explanations import free_name
from counterveil.search.results.wording import DecidedBy
from counterveil.tables import PARQUET
from counterveil.terminal import progress_bar
from counterveil.veil import Veil

if TYPE_CHECKING:
    from counterveil.search.explainer import Explainer

PART_ROWS = 50_000
FEW = 100  # rows by whose answers a model is known again
RUN, SUMMARY = "run.json", "summary.json"


@dataclass(frozen=True)
class Part:
    """Some rows to explain. `number` and `first` count from 0: of the part, of its first row."""

    number: int
    first: int
    rows: Fragments

    @property
    def name(self) -> str:
        """Of the file with its answers."""
        return f"part-{self.number:08}.parquet"


@dataclass(frozen=True)
class Question:
    """What is asked about every part, and where its answers go: all that a worker has to know.

    `explainer`: makes one, once a worker. `asked`: the keywords of `Explainer.explain`. `copied`:
    columns of the queries that are copied beside their answers. `columns`: all that are read.
    `own_columns`: what `status` and `query` are called in the files.
    """

    explainer: Callable[[], Explainer]
    asked: dict[str, Any]
    copied: tuple[str, ...]
    folder: Folder
    columns: tuple[str, ...]
    own_columns: tuple[str, str]

    def __call__(self) -> Callable[[Part], dict[str, int]]:
        explainer = self.explainer()
        return lambda part: self.answer(explainer, part)

    def answer(self, explainer: Explainer, part: Part) -> dict[str, int]:
        """Explain the rows of a part and write the file; how many queries have which status."""
        try:
            batches = part.rows.batches(self.columns, part.rows.rows)
            frame = pa.Table.from_batches(batches).to_pandas()
            result = explainer.explain(frame, progress=False, **self.asked)
        except (DataError, pa.ArrowException) as error:
            raise DataError(
                f"in the rows from number {part.first + 1} on: {error}; what is written stays, and "
                "the same command goes on there"
            ) from None
        table = result.table(first=part.first)
        kept = frame[list(self.copied)].loc[frame.index.repeat(result.k)].reset_index(drop=True)
        kept = kept.add_prefix("copied_")
        content = wording.file_content(pd.concat([table, kept], axis=1), part.name, escape=False)
        self.folder.write(part.name, content)
        return {status.value: result.count(status) for status in Status}


@dataclass(frozen=True)
class Summary:
    """What became of a run: how many queries have which status, and how many files there are."""

    counts: dict[str, int]
    parts: int
    explained_now: int  # queries; the others were there from a run before
    folder: str

    @property
    def rows(self) -> int:
        """How many queries there are."""
        return sum(self.counts.values())

    @property
    def headline(self) -> str:
        """The same in one line."""
        told = ", ".join(f"{count:,} {status}" for status, count in self.counts.items() if count)
        return f"{self.rows:,} queries in {self.parts:,} files: {told}"


def explain_files(
    explainer: Explainer, queries: str, out: str, target: Category | None, choices: FileChoices
) -> Summary:
    """Explain all rows of Parquet files: `Explainer.explain_files`."""
    cluster = cluster_of(choices.pop("engine", "here"))
    part_rows = choices.pop("part_rows", PART_ROWS)
    progress, copied = choices.pop("progress", True), tuple(choices.pop("copied", ()))
    asked: dict[str, Any] = {"k": 1, "target": target, **choices}
    of_search: Any = {name: asked[name] for name in asked if name in Choices.__annotations__}
    explainer.options(rules_in(of_search, asked.get("rules"))[1])  # wrong ones are refused here
    schema = explainer.veil.schema
    columns = tuple(dict.fromkeys((*copied, *schema.columns)))
    files = query_files(queries, columns)
    explainer._learnt.shows_progress = progress
    keywords, model = explainer._keywords, explainer._keywords["model"]
    if isinstance(model, ModelFile):
        model = model.packed()
    made: Callable[[], Explainer] = lambda: explainer  # noqa: E731
    if cluster is not None:
        made = Recipe(explainer.veil.to_bytes(), {**keywords, "model": model})
    own = free_name("status", schema.columns), free_name("query", schema.columns)
    question = Question(made, asked, copied, Folder(out), columns, own)
    about = {
        "veil": explainer.veil.digest,
        "model": model.digest
        if isinstance(model, ModelFile)
        else _answers_to_few(explainer, files),
        "asked": {**asked, "copied": copied, "guidance": explainer.guidance},
        "queries": queries,
    }
    return explain_parts(
        question, files, about, cluster=cluster, part_rows=part_rows, show=progress
    )


@dataclass(frozen=True)
class Recipe:
    """An Explainer as it is sent to a worker: the veil's file and the keywords."""

    veil: bytes
    keywords: dict[str, Any]

    def __call__(self) -> Explainer:
        """The same Explainer there."""
        from counterveil.search.explainer import Explainer

        return Explainer(Veil.from_bytes(self.veil), **self.keywords)


def explain_parts(
    question: Question,
    files: Fragments,
    about: dict[str, Any],
    *,
    cluster: Cluster | None,
    part_rows: int,
    show: bool,
) -> Summary:
    """Explain all rows of Parquet files, but for parts that are there already.

    `about`: what a run is known by, for `run.json`. `show`: a bar.
    """
    if type(part_rows) is not int or not 1 <= part_rows <= 1_000_000:
        raise RequestError("part_rows must be a whole number from 1 to 1000000")
    cut = files.parts(part_rows)
    starts = [0, *accumulate(each.rows for each in cut)]
    parts = [Part(number, starts[number], each) for number, each in enumerate(cut)]
    folder, k = question.folder, question.asked["k"]
    _begin(folder, {**about, "rows": files.rows, "part_rows": part_rows})
    left = [part for part in parts if folder.rows_of(part.name) != k * part.rows.rows]
    todo = sum(part.rows.rows for part in left)
    done = files.rows - todo
    with progress_bar("explaining", files.rows, show=show) as tick:
        tick(done)
        for number in _explained(question, left, cluster):
            done += left[number].rows.rows
            tick(done)
    return _end(question, parts, todo)


def query_files(place: str, columns: Sequence[str]) -> Fragments:
    """The Parquet files at `place`, with rows and these columns."""
    if Path(place).suffix.lower() not in {*PARQUET, ""} and not Path(place).is_dir():
        raise RequestError("answers in parts are for Parquet files: give some, or --out a file")
    files = parquet_files(place)
    if not files.rows:
        raise DataError("the table is empty; it needs at least one row")
    for name in columns:
        if name not in files.columns:
            raise DataError(f"column {name!r} is missing from the table")
    return files


def _answers_to_few(explainer: Explainer, files: Fragments) -> str:
    """A name of the model: what it says of the first rows, or that nobody asks it."""
    if explainer.decided_by is DecidedBy.STAND_IN:
        return explainer.decided_by.value
    few = next(files.batches(explainer.veil.schema.columns, FEW)).to_pandas()
    said = explainer.decide(few).round(3) + 0.0
    return hashlib.sha256(said.tobytes()).hexdigest()


def _explained(question: Question, parts: Sequence[Part], cluster: Cluster | None) -> Iterator[int]:
    """The number of every part among these, when its answers are written."""
    if cluster is not None:
        yield from (number for number, _ in cluster.each(question, parts))
    elif parts:
        work = question()
        for number, part in enumerate(parts):
            work(part)
            yield number


def _begin(folder: Folder, about: dict[str, Any]) -> None:
    """Write down what is asked, or see that it is what was asked before."""
    about = json.loads(json.dumps({"counterveil": version("counterveil"), **about}, default=repr))
    found = folder.read(RUN)
    if found is None:
        folder.write(RUN, json.dumps(about, ensure_ascii=False, indent=2).encode())
        return
    try:
        before = json.loads(found)
    except ValueError:
        before = {}
    differs = sorted(name for name in {*about, *before} if about.get(name) != before.get(name))
    if differs:
        raise RequestError(
            f"{folder.place} holds the answers of another run (other {', '.join(differs)}); give "
            "another folder, or empty this one"
        )


def _end(question: Question, parts: Sequence[Part], explained: int) -> Summary:
    """Look that no row is missing or double, and count."""
    folder, k = question.folder, question.asked["k"]
    counts = dict.fromkeys((status.value for status in Status), 0)
    for part in parts:
        status, queries = folder.columns(part.name, question.own_columns)
        numbers = np.arange(part.first + 1, part.first + part.rows.rows + 1).repeat(k)
        if not np.array_equal(queries, numbers):
            raise InternalError(f"{part.name} does not hold the answers to its queries, in order")
        for found, count in zip(*np.unique(status[::k], return_counts=True), strict=True):
            counts[str(found)] += int(count)
    summary = Summary(counts, len(parts), explained, folder.place)
    told = {"rows": summary.rows, "files": summary.parts, "queries": summary.counts}
    folder.write(SUMMARY, json.dumps(told, indent=2).encode())
    return summary
