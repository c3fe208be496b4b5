"""What a planted fault is, and the short names that the lists of them use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHARP = 0.01  # δ of the games and checks of Gaussian noise
SOUND = "none: the sound code"

CURATOR, JOB = "curator/curator.py", "curator/job.py"
MIXED, BIT_SETS, PICTURES = "curator/mixed.py", "curator/bits.py", "curator/images.py"
NOISE, SUMS, DPSGD = "curator/noise.py", "curator/coefficients.py", "curator/dpsgd.py"
RECORD, PLAN, SCORE = "privacy/record.py", "curator/plan.py", "curator/score.py"

# Views of the audit, in short.
ALONE, MOVES, ENOUGH = "the record holds noise alone", "sums move as stated", "the noise is enough"
ITSELF = "every record adds by itself"
STATED, REPEATS, SHARES = "the noise is as stated", "the noise never repeats", "the shares add up"
FOLLOWS, READ = "the veil follows from its record", "rows are read once, after the charge"
REFUSED, ERRORS, COMMAND = "no table is refused", "errors hold no value", "the command"
NUMBERS, SAMPLER = "coefficients", "coefficients, the curator's sampler"
SCORED, COUNTS = "the score holds noise alone", "counts move as stated"
TRAINED, CODES = "training is as stated", "prototypes follow from noisy sums"
ONE, WIDE, TWO, PAIRS = "one feature", "eleven features", "order 2", "order 2, pairs"
WIDE_TWO = "twelve features, order 2"
MOMENTS, LONG, PERSONS_MOMENTS = "moments", "long rows", "one person, moments"
RANGES, SPIKES = "ranges", "spikes"
GROUPS, PERSONS_GROUPS = "groups", "one person, groups"
IN_PARTS = "one person, in parts"
PERSON, BITS, IMAGES = "one person, three records", "bits", "images"
FEATURES, PERSONS_FEATURES = "images, features", "one person, features"
EVERY, SOME = "a canary in every batch", "a canary in some batches"
PLANNED, PUBLIC = "the plan is public", "public parts of the veil"
LARGE, UNFIT = "large vectors", "cells that do not fit"
TEST = "a test"  # with its file and name in the place of a pair

Play = tuple[str, str]  # a view and a pair


@dataclass(frozen=True)
class Fault:
    """A planted fault: (file, old text, new text), what it breaks, and who must find it.

    `plays` are views and pairs of the audit of `mechanism` at ε = 1 and this δ, or tests by name.
    """

    name: str
    breaks: str
    patches: tuple[tuple[str, str, str], ...]
    plays: tuple[Play, ...]
    mechanism: str = "functional"
    delta: float = 0.0


def fault(
    name: str, breaks: str, file: str, old: str, new: str, *plays: Play, **where: Any
) -> Fault:
    """A fault of one change."""
    return Fault(name, breaks, ((file, old, new),), plays, **where)


def gaussian(name: str, breaks: str, file: str, old: str, new: str, *plays: Play) -> Fault:
    """A fault of one change that Gaussian noise shows."""
    return fault(name, breaks, file, old, new, *plays, delta=SHARP)


def in_dpsgd(name: str, breaks: str, *changes: str, plays: Sequence[Play]) -> Fault:
    """A fault of `dpsgd`: old text, new text, and so on."""
    pairs = zip(changes[::2], changes[1::2], strict=True)
    patches = tuple((DPSGD, old, new) for old, new in pairs)
    return Fault(name, breaks, patches, tuple(plays), "dpsgd", SHARP)


def by_test(name: str, breaks: str, file: str, old: str, new: str, test: str) -> Fault:
    """A fault of one change outside what the audit looks at, which a test must see."""
    return fault(name, breaks, file, old, new, (TEST, test))


def in_score(name: str, breaks: str, file: str, old: str, new: str, *plays: Play) -> Fault:
    """A fault of one change of the score of a private model."""
    return fault(name, breaks, file, old, new, *plays, mechanism="score")


REPLACE = '__import__("dataclasses").replace'  # for a patched module that does not import it
