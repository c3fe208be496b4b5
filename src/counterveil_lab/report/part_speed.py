"""Sections on time: the paper's figure, and the benchmarks of search, GPU and release."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from counterveil_lab.report.blocks import Cell, Content, State, Table, Verdict
from counterveil_lab.report.numbers import (
    average,
    distinct,
    epsilon_of,
    number,
    pick,
    significant,
    word,
)
from counterveil_lab.report.rules import tally
from counterveil_lab.report.tables import (
    CHANGED,
    DISTANCE,
    FLIP,
    LEGAL,
    PLAUSIBILITY,
    Measure,
    by_case,
    grid,
    some,
)
from counterveil_lab.report.ways import LATENT, ORIGINAL, PEERS, dataset_name, in_order, way_of
from counterveil_lab.results import Row

AIMS = {  # answers a second on an H200
    "counterveil-unpolished": (50e6, 150e6),
    "counterveil": (2e6, 20e6),
}
SAME_MEMORY = 1.1


def fig_time(rows: Sequence[Row]) -> Content:
    """Figure 4: time of ten queries. Times compare inside one run of the command: the latest."""
    latest: dict[object, str] = {}
    for row in rows:
        name, run = row.get("dataset"), word(row, "run")
        latest[name] = max(run, latest.get(name, ""))
    timed = all("seconds_for_ten" in row for row in rows)
    rows = [
        {**row, "seconds": row.get("seconds_for_ten"), "run": None} if timed else row
        for row in rows
        if not timed or word(row, "run") == latest[row.get("dataset")]
    ]
    runs = sorted({int(n) for row in rows if (n := number(row.get("runs"))) is not None})
    mean = f"Means of {' to '.join(str(n) for n in dict.fromkeys((runs[0], runs[-1])))} runs " \
           "inside one process; the file has the range." if runs else ""  # fmt: skip
    table = grid(
        rows,
        Measure("seconds", "seconds", 3, "low"),
        "Figure 4 of the paper: seconds for ten queries",
        notes=("The paper prints no numbers for its figure.", *filter(None, (mean,))),
        repeated=not runs,
    )
    return Content((not_slower(rows), latent_faster(rows)), some(table))


def _seconds(rows: Sequence[Row], dataset: str, **way: object) -> float | None:
    mean = average(pick(rows, dataset=dataset, **way), "seconds")
    return mean.value if mean else None


def _finite(row: Row) -> bool:
    value = epsilon_of(row)
    return value is not None and math.isfinite(value)


def _ours(rows: Sequence[Row], dataset: str, mechanism: str) -> float | None:
    mine = [
        row
        for row in pick(rows, dataset=dataset, mechanism=mechanism)
        if row.get("guidance") != "surrogate" and _finite(row)
    ]
    mean = average(mine, "seconds")
    return mean.value if mean else None


def not_slower(rows: Sequence[Row]) -> Verdict:
    """`competitive time efficiency with C-CHVAE and REVISE`."""
    outcomes = {}
    for name in in_order(str(name) for name in distinct(rows, "dataset")):
        ours = _ours(rows, name, "paper")
        theirs = [t for peer in LATENT if (t := _seconds(rows, name, method=peer)) is not None]
        if ours is not None and theirs:
            words = f"{significant(ours)} s against {significant(max(theirs))} s"
            outcomes[name] = (ours <= max(theirs), words)
    return tally(
        "`paper` is not slower than C-CHVAE and REVISE",
        outcomes,
        "mean time at most that of the slower of the two",
        whose="paper",
    )


def latent_faster(rows: Sequence[Row]) -> Verdict:
    """`search in latent space generally has a better time efficiency`."""
    outcomes = {}
    for name in in_order(str(name) for name in distinct(rows, "dataset")):
        latent = [t for peer in LATENT if (t := _seconds(rows, name, method=peer)) is not None]
        ours = _ours(rows, name, "paper")
        latent += [] if ours is None else [ours]
        plain = [t for peer in ORIGINAL if (t := _seconds(rows, name, method=peer)) is not None]
        if latent and plain:
            a, b = statistics.median(latent), statistics.median(plain)
            outcomes[name] = (a < b, f"{significant(a)} s against {significant(b)} s")
    return tally(
        "Search in the latent space is faster than in that of the rows",
        outcomes,
        "median over C-CHVAE, REVISE and `paper` below the median over DiCE and CADEX",
        whose="paper",
    )


def bench_search(rows: Sequence[Row]) -> Content:
    """Time and quality beside other methods, on one core."""
    peers = pick(rows, part="peers")
    largest = max((number(row.get("batch")) or 0 for row in peers), default=0)
    peers = [row for row in peers if row.get("batch") == largest]
    seconds = Measure("seconds_per_query", "ms a query", 3, "low", 1000.0)
    ordered = sorted(peers, key=lambda row: way_of(row).rank)
    keys = {
        "method": lambda row: way_of(row).label,
        "ε": lambda row: way_of(row).amount,
        "guarantee": lambda row: way_of(row).level,
    }
    table = by_case(
        ordered,
        keys,
        (seconds, FLIP, LEGAL, DISTANCE, CHANGED, PLAUSIBILITY),
        f"Adult, {largest:g} queries in one call, one core",
        notes=_fewer(peers, largest),
    )
    calls = {
        "method": lambda row: way_of(row).label,
        "queries in one call": lambda row: word(row, "batch"),
    }
    batch = by_case(
        pick(rows, part="batch"),
        calls,
        (seconds,),
        "Time over the size of a call",
        folded=True,
    )  # fmt: skip
    floor = by_case(
        pick(rows, part="floor"),
        calls,
        (seconds, Measure("times_floor", "times the matrix products alone", 0)),
        "Distance from the least a processor could do",
        folded=True,
    )  # fmt: skip
    objective = by_case(
        pick(rows, part="objective"),
        {"dataset": lambda row: dataset_name(word(row, "dataset")),
         "search": lambda row: word(row, "method")},
        (Measure("objective", "mean objective", 3), FLIP, DISTANCE),
        "What the amortised search and Algorithm 2 reach, before repair and polish",
        folded=True,
    )  # fmt: skip
    verdicts = (fastest(peers), nearest(peers))
    return Content(verdicts, some(table, batch, floor, objective))


def _fewer(rows: Sequence[Row], batch: float) -> tuple[str, ...]:
    """Who was asked fewer queries than stand in one call."""
    asked = {
        PEERS.get(word(row, "method"), word(row, "method")): count
        for row in rows
        if (count := number(row.get("quality_queries"))) is not None and count < batch
    }
    names = ", ".join(f"{name} {count:g}" for name, count in asked.items())
    return (f"Asked fewer queries, as they go row by row: {names}.",) if asked else ()


def fastest(rows: Sequence[Row]) -> Verdict:
    """Against every other method, the slower of our ε."""
    return _beats(rows, "seconds_per_query", "`functional` with repair and polish is faster than",
                  "mean time a query of the slowest ε below that of the method")  # fmt: skip


def nearest(rows: Sequence[Row]) -> Verdict:
    """The same for distance, among those that answer nearly all."""
    full = [row for row in rows if (number(row.get("flip_ratio")) or 0) >= 0.95]
    return _beats(full, "distance", "`functional` with repair and polish is nearer than",
                  "mean distance of the farthest ε below that of the method, among methods that "
                  "answer at least 95 % of the queries")  # fmt: skip


def _beats(rows: Sequence[Row], column: str, claim: str, rule: str) -> Verdict:
    own = pick(rows, method="counterveil", guidance="model")
    ours = [
        m.value for e in distinct(own, "epsilon") if (m := average(pick(own, epsilon=e), column))
    ]
    outcomes = {}
    for peer, name in PEERS.items():
        theirs = average(pick(rows, method=peer), column)
        if ours and theirs:
            ratio = theirs.value / max(ours)
            outcomes[name] = (ratio > 1, f"{significant(ratio, 2)} times ours")
    return tally(f"{claim} every other method", outcomes, rule, unit="methods")


def bench_gpu(rows: Sequence[Row]) -> Content:
    """Answers a second of a GPU."""
    table = by_case(
        rows,
        {"device": lambda row: word(row, "device"), "search": lambda row: way_of(row).label,
         "queries in one call": lambda row: f"{number(row.get('batch')) or 0:,.0f}"},
        (Measure("answers_per_second", "million answers a second", 1, "high", 1e-6), FLIP, LEGAL,
         DISTANCE),
        "Adult, found and checked",
    )  # fmt: skip
    outcomes, aims = {}, []
    for method, (floor, aim) in AIMS.items():
        mean = average(pick(rows, method=method), "answers_per_second")
        if mean:
            label = way_of({"method": method}).label
            words = f"{mean.value / 1e6:.1f} million a second, floor {floor / 1e6:g}"
            outcomes[label] = (mean.value >= floor, words)
            aims.append(f"{label} {'reaches' if mean.value >= aim else 'misses'} the aim of "
                        f"{aim / 1e6:g}")  # fmt: skip
    verdict = tally(
        "A GPU gives at least 50 million answers a second, and 2 million polished ones",
        outcomes,
        "answers a second at or above the floor",
        unit="searches",
        aside=", ".join(aims),
    )
    return Content((verdict,), some(table))


def bench_release(rows: Sequence[Row]) -> Content:
    """Reading and counting: memory and rate over the number of rows."""
    ordered = sorted(rows, key=lambda row: number(row.get("rows")) or 0)
    lines = []
    for row in ordered:
        count, seconds, rate, memory = (
            number(row.get(name)) for name in ("rows", "seconds", "rows_per_second",
                                               "peak_memory_mib"))  # fmt: skip
        lines.append((
            Cell("" if count is None else f"{count:,.0f}"),
            Cell("" if seconds is None else significant(seconds)),
            Cell("" if rate is None else significant(rate)),
            Cell("" if memory is None else f"{memory:,.0f}"),
        ))  # fmt: skip
    table = Table("Reading and counting a folder of Parquet files",
                  ("rows", "seconds", "rows a second", "peak memory, MiB"), tuple(lines),
                  ("One run (n = 1), so no interval.",))  # fmt: skip
    claim, rule = (
        "Memory does not grow with the rows",
        (f"peak memory of the largest table at most {SAME_MEMORY:g} times that of the next"),
    )
    peaks = [(row.get("rows"), peak) for row in ordered
             if (peak := number(row.get("peak_memory_mib"))) is not None]  # fmt: skip
    if len(peaks) < 2:
        return Content((Verdict(claim, State.OPEN, "Fewer than two sizes", rule),), (table,))
    (few, less), (many, more) = peaks[-2:]
    state = State.HOLDS if more <= SAME_MEMORY * less else State.FAILS
    words = f"{less:,.0f} MiB for {few:,} rows, {more:,.0f} MiB for {many:,}"
    return Content((Verdict(claim, state, words, rule),), (table,))
