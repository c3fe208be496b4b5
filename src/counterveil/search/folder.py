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
