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
FLIPS = ("flip_ratio", "flip_ratio_specified")
FULL = 500  # queries a seed
Printed = Mapping[str, Sequence[str]]  # a method and its numbers in the paper's order


def write_table(
    rows: Sequence[Row], path: Path, columns: Sequence[str], printed: Printed, *, full: int = FULL
) -> None:
    """Write the table as Markdown."""
    if rows:
        write_whole(path, (markdown(rows, columns, printed, full) + "\n").encode())


def markdown(
    rows: Sequence[Row], columns: Sequence[str], printed: Printed, full: int = FULL
) -> str:
    """The table with its note."""
    lines = methods_by_dataset(rows, columns, printed, full)
    heads, *others = ("| " + " | ".join(line) + " |" for line in lines)
    rule = "|---" * len(lines[0]) + "|"
    return "\n".join([heads, rule, *others, "", f"† fewer than {full} queries a seed."])


def methods_by_dataset(
    rows: Sequence[Row], columns: Sequence[str], printed: Printed, full: int = FULL
) -> list[list[str]]:
    """The means of `columns`, one behind the other with a slash, below a line of headings."""
    table = pd.DataFrame(rows).assign(name=[name_of(row) for row in rows])
    for column in columns:
        table[column] = pd.to_numeric(table[column]) if column in table else float("nan")
    names = [name for name in ORDER if name in set(table.dataset)]
    lines = [["method", *names]]
    for method in sorted(set(table.name), key=lambda name: ("ε" not in name, name)):
        line = [method]
        for dataset in names:
            here = table[(table.name == method) & (table.dataset == dataset)]
            cell = "/".join(f"{mean:.3f}" for mean in here[list(columns)].mean().dropna())
            fewer = "queries" in here and (here.queries < full).any()
            line.append(cell + ("†" if cell and fewer else ""))
        lines.append(line)
    for method, values in printed.items():
        theirs = dict(zip(DATASETS, values, strict=True))
        lines.append([f"*printed:* {method}", *(theirs.get(name, "") for name in names)])
    return lines


def name_of(row: Row) -> str:
    """The method of a row in words: mechanism, guidance and ε of ours."""
    if pd.isna(row.get("mechanism")):
        return str(row["method"])
    words = f"{row['mechanism']}{' (surrogate)' if row.get('guidance') == 'surrogate' else ''}"
    return words if pd.isna(row.get("epsilon")) else f"{words}, ε {row['epsilon']}"
