"""Noisy record -> a distribution P~ to sample from. Post-processing: sees no private row."""

from counterveil.population.base import Population
from counterveil.population.bits import BitPopulation
from counterveil.population.generator import FeaturePopulation, Generator
from counterveil.population.images import ImagePopulation
from counterveil.population.mixed import MixedPopulation
from counterveil.privacy.record import NoisyRecord, check_names
from counterveil.schema import Schema

__all__ = [
    "BitPopulation",
    "FeaturePopulation",
    "Generator",
    "ImagePopulation",
    "MixedPopulation",
    "Population",
    "population_of",
]


def population_of(
    schema: Schema, record: NoisyRecord, generator: Generator | None = None
) -> Population:
    """P~ of a record, always the same one; a `VeilError` if the record does not fit the schema.

    A record of random features needs the generator that was trained on it before rows can be drawn.
    """
    check_names(record, schema.family)
    if schema.family == "mixed":
        return MixedPopulation(schema, record)
    if schema.family == "binary":
        return BitPopulation(schema, record)
    if record.features:
        return FeaturePopulation(schema, record, generator)
    return ImagePopulation(schema, record)
