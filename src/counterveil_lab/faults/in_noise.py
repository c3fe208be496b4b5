"""Faults in the noise, and in the shares of the budget that pay for it."""

from counterveil_lab.faults.fault import (
    ALONE,
    BIT_SETS,
    BITS,
    ENOUGH,
    MIXED,
    MOVES,
    NOISE,
    NUMBERS,
    ONE,
    RECORD,
    REPEATS,
    REPLACE,
    SAMPLER,
    SHARES,
    STATED,
    TWO,
    WIDE,
    Fault,
    fault,
    gaussian,
)

_ADD = "noisy = measurement(flat.tolist())"
_SINGLES = "measured += [singles]"

# fmt: off
FAULTS: tuple[Fault, ...] = (
    # Noise
    fault("Laplace noise halved", "half of the stated noise is drawn",
           NOISE, _ADD, "noisy = _sampler(noise.kind, noise.scale / 2, len(flat))(flat.tolist())",
           (STATED, BITS), (SAMPLER, ONE)),
    gaussian("Gaussian noise halved", "half of the stated noise is drawn",
              NOISE, _ADD,
              "noisy = _sampler(noise.kind, noise.scale / 2, len(flat))(flat.tolist())",
              (STATED, BITS)),
    fault("Laplace scale halved in the calibration", "the noise is less than ε needs",
           NOISE, "return Noise(LAPLACE, scale, epsilon, 0.0)",
           "return Noise(LAPLACE, scale / 2, epsilon, 0.0)", (ENOUGH, ONE)),
    gaussian("Gaussian noise for a third of L2", "the noise is less than ε and δ need",
              NOISE, "l1, l2 = sensitivity.l1, sensitivity.l2",
              "l1, l2 = sensitivity.l1, sensitivity.l2 / 3", (ENOUGH, WIDE), (NUMBERS, WIDE)),
    gaussian("Gaussian noise for the root of the tables", "L2 of one table instead of all",
              RECORD, "return cls(2 * tables * records, root_above(2 * tables * records**2))",
              "return cls(2 * tables * records, root_above(2 * records**2))", (MOVES, WIDE)),
    fault("one number without noise", "the first of every list of sums is exact",
           NOISE, "return np.array(noisy, dtype=np.int64).reshape(values.shape)",
           "return np.array([flat[0], *noisy[1:]], dtype=np.int64).reshape(values.shape)",
           (STATED, BITS)),
    fault("noise from a fixed seed", "every release has the same noise, which can be subtracted",
           NOISE, _ADD,
           "dice = np.random.default_rng(7)\n"
           "        noisy = np.rint(flat + dice.laplace(0, noise.scale, len(flat)))",
           (REPEATS, "zeros")),
    fault("noise that a seed steers", "whoever knows the seed can subtract the noise",
           NOISE, _ADD, "noisy = np.rint(flat + np.random.laplace(0, noise.scale, len(flat)))",
           (REPEATS, "zeros")),
    # Shares
    fault("shares of 1.1 ε", "three steps spend more than ε together",
           MIXED, "singles = rest_of(epsilon, looked, tree, pairs, moments)",
           "singles = 0.85 * epsilon", (ALONE, TWO), (SHARES, "all families")),
    fault("a share rounded up", "shares add up to more than ε by a hair",
           "privacy/budget.py",
           "near if Fraction(near) <= exact else math.nextafter(near, -math.inf)",
           "near if Fraction(near) >= exact else math.nextafter(near, math.inf)",
           (SHARES, "all families")),
    fault("measured twice at full ε", "two answers about the same counts are averaged",
           MIXED, _SINGLES,
           'more = noise.perturb("singles", what, private_counts.singles, bound, budget)\n'
           "    mean = (singles.values + more.values) // 2\n"
           f"    measured += [{REPLACE}(singles, values=mean)]", (ALONE, ONE)),
    gaussian("δ used twice, order 2", "singles and pairs spend all of δ each",
              MIXED, "delta = plan.delta / noisy_steps",
              "delta = plan.delta", (ALONE, "twelve features, order 2")),
    gaussian("δ used twice, bits", "pooled sums and class sums spend all of δ each",
              BIT_SETS, "Budget(epsilon, plan.delta / 2)", "Budget(epsilon, plan.delta)",
              (ALONE, BITS)),
)
