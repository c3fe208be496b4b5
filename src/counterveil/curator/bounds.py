"""Private bounds of numbers: from noisy counts on a public ladder, the same for every number.

A person who does not know the public bounds of a number can let them be measured. `measure_bounds`
counts each number on `EDGES`, with empty cells and numbers with decimals apart, and adds noise;
`bounds_from` takes as bounds the ends of what stands out of the noise, a cell farther out.

Formal guarantee: the noisy counts, and with them the bounds, are (ε, δ)-DP (pure ε-DP for δ = 0)
under replace-one of one unit, N public.

Proof. Which cell of the ladder a number falls in depends on that cell of the table and on public
numbers alone. A record adds 1 to one cell of each of M histograms, whatever its label. Replacing it
moves the counts by Δ₁ ≤ 2M and Δ₂ ≤ √(2M), replacing a person of whom at most m records count by
2Mm and √(2M)·m (`Sensitivity.of_counts`). The exact discrete noise of `noise` is certified for
these; bounds, `integer` and `missing` are post-processing. A veil of such a schema holds these
bounds, so that its ε and δ are those of both readings, added up (`statement.access_to_bounds`).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import RequestError, SchemaError
from counterveil.privacy import Budget
from counterveil.privacy.budget import plus
from counterveil.privacy.record import Measurement, Sensitivity
from counterveil.schema import Numeric, Schema
from counterveil.schema.columns import arrays_of, numbers_of
from counterveil.schema.schema import Measured

DECADES = range(-3, 15)
_HALF = [part * 10.0**decade for decade in DECADES for part in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)]
EDGES = np.array([*(-each for each in reversed(_HALF)), 0.0, *_HALF, 1e15])
CELLS = len(EDGES)  # the last one is for cells without a number
WIDEST = 4  # cells that are looked at together
BEYOND = 2  # cells on either side of what stands out
OVER = 7.0  # deviations of the noise: one cell in 10,000 is that far off, if nobody is there


def measure_bounds(
    table: PrivateTable, names: Sequence[str], budget: Budget, noise: NoiseSource = EXACT
) -> Measurement:
    """Noisy counts (numbers, whole or not, cells): all that leaves. One pass over the rows."""
    private_counts = np.zeros((len(names), 2, CELLS), dtype=np.int64)
    for private_frame in table.private_frames():
        for place, column in enumerate(arrays_of(private_frame[list(names)])):
            cells = cells_of(numbers_of(column)[0])
            private_counts[place] += np.bincount(cells, minlength=2 * CELLS).reshape(2, CELLS)
    what = f"counts of {len(names)} numbers on a public ladder, for their bounds"
    bound = Sensitivity.of_counts(len(names), table.records)
    return noise.perturb("bounds", what, private_counts, bound, budget.rounded_down())


def cells_of(numbers: Array) -> Array:
    """The cell of each number, of 2·CELLS: those of numbers with decimals come last."""
    inside = np.clip(np.nan_to_num(numbers, nan=0.0), EDGES[0], EDGES[-1] - 1)
    cells = np.searchsorted(EDGES, inside, side="right") - 1
    cells = np.where(np.isnan(numbers), CELLS - 1, cells)
    return cells + CELLS * ~(np.isnan(numbers) | (inside == np.round(inside)))


def bounds_from(noisy: Array, variance: float) -> dict[str, Any] | None:
    """What a feature gets from its noisy counts (2, cells); None where nothing stands out."""
    both, least = noisy.sum(axis=0), OVER * math.sqrt(2 * variance)
    seen = _standing_out(both[:-1], least)
    if not seen.any():
        return None
    first, last = np.flatnonzero(seen)[[0, -1]]
    # A tail that the noise hides goes on beyond what is seen; 0 is where numbers often end.
    low = EDGES[first] if EDGES[first] == 0 else EDGES[max(first - BEYOND, 0)]
    high = EDGES[min(last + 1 + BEYOND, CELLS - 1)]
    whole = not _standing_out(noisy[1, :-1], least / math.sqrt(2)).any()
    if whole:
        low, high = math.floor(low), math.ceil(high)
    missing = bool(both[-1] > least)
    return {"lower": float(low), "upper": float(high), "integer": whole, "missing": missing}


def _standing_out(noisy: Array, least: float) -> Array:
    """Which cells stand out, and which runs of two or four do where no cell of them does."""
    seen, wide = np.zeros(len(noisy), dtype=bool), 1
    while wide <= WIDEST:
        sums = np.convolve(noisy, np.ones(wide), mode="valid")
        for start in np.flatnonzero(sums > least * math.sqrt(wide)):
            run = slice(start, start + wide)
            seen[run] |= not seen[run].any()
        wide *= 2
    return seen


def numbers_to_measure(schema: Schema) -> tuple[str, ...]:
    """The numbers of which bounds were read off rows; not those that follow another feature."""
    derived = {link.derived for link in schema.links}
    return tuple(
        each.name
        for each in schema.features
        if each.kind == "numeric" and each.name in schema.unreviewed and each.name not in derived
    )


def check_unit(schema: Schema, table: PrivateTable) -> None:
    """Refuse to add up what bounds cost and a budget for another unit."""
    paid = schema.measured
    mine = table.unit, table.records, table.unit_column or ""
    if paid and (paid.unit, paid.max_records, paid.unit_column) != mine:
        by = f" by {paid.unit_column!r}" if paid.unit_column else ""
        raise RequestError(
            f"the bounds in the schema were measured for one {paid.unit}{by} with at most "
            f"{paid.max_records} records, and this is for another unit: give the same "
            "--unit-column and --max-records, or type bounds and remove 'measured'"
        )


def price_of(schema: Schema, table: PrivateTable, budget: Budget) -> Measured:
    """What bounds of the schema have cost with this budget, and with what was spent before."""
    check_unit(schema, table)
    before, epsilon, delta = schema.measured, budget.epsilon, budget.delta
    if before:
        epsilon, delta = plus(epsilon, before.epsilon), plus(delta, before.delta)
    return Measured(
        epsilon=epsilon,
        delta=delta,
        unit=table.unit,
        max_records=table.records,
        unit_column=table.unit_column or "",
    )


def with_bounds(
    schema: Schema, names: Sequence[str], measured: Measurement, price: Measured
) -> Schema:
    """The schema with what was measured; numbers of which nothing stood out stay marked."""
    found = {
        name: new
        for name, noisy in zip(names, measured.values, strict=True)
        if (new := bounds_from(noisy, measured.variance))
    }
    features = tuple(
        _with_new(each, found[each.name]) if each.name in found else each
        for each in schema.features
    )
    left = tuple(name for name in schema.unreviewed if name not in found)
    changes = {"features": features, "drafted": left or False, "measured": price}
    return schema.model_copy(update=changes)


def _with_new(feature: Any, new: dict[str, Any]) -> Numeric:
    """The feature within other bounds; rules of its that do not fit them are left out."""
    try:
        return Numeric(**{**feature.to_dict(), **new})
    except SchemaError:
        names = ("name", "label", "immutable", "direction", "good")
        kept: dict[str, Any] = {name: getattr(feature, name) for name in names}
        return Numeric(**kept, **new)
