"""Mixed tables: what to count with which share of the budget, and the counting.

Counts of (class, feature) for every feature; where the plan affords them, counts of (class, pair)
along a tree of feature pairs that is itself chosen privately.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from counterveil.curator.coefficients import GridCounts
from counterveil.curator.noise import NoiseSource, calibrate
from counterveil.curator.plan import Plan, drowning, record_of
from counterveil.curator.table import PrivateTable
from counterveil.population.mixed import Grid, TreePopulation
from counterveil.privacy import Budget
from counterveil.privacy.budget import part_of, rest_of
from counterveil.privacy.record import CHOICE, Measurement, NoisyRecord, Sensitivity
from counterveil.schema import Schema

MOST_ROWS = 2**40  # of a table: what is expected of a cell never leaves the range of exact integers
FINE, COARSE = 64, 16  # bins of a number: for its own counts, and for pairs
SHARE_CHOICE = 0.05  # of ε, for choosing the tree
SHARE_PAIRS = 0.30  # of ε, for the pairs; the rest is for single features, which tell classes apart
ORDER_TWO_FROM = 0.08  # rows in an average cell of a pair, over the noise scale
ROWS_A_BIN = 2.0  # expected rows of a class in a bin, over the noise scale


def plan_mixed(schema: Schema, rows: int, budget: Budget, records: int, order: int | None) -> Plan:
    features, classes = len(schema.features), len(schema.label.classes)
    cells = np.array([merge.max() + 1 for merge in Grid(schema, FINE).merged(COARSE)])
    epsilon = budget.epsilon
    signal, cells_of_pair = 0.0, 0.0
    if features > 1:
        cells_of_pair = float(np.outer(cells, cells)[np.triu_indices(features, 1)].mean())
        tables = Sensitivity.of_counts(features - 1, records)
        noise = calibrate(tables.l1, tables.l2, SHARE_PAIRS * epsilon, budget.delta / 2)
        signal = rows / (classes * cells_of_pair) / math.sqrt(noise.variance / 2)
    chosen = 2 if signal >= ORDER_TWO_FROM else 1
    compared = "at least" if chosen == 2 else "under"
    reasons = [
        f"an average cell of (class, pair) expects {rows / (classes * cells_of_pair):.0f} rows, "
        f"{signal:.2g} times the noise scale: {compared} {ORDER_TWO_FROM:g}, so order {chosen}"
        if features > 1
        else "one feature has no pairs: order 1"
    ]
    if order is not None and order != chosen:
        reasons.append(f"order {order} was asked for all the same")
    order = min(order or chosen, 2 if features > 1 else 1)
    if order == 1:
        shares: tuple[float, ...] = (epsilon,)
        reasons.append(f"all of ε on {features} tables (class, feature)")
    else:
        shares = SHARE_CHOICE * epsilon, SHARE_PAIRS * epsilon
        shares = (rest_of(epsilon, *shares), *shares)
        reasons.append(
            f"ε: {shares[0] / epsilon:.0%} on {features} tables (class, feature), "
            f"{SHARE_CHOICE:.0%} on choosing a tree, {SHARE_PAIRS:.0%} on its "
            f"{features - 1} tables (class, pair)"
        )
    scale = Sensitivity.of_counts(features, records).l1 / shares[0]
    fine = int(np.clip(rows / (classes * ROWS_A_BIN * scale), COARSE // 2, FINE))
    reasons.append(
        f"{fine} bins a number: {rows / (classes * fine):.0f} rows of a class in an average bin, "
        f"noise scale {scale:.0f}"
    )
    why, warnings = tuple(reasons), drowning(rows, classes, scale)
    return Plan("mixed", order, shares, budget.delta, records, why, warnings, fine, COARSE)


def measure_mixed(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    grid = Grid(table.schema, plan.fine)
    classes, features = len(table.schema.label.classes), len(grid.cells)
    private_counts = GridCounts(grid, classes, grid.merged(plan.coarse), pairs=plan.order == 2)
    for private_points, private_classes in table.private_batches():
        private_counts.add(private_points, private_classes)

    delta = plan.delta / 2 if plan.order == 2 else plan.delta
    what = f"counts of (class, feature) for {features} features"
    bound, budget = Sensitivity.of_counts(features, plan.records), Budget(plan.epsilons[0], delta)
    singles = noise.perturb("singles", what, private_counts.singles, bound, budget)
    record = record_of(table, plan, singles)
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
