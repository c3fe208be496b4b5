"""Bounds on ε by jax_privacy, for a Python of its own that has it.

`python canary_script.py scores.npz`: arrays `inside` and `outside`, the scores of canaries that are
in and not in; `delta` and `error`. Prints the bounds as JSON. It imports nothing of counterveil.
"""

import json
import sys
from typing import Any

import numpy as np

if __name__ == "__main__":
    from jax_privacy import auditing

    given: Any = np.load(sys.argv[1])
    auditor = auditing.CanaryScoreAuditor(given["inside"], given["outside"])
    error, delta = float(given["error"]), float(given["delta"])
    halves = auditing.Split()
    found = {
        "one_run": auditor.epsilon_one_run(error, max(delta, 1e-12)),
        "many_runs": auditor.epsilon_clopper_pearson(
            error, delta, one_sided=False, threshold_strategy=halves
        ),
    }
    sys.stdout.write(json.dumps({name: float(bound) for name, bound in found.items()}))
