"""Reading tables of bits out of published archives, as they were published."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pandas as pd

from counterveil.encoding import Array

ROWS_AT_A_TIME = 10_000
CLASSES = 100


def table_of(path: Path, member: str, columns: int | None = None) -> Array:
    """A comma-separated file inside an archive as bytes; ValueError says what is wrong with it."""
    try:
        with tarfile.open(path) as archive:
            names = [name for name in archive.getnames() if f"/{name}".endswith(f"/{member}")]
            content = archive.extractfile(names[0]) if names else None
            if content is None:
                raise ValueError(f"{path} has no file {member}; is it the published archive?")
            parts = pd.read_csv(content, header=None, dtype=np.float32, chunksize=ROWS_AT_A_TIME)
            table = np.concatenate([_bytes(part.to_numpy(), path, member) for part in parts])
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} is no archive that can be read ({error})") from None
    if columns is not None and table.shape[1] != columns:
        raise ValueError(f"{path}: {member} has {table.shape[1]} columns, not {columns}")
    return table


def _bytes(numbers: Array, path: Path, member: str) -> Array:
    whole = numbers.astype(np.uint8)
    if not np.array_equal(whole, numbers):
        raise ValueError(f"{path}: {member} has other values than whole numbers from 0 to 255")
    return whole


def check_bits(path: Path, bits: Array, classes: Array) -> None:
    """That there are bits, and for each row a class from 1 to 100."""
    if len(bits) != len(classes):
        raise ValueError(f"{path}: {len(bits)} rows and {len(classes)} classes")
    if bits.max() > 1:
        raise ValueError(f"{path}: expected rows of 0 and 1")
    if not 1 <= classes.min() <= classes.max() <= CLASSES:
        raise ValueError(f"{path}: expected classes from 1 to {CLASSES}")
