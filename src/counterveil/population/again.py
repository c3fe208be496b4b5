"""A noisy record with noise of its own stated scale once more: how far noise may have moved it."""

from dataclasses import replace

import numpy as np

from counterveil.privacy.record import Measurement, NoisyRecord
from counterveil.privacy.statement import LAPLACE


def noise_again(record: NoisyRecord, rng: np.random.Generator) -> NoisyRecord:
    """The record as it might have come out of a table of which this record is true.

    The first look at numbers, `ranges`, stays: the cells of all other counts follow from it. For
    estimates of an error alone: this noise protects nobody.
    """

    def again(found: Measurement) -> Measurement:
        if found.name == "ranges":
            return found
        draw = rng.laplace if found.mechanism == LAPLACE else rng.normal
        noise = np.rint(draw(scale=found.scale, size=found.values.shape)).astype(np.int64)
        return replace(found, values=found.values + noise)

    return replace(record, measurements=tuple(map(again, record.measurements)))
