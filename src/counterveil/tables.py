"""Tables in: CSV, Parquet, pandas, Arrow and every frame narwhals reads become one pandas frame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from counterveil.errors import DataError
from counterveil.schema import Binary, Categorical, Schema


def read_table(path: str | os.PathLike[str], schema: Schema | None = None) -> pd.DataFrame:
    """Read a CSV or Parquet file. With a schema, text categories stay text ("007" is not 7)."""
    source = Path(path)
    if not source.exists():
        raise DataError(f"no table at {source}; check the path")
    try:
        if source.suffix.lower() in {".parquet", ".pq"}:
            return pd.read_parquet(source)
        if source.suffix.lower() in {".csv", ".tsv", ".txt"}:
            return _read_csv(source, schema)
    except UnicodeDecodeError:
        raise DataError(f"{source} is not UTF-8 text; save it as UTF-8 CSV or Parquet") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{source} is empty; it needs a header line and rows") from None
    except (pd.errors.ParserError, OSError, ValueError):
        raise DataError(f"{source} is damaged or not of the kind its name says") from None
    raise DataError(f"{source}: give a .csv or .parquet file")


def _read_csv(source: Path, schema: Schema | None) -> pd.DataFrame:
    separator = "\t" if source.suffix.lower() == ".tsv" else ","
    # pandas renames repeated columns silently (a, a.1): read the header as a plain row first.
    header = pd.read_csv(source, sep=separator, header=None, nrows=1, dtype=str).iloc[0].tolist()
    _refuse_repeats([str(name) for name in header])
    as_text = _text_columns(schema) if schema is not None else set()
    return pd.read_csv(
        source,
        sep=separator,
        dtype={str(name): str for name in header if name in as_text},
        keep_default_na=False,
        na_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL"],
        low_memory=False,
    )


def _text_columns(schema: Schema) -> set[str]:
    text: set[str] = set()
    for feature in schema.features:
        values: tuple[Any, ...] = ()
        if isinstance(feature, Categorical):
            values = feature.categories
        elif isinstance(feature, Binary):
            values = feature.values
        if any(isinstance(value, str) for value in values):
            text.add(feature.name)
    if any(isinstance(value, str) for value in schema.label.classes):
        text.add(schema.label.name)
    return text


def as_frame(table: Any, schema: Schema | None = None) -> pd.DataFrame:
    """Any frame, or with a schema a plain array in column order, as pandas with unique columns."""
    if isinstance(table, pd.DataFrame):
        frame = table
    elif isinstance(table, np.ndarray) and schema is not None:
        frame = _from_array(table, schema)
    elif isinstance(table, (list, dict)):
        frame = pd.DataFrame(table if isinstance(table, list) else [table])
    else:
        try:
            frame = nw.from_native(table, eager_only=True).to_pandas()
        except TypeError:
            raise DataError(
                f"expected a table (pandas, Arrow, polars or an array), got {type(table).__name__}"
            ) from None
    _refuse_repeats([str(name) for name in frame.columns])
    return frame


def _from_array(array: np.ndarray[Any, Any], schema: Schema) -> pd.DataFrame:
    flat = array.reshape(len(array), -1) if array.ndim > 2 else np.atleast_2d(array)
    if flat.shape[1] != len(schema.columns):
        raise DataError(
            f"an array needs {len(schema.columns)} columns in the schema's order, "
            f"got {flat.shape[1]}"
        )
    return pd.DataFrame(flat, columns=list(schema.columns))


def _refuse_repeats(names: list[str]) -> None:
    repeated = (
        sorted({name for name in names if names.count(name) > 1})
        if (len(set(names)) < len(names))
        else []
    )
    if repeated:
        raise DataError(f"column {repeated[0]!r} appears twice in the table; rename or drop one")
