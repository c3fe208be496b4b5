"""Mixed tables: what to count with which share of the budget, and the counting.

| step | what | for |
|---|---|---|
| `ranges` | counts of wide numbers on public ladders, all classes together | where the bins lie |
| `singles` | counts of (class, cell) of every feature | its distribution in each class |
| `tree`, `pairs` | counts of pairs along a tree, all classes together | what goes with what |
| `products` | of points of the features that tell most | weights of the private model |
| `spikes` | counts in narrow slices of the bins of wide numbers | values that many people share |

`singles` are always counted; the others where the noise leaves something of them. Bins are chosen
by the noisy `ranges`, so the rows are then read twice; the tree is itself chosen privately, and the
points are read off the noisy `singles`.
"""

import math
from dataclasses import dataclass

import numpy as np

from counterveil.curator.coefficients import CellCounts, GridCounts, fill
from counterveil.curator.noise import NoiseSource, calibrate, rho_of, scale_of_choice
from counterveil.curator.plan import Plan, drowning, less_noise, record_of
from counterveil.curator.table import PrivateTable
from counterveil.errors import InternalError
from counterveil.population.ladder import Ladders
from counterveil.population.mixed import Grid, TreePopulation, chosen_grid
from counterveil.population.scorecard import whole_points
from counterveil.population.spikes import Slices
from counterveil.privacy import Budget, Rho, Share
from counterveil.privacy.budget import amount_of, part_of, rest_of, with_amount
from counterveil.privacy.record import UNIT, Measurement, NoisyRecord, Sensitivity, spent_by
from counterveil.privacy.statement import CHOICE, GUMBEL
from counterveil.schema import Schema

MOST_ROWS = 2**40  # of a table: what is expected of a cell never leaves the range of exact integers
FINE, COARSE = 32, 16  # bins of a number: for its own counts, and for pairs
MOST_BINS, LEAST_BINS = 128, 12  # of a number whose range was looked for
ROWS_OVER_NOISE = 100.0  # for one bin; how classes differ drowns in many bins first
RANGES_FROM = 15.0  # rows over the noise on a count of all classes
ORDER_TWO_FROM = 0.125  # rows in an average cell of a pair, over the noise scale, a feature
SPIKES_FROM = 50.0  # rows over the noise on a slice
PRODUCTS_UNTIL = 0.02  # noise on the correlation of two features that tell equally much
MOST_PRODUCTS, LEAST_PRODUCTS = 12, 4  # features whose products are taken
ROWS_A_BIN = 2.0  # expected rows of a class in a bin, over the noise scale


@dataclass(frozen=True)
class Parts:
    """Of ε or ρ, for the steps beside the counts of single features, which get the rest."""

    ranges: float
    spikes: float
    tree: float
    pairs: float
    products: float


OF_EPSILON = Parts(ranges=0.1, spikes=0.05, tree=0.03, pairs=0.15, products=0.1)
OF_RHO = Parts(ranges=0.05, spikes=0.04, tree=0.02, pairs=0.15, products=0.15)


def plan_mixed(schema: Schema, rows: int, budget: Budget, records: int, order: int | None) -> Plan:
    """What to count in a table of `rows` rows of at most `records` a unit.

    With a δ the steps share out ρ, unless Laplace noise on the counts of single features would be
    smaller.
    """
    rho = rho_of(budget)
    if rho is not None:
        plan = _shared_out(schema, rows, rho, records, order)
        bound = Sensitivity.of_counts(len(schema.features), records)
        part = amount_of(plan.shares[1] or rho) / rho.rho
        if less_noise(budget, part, bound) == rho:
            return plan
    return _shared_out(schema, rows, Budget(budget.epsilon), records, order)


def _shared_out(schema: Schema, rows: int, whole: Share, records: int, order: int | None) -> Plan:
    """The plan whose steps share out all of `whole`."""
    features, classes = len(schema.features), len(schema.label.classes)
    total, parts = amount_of(whole), _parts(whole)
    chosen, why = _order(schema, rows, whole, records)
    reasons = [why]
    if order is not None and order != chosen:
        reasons.append(f"order {order} was asked for all the same")
    order = min(order or chosen, 2 if features > 1 else 1)
    products, why = _products(schema, rows, whole, records)
    reasons.append(why)
    tree = parts.tree * total if order == 2 else 0.0
    pairs = parts.pairs * total if order == 2 else 0.0
    moments = parts.products * total if products else 0.0
    wide = sum(feature.is_wide for feature in schema.features)
    looked = parts.ranges * total if wide else 0.0
    spikes = parts.spikes * total if wide and _sees_spikes(wide, rows, whole, records) else 0.0
    singles = rest_of(total, looked, spikes, tree, pairs, moments)
    bound = Sensitivity.of_counts(features, records)
    if wide and rows / (math.sqrt(classes) * _blur(bound, whole, singles)) < RANGES_FROM:
        wide, looked, spikes = 0, 0.0, 0.0
        singles = rest_of(total, tree, pairs, moments)
    blur = _blur(bound, whole, singles)
    amounts = looked, singles, tree, pairs, moments, spikes
    named = (
        f"the ranges of {wide} numbers",
        f"{features} tables (class, feature)",
        "choosing a tree",
        f"its {features - 1} tables (feature, feature)",
        f"products of {products} features",
        "single values that many people share",
    )
    spent = [
        f"{amount / total:.0%} on {what}"
        for amount, what in zip(amounts, named, strict=True)
        if amount
    ]
    reasons.append(f"{'ρ' if isinstance(whole, Rho) else 'ε'}: {', '.join(spent)}")
    scale = blur / math.sqrt(2)  # of Laplace noise of this deviation
    if wide:
        fine = int(np.clip((rows / blur / ROWS_OVER_NOISE) ** 2, LEAST_BINS, MOST_BINS))
        reasons.append(f"about {fine} bins a number, where the first look says that people are")
    else:
        fine = int(np.clip(rows / (classes * ROWS_A_BIN * scale), COARSE, FINE))
        reasons.append(
            f"{fine} bins a number: {rows / (classes * fine):.0f} rows of a class in an average "
            f"bin, noise scale {scale:.0f}"
        )
    return Plan(
        "mixed",
        order,
        tuple(with_amount(whole, amount) if amount else None for amount in amounts),
        records,
        tuple(reasons),
        drowning(rows, classes, scale),
        fine=fine,
        coarse=COARSE,
        ranges=wide,
        products=products,
    )


def _parts(whole: Share) -> Parts:
    return OF_RHO if isinstance(whole, Rho) else OF_EPSILON


def _blur(bound: Sensitivity, whole: Share, amount: float) -> float:
    """The deviation of the noise that so much of `whole` puts on a sum."""
    return math.sqrt(calibrate(bound.l1, bound.l2, with_amount(whole, amount)).variance)


def _sees_spikes(wide: int, rows: int, whole: Share, records: int) -> bool:
    """Whether values that many people share would stand out of the noise on slices."""
    bound = Sensitivity.of_counts(wide, records)
    return rows >= SPIKES_FROM * _blur(bound, whole, _parts(whole).spikes * amount_of(whole))


def _order(schema: Schema, rows: int, whole: Share, records: int) -> tuple[int, str]:
    """1 or 2, and why."""
    features = len(schema.features)
    if features == 1:
        return 1, "one feature has no pairs: order 1"
    cells = np.array([merge.max() + 1 for merge in Grid(schema, FINE).merged(COARSE)])
    cells_of_pair = float(np.outer(cells, cells)[np.triu_indices(features, 1)].mean())
    tables = Sensitivity.of_counts(features - 1, records)
    blur = _blur(tables, whole, _parts(whole).pairs * amount_of(whole))
    signal = rows / cells_of_pair / (blur / math.sqrt(2))
    # A tree holds one pair in features/2 of all, and takes its share from every feature's counts.
    enough = ORDER_TWO_FROM * features
    order = 2 if signal >= enough else 1
    compared = "at least" if order == 2 else "under"
    return order, (
        f"an average cell of a pair expects {rows / cells_of_pair:.0f} rows, "
        f"{signal:.2g} times the noise scale: {compared} {enough:.2g}, so order {order}"
    )


def _products(schema: Schema, rows: int, whole: Share, records: int) -> tuple[int, str]:
    """Of how many features products are summed, and why."""
    features, classes = len(schema.features), len(schema.label.classes)
    if classes != 2:
        return 0, f"{classes} classes: products of points are for two"
    for many in range(min(features, MOST_PRODUCTS), LEAST_PRODUCTS - 1, -1):
        bound = Sensitivity.of_products(many, records)
        blur = _blur(bound, whole, _parts(whole).products * amount_of(whole))
        ratio = blur / UNIT**2 * many / rows
        if ratio <= PRODUCTS_UNTIL:
            return many, (
                f"the noise on a correlation of {many} features is {ratio:.1g}: their products "
                "give the private model its weights"
            )
    return 0, (
        f"the noise on a correlation would be over {PRODUCTS_UNTIL:g}: no products, every feature "
        "counts by itself in the private model"
    )


def measure_mixed(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    """Count; then noise, step by step."""
    schema = table.schema
    for_ranges, for_singles, for_tree, for_pairs, for_products, for_spikes = plan.shares
    measured = []
    if for_ranges is not None:
        ladders = Ladders(schema, plan.fine)
        on_ladders = CellCounts(ladders)
        fill(table, on_ladders)
        private_ranges = on_ladders.counts
        what = f"counts of {plan.ranges} numbers on public ladders"
        bound = Sensitivity.of_counts(plan.ranges, plan.records)
        measured += [noise.perturb("ranges", what, private_ranges, bound, for_ranges)]
    grid = chosen_grid(schema, record_of(table, plan, *measured))
    classes, features = len(schema.label.classes), len(grid.cells)
    if for_singles is None:
        raise InternalError("a plan of a mixed table always counts single features")
    in_pairs = for_pairs is not None or for_products is not None
    private_counts = GridCounts(grid, classes, grid.merged(plan.coarse), pairs=in_pairs)
    in_slices = CellCounts(Slices(grid))
    fill(table, private_counts, *([in_slices] if for_spikes is not None else []))
    private_spikes = in_slices.counts
    what = f"counts of (class, feature) for {features} features"
    bound = Sensitivity.of_counts(features, plan.records)
    singles = noise.perturb("singles", what, private_counts.singles, bound, for_singles)
    measured += [singles]
    if in_pairs:
        independent = TreePopulation(schema, record_of(table, plan, *measured))
    if for_tree is not None and for_pairs is not None:
        tree = choose_tree(private_counts, independent, plan, noise)
        what = f"counts of pairs along the tree, {features - 1} pairs"
        private_pairs = np.concatenate([private_counts.pair(*edge).ravel() for edge in tree.values])
        bound = Sensitivity.of_counts(features - 1, plan.records)
        pairs = noise.perturb("pairs", what, private_pairs, bound, for_pairs)
        measured += [tree, pairs]
    if for_products is not None:
        whole = whole_points(independent, plan.products)
        what = f"sums of products of points of {len(whole.features)} features"
        bound = Sensitivity.of_products(len(whole.features), plan.records)
        private_products = private_counts.products(whole)
        measured += [noise.perturb("products", what, private_products, bound, for_products)]
    if for_spikes is not None:
        what = f"counts in narrow slices of {plan.ranges} numbers"
        bound = Sensitivity.of_counts(plan.ranges, plan.records)
        measured += [noise.perturb("spikes", what, private_spikes, bound, for_spikes)]
    return record_of(table, plan, *measured)


def choose_tree(
    private_counts: GridCounts, independent: TreePopulation, plan: Plan, noise: NoiseSource
) -> Measurement:
    """A spanning tree of strongly dependent pairs, grown edge by edge by noisy maxima.

    The score of a pair is the L1 distance of its exact counts, pooled over the classes, to the
    whole numbers nearest to what independence inside the classes would give, computed from the
    noisy counts alone. Replacing a unit moves at most `records` from cells to cells, so a score
    changes by at most 2·records. Each of the F−1 choices spends one of F−1 equal parts of the share
    of the tree, in ε or in ρ, rounded down; which pairs are open depends on earlier choices alone,
    so that the parts add up. The values are (F−1, 2): parent and child of each edge.
    """
    features, sensitivity = private_counts.features, 2 * plan.records
    whole = plan.shares[2]
    if whole is None:
        raise InternalError("this plan has no share for a tree")
    each = with_amount(whole, part_of(amount_of(whole), features - 1))  # of one choice
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
        chosen = open_edges[noise.choose(scores, sensitivity, each)]
        tree.append(chosen)
        inside.append(chosen[1])
    return Measurement(
        name="tree",
        what=f"choice of a tree of {features - 1} feature pairs",
        values=np.array(tree, dtype=np.int64),
        sensitivity=Sensitivity(sensitivity, float(sensitivity)),
        mechanism=GUMBEL if isinstance(whole, Rho) else CHOICE,
        scale=scale_of_choice(sensitivity, each),
        **spent_by(whole),
    )
