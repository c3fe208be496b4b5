"""The plan: what to measure with which share of the budget, from public numbers alone.

The steps of a plan share out one number. Without δ that is ε: every step is pure ε-DP, by Laplace
noise, and the ε add up. With δ it may be ρ of zero-concentrated DP: every step is ρ-zCDP, by
Gaussian noise, the ρ add up, and their sum gives (ε, δ). Which of both is decided by the noise on
the main sums of the plan. No plan mixes them.

Rows, classes, cells, ε and δ are public, so the plan costs nothing and can be printed before a
single row is read. It gives its reasons, and warns where class structure must drown in the noise.
Each family of data has its own room: `mixed`, `bits`, `images`.
"""

from dataclasses import dataclass

from counterveil.curator.noise import calibrate, rho_of
from counterveil.curator.table import PrivateTable
from counterveil.pages import notebook_table
from counterveil.privacy import Budget, Share
from counterveil.privacy.budget import amount_of, with_amount
from counterveil.privacy.record import Measurement, NoisyRecord, Sensitivity

DELTAS = (0.0, 1e-9, 1e-6)  # what a plan is compared at
LEAST_OVER_NOISE = 10.0  # rows of a class, in scales of the noise, for classes to be told apart
# What a noisy record holds of its plan.
OF_TABLES = ("fine", "coarse", "ranges", "norm", "groups", "ones")
OF_IMAGES = ("frequencies", "features")
SETTINGS = (*OF_TABLES, *OF_IMAGES, "fixed_point")


@dataclass(frozen=True)
class Plan:
    """What to measure. `shares` are those of the steps, in order; None for a step not taken.

    Where groups were named, their share is one more, the last.
    """

    family: str
    order: int
    shares: tuple[Share | None, ...]
    records: int
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    units: int = 0  # how many rows or people it was made for: public
    noise: float = 0.0  # mixed: the deviation of the noise on a count, in rows
    link_noise: float = 0.0  # mixed: that on the correlation of two features, about
    fine: int = 1  # mixed: bins of a number for its own counts
    coarse: int = 1  # mixed: bins of a number for pairs
    ranges: int = 0  # mixed: so many numbers are counted on ladders first
    norm: int = 0  # mixed: that rows are cut to for moments, 1 or 2; 0 without moments
    pairs: int = 0  # mixed: so many pairs are counted
    groups: tuple[int, ...] = ()  # mixed: the features that make groups which were named
    ones: int = 0  # bits: at most so many a record
    frequencies: int = 0  # images: side of the square of low frequencies
    features: int = 0  # images: random Fourier features, in place of frequencies
    l1_clip: int = 0
    l2_clip: int = 0
    fixed_point: int = 1

    @property
    def readings(self) -> int:
        """How often the rows are read: where to count may depend on a first, noisy look."""
        return 1 + bool(self.ranges) + bool(self.norm) + bool(self.pairs)

    @property
    def headline(self) -> str:
        """What is measured, in a few words."""
        if self.family != "mixed":
            return "measure sums"
        return "measure features and what goes together" if self.norm else "measure features alone"

    def _repr_html_(self) -> str:
        return notebook_table(
            f"Plan: {self.headline}",
            [
                ("readings of the rows", self.readings),
                ("made for", f"{self.units:,} rows or people"),
            ],
            headings=("reasons",),
            rows=[(reason,) for reason in self.reasons],
            warning=" ".join(f"{words[:1].upper()}{words[1:]}." for words in self.warnings),
        )

    def text(self) -> str:
        lines = [self.headline]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  ! {warning}" for warning in self.warnings]
        return "\n".join(lines)


def about(number: float) -> str:
    """A number with two digits that count: 410, 0.011."""
    return f"{float(f'{number:.2g}'):,g}"


@dataclass(frozen=True)
class AtDelta:
    """What the plan of a mixed table would be at this δ; `HEADINGS` of its cells.

    `noise`, `link_noise`: as those of the plan; 0 where none is measured.
    """

    delta: float
    noise: float
    link_noise: float
    measured: str

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The numbers as a person reads them."""
        link = about(self.link_noise) if self.link_noise else "not measured"
        return f"{self.delta:g}", f"about {about(self.noise)} rows", link, self.measured


HEADINGS = ("δ", "a count is off by", "a correlation by", "measured")


def at_delta(plan: Plan, delta: float) -> AtDelta:
    """What a plan that was made for this δ has to be compared by."""
    measured = "what goes together" if plan.norm else "features alone"
    measured += f", {plan.pairs} pairs in full" if plan.pairs else ""
    return AtDelta(delta, plan.noise, plan.link_noise, measured)


def meaning_of_delta(units: int, unit: str) -> str:
    """What δ means for so many units, each a "record" or a "person", in one sentence."""
    other = "record" if unit == "record" else "person's records"
    return (
        "δ is added to what ε allows: whatever is seen is at most exp(ε) times as likely as with "
        f"any other version of one {other}, plus δ; keep it far below 1/{units:,}"
    )


def less_noise(budget: Budget, part: float, main: Sensitivity) -> Share:
    """What the steps share out, ε or ρ: that of which `part` puts less noise on the main sums.

    Formal guarantee: steps whose ε, or whose ρ, add up to at most what is returned are (ε, δ)-DP
    together, even if each looks at the outputs of those before it.
    """
    pure, rho = Budget(budget.epsilon), rho_of(budget)
    if rho is None:
        return pure
    laplace, gaussian = (
        calibrate(main.l1, main.l2, with_amount(total, part * amount_of(total))).variance
        for total in (pure, rho)
    )
    return rho if gaussian < laplace else pure


def drowning(rows: int, classes: int, scale: float) -> tuple[str, ...]:
    """A warning where the classes of a table cannot be told apart through noise of this scale."""
    times = LEAST_OVER_NOISE * scale / (rows / classes)
    warning = (
        f"{rows / classes:.0f} rows a class, and noise of scale {scale:.0f}: it hides what tells "
        "the classes apart, and answers cannot be compared with people; it takes about "
        f"{about(times)} times the rows or the ε"
    )
    return (warning,) if times > 1 else ()


def record_of(table: PrivateTable, plan: Plan, *measurements: Measurement) -> NoisyRecord:
    """The measurements with the public settings of the plan."""
    return NoisyRecord(
        family=table.schema.family,
        unit=table.unit,
        units=table.size,
        measurements=measurements,
        **{name: getattr(plan, name) for name in SETTINGS},
    )
