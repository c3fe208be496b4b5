"""Stored rows as tables: means over seeds with their intervals, the paper's numbers beside them.

`described` turns rows into a frame with names for people; a `Pivot` says which columns of it name a
line of a table and which are averaged; `table_of` makes the `Table` that both renderers show.
Text may carry `code` and *emphasis* as in Markdown.
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import pandas as pd

from counterveil.privacy import Level
from counterveil_lab import intervals, paper_values
from counterveil_lab.results import Row

Key = tuple[Any, ...]
SECTIONS = tomllib.loads(files(__package__).joinpath("sections.toml").read_text("utf-8"))
NAMES: dict[str, dict[str, str]] = SECTIONS["names"]  # stored names and their words, in order
DATASETS, PEERS, OURS, DEFENCES = (NAMES[kind] for kind in ("dataset", "peer", "ours", "defence"))
MECHANISMS = ("paper", "functional", "dpsgd")
ANSWERS = 0.95  # of the queries: a method that answers fewer may have chosen the easy ones
FEWER = "‡"  # marks means over fewer queries than the other methods got


@dataclass(frozen=True)
class Mean:
    """A mean over n repetitions with its 95 % interval, NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 1
    said: str = ""  # the exact words, where the number is quoted

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; the value twice where there is none."""
        return (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)

    def times(self, factor: float, less: float = 0.0) -> "Mean":
        """The same in another unit: `factor` times all of it, less `less`."""
        value, low, high = (factor * it - less for it in (self.value, self.low, self.high))
        return Mean(value, low, high, self.n)

    def texts(self, decimals: int, scale: float = 1.0) -> tuple[str, str]:
        """Value and interval; at most `decimals` places, fewer where the interval is wide.

        The interval is `± half` where it lies evenly around the value, or else `[low, high]`. It is
        "" where there is none, and where its ends and the value are the same in the digits shown.
        """
        low, high = scale * self.low, scale * self.high
        half = (high - low) / 2
        places = decimals
        if 0 < half < math.inf:  # the interval keeps one digit, or two if they begin below 3.55
            power = math.floor(math.log10(half))
            places = min(places, max(0, (1 if half / 10**power < 3.55 else 0) - power))
        text, *ends = (_number(it, places) for it in (scale * self.value, low, high))
        if math.isnan(half) or {text} == set(ends):
            return text, ""
        if math.isclose(high - scale * self.value, half, rel_tol=1e-6):
            spread = _number(half, places)
            return text, f"± {spread}" if spread.strip("0.") else ""
        return text, f"[{ends[0]}, {ends[1]}]"

    def __str__(self) -> str:
        size = abs(self.value)
        decimals = 5 if 0 < size < 0.1 else 3 if size < 10 else 1
        return self.said or " ".join(filter(None, self.texts(decimals)))


def _number(value: float, places: int) -> str:
    text = f"{value:,.{places}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


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
    """A table; the first `keys` columns name a line."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False
    keys: int = 1

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

    def cell(self, mean: Mean, rows: pd.DataFrame) -> Cell:
        """A mean over `rows` as a cell; shares of few queries get the digits those can tell."""
        if self.style:
            return Cell(format(mean.value * self.scale, self.style))
        decimals = self.decimals
        if self.better == "high" and "queries" in rows:
            queries = rows.queries.min()
            decimals = min(decimals, 1 if queries < 50 else 2 if queries < 200 else 3)
        cell = Cell(*mean.texts(decimals, self.scale))
        if self.printed and (value := rows[f"printed {self.column}"].iloc[0]):
            other = rows.dataset.iloc[0] not in paper_values.SAME_DATA
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


def described(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a frame, with names and places in an order for dataset, method and defence."""
    return pd.DataFrame([{**row, **_description(row)} for row in rows])


def _description(row: Row) -> Row:
    dataset, method = str(row.get("dataset") or ""), str(row.get("method") or "counterveil")
    mechanism = row.get("mechanism") or ("functional" if method in OURS else None)
    surrogate = row.get("guidance") == "surrogate"
    epsilon = math.inf if row.get("epsilon") == "none" else row.get("epsilon")
    number = math.nan if epsilon is None else float(epsilon)
    level, name, quoted, search = "", PEERS.get(method, method), method, None
    any_other = row.get("flip_ratio_any")
    if any_other is None and paper_values.of(paper_values.CLASSES, dataset) == "2":
        any_other = row.get("flip_ratio")  # with two classes there is only one other
    amount = "–" if epsilon is None else "no noise" if number == math.inf else f"{number:g}"
    amount += f", δ {row['delta']:g}" if row.get("delta") and mechanism else ""
    place: Key = (0, place_in(PEERS, method))
    if mechanism:
        sound = mechanism != "paper" and math.isfinite(number)
        level = (Level.END_TO_END if surrogate else Level.EXPLAINER).value if sound else "none"
        usual = "published" if mechanism == "paper" else "full"
        search = row.get("search") or usual
        other = "" if search == usual else f"{search} search"
        words = (
            f"`{mechanism}`",
            OURS.get(method, method),
            "surrogate" if surrogate else "",
            other,
        )
        name = ", ".join(filter(None, words))
        place = (1, place_in(MECHANISMS, mechanism), surrogate, place_in(OURS, method), number)
        plain = method in {"counterveil", "algorithm-2"} and not surrogate and not other
        quoted = f"paper, ε {number:g}" if plain and mechanism in {"paper", "functional"} else ""
    defence = str(row.get("defence") or "")
    if "defence" in row:
        told = row.get("predictions", "probabilities") == "probabilities"
        architecture, queries = str(row.get("architecture")), row.get("queries") or 0
        accuracy = paper_values.extraction(dataset, defence, epsilon, architecture, queries)
        accuracy = accuracy if told else ""
    else:
        accuracy = paper_values.of(paper_values.TARGET_ACCURACY, dataset) or ""
    return {
        "epsilon": number,
        "dataset name": DATASETS.get(dataset, dataset) or None,
        "dataset place": place_in(DATASETS, dataset),
        "method name": name,
        "method place": place,
        "mechanism place": place_in(MECHANISMS, str(mechanism)),
        "questions": (row.get("queries") or 0) + (row.get("extra_queries") or 0),  # to f
        "search name": NAMES["search"].get(method, method),
        "noisy": math.isfinite(number),
        "faulty": str(mechanism).startswith(("paper", "control")),  # in the audit
        "ε": amount,
        "guarantee": level,
        "defence name": f"`{defence}`" + ("" if math.isnan(number) else f", ε {number:g}"),
        "defence place": (place_in(DEFENCES, defence), -1.0 if math.isnan(number) else number),
        "search": search,
        "flip_ratio_any": any_other,
        "printed flip_ratio_any": paper_values.flip_ratio(quoted, dataset),
        "printed flip_ratio_specified": paper_values.flip_ratio(quoted, dataset, specified=True),
        "printed distance": paper_values.distance(quoted, dataset),
        "printed accuracy": accuracy,
    }


def records(frame: pd.DataFrame) -> list[Row]:
    """Described rows as they were stored, but for ε, which is a number or NaN."""
    names = set(_description({})) - {"epsilon", "search", "flip_ratio_any"}
    stored = frame[[name for name in frame if name not in names]]
    return [{str(name): value for name, value in row.items()} for row in stored.to_dict("records")]


def place_in(names: Sequence[str] | Mapping[str, str], name: str) -> int:
    """Where a name comes in an order; unknown names come last."""
    return list(names).index(name) if name in names else len(names)


def select(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows with these values (one of several, for a list); none where a column is missing."""
    for name, value in wanted.items():
        if name not in frame:
            return frame.iloc[:0]
        frame = frame[frame[name].isin(value if isinstance(value, list | tuple) else [value])]
    return frame


def with_values(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows that have a value in each of these columns; none where a column is missing."""
    missing = [name for name in columns if name not in frame]
    return frame.reindex(columns=[*frame.columns, *missing]).dropna(subset=list(columns))


def means(frame: pd.DataFrame, by: Sequence[str], column: str) -> dict[Key, Mean]:
    """The mean of a column for each combination of `by`, in the order in which they come.

    Repetitions are seeds, draws of the noise and runs of the command; rows of one are averaged
    first. The interval of a column in [share] of sections.toml is that of a share.
    """
    if frame.empty or not {*by, column} <= {*frame.columns}:
        return {}
    values = pd.to_numeric(frame[column], errors="coerce").astype(float)
    values = values.where(values.abs() < math.inf)
    repeats = [name for name in ("seed", "draw", "run") if name in frame]
    keys = [frame[name] for name in (*by, *repeats)]
    each = values.groupby(keys, sort=False, dropna=False).mean().dropna()
    table = each.groupby(level=list(range(len(by))), sort=False).agg(["mean", "sem", "count"])
    asked = _asked(frame.assign(value=values), by, column).reindex(table.index, fill_value=0.0)
    found = {}
    for key, mean, spread, n, queries in table.assign(asked=asked).itertuples(name=None):
        ends = (
            intervals.of_share(mean, n, spread, queries)
            if column in SECTIONS["share"]
            else intervals.of_mean(mean, n, spread)
        )
        found[key if isinstance(key, tuple) else (key,)] = Mean(mean, *ends, n)
    return found


def _asked(frame: pd.DataFrame, by: Sequence[str], column: str) -> "pd.Series[float]":
    """How many queries a share is of, for each combination of `by`; 0 where that is not stored.

    Rows of one seed ask the same queries, so those count once. A share of the answers is of as many
    queries as were answered.
    """
    of = SECTIONS["share"].get(column, "")
    if not of:
        return pd.Series(dtype=float)
    count = pd.Series(0.0, frame.index)
    for name in ("quality_queries", "queries"):
        if name in frame:
            count = pd.to_numeric(frame[name], errors="coerce").fillna(count)
    if of == "answers":
        count = count * pd.to_numeric(frame["flip_ratio"]) if "flip_ratio" in frame else 0 * count
    count = count.where(frame["value"].notna(), 0.0).fillna(0.0)
    seed = frame["seed"] if "seed" in frame else pd.Series(0, frame.index)
    groups = [frame[name] for name in by]
    each = count.groupby([*groups, seed], sort=False, dropna=False).max()
    return each.groupby(level=list(range(len(by))), sort=False).sum()


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
    frame = frame.assign(**{name: frame[name].map(as_text) for name in index})
    lines = list(dict.fromkeys(frame[index].itertuples(index=False, name=None)))
    columns: dict[str, dict[Key, Cell]] = {}
    seen: set[int] = set()
    few: set[float] = set()
    for head, measure, part in _slots(frame, pivot):
        groups = dict(iter(part.groupby(index, sort=False)))
        found = means(part, index, measure.column)
        cells = {line: measure.cell(mean, groups[line]) for line, mean in found.items()}
        if pivot.columns and measure.better:
            cells = _with_best(_with_fewer(cells, groups), groups, measure.better)
            few |= {groups[line].queries.min() for line, cell in cells.items() if cell.mark}
        seen |= {mean.n for mean in found.values()} if not measure.style else set()
        if cells:
            columns[head] = cells
    lines = [line for line in lines if any(line in cells for cells in columns.values())]
    if not lines:
        return None
    shown = [name for name in index if any(as_text(text) for text in frame[name])]
    kept = [index.index(name) for name in shown]
    rows = tuple(
        (*(Cell(line[at]) for at in kept), *(it.get(line, Cell()) for it in columns.values()))
        for line in lines
    )
    heads = (*(head for head, name in pivot.index.items() if name in shown), *columns)
    return Table(pivot.title, heads, rows, tuple(_notes(seen, few)), pivot.folded, len(kept))


def _slots(frame: pd.DataFrame, pivot: Pivot) -> list[tuple[str, Measure, pd.DataFrame]]:
    """What stands in each column: heading, measure and rows."""
    if pivot.columns is None:
        return [(measure.name, measure, frame) for measure in pivot.measures]
    name, order = pivot.columns
    if name not in frame or order not in frame:
        return []
    values = frame.dropna(subset=[name]).sort_values(order, kind="stable")[name].unique()
    (measure,) = pivot.measures
    return [(as_text(value), measure, frame[frame[name] == value]) for value in values]


def as_text(value: Any) -> str:
    """A stored value as words, "" where there is none."""
    if pd.isna(value):
        return ""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,.10g}" if whole else str(value)


def _with_fewer(cells: dict[Key, Cell], groups: Mapping[Key, pd.DataFrame]) -> dict[Key, Cell]:
    """Cells over fewer queries than the largest number in the column get a mark."""
    least = {line: groups[line].queries.min() for line in cells if "queries" in groups[line]}
    most = max(least.values(), default=0)
    return {
        line: replace(cell, mark=FEWER) if line in least and least[line] < most else cell
        for line, cell in cells.items()
    }


def _with_best(
    cells: dict[Key, Cell], groups: Mapping[Key, pd.DataFrame], better: str
) -> dict[Key, Cell]:
    """The best of a column marked, unless more than half of them share it.

    A method that was asked fewer queries is not compared nor, where less is better, one that does
    not answer nearly all of them.
    """
    among = {
        line: float(cell.text.replace(",", ""))
        for line, cell in cells.items()
        if not cell.mark and (better == "high" or _answers(groups[line]))
    }
    best = (max if better == "high" else min)(among.values(), default=math.nan)
    winners = {line for line, value in among.items() if value == best}
    if len(among) < 2 or 2 * len(winners) > len(among):
        return cells
    return {line: replace(cell, best=line in winners) for line, cell in cells.items()}


def _answers(rows: pd.DataFrame) -> bool:
    return "flip_ratio" not in rows or not rows.flip_ratio.mean() < ANSWERS


def _notes(seeds: set[int], queries: set[float]) -> Iterator[str]:
    """How many repetitions stand behind a table, and what the mark of a slow method means."""
    if seeds:
        yield f"Seeds: {_ends(seeds)}." if seeds != {1} else "One run."
    if queries:
        few = f"{_ends(queries)} a seed"
        yield f"{FEWER} Fewer queries than the other methods got, as it is slow: {few}."


def _ends(numbers: Collection[float]) -> str:
    return " to ".join(as_text(number) for number in sorted({min(numbers), max(numbers)}))
