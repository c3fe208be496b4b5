"""Faults in the noise, and in the shares of the budget that pay for it."""

from faults.fault import *  # noqa: F403 - the short names of these lists

_ADD = "noisy = measurement(flat.tolist())"
_REST = "singles = rest_of(total, looked, spikes, moments, pairs)"
_RHO = "rho = float_below(Fraction(low) ** 2 / 2)"
_SINGLES = (
    'measured += [noise.perturb("singles", what, private_counts.singles, bound, for_singles)]'
)

# ruff: noqa: F405
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
           NOISE, "return Noise(LAPLACE, scale, Budget(epsilon))",
           "return Noise(LAPLACE, scale / 2, Budget(epsilon))", (ENOUGH, ONE)),
    Fault("σ without the factor 2", "Gaussian noise of Δ₂/(2√(2ρ)), which OpenDP does not confirm",
          ((NOISE, "_raised(sigma, lambda sigma: _rho(sigma, l2) <= wanted)", "sigma / 2"),
           (NOISE, "if not proved:", "if False:")),
          ((ENOUGH, WIDE), (NUMBERS, WIDE)), delta=SHARP),
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
           MIXED, _REST, "singles = 0.85 * total", (ALONE, TWO), (SHARES, "all families")),
    fault("a share rounded up", "shares add up to more than ε by a hair",
           "privacy/budget.py",
           "near if Fraction(near) <= exact else math.nextafter(near, -math.inf)",
           "near if Fraction(near) >= exact else math.nextafter(near, math.inf)",
           (SHARES, "all families")),
    fault("measured twice at full ε", "two answers about the same counts are averaged",
           MIXED, _SINGLES,
           "asked = what, private_counts.singles, bound, for_singles\n"
           '    one, two = (noise.perturb("singles", *asked) for _ in range(2))\n'
           f"    measured += [{REPLACE}(one, values=(one.values + two.values) // 2)]",
           (ALONE, ONE)),
    gaussian("ρ used by every step, order 2", "singles and moments spend all of ρ each",
              MIXED, "*(with_amount(whole, amount) if amount else None for amount in amounts)",
              "*(whole if amount else None for amount in amounts)", (ALONE, WIDE_TWO)),
    gaussian("ρ used by every step, bits", "pooled sums and class sums spend all of ρ each",
              BIT_SETS, "tuple(with_amount(whole, amount) for amount in amounts)",
              "(whole, whole)", (ALONE, BITS)),
    gaussian("ρ is half of ε squared", "that is what ε gives, and far more than what gives ε and δ",
              NOISE, _RHO, "rho = budget.epsilon**2 / 2",
              (ALONE, WIDE), (NUMBERS, WIDE)),
    gaussian("ρ as if of a larger δ", "the conversion forgets a factor of δ",
              NOISE, "_gaussian_epsilon(1.0, distance, budget.delta) <= budget.epsilon",
              "_gaussian_epsilon(1.0, distance, 1.5 * budget.delta) <= budget.epsilon",
              (ALONE, WIDE)),
    gaussian("shares of ρ with a δ each", "a step of (ε, δ) beside steps of ρ",
              MIXED, 'noise.perturb("moments", what, private_sums.moments, bound, for_moments)',
              'noise.perturb("moments", what, private_sums.moments, bound, Budget(0.15, 0.005))',
              (ALONE, WIDE_TWO)),
    fault("shares of ρ not rounded down", "the shares of ρ add up to more than ρ by a hair",
           MIXED, _REST,
           "singles = math.nextafter(total - looked - spikes - moments - pairs, 9.0)",
           (SHARES, "all families")),
    fault("ρ rounded up", "the ρ of ε and δ is more than OpenDP has proved",
           NOISE, _RHO, "rho = low * low / 2 * (1 + 1e-8)", (SHARES, "all families")),
)
