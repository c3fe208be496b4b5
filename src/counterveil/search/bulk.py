"""Explaining tables of any size: Parquet files in, Parquet files out, part by part.

A part is some consecutive rows of the queries. Its answers are one file, which appears whole or not
at all. A run that was cut off continues: parts whose files exist are not explained again.
`run.json` in the folder tells what was asked, with which veil and model; a run with another
question is refused there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from counterveil.cluster import Cluster, Engine, cluster_of
from counterveil.errors import DataError, InternalError, RequestError
from counterveil.files import write_whole
from counterveil.models import ModelFile
from counterveil.parts import Fragments, is_address, parquet_files
from counterveil.schema import Schema
from counterveil.search.constraints.rules import Rules
from counterveil.search.options import rules_in
from counterveil.search.results.refusals import Status
from counterveil.search.results.tables import free_name
from counterveil.search.results.wording import DecidedBy
from counterveil.tables import PARQUET, file_content
from counterveil.terminal import progress_bar
from counterveil.veil import Veil

PART_ROWS = 50_000
FEW = 100  # rows by whose answers a model is known again
RUN, SUMMARY = "run.json", "summary.json"
NAMED = ("target", "rules", "immutable", "copied")  # keywords of a question besides its options
AnExplainer = Any  # of class `Explainer`, whose module imports this one


class Folder:
    """A folder, or an address such as s3://bucket/answers."""

    def __init__(self, place: str) -> None:
        self.place = place

    @cached_property
    def _store(self) -> pyarrow.fs.FileSystem:
        """The files of the folder, by their names."""
        if not is_address(self.place):
            here = str(Path(self.place).absolute())
            return pyarrow.fs.SubTreeFileSystem(here, pyarrow.fs.LocalFileSystem())
        store, folder = pyarrow.fs.FileSystem.from_uri(self.place)
        return pyarrow.fs.SubTreeFileSystem(folder, store)

    def write(self, name: str, content: bytes) -> None:
        """Put a file there, whole: readers see the old one or the new one."""
        if not is_address(self.place):
            write_whole(Path(self.place) / name, content)
            return
        with self._store.open_output_stream(name) as stream:
            stream.write(content)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        try:
            with self._store.open_input_stream(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def columns(self, name: str, columns: Sequence[str]) -> list[Any]:
        """The columns of these names of a Parquet file, as arrays."""
        table = pq.read_table(name, columns=list(columns), filesystem=self._store)
        return [table.column(each).to_numpy() for each in columns]

    def rows_of(self, name: str) -> int | None:
        """How many rows a Parquet file has; None if there is no whole file of this name."""
        try:
            return int(pq.read_metadata(name, filesystem=self._store).num_rows)
        except (OSError, pa.ArrowException):
            return None


class Part(NamedTuple):
    """Rows to explain; `name`: of the file with their answers, `first`: of the rows, from 0."""

    name: str
    first: int
    rows: Fragments


def _worker(
    explainer: Callable[[], AnExplainer],
    asked: dict[str, Any],
    columns: Sequence[str],
    folder: Folder,
) -> Callable[[Part], None]:
    """A function that explains the rows of a part and writes its file; each worker makes one.

    `explainer` makes an Explainer. `asked`: the keywords of `Explainer.explain`. `columns`:
    all columns that are read.
    """
    explains = explainer()

    def answer(part: Part) -> None:
        try:
            batches = part.rows.batches(columns, part.rows.rows)
            frame = pa.Table.from_batches(batches).to_pandas()
            result = explains.explain(frame, progress=False, **asked)
        except (DataError, pa.ArrowException) as error:
            raise DataError(
                f"in the rows from number {part.first + 1} on: {error}; files that are written "
                "stay, and the same command continues there"
            ) from None
        table = result.table(first=part.first, whole=True)
        folder.write(part.name, file_content(table, part.name, escape=False))

    return answer


def _same_explainer(kind: type[Any], veil: bytes, keywords: dict[str, Any]) -> AnExplainer:
    """An Explainer as a worker makes it: of its class, the veil's file and the keywords."""
    return kind(Veil.from_bytes(veil), **keywords)


@dataclass(frozen=True)
class Summary:
    """What became of a run: how many queries have which status, and how many files there are.

    `explained_now`: how many queries this run explained; the others were there before.
    """

    counts: dict[str, int]
    parts: int
    explained_now: int
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
    explainer: AnExplainer,
    queries: str,
    out: str,
    asked: dict[str, Any],
    engine: Engine | Cluster,
    part_rows: int,
    progress: bool,
) -> Summary:
    """Explain all rows of Parquet files, except for parts whose files exist.

    This is `Explainer.explain_files`. `asked`: the keywords of `Explainer.explain`.
    """
    cluster, copied = cluster_of(engine), asked["copied"]
    of_search = {name: each for name, each in asked.items() if name not in NAMED}
    _, search = rules_in(of_search, asked["rules"])
    k = explainer.options(search).k  # wrong ones are refused here
    veil, model = explainer.veil, explainer._keywords["model"]
    files = _query_files(queries, (*(copied or ()), *veil.schema.columns))
    if copied is None:
        copied = {*files.columns} - {*veil.schema.columns, veil.schema.label.name}
    asked["copied"] = copied = tuple(copied)
    columns = tuple(dict.fromkeys((*copied, *veil.schema.columns)))
    if type(part_rows) is not int or not 1 <= part_rows <= 1_000_000:
        raise RequestError("part_rows must be a whole number from 1 to 1000000")
    explainer._components.shows_progress = progress
    model = model.packed() if isinstance(model, ModelFile) else model
    made: Callable[[], AnExplainer] = lambda: explainer  # noqa: E731
    if cluster is not None:
        keywords = {**explainer._keywords, "model": model}
        made = partial(_same_explainer, type(explainer), veil.to_bytes(), keywords)
    folder = Folder(out)
    work = partial(_worker, made, asked, columns, folder)
    is_file = isinstance(model, ModelFile)
    about = {
        "veil": veil.digest,
        "model": model.digest if is_file else _answers_to_few(explainer, files),
        "decided by": explainer.decided_by.value,
        "promise": explainer.statement.headline,
        "asked": {**asked, "guidance": explainer.guidance},
        "queries": queries,
        "rows": files.rows,
        "part_rows": part_rows,
    }
    _begin(folder, about, veil.schema)
    cut = files.parts(part_rows)
    starts = [0, *accumulate(each.rows for each in cut)]
    parts = [
        Part(f"part-{number:08}.parquet", start, rows)
        for number, (start, rows) in enumerate(zip(starts, cut, strict=False))
    ]
    left = [part for part in parts if folder.rows_of(part.name) != k * part.rows.rows]
    explained = sum(part.rows.rows for part in left)
    done = files.rows - explained
    with progress_bar("explaining", files.rows, show=progress) as tick:
        tick(done)
        ready = cluster.each(work, left) if cluster else enumerate(map(work(), left))
        for number, _ in ready:
            done += left[number].rows.rows
            tick(done)
    names = [free_name(name, veil.schema.columns) for name in ("status", "query")]
    return _end(folder, parts, k, names, explained)


def _query_files(place: str, columns: Sequence[str]) -> Fragments:
    """The Parquet files at `place`, with rows and these columns."""
    if Path(place).suffix.lower() not in {*PARQUET, ""} and not Path(place).is_dir():
        raise RequestError("answers in parts are for Parquet files; for others, --out is a file")
    files = parquet_files(place)
    if not files.rows:
        raise DataError("the table is empty; it needs at least one row")
    for name in columns:
        if name not in files.columns:
            raise DataError(f"column {name!r} is missing from the table")
    return files


def _answers_to_few(explainer: AnExplainer, files: Fragments) -> str:
    """A name of the model: a digest of what it says of the first rows, if it is consulted."""
    if explainer.decided_by is DecidedBy.STAND_IN:
        return DecidedBy.STAND_IN.value
    few = next(files.batches(explainer.veil.schema.columns, FEW)).to_pandas()
    said = explainer.decide(few).round(3) + 0.0
    return hashlib.sha256(said.tobytes()).hexdigest()


def _begin(folder: Folder, about: dict[str, Any], schema: Schema) -> None:
    """Write down what is asked, or check that the same was asked before."""

    def told(each: Any) -> Any:
        return each.to_dict(schema) if isinstance(each, Rules) else repr(each)

    about = json.loads(json.dumps({"counterveil": version("counterveil"), **about}, default=told))
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


def _end(
    folder: Folder, parts: Sequence[Part], k: int, names: Sequence[str], explained: int
) -> Summary:
    """Check that every query has its `k` answers once, and count; `names`: of status and query."""
    counts = dict.fromkeys((status.value for status in Status), 0)
    for part in parts:
        status, queries = folder.columns(part.name, names)
        numbers = np.arange(part.first + 1, part.first + part.rows.rows + 1).repeat(k)
        if not np.array_equal(queries, numbers):
            raise InternalError(f"{part.name} does not hold the answers to its queries, in order")
        for found, count in zip(*np.unique(status[::k], return_counts=True), strict=True):
            counts[str(found)] += int(count)
    summary = Summary(counts, len(parts), explained, folder.place)
    told = {"rows": summary.rows, "files": summary.parts, "queries": summary.counts}
    folder.write(SUMMARY, json.dumps(told, indent=2).encode())
    return summary
