"""Noisy record -> a distribution P~ to sample from. Post-processing: sees no private row."""

import re

from counterveil.errors import VeilError
from counterveil.population.base import Population
from counterveil.population.bits import BitPopulation
from counterveil.population.generator import FeaturePopulation, Generator
from counterveil.population.images import ImagePopulation
from counterveil.population.mixed import MixedPopulation
from counterveil.privacy.record import NoisyRecord
from counterveil.schema import Family, Schema

__all__ = [
    "BitPopulation",
    "FeaturePopulation",
    "Generator",
    "ImagePopulation",
    "MixedPopulation",
    "Population",
    "population_of",
]

MEASURED: dict[Family, str] = {  # names of measurements, in order
    "mixed": r"(ranges )?singles( moments( pairs)?)?( spikes)?( groups)?",
    "binary": r"pooled sums",
    "image": r"sums",
}


def population_of(
    schema: Schema, record: NoisyRecord, generator: Generator | None = None
) -> Population:
    """P~ of a record, always the same one; a `VeilError` if the record does not fit the schema.

    A record of random features needs the generator that was trained on it before rows can be drawn.
    """
    names = [measurement.name for measurement in record.measurements]
    known = all(map(str.isalpha, names)) and re.fullmatch(MEASURED[schema.family], " ".join(names))
    if record.family != schema.family or not known:
        raise VeilError("its noisy record does not fit its schema")
    if schema.family == "mixed":
        return MixedPopulation(schema, record)
    if schema.family == "binary":
        return BitPopulation(schema, record)
    if record.features:
        return FeaturePopulation(schema, record, generator)
    return ImagePopulation(schema, record)
