"""Tables from rows: ways by datasets, one line a case, and whatever an unknown file has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from counterveil_lab.report.blocks import Cell, Table
from counterveil_lab.report.numbers import (
    Mean,
    average,
    distinct,
    groups,
    number,
    significant,
    word,
)
from counterveil_lab.report.paper_values import same_data
from counterveil_lab.report.ways import Way, dataset_name, in_order, telling, way_of
from counterveil_lab.results import Row

# What may tell two releases of one mechanism apart, beyond guidance and ε.
TELLING = ("search", "order", "asked_order", "polish", "keep")
KEYS = ("part", "dataset", "method", "mechanism", "guidance", "epsilon", "delta", "k", "attack",
        "attacker", "defence", "target", "architecture", "attribute", "value", "label", "batch",
        "queries", "view", "pair", "device")  # fmt: skip
NOT_SHOWN = ("seed", "run", "commit")
ANSWERS = 0.95  # of the queries: who answers fewer may have chosen the easy ones
FEWER = "‡"


@dataclass(frozen=True)
class Measure:
    """A column of the rows and how to show it; `better` is high, low or "" for neither."""

    column: str
    name: str
    decimals: int = 3
    better: str = ""
    scale: float = 1.0

    def cell(
        self,
        mean: Mean | None,
        printed: str = "",
        other_data: bool = False,
        queries: float | None = None,
    ) -> Cell:
        """A mean as a cell; shares of few `queries` get as many digits as those can tell."""
        if mean is None:
            return Cell("", "", printed, other_data)
        decimals = self.decimals
        if queries is not None and self.better == "high":
            decimals = min(decimals, 3 if queries >= 200 else 2 if queries >= 50 else 1)
        return Cell(*mean.texts(decimals, self.scale), printed, other_data)


FLIP = Measure("flip_ratio", "flip ratio", 3, "high")
SPECIFIED = Measure("flip_ratio_specified", "flip ratio, specified class", 3, "high")
LEGAL = Measure("legal", "legal rows", 3, "high")
DISTANCE = Measure("distance", "distance", 2, "low")
CHANGED = Measure("changed_features", "changed features", 1, "low")
PLAUSIBILITY = Measure("plausibility", "to nearest real record", 2, "low")
MILLISECONDS = Measure("seconds_per_query", "milliseconds a query", 3, "low", 1000.0)


def grid(
    rows: Sequence[Row],
    measure: Measure,
    title: str,
    *,
    printed: Callable[[Way, str], str] | None = None,
    notes: Iterable[str] = (),
    folded: bool = False,
    repeated: bool = True,
) -> Table | None:
    """One line a way, one column a dataset; None where no row has the measure.

    The paper's values stand in the cells they belong to; a peer that has only printed ones, too.
    """
    if not any(number(row.get(measure.column)) is not None for row in rows):
        return None
    extra = telling(rows, TELLING)
    datasets = in_order(word(row, "dataset") for row in rows if row.get("dataset"))
    by_way = groups(rows, lambda row: way_of(row, extra))
    ways = sorted(by_way, key=lambda way: way.rank)
    lines, seen = [], []
    most = {name: asked([r for r in rows if r.get("dataset") == name], max) for name in datasets}
    few: set[float] = set()
    for way in ways:
        cells = []
        for name in datasets:
            mine = [row for row in by_way[way] if row.get("dataset") == name]
            mean, queries = average(mine, measure.column), asked(mine, min)
            seen += [mean] if mean else []
            value = printed(way, name) if printed and mean else ""
            cell = measure.cell(mean, value, bool(value) and not same_data(name), queries)
            if mean and queries is not None and queries < (most[name] or 0):
                few.add(queries)
                cell = replace(cell, mark=FEWER)
            cells.append(cell)
        lines.append((Cell(way.label), Cell(way.amount), Cell(way.level), *cells))
    for place, name in enumerate(datasets, 3):
        fit = [_answers(by_way[way], name) for way in ways]
        lines = _with_best(lines, place, measure, fit)
    table = Table(
        title,
        ("method", "ε", "guarantee", *map(dataset_name, datasets)),
        tuple(line for line in lines if any(not cell.empty for cell in line[3:])),
        (*notes, *(repeats_note(seen) if repeated else ()), *fewer_note(few)),
        folded,
        3,
    )
    return table.without_empty_columns()


def asked(rows: Sequence[Row], which: Callable[[list[float]], float]) -> float | None:
    """The smallest or largest number of queries behind rows; None where they do not say."""
    counts = [count for row in rows if (count := number(row.get("queries"))) is not None]
    return which(counts) if counts else None


def fewer_note(counts: set[float]) -> tuple[str, ...]:
    """What the mark of a slow method means."""
    if not counts:
        return ()
    low, high = min(counts), max(counts)
    words = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return (f"{FEWER} Fewer queries than the other methods got, as it is slow: {words} a seed.",)


def _answers(rows: Sequence[Row], dataset: str) -> bool:
    mean = average([row for row in rows if row.get("dataset") == dataset], "flip_ratio")
    return mean is None or mean.value >= ANSWERS


def _with_best(
    lines: list[tuple[Cell, ...]], place: int, measure: Measure, fit: Sequence[bool]
) -> list[tuple[Cell, ...]]:
    """The best of a column marked, unless half of them share it.

    Whoever was asked fewer queries is not compared and, where less is better, nor is who does not
    answer nearly all of them.
    """
    if not measure.better:
        return lines
    among = {
        at: float(line[place].text.replace(",", ""))
        for at, line in enumerate(lines)
        if line[place].text and not line[place].mark and (measure.better == "high" or fit[at])
    }
    if len(among) < 2:
        return lines
    best = (max if measure.better == "high" else min)(among.values())
    winners = [at for at, value in among.items() if value == best]
    if 2 * len(winners) > len(among):
        return lines
    marked = list(lines)
    for at in winners:
        cells = list(marked[at])
        cells[place] = replace(cells[place], best=True)
        marked[at] = tuple(cells)
    return marked


def by_case(
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], str]],
    measures: Sequence[Measure],
    title: str,
    *,
    printed: Callable[[Sequence[Row], Measure], tuple[str, bool]] | None = None,
    notes: Iterable[str] = (),
    folded: bool = False,
) -> Table | None:
    """One line for each combination of `keys` (name -> words of a row), one column a measure."""
    found = groups(rows, lambda row: tuple(words(row) for words in keys.values()))
    lines, seen = [], []
    for key, mine in found.items():
        cells = []
        for measure in measures:
            mean = average(mine, measure.column)
            seen += [mean] if mean else []
            value, other = printed(mine, measure) if printed and mean else ("", False)
            cells.append(measure.cell(mean, value, other))
        if any(not cell.empty for cell in cells):
            lines.append((*map(Cell, key), *cells))
    if not lines:
        return None
    columns = (*keys, *(measure.name for measure in measures))
    notes = (*notes, *repeats_note(seen))
    return Table(title, columns, tuple(lines), notes, folded, len(keys)).without_empty_columns()


def anything(rows: Sequence[Row], title: str, *, folded: bool = False) -> Table | None:
    """A table of rows of any form: words and known keys name a line, other numbers are averaged."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in NOT_SHOWN))
    words = [
        name
        for name in columns
        if name in KEYS or not any(number(row.get(name)) is not None for row in rows)
    ]
    keys = [name for name in words if distinct(rows, name) and _short(rows, name)]
    measures = [
        Measure(name, name.replace("_", " "), _decimals(rows, name))
        for name in columns
        if name not in words
    ]
    return by_case(
        rows,
        {name.replace("_", " "): _word(name) for name in keys},
        measures,
        title,
        folded=folded,
    )


def _word(name: str) -> Callable[[Row], str]:
    if name == "dataset":
        return lambda row: dataset_name(word(row, name))
    return lambda row: word(row, name)


def _short(rows: Sequence[Row], name: str) -> bool:
    """Pictures and long lists have no place in a table."""
    return all(isinstance(value, str | int | float) and len(str(value)) <= 60
               for value in (row.get(name) for row in rows) if value is not None)  # fmt: skip


def _decimals(rows: Sequence[Row], name: str) -> int:
    values = [abs(v) for row in rows if (v := number(row.get(name))) is not None]
    largest = max(values, default=0.0)
    if all(value == int(value) for value in values):
        return 0
    text = significant(largest or 1.0)
    return max(2 if largest >= 1 else 3, len(text.partition(".")[2]))


def repeats_note(means: Sequence[Mean]) -> tuple[str, ...]:
    """How many repetitions stand behind a table."""
    counts = sorted({mean.n for mean in means})
    if not counts:
        return ()
    if counts == [1]:
        return ("One run (n = 1), so no interval.",)
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    half = f"Mean ± half of the 95 % t-interval over seeds, n = {n}"
    return (f"{half}; none where all agree in the digits shown.",)


def some(*tables: Table | None) -> tuple[Table, ...]:
    """Those that there are."""
    return tuple(table for table in tables if table is not None)
