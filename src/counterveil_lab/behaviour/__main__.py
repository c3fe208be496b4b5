"""`python -m counterveil_lab.behaviour GROUP …`: the behaviour of each group, as JSON.

With --write the values that the cases of these groups give go into known.json. Do so before rows
are measured by code that does something else: processors differ in the last digits of their sums,
and what is near to a known value counts as it.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from counterveil_lab.behaviour import lab, product
from counterveil_lab.fingerprints import told

KNOWN = Path(__file__).with_name("known.json")
KNOWN_VALUES: dict[str, Any] = json.loads(KNOWN.read_text("utf-8"))
DIGITS = 6  # that are kept of a number
NEAR = 2e-3  # numbers are alike that differ by no larger share
# Of groups that search, learn or rank: there the last digits of a machine grow.
LOOSE = {"attack", "believable", "measure", "nearest", "others", "targets"}
LOOSELY = 2e-2  # the same for these
TURNED = {"nearest": 0.05}  # the share of values that may differ by more: Algorithm 2 is chaotic


def values_of(group: str) -> Any:
    """What the case of a group gives, as JSON knows it; None where a package is missing for it."""
    case = getattr(product, group, None) or getattr(lab, group)
    try:
        return told(case(), DIGITS)
    except ImportError:
        return None


def behaviour(group: str) -> str | None:
    """A SHA-256 of what a group gives, or of the known values that this is alike to."""
    given = values_of(group)
    if given is None:
        return None
    known = KNOWN_VALUES.get(group)
    return _digest(known if alike(given, known, group) else given)


def known_behaviours(groups: Iterable[str]) -> dict[str, str]:
    """The behaviours that known.json stands for, without running a case."""
    return {group: _digest(KNOWN_VALUES[group]) for group in groups}


def _digest(values: Any) -> str:
    return sha256(json.dumps(values).encode()).hexdigest()


def alike(given: Any, known: Any, group: str) -> bool:
    """Whether two values of a group differ by no more than two machines do."""
    share = LOOSELY if group in LOOSE else NEAR
    near = [_near(*pair, share) for pair in _leaves(given, known)]
    return near.count(False) <= TURNED.get(group, 0.0) * len(near)


def _leaves(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for pair in zip(one, other, strict=True):
            yield from _leaves(*pair)
    else:
        yield one, other


def _near(one: Any, other: Any, share: float) -> bool:
    numbers = all(type(each) in (int, float) for each in (one, other))
    return math.isclose(one, other, rel_tol=share, abs_tol=1e-5) if numbers else one == other


def write(groups: list[str]) -> None:
    """Put what these groups give into known.json, where it is not alike to what is there."""
    known = dict(KNOWN_VALUES)
    given = {group: values_of(group) for group in groups}
    known |= {
        group: values
        for group, values in given.items()
        if values is not None and not alike(values, known.get(group), group)
    }
    lines = (f"{json.dumps(group)}: {json.dumps(known[group])}" for group in sorted(known))
    KNOWN.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums of floats in one order
    named = [each for each in sys.argv[1:] if each != "--write"]
    if "--write" in sys.argv:
        write(named)
    sys.stdout.write(f"\n{json.dumps({group: behaviour(group) for group in named})}\n")
