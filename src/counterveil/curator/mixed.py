"""Mixed tables: what to count with which share of the budget, and the counting.

| step | what | for |
|---|---|---|
| `ranges` | counts of wide numbers on public ladders, all classes together | where the bins lie |
| `singles` | counts of (class, cell) of every feature | its distribution in each class |
| `moments` | sums of products of the scores of all features | what goes with what |
| `pairs` | counts of the strongest pairs, all classes together | what correlations do not say |
| `spikes` | counts in narrow slices of the bins of wide numbers | values that many people share |
| `groups` | counts of (group, class) with a cell of every other feature | groups that were named |

`singles` are always counted; the others where the noise leaves something of them. Bins follow from
the noisy `ranges`, scores from the noisy `singles`, and which pairs are counted from the noisy
`moments`: each is post-processing, and the rows are read once more for the next step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterveil.curator import coefficients as sums
from counterveil.curator.coefficients import fill
from counterveil.curator.noise import NoiseSource, calibrate, rho_of
from counterveil.curator.plan import Plan, about, drowning, less_noise, record_of
from counterveil.curator.table import PrivateTable
from counterveil.errors import InternalError
from counterveil.population.copula import Copula
from counterveil.population.groups import Groups
from counterveil.population.marginals import Marginals, chosen_grid
from counterveil.population.mixed import Grid
from counterveil.population.moments import LABEL, TYPICAL, Moments, whole_scores
from counterveil.population.numbers import Ladders
from counterveil.population.spikes import Slices
from counterveil.privacy import Budget, Rho, Share
from counterveil.privacy.budget import amount_of, rest_of, with_amount
from counterveil.privacy.record import UNIT, NoisyRecord, Sensitivity
from counterveil.schema import Schema

FINE, COARSE = 32, 16  # bins of a number: for its own counts, and for pairs
MOST_BINS, LEAST_BINS = 128, 12  # of a number whose range was looked for
ROWS_OVER_NOISE = 100.0  # for one bin; how classes differ drowns in many bins first
RANGES_FROM = 15.0  # rows over the noise on a count of all classes
GROUPS = 0.25  # of ε or ρ, where groups are named
SPIKES_FROM = 50.0  # rows over the noise on a slice
MOMENTS_UNTIL = 1.0  # noise on the mean score of an average class
PAIRS_FROM = 0.125  # rows in an average cell of a pair, over the noise scale, a feature
MOST_PAIRS, LEAST_PAIRS = 24, 8
ROWS_A_BIN = 2.0  # expected rows of a class in a bin, over the noise scale
SCORE = {1: 0.6, 2: 0.6}  # an average score, and an average square of one


Pairs = tuple[tuple[int, int], ...]  # the numbers of two features each


@dataclass(frozen=True)
class Parts:
    """Of ε or ρ, for the steps beside the counts of single features, which get the rest."""

    ranges: float
    spikes: float
    moments: float
    pairs: float


OF_EPSILON = Parts(ranges=0.1, spikes=0.05, moments=0.25, pairs=0.15)
OF_RHO = Parts(ranges=0.05, spikes=0.04, moments=0.15, pairs=0.12)


def plan_mixed(
    schema: Schema,
    rows: int,
    budget: Budget,
    records: int,
    order: int | None,
    groups: Sequence[str] = (),
) -> Plan:
    """What to count in a table of `rows` rows of at most `records` a unit.

    With a δ the steps share out ρ, unless Laplace noise on single features would be smaller.
    """
    rho, places = rho_of(budget), Groups.counted(schema, groups).places if groups else ()
    if rho is not None:
        plan = _shared_out(schema, rows, rho, records, order, places)
        bound = Sensitivity.of_counts(len(schema.features), records)
        part = amount_of(plan.shares[1] or rho) / rho.rho
        if less_noise(budget, part, bound) == rho:
            return plan
    return _shared_out(schema, rows, Budget(budget.epsilon), records, order, places)


def _shared_out(
    schema: Schema,
    rows: int,
    whole: Share,
    records: int,
    order: int | None,
    groups: tuple[int, ...],
) -> Plan:
    """The plan whose steps share out all of `whole`; `groups`: the places of their features."""
    every, for_groups = amount_of(whole), GROUPS * amount_of(whole) if groups else 0.0
    whole = with_amount(whole, rest_of(every, for_groups)) if groups else whole
    features, classes = len(schema.features), len(schema.label.classes)
    total, parts = amount_of(whole), _parts(whole)
    norm = 2 if isinstance(whole, Rho) else 1
    chosen, link_noise, why = _order(schema, rows, whole, records)
    reasons = [why]
    if order is not None and order != chosen:
        asked = "is to be measured" if order == 2 else "is not to be measured"
        reasons.append(f"you asked for --order {order}: what goes together {asked} all the same")
    order = min(order or chosen, 2 if features > 1 else 1)
    moments = parts.moments * total if order == 2 else 0.0
    many, why = _pairs(schema, rows, whole, records) if order == 2 else (0, "")
    reasons += [why] if why else []
    pairs = parts.pairs * total if many else 0.0
    wide = sum(feature.is_wide for feature in schema.features)
    looked = parts.ranges * total if wide else 0.0
    spikes = parts.spikes * total if wide and _sees_spikes(wide, rows, whole, records) else 0.0
    singles = rest_of(total, looked, spikes, moments, pairs)
    bound = Sensitivity.of_counts(features, records)
    if wide and rows / (math.sqrt(classes) * _blur(bound, whole, singles)) < RANGES_FROM:
        wide, looked, spikes = 0, 0.0, 0.0
        singles = rest_of(total, moments, pairs)
    blur = _blur(bound, whole, singles)
    amounts = looked, singles, moments, pairs, spikes
    steps = (
        f"where the {wide} numbers lie" if wide > 1 else "where the number lies",
        f"each of {features} columns in each class" if features > 1 else "the column in each class",
        "what goes together",
        f"the {many} strongest pairs",
        "single values that many people share",
    )
    spent = [
        f"{amount / every:.0%} on {what}"
        for amount, what in zip(amounts, steps, strict=True)
        if amount
    ]
    if groups:
        columns = ", ".join(schema.features[place].shown_name for place in groups)
        spent.append(f"{for_groups / every:.0%} on groups: {columns}")
    reasons.append(f"{'ρ' if isinstance(whole, Rho) else 'ε'} goes: {', '.join(spent)}")
    scale = blur / math.sqrt(2)  # of Laplace noise of this deviation
    if wide:
        fine = int(np.clip((rows / blur / ROWS_OVER_NOISE) ** 2, LEAST_BINS, MOST_BINS))
        reasons.append(f"numbers are counted in about {fine} bins, where the first look saw people")
    else:
        fine = int(np.clip(rows / (classes * ROWS_A_BIN * scale), COARSE, FINE))
        reasons.append(
            f"numbers are counted in {fine} bins: a class has {about(rows / (classes * fine))} "
            f"rows in one on average, and a count is off by about {about(blur)}"
        )
    return Plan(
        "mixed",
        order,
        (
            *(with_amount(whole, amount) if amount else None for amount in amounts),
            *([with_amount(whole, for_groups)] if groups else []),
        ),
        records,
        tuple(reasons),
        drowning(rows, classes, scale),
        fine=fine,
        coarse=COARSE,
        ranges=wide,
        groups=groups,
        norm=norm if order == 2 else 0,
        pairs=many,
        noise=blur,
        link_noise=link_noise if order == 2 else 0.0,
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


def _order(schema: Schema, rows: int, whole: Share, records: int) -> tuple[int, float, str]:
    """1 or 2: without or with moments; the noise on a correlation; and why, in words."""
    features, classes = len(schema.features), len(schema.label.classes)
    if features == 1:
        return 1, 0.0, "there is one column: it goes together with nothing"
    norm = 2 if isinstance(whole, Rho) else 1
    bound = Sensitivity.of_moments(norm, features, records)
    blur = _blur(bound, whole, _parts(whole).moments * amount_of(whole))
    room = (1 - LABEL[norm] ** norm) ** (1 / norm)
    size = TYPICAL[norm] * (SCORE[norm] * features) ** (1 / norm) / room  # what UNIT stands for
    of_class = blur / UNIT**2 / (2 * LABEL[norm]) * size / (rows / classes)
    of_pair = blur / UNIT**2 / 2 * size**2 / rows / SCORE[2]
    noise = f"a correlation would be off by about {about(of_pair)}"
    if of_class > MOMENTS_UNTIL:
        return 1, of_pair, f"which columns go together is not measured: {noise}"
    return 2, of_pair, f"which columns go together is measured: {noise}".replace("would be", "is")


def _pairs(schema: Schema, rows: int, whole: Share, records: int) -> tuple[int, str]:
    """How many pairs of features are counted, and why, in words."""
    features = len(schema.features)
    cells = np.array([merge.max() + 1 for merge in Grid(schema, FINE).merged(COARSE)])
    of_pair = float(np.outer(cells, cells)[np.triu_indices(features, 1)].mean())
    expected, amount = rows / of_pair, _parts(whole).pairs * amount_of(whole)
    most = min(MOST_PAIRS, features * (features - 1) // 2)
    for many in range(most, min(LEAST_PAIRS, most) - 1, -1):
        blur = _blur(Sensitivity.of_counts(many, records), whole, amount)
        told = f"a cell holds {about(expected)} rows on average, and is off by about {about(blur)}"
        if expected >= PAIRS_FROM * features * blur / math.sqrt(2):
            return many, f"the {many} strongest pairs of columns are counted in full: {told}"
    return 0, f"no pairs of columns are counted in full: {told}"


def measure_mixed(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    schema = table.schema
    for_ranges, for_singles, for_moments, for_pairs, for_spikes, *for_groups = plan.shares
    measured = []
    if for_ranges is not None:
        ladders = Ladders(schema, plan.fine)
        on_ladders = sums.CellCounts(ladders)
        fill(table, on_ladders)
        private_ranges = on_ladders.counts
        what = f"counts of {plan.ranges} numbers on public ladders"
        bound = Sensitivity.of_counts(plan.ranges, plan.records)
        measured += [noise.perturb("ranges", what, private_ranges, bound, for_ranges)]
    grid = chosen_grid(schema, record_of(table, plan, *measured))
    classes, features = len(schema.label.classes), len(grid.cells)
    if for_singles is None:
        raise InternalError("a plan of a mixed table always counts single features")
    private_counts, in_slices = sums.GridCounts(grid, classes), sums.CellCounts(Slices(grid))
    more = [in_slices] if for_spikes is not None else []
    in_groups = [sums.GroupCounts(grid, Groups(schema, plan.groups), classes)] if for_groups else []
    fill(table, private_counts, *more, *in_groups)
    private_spikes = in_slices.counts
    what = f"counts of (class, feature) for {features} features"
    bound = Sensitivity.of_counts(features, plan.records)
    measured += [noise.perturb("singles", what, private_counts.singles, bound, for_singles)]
    if for_moments is not None:
        known = Marginals(schema, record_of(table, plan, *measured))
        whole = whole_scores(known.scores, known.tables, plan.norm)
        private_sums = sums.MomentSums(grid, whole, classes)
        fill(table, private_sums)
        what = f"second moments of the scores of {features} features, and class sums of scores"
        bound = Sensitivity.of_moments(plan.norm, features, plan.records)
        measured += [noise.perturb("moments", what, private_sums.moments, bound, for_moments)]
    chosen: Pairs = ()
    if for_pairs is not None:
        chosen = _strongest(record_of(table, plan, *measured), known, plan.pairs)
        private_pairs = sums.PairCounts(grid, known.coarse, chosen)
        fill(table, private_pairs)
        what = f"counts of the {len(chosen)} pairs of features that go together most"
        bound = Sensitivity.of_counts(len(chosen), plan.records)
        flat = np.concatenate([counts.ravel() for counts in private_pairs.tables])
        measured += [noise.perturb("pairs", what, flat, bound, for_pairs)]
    if for_spikes is not None:
        what = f"counts in narrow slices of {plan.ranges} numbers"
        bound = Sensitivity.of_counts(plan.ranges, plan.records)
        measured += [noise.perturb("spikes", what, private_spikes, bound, for_spikes)]
    for counted, share in zip(in_groups, for_groups, strict=True):
        if share is not None:
            tables = 1 + features - len(plan.groups)
            what = f"counts of the groups that {len(plan.groups)} columns make, in {tables} tables"
            bound = Sensitivity.of_counts(tables, plan.records)
            measured += [noise.perturb("groups", what, counted.counts, bound, share)]
    return replace(record_of(table, plan, *measured), pairs=chosen)


def _strongest(record: NoisyRecord, known: Marginals, many: int) -> Pairs:
    """The pairs that are counted: from noisy numbers alone."""
    moments = Moments.read(record, known.tables, known.scores, known.rows)
    copula = Copula(known.with_sums(moments), known.scores, moments)
    return copula.strongest(many)
