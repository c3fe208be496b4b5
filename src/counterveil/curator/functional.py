"""Mechanism `functional`: the functional mechanism made sound.

The functional mechanism perturbs the coefficients λ of an objective L_D(W) = Σ_φ λ_φ(D)·φ(W). It is
private if the basis φ holds no data. Ours is the public grid of the schema: for any loss ℓ and any
network, L_D(W) = Σ_cell λ_cell·ℓ(cell, W) with λ_cell the number of records in the cell, truncated
to low-order marginals as the paper truncates its polynomial to a degree. All data is in the integer
counts λ; they get exact discrete noise, once; everything after is post-processing.

Formal guarantee: the noisy record that `measure` returns is (ε, δ)-DP (pure ε-DP for δ = 0) under
replace-one of one unit, N public. Proof: each step below adds noise that OpenDP's privacy map
certifies for the sensitivity stated in `coefficients`, or selects by a certified noisy maximum; the
steps' parameters add up to those of the plan (basic composition); the plan looks at public numbers
only. What is built from the record (population, autoencoder, prototypes, surrogate,
counterfactuals) is post-processing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counterveil.curator.coefficients import BoundedSums, GridCounts
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.population.mixed import Grid, TreePopulation
from counterveil.population.sums import Frequencies
from counterveil.privacy import Budget
from counterveil.privacy.budget import part_of
from counterveil.privacy.record import CHOICE, Measurement, NoisyRecord, Sensitivity
from counterveil.schema import Schema

MOST_ROWS = 2**40  # of a table: what is expected of a cell never leaves the range of exact integers


def measure(table: PrivateTable, plan: Plan, noise: NoiseSource = EXACT) -> NoisyRecord:
    """One pass over the private rows, then noise on every sum: all that leaves the private side.

    The curator always uses the exact noise; an audit may give a `noise` that listens.
    """
    if plan.family == "mixed":
        return _measure_mixed(table, plan, noise)
    if plan.family == "binary":
        return _measure_bits(table, plan, noise)
    return _measure_image(table, plan, noise)


def record_bytes(schema: Schema, plan: Plan) -> int:
    """How large the noisy integers of a plan can be in a file, whatever the rows are."""
    classes = len(schema.label.classes)
    if plan.family == "binary":
        numbers = schema.width + classes * (1 + schema.width)
    elif plan.family == "image":
        numbers = classes * (1 + Frequencies(schema.images[0], plan.frequencies).width)
    else:
        grid = Grid(schema, plan.fine)
        coarse = [int(merge.max()) + 1 for merge in grid.merged(plan.coarse)]
        pairs = max(coarse) * sum(coarse) if plan.order == 2 else 0  # of any tree
        numbers = classes * (sum(each.count for each in grid.cells) + pairs)
    return 8 * numbers


def _record(table: PrivateTable, plan: Plan, *measurements: Measurement) -> NoisyRecord:
    """The measurements with the public settings of the plan."""
    return NoisyRecord(
        family=table.schema.family,
        unit=table.unit,
        units=table.size,
        measurements=measurements,
        fine=plan.fine,
        coarse=plan.coarse,
        ones=plan.ones,
        frequencies=plan.frequencies,
        fixed_point=plan.fixed_point,
    )


def _measure_mixed(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    grid = Grid(table.schema, plan.fine)
    classes, features = len(table.schema.label.classes), len(grid.cells)
    private_counts = GridCounts(grid, classes, grid.merged(plan.coarse), pairs=plan.order == 2)
    for private_points, private_classes in table.private_batches():
        private_counts.add(private_points, private_classes)

    delta = plan.delta / 2 if plan.order == 2 else plan.delta
    what = f"counts of (class, feature) for {features} features"
    bound, budget = Sensitivity.of_counts(features, plan.records), Budget(plan.epsilons[0], delta)
    singles = noise.perturb("singles", what, private_counts.singles, bound, budget)
    record = _record(table, plan, singles)
    if plan.order == 1:
        return record

    independent = TreePopulation(table.schema, record)
    tree = choose_tree(private_counts, independent, plan, noise)
    what = f"counts of (class, pair) along the tree, {features - 1} pairs"
    private_pairs = np.concatenate([private_counts.pair(*edge).ravel() for edge in tree.values])
    bound = Sensitivity.of_counts(features - 1, plan.records)
    pairs = noise.perturb("pairs", what, private_pairs, bound, Budget(plan.epsilons[2], delta))
    return replace(record, measurements=(singles, tree, pairs))


def choose_tree(
    private_counts: GridCounts, independent: TreePopulation, plan: Plan, noise: NoiseSource
) -> Measurement:
    """A spanning tree of strongly dependent pairs, grown edge by edge by noisy maxima.

    The score of a pair is the L1 distance of its exact counts to the whole numbers nearest to what
    independence inside the classes would give, computed from the noisy counts alone. Replacing a
    unit moves at most `records` from cells to cells, so a score changes by at most 2·records. Each
    of the F−1 choices is ε/(F−1)-DP, rounded down; which pairs are open depends on earlier choices
    alone. The values are (F−1, 2): parent and child of each edge.
    """
    features, sensitivity = private_counts.features, 2 * plan.records
    epsilon = part_of(plan.epsilons[1], features - 1)  # of one choice
    private_scores = np.zeros((features, features), dtype=np.int64)
    for one in range(features):
        for two in range(one):
            expected = np.clip(independent.expected_pair(one, two), 0, MOST_ROWS)
            away = private_counts.pair(one, two) - np.round(expected).astype(np.int64)
            private_scores[one, two] = private_scores[two, one] = np.abs(away).sum()
    inside, tree = [0], []
    while len(inside) < features:
        open_edges = [(i, j) for i in inside for j in range(features) if j not in inside]
        scores = [int(private_scores[edge]) for edge in open_edges]
        chosen = open_edges[noise.choose(scores, sensitivity, epsilon)]
        tree.append(chosen)
        inside.append(chosen[1])
    return Measurement(
        name="tree",
        what=f"choice of a tree of {features - 1} feature pairs",
        values=np.array(tree, dtype=np.int64),
        sensitivity=Sensitivity(sensitivity, float(sensitivity)),
        mechanism=CHOICE,
        scale=2 * sensitivity / epsilon,
        epsilon=plan.epsilons[1],
        delta=0.0,
    )


def _measure_bits(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    bits, classes = table.encoding.width, len(table.schema.label.classes)
    private_sums = BoundedSums(bits, classes, plan.ones, plan.ones, count_weight=1)
    private_pooled = np.zeros(bits, dtype=np.int64)
    for private_points, private_classes in table.private_batches():
        kept = keep_ones(private_points.astype(np.int64), plan.ones)
        private_sums.add(kept, private_classes)
        private_pooled += kept.sum(axis=0)
    for_pooled, for_sums = (Budget(epsilon, plan.delta / 2) for epsilon in plan.epsilons)
    what = f"pooled sums of {bits} bits"
    bound = Sensitivity.of_sums(plan.ones, plan.ones, plan.records)
    pooled = noise.perturb("pooled", what, private_pooled, bound, for_pooled)
    what = f"counts and sums of {bits} bits for {classes} classes"
    bound = private_sums.sensitivity(plan.records)
    sums = noise.perturb("sums", what, private_sums.sums, bound, for_sums)
    return _record(table, plan, pooled, sums)


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
        order = np.where(crowded > 0, rank[(np.arange(bits) + turn[:, None]) % bits], bits)
        limit = np.partition(order, most - 1, axis=1)[:, most - 1 : most]
        kept[full] = crowded * (order <= limit)
    return kept


def _measure_image(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    frequencies = Frequencies(table.schema.images[0], plan.frequencies)
    width, classes = frequencies.width, len(table.schema.label.classes)
    private_sums = BoundedSums(width, classes, plan.l1_clip, plan.l2_clip**2, plan.fixed_point)
    for private_points, private_classes in table.private_batches():
        private_sums.add(frequencies.whole(private_points, plan.fixed_point), private_classes)
    what = f"counts and sums of {width} frequencies for {classes} classes"
    bound, budget = private_sums.sensitivity(plan.records), Budget(plan.epsilons[0], plan.delta)
    sums = noise.perturb("sums", what, private_sums.sums, bound, budget)
    return _record(table, plan, sums)
