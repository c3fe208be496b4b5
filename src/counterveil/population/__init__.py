"""Noisy record -> a distribution P~ to sample from. Post-processing: sees no private row."""

from collections.abc import Callable
from functools import partial

from counterveil.errors import VeilError
from counterveil.grid import Grid
from counterveil.population.base import Population
from counterveil.population.bits import BitPopulation, NoisyBitSums
from counterveil.population.images import Frequencies, ImagePopulation, NoisyImageSums
from counterveil.population.mixed import Edge, NoisyCounts, TreePopulation
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Schema

__all__ = [
    "BitPopulation",
    "Edge",
    "ImagePopulation",
    "NoisyBitSums",
    "NoisyCounts",
    "NoisyImageSums",
    "Population",
    "TreePopulation",
    "check_record",
    "population_of",
]


MEASURED: dict[str, set[tuple[str, ...]]] = {
    "mixed": {("singles",), ("singles", "tree", "pairs")},
    "binary": {("pooled", "sums")},
    "image": {("sums",)},
}


def population_of(schema: Schema, record: NoisyRecord) -> Population:
    """P~ of a record: the same record always gives the same P~, at no privacy cost.

    A `VeilError` if the record is not that of a table with this schema.
    """
    return _population_maker(schema, record)()


def check_record(schema: Schema, record: NoisyRecord) -> None:
    """A `VeilError` unless `population_of` can read the record with this schema; cheap."""
    _population_maker(schema, record)


def _population_maker(schema: Schema, record: NoisyRecord) -> Callable[[], Population]:
    """Check names and shapes of all measurements; what is returned does the estimation."""
    names = tuple(measurement.name for measurement in record.measurements)
    if record.family != schema.family or names not in MEASURED[schema.family]:
        raise VeilError("its noisy record does not fit its schema")
    if schema.family == "mixed":
        grid = Grid(schema, record.fine)
        return partial(TreePopulation, grid, NoisyCounts.of_record(grid, record))
    if schema.family == "binary":
        return partial(BitPopulation, NoisyBitSums.of_record(schema, record))
    frequencies = Frequencies.of_schema(schema, record.frequencies)
    classes = len(schema.label.classes)
    sums = NoisyImageSums.of_record(frequencies, classes, record)
    return partial(ImagePopulation, frequencies, sums)
