"""Stored rows as frames with names for people, and means over seeds with their intervals."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from counterveil.privacy import Level
from counterveil_lab import intervals, paper_values
from counterveil_lab.results import Row

Key = tuple[Any, ...]
SECTIONS = tomllib.loads(files(__package__).joinpath("sections.toml").read_text("utf-8"))
NAMES: dict[str, dict[str, str]] = SECTIONS["names"]  # stored names and their words, in order
DATASETS, PEERS, OURS, DEFENCES = (NAMES[kind] for kind in ("dataset", "peer", "ours", "defence"))
MECHANISMS = ("paper", "functional", "dpsgd")
# What a row is described by, beside its flip ratio.
SETTINGS: tuple[str, ...]
SETTINGS = ("dataset", "method", "mechanism", "guidance", "epsilon", "delta", "search")
SETTINGS += ("defence", "predictions", "architecture", "queries", "extra_queries")
THRESHOLDS: dict[str, float] = SECTIONS["threshold"]


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

    @property
    def alone(self) -> str:
        """The value without its interval, and what it is of."""
        text = str(replace(self, low=math.nan, high=math.nan, said=""))
        return f"{text} of {self.said.rpartition(' of ')[2]}" if " of " in self.said else text

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


def described(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a frame, with names and places in an order for dataset, method and defence."""
    return pd.DataFrame([{**row, **_description(row)} for row in rows])


def _description(row: Row) -> Row:
    settings = tuple((name, row[name]) for name in SETTINGS if name in row)
    any_other = row.get("flip_ratio_any")
    if any_other is None and paper_values.of(paper_values.CLASSES, str(row.get("dataset"))) == "2":
        any_other = row.get("flip_ratio")  # with two classes there is only one other
    return {**_description_of(settings), "flip_ratio_any": any_other}


@cache
def _description_of(settings: tuple[tuple[str, Any], ...]) -> Row:
    """The description of all rows with these settings, which most have in common with others."""
    row = dict(settings)
    dataset, method = str(row.get("dataset") or ""), str(row.get("method") or "counterveil")
    mechanism = row.get("mechanism") or ("functional" if method in OURS else None)
    surrogate = row.get("guidance") == "surrogate"
    epsilon = math.inf if row.get("epsilon") == "none" else row.get("epsilon")
    number = math.nan if epsilon is None else float(epsilon)
    level, name, quoted, search = "", PEERS.get(method, method), method, None
    amount = "–" if epsilon is None else "no noise" if number == math.inf else f"{number:g}"
    amount += f", δ {row['delta']:g}" if row.get("delta") and mechanism else ""
    place: Key = (0, place_in(PEERS, method))
    if mechanism:
        sound = mechanism == "functional" and math.isfinite(number)
        level = (Level.END_TO_END if surrogate else Level.EXPLAINER).value if sound else "none"
        usual = "published" if mechanism == "paper" else "full"
        search = row.get("search") or usual
        other = "" if search == usual else f"{search} search"
        by = "surrogate" if surrogate else ""
        words = (f"`{mechanism}`", OURS.get(method, method), by, other)
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
        "noisy": math.isfinite(number),
        "faulty": str(mechanism).startswith(("paper", "control")),  # in the audit
        "ε": amount,
        "guarantee": level,
        "defence name": f"`{defence}`" + ("" if math.isnan(number) else f", ε {number:g}"),
        "defence place": (place_in(DEFENCES, defence), -1.0 if math.isnan(number) else number),
        "search": search,
        "printed flip_ratio_any": paper_values.flip_ratio(quoted, dataset),
        "printed flip_ratio_specified": paper_values.flip_ratio(quoted, dataset, specified=True),
        "printed distance": paper_values.distance(quoted, dataset),
        "printed accuracy": accuracy,
    }


def place_in(names: Sequence[str] | Mapping[str, str], name: str) -> int:
    """Where a name comes in an order; unknown names come last."""
    return list(names).index(name) if name in names else len(names)


def select(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows with these values (one of several, for a list); none where a column is missing."""
    if not wanted:
        return frame
    if not {*wanted} <= {*frame.columns}:
        return frame.iloc[:0]
    chosen = [
        frame[name].isin(value if isinstance(value, list | tuple) else [value])
        for name, value in wanted.items()
    ]
    return frame[np.logical_and.reduce(chosen)]


def with_values(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows that have a value in each of these columns; none where a column is missing."""
    missing = [name for name in columns if name not in frame]
    if missing:
        return frame.iloc[:0].reindex(columns=[*frame.columns, *missing])
    return frame.dropna(subset=list(columns)) if columns else frame


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
    groups = each.groupby(level=list(range(len(by))), sort=False)
    mean_of, spread_of, count_of = groups.mean(), groups.sem(), groups.count()
    asked = _asked(frame, values, by, SECTIONS["share"].get(column, ""))
    found = {}
    for key, mean, spread, n in zip(mean_of.index, mean_of, spread_of, count_of, strict=True):
        ends = (
            intervals.of_share(mean, n, spread, asked.get(key, 0.0))
            if column in SECTIONS["share"]
            else intervals.of_mean(mean, n, spread)
        )
        found[key if isinstance(key, tuple) else (key,)] = Mean(mean, *ends, n)
    return found


def _asked(
    frame: pd.DataFrame, values: "pd.Series[float]", by: Sequence[str], of: str
) -> dict[Any, float]:
    """How many queries a share is of, for each combination of `by`; 0 where that is not stored.

    Rows of one seed ask the same queries, so those count once. A share of the answers is of as many
    queries as were answered.
    """
    if not of:
        return {}
    count = pd.Series(0.0, frame.index)
    for name in ("quality_queries", "queries"):
        if name in frame:
            count = pd.to_numeric(frame[name], errors="coerce").fillna(count)
    if of == "answers":
        count = count * pd.to_numeric(frame["flip_ratio"]) if "flip_ratio" in frame else 0 * count
    count = count.where(values.notna(), 0.0).fillna(0.0)
    seed = frame["seed"] if "seed" in frame else pd.Series(0, frame.index)
    groups = [frame[name] for name in by]
    each = count.groupby([*groups, seed], sort=False, dropna=False).max()
    return each.groupby(level=list(range(len(by))), sort=False).sum().to_dict()
