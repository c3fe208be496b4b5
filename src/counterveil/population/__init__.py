"""Noisy record -> a distribution P~ to sample from. Post-processing: sees no private row."""

from counterveil.errors import VeilError
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
    "population_of",
]


def population_of(schema: Schema, record: NoisyRecord) -> Population:
    """P~ of a record: the same record always gives the same P~, at no privacy cost.

    A `VeilError` if the record is not that of a table with this schema.
    """
    if record.family != schema.family:
        raise VeilError("its noisy record does not fit its schema")
    if record.family == "mixed":
        return TreePopulation.of_record(schema, record)
    if record.family == "binary":
        return BitPopulation(NoisyBitSums.of_record(schema, record))
    frequencies = Frequencies.of_schema(schema, record.frequencies)
    classes = len(schema.label.classes)
    return ImagePopulation(frequencies, NoisyImageSums.of_record(frequencies, classes, record))
