"""Stored rows as a table like the paper's: methods down, datasets across, in Markdown.

Means over seeds; a dagger marks means over fewer queries than usual, and what the paper prints
stands below, for the datasets that are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from counterveil.files import write_whole
from counterveil_lab.results import Row

ORDER = ("adult", "hospital", "homecredit", "mnist", "purchase", "texas", "purchase-substitute",
         "texas-substitute", "digits")  # fmt: skip
PRINTED = ("adult", "hospital", "homecredit", "mnist", "purchase", "texas")
FULL = 500


def write_table(
    rows: Sequence[Row], path: Path, columns: Sequence[str],
    published: Mapping[str, Sequence[str]], *, full: int = FULL,
) -> None:  # fmt: skip
    """Write the means of `columns`, one behind the other with a slash, as Markdown."""
    if rows:
        write_whole(path, (markdown(rows, columns, published, full) + "\n").encode())


def markdown(
    rows: Sequence[Row], columns: Sequence[str], published: Mapping[str, Sequence[str]],
    full: int = FULL,
) -> str:  # fmt: skip
    """The table."""
    table = pd.DataFrame(rows)
    table["name"] = [name_of(row) for row in rows]
    for column in columns:
        table[column] = pd.to_numeric(table[column]) if column in table else float("nan")
    names = [name for name in ORDER if name in set(table.dataset)]
    lines = ["| method | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method in dict.fromkeys(sorted(table.name, key=_place)):
        cells = []
        for dataset in names:
            here = table[(table.name == method) & (table.dataset == dataset)]
            means = [here[column].mean() for column in columns]
            cell = "/".join(f"{mean:.3f}" for mean in means if not pd.isna(mean))
            fewer = len(here) and "queries" in here and (here.queries < full).any()
            cells.append(cell + ("†" if cell and fewer else ""))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    for method, printed in published.items():
        values = dict(zip(PRINTED, printed, strict=True))
        cells = [values.get(dataset, "") for dataset in names]
        lines.append(f"| *printed:* {method} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"† fewer than {full} queries a seed."])


def name_of(row: Row) -> str:
    """What a row is about, in words."""
    if row.get("mechanism") is None:
        return str(row["method"])
    words = str(row["mechanism"])
    if row.get("guidance") == "surrogate":
        words += " (surrogate)"
    epsilon = row.get("epsilon")
    return words if epsilon is None else f"{words}, ε {epsilon}"


def _place(name: str) -> tuple[bool, str]:
    return "ε" not in name, name
