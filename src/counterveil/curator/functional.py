"""Mechanism `functional`: the functional mechanism made sound.

The functional mechanism perturbs the coefficients λ of an objective L_D(W) = Σ_φ λ_φ(D)·φ(W). It is
private if the basis φ holds no data. Ours is the public grid of the schema: for any loss ℓ and any
network, L_D(W) = Σ_cell λ_cell·ℓ(cell, W) with λ_cell the number of records in the cell, truncated
to low-order marginals as the paper truncates its polynomial to a degree. All data is in the integer
counts λ; they get exact discrete noise, once; everything after is post-processing.

Formal guarantee: the output of `measure` is (ε, δ)-DP (pure ε-DP for δ = 0) under replace-one of
one unit, N public. Proof: each step below adds noise that OpenDP's privacy map certifies for the
sensitivity stated in `coefficients`, or selects by a certified noisy maximum; the steps' parameters
add up to those of the plan (basic composition); the plan looks at public numbers only. What is
built from the output (population, autoencoder, prototypes, surrogate, counterfactuals) is
post-processing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterveil.curator.coefficients import BoundedSums, GridCounts, Sensitivity
from counterveil.curator.noise import Noise, add, calibrate, noisy_max
from counterveil.curator.plan import COARSE, Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.grid import Grid
from counterveil.population import (
    BitPopulation,
    Edge,
    ImagePopulation,
    NoisyBitSums,
    NoisyCounts,
    NoisyImageSums,
    Population,
    TreePopulation,
)
from counterveil.population.images import Frequencies
from counterveil.population.tree import class_totals
from counterveil.privacy import Access

MOST_ROWS = 2**40  # of a table: what is expected of a cell never leaves the range of exact integers
Measured = tuple[Population, tuple[Access, ...]]


def measure(table: PrivateTable, plan: Plan) -> Measured:
    """One pass over the private rows, noise on every sum, and the population it gives."""
    if plan.family == "mixed":
        return _measure_mixed(table, plan)
    if plan.family == "binary":
        return _measure_bits(table, plan)
    return _measure_images(table, plan)


def perturb(
    what: str, exact: Array, sensitivity: Sensitivity, epsilon: float, delta: float
) -> tuple[Array, Noise, Access]:
    """Exact integer sums with the noise that makes them (ε, δ)-DP, and the record of it."""
    noise = calibrate(sensitivity.l1, sensitivity.l2, epsilon, delta)
    noisy = add(exact, noise, sensitivity.l1, sensitivity.l2)
    access = Access(
        what=what,
        mechanism=noise.kind,
        sensitivity=str(sensitivity),
        scale=noise.scale,
        epsilon=epsilon,
        delta=noise.delta,
    )
    return noisy.astype(np.float64), noise, access


def _measure_mixed(table: PrivateTable, plan: Plan) -> Measured:
    grid = Grid(table.schema, plan.fine)
    coarse = grid.merged(COARSE)
    classes = len(table.schema.label.classes)
    private_counts = GridCounts(grid, classes, coarse, pairs=plan.order == 2)
    for private_points, private_classes in table.private_batches():
        private_counts.add(private_points, private_classes)

    features = len(grid.cells)
    delta = plan.delta / 2 if plan.order == 2 else plan.delta
    singles, noise, access = perturb(
        f"counts of (class, feature) for {features} features",
        private_counts.singles,
        Sensitivity.of_counts(features, plan.records),
        plan.epsilons[0],
        delta,
    )
    tables = tuple(
        singles[:, start : start + count]
        for start, count in zip(grid.starts, grid.counts, strict=True)
    )
    noisy = NoisyCounts(_rows(table, tables[0].sum()), tables, noise.variance, coarse, ())
    if plan.order == 1:
        return TreePopulation(grid, noisy), (access,)

    tree = choose_tree(private_counts, grid, noisy, plan.epsilons[1], plan.records)
    choice = Access(
        what=f"choice of a tree of {features - 1} feature pairs",
        mechanism="permute-and-flip, one edge at a time",
        sensitivity=f"each score {2 * plan.records}",
        scale=4 * plan.records * (features - 1) / plan.epsilons[1],
        epsilon=plan.epsilons[1],
    )
    exact = [private_counts.pair(*edge) for edge in tree]
    flat, noise, pairs = perturb(
        f"counts of (class, pair) along the tree, {features - 1} pairs",
        np.concatenate([counts.ravel() for counts in exact]),
        Sensitivity.of_counts(features - 1, plan.records),
        plan.epsilons[2],
        delta,
    )
    edges = []
    for (parent, child), counts in zip(tree, exact, strict=True):
        part, flat = flat[: counts.size], flat[counts.size :]
        edges.append(Edge(parent, child, part.reshape(counts.shape), noise.variance))
    noisy = replace(noisy, edges=tuple(edges))
    return TreePopulation(grid, noisy), (access, choice, pairs)


def _rows(table: PrivateTable, noisy_total: float) -> int:
    """How many records there are: public where a unit is a record, otherwise a noisy count."""
    return table.size if table.unit_column is None else max(1, round(noisy_total))


def choose_tree(
    private_counts: GridCounts, grid: Grid, noisy: NoisyCounts, epsilon: float, records: int
) -> list[tuple[int, int]]:
    """A spanning tree of strongly dependent pairs, grown edge by edge by noisy maxima.

    The score of a pair is the L1 distance of its exact counts to the whole numbers nearest to what
    independence inside the classes would give, computed from the noisy counts alone. Replacing a
    unit moves at most `records` from cells to cells, so a score changes by at most 2·records. Each
    of the F−1 choices is ε/(F−1)-DP.
    """
    features = len(grid.cells)
    totals, population = class_totals(noisy), TreePopulation(grid, noisy)
    private_scores = np.zeros((features, features), dtype=np.int64)
    for one in range(features):
        for two in range(one):
            expected = population.expected_pair(one, two, totals)
            expected = np.round(np.clip(expected, 0, MOST_ROWS)).astype(np.int64)
            score = np.abs(private_counts.pair(one, two) - expected).sum()
            private_scores[one, two] = private_scores[two, one] = score
    inside, tree = [0], []
    while len(inside) < features:
        open_edges = [(i, j) for i in inside for j in range(features) if j not in inside]
        scores = [int(private_scores[edge]) for edge in open_edges]
        chosen = open_edges[noisy_max(scores, 2 * records, epsilon / (features - 1))]
        tree.append(chosen)
        inside.append(chosen[1])
    return tree


def _measure_bits(table: PrivateTable, plan: Plan) -> Measured:
    bits, classes = table.encoding.width, len(table.schema.label.classes)
    private_sums = BoundedSums(bits, classes, plan.ones, plan.ones, count_weight=1)
    private_pooled = np.zeros(bits, dtype=np.int64)
    for private_points, private_classes in table.private_batches():
        kept = keep_ones(private_points.astype(np.int64), plan.ones)
        private_sums.add(kept, private_classes)
        private_pooled += kept.sum(axis=0)
    pooled, pooled_noise, first = perturb(
        f"pooled sums of {bits} bits",
        private_pooled,
        Sensitivity.of_sums(plan.ones, plan.ones, plan.records),
        plan.epsilons[0],
        plan.delta / 2,
    )
    sums, noise, second = perturb(
        f"counts and sums of {bits} bits for {classes} classes",
        private_sums.sums,
        Sensitivity.of_sums(private_sums.l1, private_sums.l2_squared, plan.records),
        plan.epsilons[1],
        plan.delta / 2,
    )
    noisy = NoisyBitSums(
        _rows(table, sums[:, 0].sum()),
        pooled,
        pooled_noise.variance,
        sums[:, 0],
        sums[:, 1:],
        noise.variance,
    )
    return BitPopulation(noisy), (first, second)


def keep_ones(rows: Array, most: int) -> Array:
    """Bits with at most `most` ones a row. Which ones stay depends on the row itself and on public
    dice, never on another row: otherwise one record could move what is kept of all the others.
    """
    bits = rows.shape[1]
    dice = np.random.default_rng(0)
    rank, weights = dice.permutation(bits), dice.integers(0, 1 << 30, bits)
    full = np.flatnonzero(rows.sum(axis=1) > most)
    kept = rows.copy()
    if len(full):
        crowded = rows[full]
        turn = (crowded @ weights) % bits
        order = rank[(np.arange(bits) + turn[:, None]) % bits]
        order = np.where(crowded > 0, order, bits)
        limit = np.partition(order, most - 1, axis=1)[:, most - 1 : most]
        kept[full] = crowded * (order <= limit)
    return kept


def _measure_images(table: PrivateTable, plan: Plan) -> Measured:
    image = table.schema.images[0]
    frequencies = Frequencies(image, plan.frequencies)
    width = image.channels * plan.frequencies**2
    classes = len(table.schema.label.classes)
    weight = plan.fixed_point
    private_sums = BoundedSums(width, classes, plan.l1_clip, plan.l2_clip**2, count_weight=weight)
    for private_points, private_classes in table.private_batches():
        private_sums.add(frequencies.whole(private_points, plan.fixed_point), private_classes)
    sums, noise, access = perturb(
        f"counts and sums of {width} frequencies for {classes} classes",
        private_sums.sums,
        Sensitivity.of_sums(private_sums.l1, private_sums.l2_squared, plan.records),
        plan.epsilons[0],
        plan.delta,
    )
    noisy = NoisyImageSums(
        rows=_rows(table, sums[:, 0].sum() / weight),
        counts=sums[:, 0] / weight,
        sums=sums[:, 1:] / plan.fixed_point,
        variance=noise.variance / plan.fixed_point**2,
    )
    return ImagePopulation(frequencies, noisy), (access,)
