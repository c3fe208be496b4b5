"""Stored results: the rows of an experiment, and what each of them was measured by.

`results/<experiment>.parquet` is a table. Beside what was measured a row says the `command` that
made it, its `commit`, and the `fingerprint` of what the code did (`counterveil_lab.fingerprints`).
Rows are saved as they come, so that a run that was cut short goes on where it stopped. A number
that is not there (NaN, infinity) is null. A column that holds words beside numbers is stored as
JSON; `pictures`, if there are any, are arrays as `numpy.savez_compressed` writes them.
"""

import io
import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from counterveil.encoding import Array
from counterveil.errors import InputError
from counterveil.files import write_whole
from counterveil_lab.fingerprints import fingerprint

Row = dict[str, Any]
REPETITIONS = ("seed", "draw")  # the entries of a case that a mean runs over
PICTURES = "pictures"
AS_JSON = {b"as": b"json"}


class Results:
    """The rows of one experiment, on disk after every one of them.

    A row that the present code has measured is never measured again. Rows of earlier code are
    replaced case by case, and only with `overwrite`; what was there before stays in a backup. A
    mean over seeds never mixes two versions of the code: the first new seed of a case replaces what
    earlier code measured with other seeds.
    """

    def __init__(
        self, folder: Path, experiment: str, command: str, *, overwrite: bool = False
    ) -> None:
        self._path = folder / f"{experiment}.parquet"
        code = fingerprint(experiment)
        self._made_by = {"command": command, "commit": current_commit(), "fingerprint": code}
        self._overwrite = overwrite
        self._backed_up = False
        self.rows: list[Row] = read(self._path) if self._path.exists() else []

    def has(self, **case: Any) -> bool:
        """Whether the present code has measured a row with these values."""
        return any(is_of(row, case) and self._is_present(row) for row in self.rows)

    def check_nothing_is_lost(self, cases: Iterable[Row]) -> None:
        """Refuse cases whose rows would replace stored ones, unless that was allowed."""
        wanted = {repr(each): each for each in map(_without_repetitions, cases)}.values()
        old = [row for row in self.rows if not self._is_present(row)]
        lost = [row for row in old if any(is_of(row, case) for case in wanted)]
        if lost and not self._overwrite:
            raise InputError(
                f"{self._path} has {len(lost)} rows of these cases, measured by earlier code; "
                "with --overwrite they are measured anew, and a backup is kept"
            )

    def add(self, *rows: Row, case: Row | None = None) -> None:
        """Keep rows, all of them or, if this is cut short, none; they replace those of `case`."""
        kept = [row for row in self.rows if case is None or not self._replaced(row, case)]
        if len(kept) < len(self.rows):
            self._drop(len(self.rows) - len(kept))
        self.rows = kept + [{**_stored(row), **self._made_by} for row in rows]
        write(self._path, self.rows)

    def _drop(self, lost: int) -> None:
        """Keep a backup of the file before rows of it go."""
        if not self._overwrite:
            raise InputError(
                f"{self._path} has {lost} rows that would be lost; with --overwrite they are "
                "replaced, and a backup is kept"
            )
        if not self._backed_up:
            write_whole(_backup_of(self._path), self._path.read_bytes())
            self._backed_up = True

    def _is_present(self, row: Row) -> bool:
        return bool(row.get("fingerprint") == self._made_by["fingerprint"])

    def _replaced(self, row: Row, case: Row) -> bool:
        """Whether new rows of a case take the place of this one."""
        whole = case if self._is_present(row) else _without_repetitions(case)
        return is_of(row, whole)


def begin_anew(folder: Path, experiment: str, *, overwrite: bool) -> None:
    """Put stored rows of an experiment aside, where that was allowed."""
    path = folder / f"{experiment}.parquet"
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there; with --overwrite it is measured anew, with a backup")
    if path.exists():
        path.rename(_backup_of(path))


def _backup_of(path: Path) -> Path:
    """Where a file of results is kept before its rows are replaced."""
    backup = path.parent / "backup" / f"{path.stem} {datetime.now(UTC):%Y-%m-%dT%H%M%S}.parquet"
    backup.parent.mkdir(exist_ok=True)
    return backup


def _stored(row: Row) -> Row:
    """A row as it is stored: pictures packed, no NaN and no infinity."""
    pictures = (
        {PICTURES: packed(row[PICTURES]) if row[PICTURES] else None} if PICTURES in row else {}
    )
    return {**plain({name: row[name] for name in row if name != PICTURES}), **pictures}


def _without_repetitions(case: Row) -> Row:
    return {name: value for name, value in case.items() if name not in REPETITIONS}


def is_of(row: Row, case: Row) -> bool:
    """Whether a row has the values of a case."""
    return all(row.get(name) == value for name, value in case.items())


def stored_rows(folder: Path, experiment: str) -> list[Row]:
    """The rows of an experiment as stored; none where there is no file."""
    path = folder / f"{experiment}.parquet"
    return read(path) if path.exists() else []


def write(path: Path, rows: Sequence[Row]) -> None:
    """Store rows; a row has a null where it lacks a column."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    fields = [
        pa.field(name, column.type, metadata=AS_JSON if as_json else None)
        for name, (column, as_json) in columns.items()
    ]
    table = pa.table([column for column, _ in columns.values()], schema=pa.schema(fields))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getvalue())


def _column(values: list[Any]) -> tuple[Any, bool]:
    """A column, and whether its values are JSON because they are not all of one kind."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds & {list, tuple, dict} and (len(kinds) < 2 or kinds <= {int, float}):
        return pa.array(values), False
    return pa.array([None if value is None else json.dumps(value) for value in values]), True


def read(path: Path) -> list[Row]:
    table = pq.read_table(path)
    if not {"command", "commit"} <= {*table.column_names}:
        raise InputError(f"{path} is no file of results: it has no columns command and commit")
    rows: list[Row] = table.to_pylist()
    for field in table.schema:
        if (field.metadata or {}).get(b"as") == b"json":
            for row in rows:
                value = row[field.name]
                row[field.name] = None if value is None else json.loads(value)
    return rows


def rows_of_json(path: Path) -> tuple[str, list[Row]]:
    """Name and rows of an experiment that another command wrote as JSON, such as the audit."""
    try:
        content = json.loads(path.read_text("utf-8"))
        made_by = {name: str(content[name]) for name in ("command", "commit")}
        rows = [{**plain(row), "fingerprint": None, **made_by} for row in content["rows"]]
        return str(content["experiment"]), rows
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no file of results as JSON") from error


def packed(pictures: Mapping[str, Array]) -> bytes:
    """Pictures by name as what the entry `pictures` of a row holds."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**pictures}
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def pictures_of(rows: Iterable[Row]) -> dict[str, Array]:
    """The pictures of all rows by name."""
    found: dict[str, Array] = {}
    for row in rows:
        if row.get(PICTURES):
            with np.load(io.BytesIO(row[PICTURES])) as file:
                found |= dict(file)
    return found


def earlier(rows: Sequence[Row], experiment: str) -> str:
    """A sentence about rows that the present code did not measure; "" where it measured all."""
    present = fingerprint(experiment)
    old = [row for row in rows if present is None or row.get("fingerprint") != present]
    commits = list(dict.fromkeys(str(row.get("commit")) for row in old))
    if not commits:
        return ""
    named = f"commit{'s' if len(commits) > 1 else ''} {', '.join(f'`{it}`' for it in commits)}"
    if present is None:
        return f"Measured at {named}, which may be an earlier version of the code."
    which, where = "These rows", ""
    if len(old) < len(rows):
        which, where = "Some of these rows", _where(old, rows)
    return f"{which} were measured by an earlier version of the code ({named}){where}."


def _where(old: Sequence[Row], rows: Sequence[Row]) -> str:
    """Such as ": mnist, adult `paper`": datasets of old rows, with parts where others are new."""
    if not all(row.get("dataset") for row in rows):
        return ""
    names = []
    for dataset in dict.fromkeys(row["dataset"] for row in old):
        here = [row for row in old if row["dataset"] == dataset]
        parts = dict.fromkeys(row.get("part") or row.get("mechanism") for row in here)
        is_whole = len(here) == sum(row["dataset"] == dataset for row in rows)
        words = () if is_whole else [f"`{part}`" for part in parts if part]
        names.append(" ".join([dataset, *words]))
    return f": {', '.join(names)}"


def plain(content: Any) -> Any:
    """The content with None in the place of NaN and infinity, which JSON does not know."""
    if isinstance(content, dict):
        return {name: plain(value) for name, value in content.items()}
    if isinstance(content, list):
        return [plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def current_commit() -> str:
    """The commit of the working tree, with a + where it was changed since.

    Where there is no repository (a copy on another machine) COUNTERVEIL_COMMIT may say it.
    """
    if "COUNTERVEIL_COMMIT" in os.environ:
        return os.environ["COUNTERVEIL_COMMIT"]
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return run.stdout.strip()
