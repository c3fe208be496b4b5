"""A second opinion: our records before an auditor that was written by others (jax_privacy).

Two ways, each with the noise of the curator, and each again with half of it, which
the auditor should find:

- `one run`: one release of a table with a category of its own for each of 2,000 people, of whom a
  coin decides whether they are there. The score of a person is the noisy count of their category
  (Steinke, Nasr and Jagielski 2023).
- `many runs`: releases of two neighbouring tables of the audit. The score is the exact likelihood
  ratio (Nasr and others 2021).

One row for each of these, ε, δ and fault:

| column | what |
|---|---|
| bound | on ε from below, by jax_privacy, at 95 % for this row |
| ours | of `many runs`: the bound of our own audit on the same scores |
| refuted | whether `bound` is above ε |

COUNTERVEIL_JAX_PYTHON names a Python that has jax-privacy, which needs jax.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from campaigns import canary_script
from counterveil.audit import neighbours
from counterveil.audit.functional import likelihood_scores, moved_sums
from counterveil.audit.game import Claim, play
from counterveil.audit.pair import Pair
from counterveil.curator.functional import measure
from counterveil.curator.noise import EXACT, NoiseSource
from counterveil.encoding import Array
from counterveil.privacy import Budget, Share
from counterveil.privacy.record import Measurement, Sensitivity
from counterveil.schema import Categorical
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.results import Row

PYTHON = "COUNTERVEIL_JAX_PYTHON"
ERROR = 0.05
CANARIES, RUNS = 2_000, 40_000
BUDGETS = ((0.5, 0.0), (1.0, 0.0), (3.0, 0.0), (1.0, 0.01), (3.0, 0.01))
ONE_RUN, MANY_RUNS = "one run", "many runs"
SOUND, HALVED = "sound", "half of the noise"


class HalfNoise(NoiseSource):
    """Noise for twice the share: a fault."""

    def perturb(
        self, name: str, what: str, exact: Array, sensitivity: Sensitivity, share: Share
    ) -> Measurement:
        half = Sensitivity(sensitivity.l1 // 2, sensitivity.l2 / 2)
        return EXACT.perturb(name, what, exact, half, share)


def jax_bounds(inside: Array, outside: Array, delta: float) -> dict[str, float]:
    """Bounds on ε from below from the scores of those who are in and of those who are not."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "scores.npz"
        np.savez(given, inside=inside, outside=outside, delta=delta, error=ERROR)
        command = [os.environ[PYTHON], str(canary_script.__file__), str(given)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"jax_privacy failed: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout.splitlines()[-1])


def canaries(count: int, budget: Budget, noise: NoiseSource) -> tuple[Array, Array]:
    """Scores of people who are in a released table, and of people who are not.

    Who is not there is a row of category 0 instead: a table with another record in its place.
    """
    is_in = np.random.default_rng().random(count) < 0.5
    who = Categorical(name="who", categories=tuple(range(count + 1)))
    rows = np.where(is_in, np.arange(1, count + 1), 0)
    frame = pd.DataFrame({"who": rows, "label": "no"})
    pair = Pair("canaries", neighbours.schema_of(who), frame, frame, order=1)
    record = measure(pair.tables[0], pair.plan(budget), noise)
    counts, _ = record.read("singles", (2, count + 1))
    mine = counts[0, 1:]
    return mine[is_in], mine[~is_in]


def neighbouring(draws: int, budget: Budget, share: float) -> tuple[Array, Array]:
    """Scores of releases of D' and of D, by the curator's sampler; `share` of its noise."""
    pair = neighbours.one_feature() if not budget.delta else neighbours.wide()
    dice = None if share == 1.0 else np.random.default_rng(0)
    one, two = likelihood_scores(moved_sums(pair, budget), draws, dice, noise_share=share)
    return two, one


def measure_case(how: str, epsilon: float, delta: float, fault: str, *, quick: bool) -> list[Row]:
    """What both auditors say of one way, at one ε and δ."""
    budget, sound = Budget(epsilon, delta), fault == SOUND
    few = 20 if quick else 1
    found: dict[str, Any] = {}
    if how == ONE_RUN:
        noise = EXACT if sound else HalfNoise()
        bound = jax_bounds(*canaries(CANARIES // few, budget, noise), delta)["one_run"]
    else:
        two, one = neighbouring(RUNS // few, budget, 1.0 if sound else 0.5)
        bound = jax_bounds(two, one, delta)["many_runs"]
        found["ours"] = play(one, two, Claim(epsilon, delta)).bound
    return [{"bound": bound, **found, "refuted": bound > epsilon}]


def why_not(case: Case) -> str | None:
    return None if os.environ.get(PYTHON) else f"{PYTHON} names no Python that has jax-privacy"


def cases(options: Options) -> Iterable[Case]:
    for how in (ONE_RUN, MANY_RUNS):
        for epsilon, delta in BUDGETS[1:2] if options.quick else BUDGETS:
            yield from combined(how=[how], epsilon=[epsilon], delta=[delta], fault=(SOUND, HALVED))


SECOND_OPINION = Experiment(
    "our records before the auditor jax_privacy, beside our own audit.",
    cases,
    measure_case,
    chosen_by=(),
    why_not=why_not,
)
