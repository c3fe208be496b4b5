"""Stored rows as tables: means over seeds with their intervals, the paper's numbers beside them.

A `Pivot` says which columns of a described frame (`frames.described`) name a line of a table and
which are averaged; `table_of` makes the `Table` that both renderers show. Text may carry `code` and
*emphasis* as in Markdown.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from counterveil_lab import paper_values
from counterveil_lab.report.frames import THRESHOLDS, Key, Mean, means
from counterveil_lab.results import Row

T = TypeVar("T")
LINE = "line of the table"  # the column with its number
FEWER = "‡"  # marks means over fewer queries than the other methods got


@dataclass(frozen=True)
class Cell:
    """A number or words; `printed` is what the paper has in its place."""

    text: str = ""
    spread: str = ""
    printed: str = ""
    other_data: bool = False  # the paper's number is of other rows than ours
    best: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first `keys` columns name a line.

    `shown`: on the "page" of the documentation too, in the "report", or by the "command" alone.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False
    keys: int = 1
    shown: str = "report"

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, that stand on the right."""
        return [
            place >= self.keys
            and all(row[place].text[:1].strip("+-0123456789") == "" for row in self.rows)
            for place in range(len(self.columns))
        ]


def table_of_texts(
    title: str, heads: Sequence[str], lines: Iterable[Iterable[str]], keys: int = 1
) -> Table:
    """Texts as a table."""
    rows = tuple(tuple(Cell(text) for text in line) for line in lines)
    return Table(title, tuple(heads), rows, keys=keys)


@dataclass(frozen=True)
class Measure:
    """A column of the rows and how to show it; `better` is high, low or "" for neither.

    `style` is a format for the mean alone, without an interval. With `printed` the paper's number
    stands beside ours.
    """

    column: str
    name: str
    decimals: int = 3
    better: str = ""
    scale: float = 1.0
    style: str = ""
    printed: bool = False

    def cell(self, mean: Mean, behind: Row) -> Cell:
        """A mean as a cell; shares of few queries get the digits those can tell.

        `behind`: what `_behind` says of the rows.
        """
        if self.style:
            return Cell(format(mean.value * self.scale, self.style))
        decimals = self.decimals
        if self.better == "high" and "queries" in behind:
            queries = behind["queries"]
            decimals = min(decimals, 1 if queries < 50 else 2 if queries < 200 else 3)
        cell = Cell(*mean.texts(decimals, self.scale))
        if self.printed and (value := behind[f"printed {self.column}"]):
            other = behind["dataset"] not in paper_values.SAME_DATA
            cell = replace(cell, printed=value, other_data=other)
        return cell


@dataclass(frozen=True)
class Pivot:
    """A table to be made of rows: a line for each combination of the columns in `index`.

    `index` maps a heading to a column. Without `columns` there is a column for each measure; with
    it one for each value of that column, in the order of the second column named.
    """

    title: str
    index: Mapping[str, str]
    measures: Sequence[Measure]
    columns: tuple[str, str] | None = None
    sort: tuple[str, ...] = ()  # columns; a minus before the name: falling
    folded: bool = False


def table_of(frame: pd.DataFrame, pivot: Pivot) -> Table | None:
    """The table of a pivot; None where no row has what it shows."""
    if frame.empty:
        return None
    index = list(pivot.index.values())
    order = {name.removeprefix("-"): not name.startswith("-") for name in pivot.sort}
    wanted = {*index, *order, *(pivot.columns or ())}
    for measure in pivot.measures:
        wanted |= {measure.column, f"printed {measure.column}"} & set(frame.columns)
    wanted |= {"seed", "run", "dataset", "queries", "quality_queries", "flip_ratio"} & set(
        frame.columns
    )
    frame = frame.reindex(columns=list(wanted))
    if order:
        frame = frame.sort_values(list(order), ascending=list(order.values()), kind="stable")
    named = list(zip(*([as_text(it) for it in frame[name]] for name in index), strict=True))
    lines = {line: number for number, line in enumerate(dict.fromkeys(named))}
    kept = [at for at in range(len(index)) if any(line[at] for line in lines)]
    frame = frame.assign(**{LINE: [lines[line] for line in named]})
    columns: dict[str, dict[int, Cell]] = {}
    seen: set[int] = set()
    few: set[float] = set()
    for head, measure, found, behind in _slots(frame, pivot):
        cells = {line: measure.cell(mean, behind[line]) for line, mean in found.items()}
        if pivot.columns and measure.better:
            cells = _with_best(_with_fewer(cells, behind), behind, measure.better)
            few |= {behind[line]["queries"] for line, cell in cells.items() if cell.mark}
        seen |= {mean.n for mean in found.values()} if not measure.style else set()
        if cells:
            columns[head] = cells
    lines = {
        line: number
        for line, number in lines.items()
        if any(number in cells for cells in columns.values())
    }
    if not lines:
        return None
    rows = tuple(
        (*(Cell(line[at]) for at in kept), *(it.get(number, Cell()) for it in columns.values()))
        for line, number in lines.items()
    )
    heads = (*(list(pivot.index)[at] for at in kept), *columns)
    return Table(pivot.title, heads, rows, tuple(_notes(seen, few)), pivot.folded, len(kept))


def _slots(
    frame: pd.DataFrame, pivot: Pivot
) -> Iterator[tuple[str, Measure, dict[int, Mean], dict[int, Row]]]:
    """What stands in each column: heading, measure, and by line its means and what is behind."""
    if pivot.columns is None:
        behind = _by_line(_behind(frame, [LINE]))
        for measure in pivot.measures:
            yield measure.name, measure, _by_line(means(frame, [LINE], measure.column)), behind
        return
    name, order = pivot.columns
    if name not in frame or order not in frame:
        return
    frame = frame.dropna(subset=[name]).sort_values(order, kind="stable")
    (measure,) = pivot.measures
    found, rows = means(frame, [LINE, name], measure.column), _behind(frame, [LINE, name])
    for value in frame[name].unique():
        yield as_text(value), measure, _by_line(found, value), _by_line(rows, value)


def _by_line(found: Mapping[Key, T], *column: Any) -> dict[int, T]:
    """The part of what was found that belongs to one column, by the number of the line."""
    return {key[0]: it for key, it in found.items() if key[1:] == column}


def _behind(frame: pd.DataFrame, by: Sequence[str]) -> dict[Key, Row]:
    """What cells show of their rows: dataset, printed value, fewest queries, mean flip ratio."""
    shown = [name for name in frame if name == "dataset" or str(name).startswith("printed ")]
    keys, rows = [frame[name] for name in by], frame[list(dict.fromkeys([*by, *shown]))]
    if "queries" in frame:
        queries = pd.to_numeric(frame["queries"], errors="coerce")
        rows = rows.assign(queries=queries.groupby(keys).transform("min"))
    if "flip_ratio" in frame:
        shares = pd.to_numeric(frame["flip_ratio"], errors="coerce")
        rows = rows.assign(flip_ratio=shares.groupby(keys).transform("mean"))
    first: list[Any] = rows.drop_duplicates(by).to_dict("records")
    return {tuple(row[name] for name in by): row for row in first}


def as_text(value: Any) -> str:
    """A stored value as words, "" where there is none."""
    if pd.isna(value):
        return ""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,.10g}" if whole else str(value)


def _with_fewer(cells: dict[int, Cell], behind: Mapping[int, Row]) -> dict[int, Cell]:
    """Cells over fewer queries than the largest number in the column get a mark."""
    least = {line: behind[line]["queries"] for line in cells if "queries" in behind[line]}
    most = max(least.values(), default=0)
    return {
        line: replace(cell, mark=FEWER) if line in least and least[line] < most else cell
        for line, cell in cells.items()
    }


def _with_best(cells: dict[int, Cell], behind: Mapping[int, Row], better: str) -> dict[int, Cell]:
    """The best of a column marked, unless more than half of them share it.

    A method that was asked fewer queries is not compared nor, where less is better, one that does
    not answer nearly all of them.
    """
    among = {
        line: float(cell.text.replace(",", ""))
        for line, cell in cells.items()
        if not cell.mark and (better == "high" or _answers(behind[line]))
    }
    best = (max if better == "high" else min)(among.values(), default=math.nan)
    winners = {line for line, value in among.items() if value == best}
    if len(among) < 2 or 2 * len(winners) > len(among):
        return cells
    return {line: replace(cell, best=line in winners) for line, cell in cells.items()}


def _answers(behind: Row) -> bool:
    return "flip_ratio" not in behind or not behind["flip_ratio"] < THRESHOLDS["answering"]


def _notes(seeds: set[int], queries: set[float]) -> Iterator[str]:
    """How many repetitions stand behind a table, and what the mark of a slow method means."""
    if seeds:
        yield f"Seeds: {_ends(seeds)}." if seeds != {1} else "One run."
    if queries:
        few = f"{_ends(queries)} a seed"
        yield f"{FEWER} Fewer queries than the other methods got, as it is slow: {few}."


def _ends(numbers: Collection[float]) -> str:
    return " to ".join(as_text(number) for number in sorted({min(numbers), max(numbers)}))
