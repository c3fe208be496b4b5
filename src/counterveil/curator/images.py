"""Images: what to sum with which share of the budget, and the summing.

Two bases of the objective, both free of data and in whole numbers. *Features*: class sums of random
Fourier features φ(x), which see shapes; their L2 norm is 1, their L1 norm is not small, so that
they need Gaussian noise (δ > 0). *Frequencies*: class sums of the low frequencies of the cosine
transform, cut to public norms; they see the mean image of a class and no more.

Formal guarantee: either way the record is (ε, δ)-DP under replace-one of one unit, by one addition
of exact noise to one vector of class sums whose sensitivity `coefficients` states. What a record
adds is a function of that record alone: for features see `population.features`. Which basis, and
how many numbers, is chosen from rows, classes, image size, ε and δ: public.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from counterveil.curator.coefficients import BoundedSums, EmbeddingSums, VectorSums, fill
from counterveil.curator.noise import NoiseSource, calibrate, rho_of
from counterveil.curator.plan import Plan, drowning, less_noise, record_of
from counterveil.curator.table import PrivateTable
from counterveil.encoding import Array
from counterveil.errors import InternalError
from counterveil.population.features import FIXED_POINT, MOST_PIXELS, Features
from counterveil.population.generator import count_weight
from counterveil.population.images import Frequencies
from counterveil.privacy import Budget, Rho
from counterveil.privacy.record import NoisyRecord, Sensitivity, root_above
from counterveil.schema import Pixels, Schema

MOST_FEATURES = 1000
# Noise on a class mean of φ, which is at most 1 long, in any one direction. Beyond, the mean image
# of a class is all that can be seen. Accuracy of the surrogate on training rows that were set aside
# (means of 4 and 6 draws), features against frequencies:
#   noise .03: MNIST .74 / .63; .06: MNIST .48 / .39, 8x8 digits .80 / .63;
#   noise .09: MNIST .23 / .29, 8x8 digits .59 / .47; .12: MNIST .13 / .21, digits .35 / .42.
MOST_NOISE = 0.06
USUAL_DELTA = 1e-6  # what a plan without δ is compared with


def plan_images(
    schema: Schema, rows: int, budget: Budget, records: int, order: int | None = None
) -> Plan:
    """Features where noise and size allow it and `order` is not 1; otherwise frequencies."""
    image, classes = schema.images[0], len(schema.label.classes)
    each = rows / classes
    if order == 1:
        return plan_frequencies(schema, rows, budget, records, "class means only, as asked for")
    if image.width > MOST_PIXELS:
        why = f"images of more than {MOST_PIXELS} numbers are measured by frequencies"
        return plan_frequencies(schema, rows, budget, records, why)
    if budget.delta == 0:
        would_be = noise_of_features(replace(budget, delta=USUAL_DELTA), records)
        why = "δ = 0: random features, which see shapes, need Gaussian noise"
        if would_be is not None and would_be / each <= MOST_NOISE:
            why += f"; with --delta {USUAL_DELTA:g} this table would get them"
        return plan_frequencies(schema, rows, budget, records, why)
    noise = noise_of_features(budget, records)
    if noise is None or noise / each > MOST_NOISE:
        words = "Laplace noise" if noise is None else f"noise of {noise / each:.2g}"
        why = (
            f"{words} on a class mean of random features, of length 1: too much to see shapes "
            f"(at most {MOST_NOISE:g})"
        )
        return plan_frequencies(schema, rows, budget, records, why)
    count = count_of_features(image)
    reasons = (
        f"class sums of {count} random Fourier features: cosines and sines of public random waves, "
        f"in units of 1/{FIXED_POINT}, and the class counts",
        "each image adds a vector of L2 norm 1, whatever it shows; the counts cost no noise",
        f"{each:.0f} rows a class against Gaussian noise of deviation {noise:.3g}: "
        f"{noise / each:.2g} on a class mean (features are worth it up to {MOST_NOISE:g})",
        "a generator learns images whose features have these means: post-processing",
    )
    plan = Plan("image", 1, (rho_of(budget),), records, reasons)
    return replace(plan, features=count, fixed_point=FIXED_POINT)


def count_of_features(image: Pixels) -> int:
    """How many features: four for each pixel are enough.

    Noise of the same total length is added however many there are: more only cost more.
    """
    return min(MOST_FEATURES, max(64, 4 * image.width))


def noise_of_features(budget: Budget, records: int) -> float | None:
    """Deviation of the noise on a class sum of φ in any direction; None where it is not Gaussian.

    >>> round(noise_of_features(Budget(0.75, 1e-6), 1), 1)
    11.9
    """
    unit = 1 << 20
    l2 = root_above(4 * unit**2 * records**2)
    # L1 of many numbers is far larger than L2: Gaussian noise whenever δ allows it.
    bound = Sensitivity(math.ceil(l2 * math.sqrt(MOST_FEATURES)), l2)
    whole = less_noise(budget, 1.0, bound)
    return calibrate(bound.l1, l2, whole).scale / unit if isinstance(whole, Rho) else None


def plan_frequencies(schema: Schema, rows: int, budget: Budget, records: int, why: str) -> Plan:
    """The plan for the low frequencies of the cosine transform; `why` not for features."""
    side = min(schema.images[0].height, schema.images[0].breadth)
    classes = len(schema.label.classes)
    # Frequencies beyond the one whose expected size meets the noise only add noise.
    frequencies = int(np.clip(round(2 * (rows * budget.epsilon / classes) ** 0.25), 4, side // 2))
    frequencies = min(frequencies, side)
    fixed_point = 16
    l1, l2 = round(fixed_point * 1.0 * frequencies * side / 4), fixed_point * side // 2
    reasons = (
        f"the {frequencies}x{frequencies} lowest frequencies of the cosine transform, in units of "
        f"1/{fixed_point}",
        f"each image cut to L1 norm {l1 / fixed_point:g} and L2 norm {l2 / fixed_point:g}: public "
        "bounds from its size",
        why,
    )
    warnings = drowning(rows, classes, 2 * l1 * records / budget.epsilon / fixed_point / 10)
    bound = Sensitivity.of_sums(l1 + fixed_point, l2**2 + fixed_point**2, records)
    plan = Plan("image", 1, (less_noise(budget, 1.0, bound),), records, reasons, warnings)
    return replace(plan, frequencies=frequencies, l1_clip=l1, l2_clip=l2, fixed_point=fixed_point)


def measure_images(table: PrivateTable, plan: Plan, noise: NoiseSource) -> NoisyRecord:
    image, classes = table.schema.images[0], len(table.schema.label.classes)
    if plan.features:
        features, weight = Features(image, plan.features), count_weight(plan.features)
        norms, what = (features.l1, features.l2_squared), f"{plan.features} random features"
        vectors_of: Callable[[Array], Array] = features.whole
        private_sums: BoundedSums = EmbeddingSums(features.width, classes, *norms, weight)
    else:
        frequencies, point = Frequencies(image, plan.frequencies), plan.fixed_point
        norms, what = (plan.l1_clip, plan.l2_clip**2), f"{frequencies.width} frequencies"
        vectors_of = partial(frequencies.whole, fixed_point=point)
        private_sums = BoundedSums(frequencies.width, classes, *norms, point)
    fill(table, VectorSums(vectors_of, private_sums))
    (share,) = plan.shares
    if share is None:
        raise InternalError("a plan of images has one step")
    what = f"counts and sums of {what} for {classes} classes"
    bound = private_sums.sensitivity(plan.records)
    sums = noise.perturb("sums", what, private_sums.sums, bound, share)
    return record_of(table, plan, sums)
