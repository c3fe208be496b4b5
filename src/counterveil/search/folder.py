"""Where the answers of a run over files go, and are read again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from counterveil.files import write_whole
from counterveil.parts import is_address


class Folder:
    """Where answers go: a folder, or an address such as s3://bucket/answers."""

    def __init__(self, place: str) -> None:
        self.place = place

    @cached_property
    def _store(self) -> tuple[pyarrow.fs.FileSystem, str]:
        if is_address(self.place):
            return pyarrow.fs.FileSystem.from_uri(self.place)
        return pyarrow.fs.LocalFileSystem(), str(Path(self.place).absolute())

    def write(self, name: str, content: bytes) -> None:
        """Put a file there, whole: readers see the old one or the new one."""
        if not is_address(self.place):
            write_whole(Path(self.place) / name, content)
            return
        store, folder = self._store
        with store.open_output_stream(f"{folder}/{name}") as stream:
            stream.write(content)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        store, folder = self._store
        try:
            with store.open_input_stream(f"{folder}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def columns(self, name: str, columns: Sequence[str]) -> list[Any]:
        """The columns of these names of a Parquet file, as arrays."""
        store, folder = self._store
        with store.open_input_file(f"{folder}/{name}") as stream:
            table = pq.read_table(stream, columns=list(columns))
        return [table.column(each).to_numpy() for each in columns]

    def rows_of(self, name: str) -> int | None:
        """How many rows a Parquet file has; None where there is no whole one."""
        store, folder = self._store
        try:
            with store.open_input_file(f"{folder}/{name}") as stream:
                return int(pq.read_metadata(stream).num_rows)
        except (OSError, pa.ArrowException):
            return None
