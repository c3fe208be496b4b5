"""Stored rows as a table like the paper's: methods down, datasets across, in Markdown.

Means over seeds; a dagger marks means over fewer queries than usual, and what the paper prints
stands below, for the datasets that are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from counterveil.files import write_whole
from counterveil_lab.paper_values import DATASETS
from counterveil_lab.results import Row

ORDER = (*DATASETS, "purchase-substitute", "texas-substitute", "digits")
FULL = 500  # queries a seed


def write_table(
    rows: Sequence[Row],
    path: Path,
    columns: Sequence[str],
    printed: Mapping[str, Sequence[str]],
    *,
    full: int = FULL,
) -> None:
    """Write the means of `columns`, one behind the other with a slash, as Markdown."""
    if rows:
        write_whole(path, (markdown(rows, columns, printed, full) + "\n").encode())


def markdown(
    rows: Sequence[Row],
    columns: Sequence[str],
    printed: Mapping[str, Sequence[str]],
    full: int = FULL,
) -> str:
    """The table; `printed` maps a method to its numbers in the order of the paper's datasets."""
    table = pd.DataFrame(rows)
    table["name"] = [name_of(row) for row in rows]
    for column in columns:
        table[column] = pd.to_numeric(table[column]) if column in table else float("nan")
    names = [name for name in ORDER if name in set(table.dataset)]
    lines = ["| method | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method in dict.fromkeys(sorted(table.name, key=lambda name: ("ε" not in name, name))):
        cells = []
        for dataset in names:
            here = table[(table.name == method) & (table.dataset == dataset)]
            means = [here[column].mean() for column in columns]
            cell = "/".join(f"{mean:.3f}" for mean in means if not pd.isna(mean))
            fewer = "queries" in here and (here.queries < full).any()
            cells.append(cell + ("†" if cell and fewer else ""))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    for method, values in printed.items():
        theirs = dict(zip(DATASETS, values, strict=True))
        cells = [theirs.get(dataset, "") for dataset in names]
        lines.append(f"| *printed:* {method} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"† fewer than {full} queries a seed."])


def name_of(row: Row) -> str:
    """The method of a row in words: mechanism, guidance and ε of ours."""
    if row.get("mechanism") is None:
        return str(row["method"])
    words = f"{row['mechanism']}{' (surrogate)' if row.get('guidance') == 'surrogate' else ''}"
    return words if row.get("epsilon") is None else f"{words}, ε {row['epsilon']}"
