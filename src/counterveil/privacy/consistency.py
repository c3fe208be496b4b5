"""The rules by which a statement in a veil file must be consistent, all in one place.

They are public arithmetic on schema, statement and noisy record; nothing of the curator is needed.
"""

import math
from fractions import Fraction

from counterveil.errors import VeilError
from counterveil.privacy.budget import less, sum_above
from counterveil.privacy.record import UNIT, NoisyRecord, check_names
from counterveil.privacy.statement import (
    GAUSSIAN,
    LAPLACE,
    TARGET_MODEL,
    Access,
    Level,
    Statement,
    access_to_bounds,
)
from counterveil.schema import Schema

WITH_A_PROOF = ("functional",)  # mechanisms whose veils may promise something
SLACK = Fraction(1, 10**9)  # relative; accesses add up to all of ε but for this
DELTA_SLACK = 0.05  # relative; the accesses' ρ give all of δ but for this


def check_statement(statement: Statement, schema: Schema, record: NoisyRecord | None) -> None:
    """A VeilError unless a statement in a veil file is consistent with itself and with the file.

    All is public arithmetic. It finds statements that contradict themselves; it cannot find out
    whether the noise was really added: that is what a signer vouches for.

    - Level: `none` or `explainer`. `end-to-end` and `composed` are levels of answers. `explainer`
      needs a mechanism with a proof, an ε, and a schema that is not a draft.
    - Unit: a record belongs to itself, so `max_records` is 1 for records; the noisy record has the
      unit of the statement.
    - Record: mechanism `functional` has a noisy record, whose readings are those of the statement,
      and says how networks were trained on it; the others have none. Bounds in the schema that
      were measured come first, for the same unit.
    - Sums, for mechanisms with a proof: the accesses' ε add up to the statement's, and their δ to
      at most its δ, in exact fractions. (Laplace noise leaves its share of δ unspent.) Or all of
      them but for the bounds state a ρ: their sum gives what is left of the statement's ε and δ,
      and hardly a smaller δ.
    - Noise: every reading with discrete noise has a scale that gives its ε and δ, or its ρ, for the
      sensitivity that it states.
    - Sensitivity: what a noisy record states is at least what follows from the schema, the settings
      in the record and `max_records`. How far frequencies of images were cut is not in a file; of
      them only the counts are checked.
    """
    _check_level(statement, schema)
    if statement.unit == "record" and statement.max_records != 1:
        raise VeilError("its statement contradicts itself: a record has one record")
    if (record is not None) != (statement.mechanism == "functional"):
        raise VeilError("mechanism functional has a noisy record, and no other mechanism has one")
    if record is not None:
        check_names(record, schema.family)
        if record.unit != statement.unit:
            raise VeilError("its noisy record protects another unit than its statement")
        if (*access_to_bounds(schema), *record.accesses) != statement.accesses:
            raise VeilError("its noisy record is not the one its statement tells of")
        _check_sensitivities(statement, schema, record)
    if (statement.recipe is not None) != (record is not None):
        raise VeilError("its statement must say how networks were trained on a noisy record")
    paid = schema.measured
    if paid and (paid.unit, paid.max_records) != (statement.unit, statement.max_records):
        raise VeilError("the bounds in its schema were measured for another unit")
    if statement.mechanism in WITH_A_PROOF:
        _check_sums(statement, schema)
        for access in statement.accesses:
            _check_noise(access)


def _check_level(statement: Statement, schema: Schema) -> None:
    if statement.level not in {Level.NONE, Level.EXPLAINER}:
        raise VeilError(f"its statement claims {statement.level.value}, a level of answers alone")
    if statement.mechanism not in (*WITH_A_PROOF, "dpsgd", "paper"):
        raise VeilError("its statement names a mechanism that there is not")
    if statement.level is Level.EXPLAINER:
        if statement.mechanism not in WITH_A_PROOF or statement.epsilon is None:
            raise VeilError("its statement makes a promise that its mechanism cannot keep")
        if TARGET_MODEL not in statement.exclusions:
            raise VeilError("its statement does not say that the target model is not covered")
        if schema.drafted:
            raise VeilError("its statement makes a promise, but its schema is a draft")


def _check_sums(statement: Statement, schema: Schema) -> None:
    """Whether the readings of the release add up to what is left beside the bounds' price."""
    accesses = statement.accesses[len(access_to_bounds(schema)) :]
    if statement.epsilon is None:
        raise VeilError("its statement does not say what each reading of the rows spends")
    epsilon, delta = statement.epsilon, statement.delta
    if schema.measured is not None:
        epsilon = less(epsilon, schema.measured.epsilon)
        delta = less(delta, schema.measured.delta)
        if epsilon <= 0 or delta < 0:
            raise VeilError("the bounds in its schema cost more than its statement says")
    parts = [access.rho for access in accesses if access.rho is not None]
    if parts:
        if len(parts) < len(accesses):
            raise VeilError("the readings in its statement do not all spend the same: ε, or ρ")
        found = gaussian_delta(sum_above(*parts), epsilon)
        if found > delta * (1 + 1e-9):
            raise VeilError("the readings in its statement spend more than its epsilon and delta")
        if found < delta * (1 - DELTA_SLACK):
            raise VeilError("the readings in its statement do not add up to its epsilon and delta")
        return
    epsilons = [access.epsilon for access in accesses]
    if None in epsilons:
        raise VeilError("its statement does not say what each reading of the rows spends")
    spent = sum(Fraction(each) for each in epsilons if each is not None)
    if not (1 - SLACK) * Fraction(epsilon) <= spent <= _as_written(epsilon):
        raise VeilError("the readings in its statement do not add up to its epsilon")
    if sum(Fraction(access.delta) for access in accesses) > _as_written(delta):
        raise VeilError("the readings in its statement spend more than its delta")


def _as_written(number: float) -> Fraction:
    """A budget as the decimal that it is written as, or as the float nearest to it, if larger."""
    return max(Fraction(number), Fraction(repr(number)))


def _check_noise(access: Access) -> None:
    """Whether the scale gives ε and δ; of other mechanisms there is nothing to compute with."""
    if access.rho is not None:
        if access.l1 is None or access.l2 is None or access.scale is None:
            raise VeilError("its statement does not say how much noise a reading got")
        if access.mechanism != GAUSSIAN or rho_spent(access.l2, access.scale) > access.rho:
            raise VeilError("the noise in its statement is too small for the rho it claims")
        return
    if access.mechanism not in {LAPLACE, GAUSSIAN}:
        return
    l1, scale, epsilon = access.l1, access.scale, access.epsilon
    if l1 is None or access.l2 is None or scale is None or epsilon is None:
        raise VeilError("its statement does not say how much noise a reading got")
    if access.mechanism == GAUSSIAN:
        enough = gaussian_delta(access.concentrated or 0.0, epsilon) <= access.delta * (1 + 1e-9)
    else:
        enough = Fraction(scale) * Fraction(epsilon) >= l1
    if not enough:
        raise VeilError("the noise in its statement is too small for the epsilon it claims")


def rho_spent(l2: float, scale: float) -> Fraction:
    """ρ of discrete Gaussian noise: Δ₂²/(2σ²) (Canonne, Kamath and Steinke 2020)."""
    return (Fraction(l2) / Fraction(scale)) ** 2 / 2


def gaussian_delta(rho: float, epsilon: float) -> float:
    """A δ for which a ρ-zCDP mechanism is (ε, δ)-DP.

    The least over α > 1 of exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath and Steinke 2020,
    Corollary 13). Its logarithm is convex in α; where it is least its derivative
    (2α−1)ρ − ε + ln(1−1/α) is 0. Every α gives a valid δ.
    """
    if rho <= 0:
        return 0.0
    low, high = 0.0, min(1e100, max(1.0, (epsilon + 1) / rho))  # of α − 1; the slope changes sign
    for _ in range(200):
        middle = (low + high) / 2
        slope = (2 * middle + 1) * rho - epsilon - math.log1p(1 / middle)
        low, high = (middle, high) if slope < 0 else (low, middle)
    order, alpha = high, high + 1
    log_delta = order * (alpha * rho - epsilon) - math.log(order)
    log_delta -= alpha * math.log1p(1 / order)
    return math.exp(min(0.0, log_delta))


def _check_sensitivities(statement: Statement, schema: Schema, record: NoisyRecord) -> None:
    features, records, ones = len(schema.features), statement.max_records, max(1, record.ones)
    bits, wider = 4 * (ones + 1), 1 if record.norm == 1 else features + 1
    grouped = 1 + features - len(record.groups)  # histograms, with that of the groups alone
    numbers, point = max(1, record.features), record.fixed_point  # of images
    least: dict[tuple[str, str], tuple[int, int]] = {  # L1 and squared L2, for one record
        ("mixed", "ranges"): (2 * record.ranges, 2 * record.ranges),
        ("mixed", "spikes"): (2 * record.ranges, 2 * record.ranges),
        ("mixed", "singles"): (2 * features, 2 * features),
        ("mixed", "moments"): (2 * wider * UNIT**2, 4 * UNIT**4),
        ("mixed", "pairs"): (2 * len(record.pairs), 2 * len(record.pairs)),
        ("mixed", "groups"): (2 * grouped, 2 * grouped),
        ("binary", "pooled"): (2 * ones, 4 * ones),
        ("binary", "sums"): (2 * (ones + 1), bits),
        ("image", "sums"): (2 * numbers * point, 4 * numbers * point**2),
    }
    for found in record.measurements:
        l1, l2_squared = least[record.family, found.name]
        stated = found.sensitivity
        if stated.l1 < l1 * records or Fraction(stated.l2) ** 2 < l2_squared * records**2:
            raise VeilError("its noisy record states a smaller sensitivity than its sums have")
