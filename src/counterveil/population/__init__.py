"""Noisy coefficients -> a distribution P~ to sample from. Post-processing: sees no private row."""

from counterveil.population.base import Population
from counterveil.population.bits import BitPopulation, NoisyBitSums
from counterveil.population.images import ImagePopulation, NoisyImageSums
from counterveil.population.tree import Edge, NoisyCounts, TreePopulation

__all__ = [
    "BitPopulation",
    "Edge",
    "ImagePopulation",
    "NoisyBitSums",
    "NoisyCounts",
    "NoisyImageSums",
    "Population",
    "TreePopulation",
]
