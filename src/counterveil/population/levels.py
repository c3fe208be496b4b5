"""Noisy counts of cells side by side: how many people there are in each."""

from __future__ import annotations

import numpy as np

from counterveil.schema.columns import Array

NEW_LEVEL = 2.0  # log-odds against a new level from one cell to the next
FAR = 1e3  # deviations of noise that are never met
NOBODY = 1.0  # and against cells from there on that hold nobody


def denoised(noisy: Array, variances: Array, rows: float, bins: int) -> Array:
    """Counts that add up to `rows`, of `bins` bins side by side and, perhaps, a missing value."""
    room = rows + FAR * np.sqrt(variances)
    noisy = np.clip(noisy, -room, room)  # numbers in a file may be any
    gone = np.clip(noisy[bins:], 0.0, rows * (1 - 1e-6))
    present = rows - gone.sum()
    noisy, variances = noisy[:bins], variances[:bins]
    noisy = noisy + (present - noisy.sum()) * variances / variances.sum()
    people = level_means(noisy, variances) + 1e-9 * present / bins
    return np.concatenate([people * (present / people.sum()), gone])


def level_means(noisy: Array, variances: Array) -> Array:
    """What is expected of counts with known noise that stay at one level for some cells each.

    The mean over all ways to cut the cells into runs. A run is either empty or has a level of its
    own, its likeliest; a way to cut is as likely as the noise that it leaves over. Neighbours that
    differ by less than noise does are thus taken together, a single value that many people share
    stands out, and cells that hold nothing but noise come out empty.
    """
    cells = len(noisy)
    weight = _runs(1 / variances)
    total = np.maximum(_runs(noisy / variances), 0.0)
    ahead_only = np.triu(np.ones((cells + 1, cells + 1), dtype=bool), 1)
    level = np.where(ahead_only, total / np.where(ahead_only, weight, 1.0), 0.0)
    full = np.where(ahead_only, level * total / 2 - NEW_LEVEL, -np.inf)
    either = np.logaddexp(full, np.where(ahead_only, -NOBODY, -np.inf))
    before, after = np.zeros(cells + 1), np.zeros(cells + 1)  # log-odds of all cuts on either side
    for end in range(1, cells + 1):
        before[end] = np.logaddexp.reduce(before[:end] + either[:end, end])
    for start in range(cells - 1, -1, -1):
        after[start] = np.logaddexp.reduce(either[start, start + 1 :] + after[start + 1 :])
    share = level * np.exp(np.minimum(0.0, before[:, None] + full + after[None, :] - before[cells]))
    return np.array([share[: cell + 1, cell + 1 :].sum() for cell in range(cells)])


def _runs(values: Array) -> Array:
    """[i, j]: the sum of values i to j - 1."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return sums[None, :] - sums[:, None]
