"""The folder that a studio works in: tables, schemas, veils and reports, and nothing outside."""

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterveil.errors import DataError, RequestError
from counterveil.files import check_table_file
from counterveil.hints import either
from counterveil.tables import PARQUET, csv_columns

TABLES = (".csv", ".tsv", *PARQUET)
MODELS = (".pt2", ".onnx", ".skops", ".ubj")
VEIL = (".veil",)
REPORTS = (".html", ".json", ".csv")
LARGEST_SCHEMA = 8 << 20  # bytes
_NUMBERS = re.compile(r"(audit|attack)-\d{4}-\d{2}-\d{2}-\d{6}\.")
_NAME = re.compile(r"[^\W_][\w .()+-]{0,99}")


class Folder:
    """Files directly inside `path`; names that start with a dot are not seen."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_dir():
            raise RequestError(f"--folder {path}: no such folder; give the one with the tables")

    def listing(self) -> dict[str, list[dict[str, Any]]]:
        """Name, size in bytes and time (UTC) of the files of each kind, the newest first."""
        return {
            "tables": [each for each in self._files(TABLES) if not is_report(each["name"])],
            "schemas": [each for each in self._files((".json",)) if self._is_schema(each["name"])],
            "veils": self._files(VEIL),
            "models": self._files(MODELS),
            "reports": [each for each in self._files(REPORTS) if is_report(each["name"])],
        }

    def file(self, name: str, endings: Sequence[str]) -> Path:
        """The file of this name; a RequestError where it is none of the folder's."""
        if name not in {path.name for path in self._paths(endings)}:
            raise RequestError(
                f"no such file in the folder; its name must end in {either(endings)}"
            )
        return self.path / name

    def new(self, name: str, ending: str) -> Path:
        """Where a file of this name is written; `ending` is added where it is missing."""
        full = name if name.endswith(ending) else name + ending
        if not _NAME.fullmatch(full):
            raise RequestError(
                "a file name has at most 100 letters, digits, spaces, dots and dashes, and begins "
                "with a letter or digit"
            )
        path = self.path / full
        if path.is_symlink():
            raise RequestError("there is a link of this name in the folder; choose another name")
        return path

    def _paths(self, endings: Collection[str]) -> Iterator[Path]:
        for path in self.path.iterdir():
            inside = path.resolve().parent == self.path  # a link may lead out
            right = path.name.lower().endswith(tuple(endings)) and not path.name.startswith(".")
            if inside and right and path.is_file():
                yield path

    def _files(self, endings: Collection[str]) -> list[dict[str, Any]]:
        found = [(path.stat().st_mtime, path) for path in self._paths(endings)]
        return [
            {
                "name": path.name,
                "bytes": path.stat().st_size,
                "changed": datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds"),
            }
            for time, path in sorted(found, reverse=True)
        ]

    def _is_schema(self, name: str) -> bool:
        path = self.path / name
        if path.stat().st_size > LARGEST_SCHEMA:
            return False
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, OSError, RecursionError):
            return False
        return isinstance(content, dict) and {"label", "features"} <= content.keys()


def is_report(name: str) -> bool:
    """Whether a file is a report that counterveil wrote: a page, or the numbers beside one."""
    return name.endswith(".html") or bool(_NUMBERS.match(name))


def columns_of(path: Path) -> tuple[str, ...]:
    """The names of the columns of a table; no row is read."""
    if path.suffix.lower() not in PARQUET:
        return csv_columns(path)
    check_table_file(path)
    try:
        return tuple(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        raise DataError(f"{path} is damaged or not of the kind its name says") from None
