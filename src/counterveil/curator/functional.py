"""Mechanism `functional`: the functional mechanism made sound.

The functional mechanism perturbs the coefficients λ of an objective L_D(W) = Σ_φ λ_φ(D)·φ(W). It is
private if the basis φ holds no data. Ours is the public grid of the schema: for any loss ℓ and any
network, L_D(W) = Σ_cell λ_cell·ℓ(cell, W) with λ_cell the number of records in the cell, truncated
to low-order marginals as the paper truncates its polynomial to a degree. All data is in the integer
counts λ; they get exact discrete noise, once; everything after is post-processing.

Formal guarantee: the noisy record that `measure` returns is (ε, δ)-DP (pure ε-DP for δ = 0) under
replace-one of one unit, N public. Proof:

1. The plan looks at public numbers only. It shares out ε, or ρ of zero-concentrated DP (zCDP) where
   there is a δ and Gaussian noise is the smaller one; all of its steps share the same kind.
2. Each step adds noise that OpenDP's privacy map certifies for the sensitivity stated in
   `coefficients`. With a share of ε it is ε_i-DP (discrete Laplace), with one of ρ it is ρ_i-zCDP
   (discrete Gaussian), whatever the outputs of the steps before it were, on which it may depend.
3. Pure: the ε_i add up to at most ε (basic composition), in exact arithmetic. Concentrated: the ρ_i
   add up to at most ρ, in exact arithmetic, so that all steps together are ρ-zCDP (adaptive
   composition, Bun and Steinke 2016, Lemma 2.3), and `noise.rho_of` gives a ρ for which that is
   (ε, δ)-DP. The δ is spent once, in this last step; no step has a δ of its own.

What is built from the record (population, autoencoder, prototypes, surrogate, counterfactuals) is
post-processing.
"""

from collections.abc import Sequence

from counterveil.curator.bits import measure_bits, plan_bits
from counterveil.curator.images import measure_images, plan_images
from counterveil.curator.mixed import measure_mixed, plan_mixed
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.curator.plan import Plan
from counterveil.curator.table import PrivateTable
from counterveil.errors import RequestError
from counterveil.population.groups import Groups, count_width
from counterveil.population.images import Frequencies
from counterveil.population.mixed import Grid
from counterveil.privacy import Budget
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema


def make_plan(
    schema: Schema,
    rows: int,
    budget: Budget,
    *,
    records: int = 1,
    order: int | None = None,
    groups: Sequence[str] = (),
) -> Plan:
    """The plan for a table of `rows` rows. `order` overrules the choice for mixed tables.

    `groups`: columns of a mixed table whose combinations are counted by themselves. Images: order 1
    asks for low frequencies where random features could be afforded. The shares add up to at most
    the decimals that ε and δ are written as.
    """
    budget = budget.rounded_down()
    if schema.family == "mixed":
        return plan_mixed(schema, rows, budget, records, order, groups)
    if groups:
        raise RequestError("groups are of mixed tables, not of images or sets of bits")
    if schema.family == "binary":
        return plan_bits(schema, rows, budget, records)
    return plan_images(schema, rows, budget, records, order)


def measure(table: PrivateTable, plan: Plan, noise: NoiseSource = EXACT) -> NoisyRecord:
    """Passes over the private rows, noise on every sum of each: all that leaves."""
    if plan.family == "mixed":
        return measure_mixed(table, plan, noise)
    if plan.family == "binary":
        return measure_bits(table, plan, noise)
    return measure_images(table, plan, noise)


def record_bytes(schema: Schema, plan: Plan) -> int:
    """How large the noisy integers of a plan can be in a file, whatever the rows are."""
    classes = len(schema.label.classes)
    if plan.family == "binary":
        numbers = schema.width + classes * (1 + schema.width)
    elif plan.family == "image":
        numbers = classes * (1 + 2 * plan.features)
        if not plan.features:
            numbers = classes * (1 + Frequencies(schema.images[0], plan.frequencies).width)
    else:
        grid, features = Grid(schema, plan.fine), len(schema.features)
        coarse = sorted(int(merge.max()) + 1 for merge in grid.merged(plan.coarse))
        pairs = plan.pairs * coarse[-1] ** 2  # whichever they are
        moments = features * (features + 2 * classes + 1) // 2 if plan.norm else 0
        numbers = classes * sum(each.count for each in grid.cells) + pairs + moments
        if plan.groups:
            groups = Groups(schema, plan.groups)
            numbers += classes * groups.count * count_width(grid, groups)
    return 8 * numbers
