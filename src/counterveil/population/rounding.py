"""Round numbers, as people say and pay them."""

import math


def roundest(low: float, high: float, near: float, *, whole: bool) -> float:
    """The number from `low` to `high` with the fewest digits; of several, the one next to `near`.

    >>> roundest(7_210.0, 7_740.0, 7_480.0, whole=True)
    7500.0
    >>> roundest(39.6, 40.4, 40.0, whole=True)
    40.0
    """
    if not high > low:
        return float(round(near)) if whole else near
    power = math.floor(math.log10(high - low)) + 1
    for exponent in range(power, power - 4, -1):
        for size in (5.0, 2.0, 1.0):
            step = size * 10.0**exponent
            if whole and step < 1:
                return float(round(near))
            value = round(near / step) * step
            if low <= value <= high:
                return float(value)
    return near
