"""`python -m counterveil_lab.behaviour GROUP …`: the behaviour of each group, as JSON."""

import json
import sys
from hashlib import sha256

import torch

from counterveil_lab.behaviour import lab, product
from counterveil_lab.fingerprints import DIGITS, told

# Of groups that end a search or rank people: there the last digits of a machine can be seen.
FEWER_DIGITS = dict.fromkeys(("attack", "believable", "measure", "nearest", "others"), 2)


def behaviour(group: str) -> str | None:
    """What the case of a group gives, as a SHA-256; None where a package is missing for it."""
    case = getattr(product, group, None) or getattr(lab, group)
    try:
        given = told(case(), FEWER_DIGITS.get(group, DIGITS))
    except ImportError:
        return None
    return sha256(json.dumps(given).encode()).hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums of floats in one order
    sys.stdout.write(f"\n{json.dumps({group: behaviour(group) for group in sys.argv[1:]})}\n")
