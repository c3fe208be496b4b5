"""The noisy record: every number that ever leaves the private side, and how it was made.

`curator.functional` ends in a `NoisyRecord` and in nothing else. The record is (ε, δ)-DP under
replace-one of one unit: the ε of its measurements add up to ε or, where they state a ρ each, these
add up to a ρ whose zero-concentrated DP gives (ε, δ). Whatever is computed from it is
post-processing. A veil file carries it as two members: `record.json` (all but the integers) and
`record.safetensors` (the integers of each measurement, under its name).
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, PlainValidator, TypeAdapter
from pydantic.dataclasses import dataclass
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from counterveil.errors import VeilError
from counterveil.privacy.budget import Budget, Rho, Share
from counterveil.privacy.statement import LAPLACE, Access, Mechanism
from counterveil.schema import Family
from counterveil.schema.columns import Array

MEMBERS = ("record.json", "record.safetensors")
UNIT = 1 << 10  # the norm that rows of whole numbers are cut to, for moments

MEASURED: dict[Family, str] = {  # names of measurements, in order
    "mixed": r"(ranges )?singles( moments( pairs)?)?( spikes)?( groups)?",
    "binary": r"pooled sums",
    "image": r"sums",
}

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


@dataclass(frozen=True, config=_STRICT)
class Sensitivity:
    """How far a vector of integers can move when one unit is replaced (L1 and L2 distance)."""

    l1: Annotated[int, Field(ge=1)]
    l2: Annotated[float, Field(gt=0)]

    @classmethod
    def of_counts(cls, tables: int, records: int) -> Sensitivity:
        """Of `tables` histograms of the same records, for units of at most `records` records.

        A replaced record leaves one cell and enters another in each table: Δ₁ = 2·tables·records,
        Δ₂ = √(2·tables)·records.
        """
        return cls(2 * tables * records, root_above(2 * tables * records**2))

    @classmethod
    def of_sums(cls, l1: int, l2_squared: int, records: int) -> Sensitivity:
        """Of sums of vectors with bounded norms: one is taken away and another one added."""
        return cls(2 * l1 * records, root_above(4 * l2_squared * records**2))

    @classmethod
    def of_moments(cls, norm: int, features: int, records: int) -> Sensitivity:
        """Of second moments of rows of an L1 norm (`norm` 1) or an L2 norm (2) of at most UNIT.

        Δ₂ = 2·UNIT²·records; Δ₁ = 2·UNIT²·records for the L1 norm, times features + 1 for the L2
        norm. `coefficients.MomentSums` has the proof.
        """
        wider = 1 if norm == 1 else features + 1
        return cls(2 * wider * UNIT**2 * records, root_above(4 * UNIT**4 * records**2))

    def __str__(self) -> str:
        return f"L1 {self.l1}, L2 {self.l2:.4g}"


def root_above(square: int) -> float:
    """The square root, rounded up: a sensitivity may be stated too large, never too small."""
    return math.nextafter(math.sqrt(square), math.inf)


def noise_variance(mechanism: str, scale: float) -> float:
    """Variance of one draw (of the continuous distribution, which is larger by less than 1)."""
    square = scale * scale  # infinite where ** would overflow
    return 2 * square if mechanism == LAPLACE else square


def _integers(values: Any) -> Array:
    """A copy of an int64 array that cannot be written to."""
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise ValueError("the values of a measurement must be an array of 64-bit integers")
    kept = np.array(values, order="C")
    kept.flags.writeable = False
    return kept


@dataclass(frozen=True, eq=False, config=_STRICT)
class Measurement:
    """Noisy integers: what one unit can do to the exact ones, their noise, and what it spends."""

    name: str
    what: str
    values: Annotated[Array, PlainValidator(_integers)]
    sensitivity: Sensitivity
    mechanism: Mechanism
    scale: Annotated[float, Field(gt=0)]
    epsilon: Annotated[float, Field(gt=0)] | None
    delta: Annotated[float, Field(ge=0, lt=1)]
    rho: Annotated[float, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None) or (self.rho is not None and self.delta):
            raise ValueError("a measurement spends (ε, δ) or ρ, and not both")

    @property
    def share(self) -> Share:
        if self.rho is not None:
            return Rho(self.rho)
        return Budget(0.0 if self.epsilon is None else self.epsilon, self.delta)

    @property
    def variance(self) -> float:
        return noise_variance(self.mechanism, self.scale)

    @property
    def access(self) -> Access:
        """This reading of the private rows as the statement tells it."""
        alike = ("what", "mechanism", "scale", "epsilon", "delta", "rho")
        same: dict[str, Any] = {name: getattr(self, name) for name in alike}
        bound = self.sensitivity
        return Access(sensitivity=str(bound), l1=bound.l1, l2=bound.l2, **same)


def spent_by(share: Share) -> dict[str, Any]:
    """The fields of a measurement that say what it spends."""
    if isinstance(share, Rho):
        return {"epsilon": None, "delta": 0.0, "rho": share.rho}
    return {"epsilon": share.epsilon, "delta": share.delta}


@dataclass(frozen=True, eq=False, config=_STRICT)
class NoisyRecord:
    """All measurements of one release and the public settings needed to read them.

    | family | measurement | values (int64) |
    |---|---|---|
    | mixed | `ranges` | (cells of the ladders of all wide numbers side by side): counts |
    | mixed | `singles` | (classes, cells of all features side by side): counts |
    | mixed, order 2 | `moments` | flat: of features i ≤ j, row by row; of (class, feature) |
    | mixed, order 2 | `pairs` | flat: (cell of one, cell of the other) of each pair in turn |
    | mixed | `spikes` | (slices of the bins of all wide numbers side by side): counts |
    | mixed | `groups` | (combinations · classes, 1 + coarse cells of all other features): counts |
    | binary | `pooled` | (bits,): sums of each bit |
    | binary | `sums` | (classes, 1 + bits): class counts, class sums of each bit |
    | image | `sums` | (classes, 1 + channels·frequencies²): class counts, class sums |
    | image, with features | `sums` | (classes, 1 + 2·features): class counts, class sums of φ |
    """

    family: Family
    unit: Literal["record", "person"]
    units: Annotated[int, Field(ge=1, lt=1 << 53)]  # how many there are: public
    measurements: tuple[Measurement, ...]
    fine: Annotated[int, Field(ge=1, le=256)] = 1  # mixed: bins of a number for its own counts
    coarse: Annotated[int, Field(ge=1, le=256)] = 1  # mixed: bins of a number for pairs
    norm: Literal[0, 1, 2] = 0  # mixed: of rows in moments, L1 or L2; 0 without moments
    pairs: tuple[tuple[int, int], ...] = ()  # mixed: of the features that were counted in pairs
    ranges: Annotated[int, Field(ge=0)] = 0  # mixed: so many numbers were counted on ladders
    groups: tuple[int, ...] = ()  # mixed: the features whose values make the groups that were named
    ones: Annotated[int, Field(ge=0)] = 0  # binary: records were cut to at most so many ones
    frequencies: Annotated[int, Field(ge=0, le=1 << 12)] = 0  # image: side of the square of them
    features: Annotated[int, Field(ge=0, le=1 << 14)] = 0  # image: random Fourier features, if any
    fixed_point: Annotated[int, Field(ge=1, le=1 << 30)] = 1  # image: sums are in units of 1/this

    def find(self, name: str) -> Measurement | None:
        return next((found for found in self.measurements if found.name == name), None)

    def read(self, name: str, shape: tuple[int, ...]) -> tuple[Array, float]:
        """Values of a measurement as float64 and the variance of their noise; checks the shape."""
        found = self.find(name)
        if found is None or found.values.shape != shape:
            raise VeilError("its noisy record does not fit its schema")
        return found.values.astype(np.float64), found.variance

    def records(self, noisy_total: float) -> int:
        """How many records there are: public where a unit is a record, otherwise a noisy count."""
        return self.units if self.unit == "record" else max(1, round(noisy_total))

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The readings of the private rows as the statement tells them."""
        return tuple(measurement.access for measurement in self.measurements)


def check_names(record: NoisyRecord, family: Family) -> None:
    """A VeilError unless the record has measurements that a release of this family makes."""
    names = [measurement.name for measurement in record.measurements]
    known = all(map(str.isalpha, names)) and re.fullmatch(MEASURED[family], " ".join(names))
    if record.family != family or not known:
        raise VeilError("its noisy record does not fit its schema")


_RECORD: TypeAdapter[NoisyRecord | None] = TypeAdapter(NoisyRecord | None)


def to_members(record: NoisyRecord | None) -> dict[str, bytes]:
    """The two members of a veil file that hold a record, or say that there is none."""
    measurements = record.measurements if record else ()
    unused = [{"values"} if found.rho else {"values", "rho"} for found in measurements]
    without: Any = {"measurements": dict(enumerate(unused))}
    for name in ("features", "groups"):  # what is not used is written as before it was there
        if record and not getattr(record, name):
            without[name] = True
    text = _RECORD.dump_json(record, indent=2, exclude=without if record else None)
    arrays = save_arrays({found.name: found.values for found in measurements})
    return dict(zip(MEMBERS, (text, arrays), strict=True))


def from_members(members: dict[str, bytes]) -> NoisyRecord | None:
    """The record in the members of a veil file; a ValueError unless it would be written alike."""
    text, arrays = (members[name] for name in MEMBERS)
    content: Any = json.loads(text)
    values = load_arrays(arrays)
    try:
        for entry in content["measurements"] if content is not None else ():
            entry["values"] = values[entry["name"]]
    except (KeyError, TypeError):
        raise ValueError("the record has no measurements") from None
    record = _RECORD.validate_python(content)
    if to_members(record) != {name: members[name] for name in MEMBERS}:
        raise ValueError("the record is not written as records are")
    return record
