"""Bins of a number, cut where noisy counts say that the people are, and how many are in each.

A wide number is first counted on a public ladder, all classes together: signed octaves around 0 and
cells of equal width, so that some cell says where people are, and wide bounds cost a few cells.
Given these noisy counts, bins hold about as many people each, whole numbers down to single values;
the outermost ones reach the public bounds. Inside a bin people are spread over pieces, as the
ladder or the neighbouring bins say.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import numpy as np

from counterveil.population.grid import Line
from counterveil.schema import Numeric, Schema
from counterveil.schema.cells import NumberCells
from counterveil.schema.columns import Array

EVEN, MORE_EVEN = 16, 64  # cells of equal width on a ladder
MORE_FROM = 24  # bins of a number: where noise leaves so many, it leaves more cells of a ladder
OCTAVES = 8  # on either side of 0, below one of those
TINY = 5  # cells of three octaves each, below
FAR_AWAY = 8  # octaves start at a bound that is nearer to 0 than the span over this
PIECES = 4  # of a bin, along which the density inside it changes
HAIR = 4e-12  # what parts 0 from the numbers next to it, in the unit cube
NEW_LEVEL = 2.0  # log-odds against a new level from one cell to the next
NOBODY = 1.0  # and against cells from there on that hold nobody
FAR = 1e3  # deviations of noise that are never met

Piece = tuple[float, float, float]  # lowest and highest number, weight


def _none() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ChosenCells(NumberCells):
    """Bins of a number, each made of pieces over which its people are spread evenly.

    `expected`: people in each bin, as far as known when the bins were chosen. Bins and cells of the
    ladder fall into groups that hold the same values, a missing value being one: `group` of each
    cell; `counted`: the noisy count of each group on the ladder, of variance `variances`.
    """

    pieces: NumberCells = field(default_factory=lambda: NumberCells(0))
    into: Array = field(default_factory=_none)  # the bin of each piece
    weights: Array = field(default_factory=_none)  # of each piece
    expected: Array = field(default_factory=_none)
    group: Array = field(default_factory=_none)
    counted: Array = field(default_factory=_none)
    variances: Array = field(default_factory=_none)

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        bins = len(self.low)
        ends = np.searchsorted(self.into, np.arange(bins + 1))
        sums = np.concatenate([[0.0], np.cumsum(self.weights)])
        first, last = ends[np.minimum(codes, bins - 1)], ends[np.minimum(codes, bins - 1) + 1]
        dice = sums[first] + rng.random(len(codes)) * (sums[last] - sums[first])
        piece = np.clip(np.searchsorted(sums, dice, side="right") - 1, first, last - 1)
        return self.pieces.points(np.where(codes == bins, len(self.into), piece), rng)

    def merged(self, max_bins: int) -> Array:
        """Merged to about as many people each; a missing value stays alone."""
        before = np.cumsum(self.expected) - self.expected / 2
        place = np.floor(before * (max_bins / max(self.expected.sum(), 1e-9)))
        coarse = np.unique(place, return_inverse=True)[1]
        return np.append(coarse, coarse.max() + 1) if self.missing else coarse

    def combined(self, noisy: Array, variance: float) -> tuple[Array, Array]:
        """Noisy counts of the cells and of the ladder, weighted by their noise; and variances."""
        size, here = np.bincount(self.group), np.bincount(self.group, noisy)
        trust = size * variance / (size * variance + self.variances)  # in the ladder
        counts = noisy + (trust * (self.counted - here) / size)[self.group]
        return counts, variance * (1 - trust / size)[self.group]


class Ladders(Line):
    """The ladders of all wide numbers side by side; they have more cells for many `bins`."""

    def __init__(self, schema: Schema, bins: int) -> None:
        even = MORE_EVEN if bins >= MORE_FROM else EVEN
        features = [(place, each) for place, each in enumerate(schema.features) if each.is_wide]
        super().__init__({place: ladder(cast(Numeric, each), even) for place, each in features})

    def chosen(
        self, noisy: Array, variance: float, rows: float, bins: int
    ) -> dict[int, ChosenCells]:
        """For each place, about `bins` bins cut where its noisy counts say that people are."""
        parts = self.parts(noisy)
        return {
            place: chosen_cells(cells, parts[place], variance, rows, bins)
            for place, cells in zip(self.places, self.cells, strict=True)
        }


def ladder(feature: Numeric, even: int = EVEN) -> NumberCells:
    """The public cells on which a number is first counted; 0 has one of its own."""
    lower, upper = feature.number_range
    start = min(max(0.0, lower), upper)
    if feature.integer and feature.span < 2 * even:
        starts = np.arange(lower, upper + 1)
    elif abs(start) * FAR_AWAY > feature.span:
        starts = np.linspace(lower, upper, 2 * even + 1)
    else:
        width = feature.span / even
        fine, tiny = np.arange(1, OCTAVES + 1), OCTAVES + 3 * np.arange(1, TINY + 1)
        down = width * 0.5 ** np.concatenate([fine, tiny])
        down = np.append(down[down >= 1], 1.0) if feature.integer else down
        starts = start + np.concatenate([np.arange(-even, even + 1) * width, down, -down, [0.0]])
    starts = np.append(starts, lower)
    starts = np.ceil(starts) if feature.integer else starts
    starts = np.unique(starts[(starts >= lower) & (starts < upper + feature.integer)])
    low, high = starts, np.append(starts[1:] - feature.integer, upper)
    low, high = (low - lower) / feature.span, (high - lower) / feature.span
    if not feature.integer and lower <= 0 <= upper:
        zero = -lower / feature.span
        at = int(np.searchsorted(low, zero))
        low = np.insert(np.where(low == zero, zero + HAIR, low), at, zero)
        high = np.insert(np.where(high == zero, zero - HAIR, high), at, zero)
    step = 1 / feature.span if feature.integer else 0.0
    return NumberCells(len(low) + feature.missing, low, high, step, feature.missing)


def chosen_cells(
    steps: NumberCells, noisy: Array, variance: float, rows: float, bins: int
) -> ChosenCells:
    """About `bins` bins of a number, fewer where many values are missing, from its noisy ladder."""
    ladder = len(steps.low)
    people = denoised(noisy, np.full(len(noisy), variance), rows, ladder)[:ladder]
    target = people.sum() / max(2.0, bins * np.sqrt(people.sum() / rows))
    runs = _runs(people, target)
    made: list[list[Piece]] = []
    group: list[int] = []
    for number, run in enumerate(runs):
        inside = [(float(steps.low[i]), float(steps.high[i]), float(people[i])) for i in run]
        parts = [[part] for part in cut(inside[0], inside[0][2] / target, steps.step)]
        made += parts if len(run) == 1 else [inside]
        group += [number] * (len(made) - len(group))
    made[0] = _fading(made[0][::-1])[::-1]
    made[-1] = _fading(made[-1])
    held = np.array([people[run].sum() for run in runs]) / np.bincount(group)
    group += [len(runs)] * steps.missing
    runs += [[ladder]] * steps.missing
    cells = replace(of_pieces(steps, made), expected=held[group[: len(made)]])
    counted = np.array([noisy[run].sum() for run in runs])
    variances = np.array([len(run) * variance for run in runs])
    return replace(cells, group=np.array(group), counted=counted, variances=variances)


def _runs(people: Array, target: float) -> list[list[int]]:
    """Cells of a ladder, taken together up to `target` people; those with many stay alone."""
    runs: list[list[int]] = []
    room = 0.0
    for cell, held in enumerate(people):
        if held > target / 2 or held > room:
            runs.append([cell])
            room = 0.0 if held > target / 2 else target - held
        else:
            runs[-1].append(cell)
            room -= held
    return runs


def _fading(pieces: list[Piece]) -> list[Piece]:
    """Half as likely from each piece to the next: what is told of far tails is mostly noise."""
    return [(low, high, weight / 2**far) for far, (low, high, weight) in enumerate(pieces)]


def cut(piece: Piece, wanted: float, step: float) -> list[Piece]:
    """About `wanted` parts of equal width; single values where whole numbers are nearly so few."""
    low, high, weight = piece
    parts = max(1, round(wanted))
    if not step:
        parts = parts if high > low else 1
        edges = np.linspace(low, high, parts + 1).tolist()
        return [(one, two, weight / parts) for one, two in pairwise(edges)]
    values = round((high - low) / step) + 1
    parts = values if 2 * parts >= values else parts
    starts = [round(part * values / parts) for part in range(parts + 1)]
    return [
        (low + one * step, low + (two - 1) * step, weight * (two - one) / values)
        for one, two in pairwise(starts)
    ]


def of_pieces(like: NumberCells, bins: list[list[Piece]]) -> ChosenCells:
    """Cells of a number whose bins are made of these pieces."""
    low, high, weights = np.array([piece for pieces in bins for piece in pieces]).T
    into = np.repeat(np.arange(len(bins)), [len(pieces) for pieces in bins])
    first = np.searchsorted(into, np.arange(len(bins)))
    last = np.append(first[1:], len(into)) - 1
    rest = like.step, like.missing
    pieces = NumberCells(len(into) + like.missing, low, high, *rest)
    count = len(bins) + like.missing
    return ChosenCells(count, low[first], high[last], *rest, pieces, into, weights)


def pooled_counts(noisy: Array, variance: float, rows: float, cells: NumberCells) -> Array:
    """People in each cell, from noisy counts of all classes together; they add up to `rows`."""
    variances = np.full(len(noisy), variance)
    if isinstance(cells, ChosenCells) and len(cells.counted):
        noisy, variances = cells.combined(noisy, variance)
    return denoised(noisy, variances, rows, len(cells.low))


def shaped(cells: NumberCells, counts: Array) -> ChosenCells:
    """The same cells; inside a bin of one piece, the density leans as it does from bin to bin.

    `counts`: of people in each cell. The slope is the smaller of both sides' and 0 on a peak.
    """
    if not isinstance(cells, ChosenCells):
        bins = zip(cells.low.tolist(), cells.high.tolist(), strict=True)
        plain = of_pieces(cells, [[(low, high, 1.0)] for low, high in bins])
        return shaped(replace(plain, expected=counts[: len(cells.low)]), counts)
    width = cells.high - cells.low + cells.step
    tilt = _tilt(cells.low + width / 2, width, counts[: len(width)])
    made = pieces_of(cells)
    for number, lean in enumerate(tilt):
        if len(made[number]) == 1 and lean:
            slope = lean / width[number]
            made[number] = _leaning(made[number][0], slope, cells.step)
    return with_pieces(cells, made)


def _leaning(piece: Piece, slope: float, step: float) -> list[Piece]:
    """Parts of a piece whose density changes by `slope` times its mean over the unit cube."""
    middle = (piece[0] + piece[1]) / 2
    parts = cut((piece[0], piece[1], 1.0), PIECES, step)
    return [
        (low, high, size * (1 + slope * ((low + high) / 2 - middle))) for low, high, size in parts
    ]


def pieces_of(cells: ChosenCells) -> list[list[Piece]]:
    ends = cells.pieces.low.tolist(), cells.pieces.high.tolist()
    every = list(zip(*ends, cells.weights.tolist(), strict=True))
    first = np.searchsorted(cells.into, np.arange(len(cells.low) + 1)).tolist()
    return [every[one:two] for one, two in pairwise(first)]


def with_pieces(cells: ChosenCells, bins: list[list[Piece]]) -> ChosenCells:
    kept = {name: getattr(cells, name) for name in ("expected", "group", "counted", "variances")}
    return replace(of_pieces(cells, bins), **kept)


def _tilt(middle: Array, width: Array, counts: Array) -> Array:
    """How much density changes from end to end of each bin, over its mean: from -2 to 2."""
    tilt = np.zeros(len(width))
    some = np.flatnonzero((width > 0) & (counts > 0))
    width, density = width[some], counts[some] / width[some]
    if len(some):
        place = middle[some]
        place = np.concatenate([[place[0] - width[0]], place, [place[-1] + width[-1]]])
        rise = np.diff(np.concatenate([[0.0], density, [0.0]])) / np.diff(place)
        one, two = rise[:-1], rise[1:]
        slope = np.where(one * two > 0, np.sign(one) * np.minimum(abs(one), abs(two)), 0.0)
        tilt[some] = np.clip(slope * width / density, -2.0, 2.0)
    return tilt


def denoised(noisy: Array, variances: Array, rows: float, bins: int) -> Array:
    """Counts that add up to `rows`, of `bins` bins side by side and, perhaps, a missing value."""
    room = rows + FAR * np.sqrt(variances)
    noisy = np.clip(noisy, -room, room)  # numbers in a file may be any
    gone = np.clip(noisy[bins:], 0.0, rows * (1 - 1e-6))
    present = rows - gone.sum()
    noisy, variances = noisy[:bins], variances[:bins]
    noisy = noisy + (present - noisy.sum()) * variances / variances.sum()
    people = level_means(noisy, variances) + 1e-9 * present / bins
    return np.concatenate([people * (present / people.sum()), gone])


def level_means(noisy: Array, variances: Array) -> Array:
    """What is expected of counts with known noise that stay at one level for some cells each.

    The mean over all ways to cut the cells into runs. A run is either empty or has a level of its
    own, its likeliest; a way to cut is as likely as the noise that it leaves over.
    """
    cells = len(noisy)
    weight = _sums_between(1 / variances)
    total = np.maximum(_sums_between(noisy / variances), 0.0)
    ahead_only = np.triu(np.ones((cells + 1, cells + 1), dtype=bool), 1)
    level = np.where(ahead_only, total / np.where(ahead_only, weight, 1.0), 0.0)
    full = np.where(ahead_only, level * total / 2 - NEW_LEVEL, -np.inf)
    either = np.logaddexp(full, np.where(ahead_only, -NOBODY, -np.inf))
    before, after = np.zeros(cells + 1), np.zeros(cells + 1)  # log-odds of all cuts on either side
    for end in range(1, cells + 1):
        before[end] = np.logaddexp.reduce(before[:end] + either[:end, end])
    for start in range(cells - 1, -1, -1):
        after[start] = np.logaddexp.reduce(either[start, start + 1 :] + after[start + 1 :])
    share = level * np.exp(np.minimum(0.0, before[:, None] + full + after[None, :] - before[cells]))
    return np.array([share[: cell + 1, cell + 1 :].sum() for cell in range(cells)])


def _sums_between(values: Array) -> Array:
    """[i, j]: the sum of values i to j - 1."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return sums[None, :] - sums[:, None]
