"""95 % intervals of means and of shares.

A mean has Student's interval over seeds. A share lies between 0 and 1, and so does its interval: it
is Wilson's. Seeds may differ by more than the queries alone explain; then the share rests on fewer
draws than there were queries, as many as the spread over seeds is worth, and the wider interval of
the two counts.

>>> [round(end, 3) for end in wilson(1.0, Z**2 / 500)]
[0.992, 1.0]
>>> [round(end, 3) for end in of_share(0.97, 3, spread=0.01 / 3**0.5)]
[0.934, 0.987]
>>> [round(end, 3) for end in of_mean(0.6, 3, spread=0.1 / 3**0.5)]
[0.352, 0.848]
"""

import math
from functools import cache

from scipy import stats

CONFIDENCE = 0.95
Z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
Ends = tuple[float, float]
UNKNOWN = (math.nan, math.nan)


def of_mean(mean: float, seeds: int, spread: float) -> Ends:
    """Student's interval of a mean; `spread` is its standard error. Of one seed it is unknown."""
    if seeds < 2:
        return UNKNOWN
    half = _student(seeds) * spread
    return mean - half, mean + half


def of_share(share: float, seeds: int, spread: float = math.nan, queries: float = 0.0) -> Ends:
    """Wilson's interval of a share, over the queries and over the seeds: the wider of the two.

    `spread` is the standard error over seeds, `queries` how many there were in all seeds together;
    0 where that is not known. Without either the interval is unknown.
    """
    if not 0 <= share <= 1:
        return of_mean(share, seeds, spread)
    found = []
    if queries > 0:
        found.append(wilson(share, Z**2 / queries))
    if seeds > 1:
        certain = share * (1 - share) == 0  # then all seeds agree
        draws = 0.0 if certain else (_student(seeds) * spread) ** 2 / (share * (1 - share))
        found.append(wilson(share, draws))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else UNKNOWN


def wilson(share: float, per_draw: float) -> Ends:
    """Wilson's score interval; `per_draw` is the square of the quantile over the draws."""
    middle = share + per_draw / 2
    half = math.sqrt(share * (1 - share) * per_draw + per_draw**2 / 4)
    return max(0.0, (middle - half) / (1 + per_draw)), min(1.0, (middle + half) / (1 + per_draw))


@cache
def _student(seeds: int) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1))
