"""AIM and MST on encoded rows: whole numbers for another Python, and rows again from what it draws.

mbi needs jax and polars, which nothing else here does: COUNTERVEIL_MBI_PYTHON names a Python that
has `opendp[mbi]` and pandas, and runs `marginals_script.py`.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from campaigns import marginals_script
from counterveil.encoding import Array, Encoding
from counterveil.schema import Numeric, Schema

PYTHON = "COUNTERVEIL_MBI_PYTHON"
TINY = 1e-6


class Codes:
    """Encoded rows as whole numbers, a column for each feature; a missing number comes last.

    A number has bins [a, b) between quantiles of `points`; a value as heavy as a bin is one.
    """

    def __init__(self, schema: Schema, points: Array, bins: int) -> None:
        self._encoding = Encoding(schema)
        self._ends = [_ends(block.feature, points[:, block.at], bins) for block in self._blocks]
        self.sizes = [
            max(block.at.stop - block.at.start, 2)
            if ends is None
            else len(ends) - 1 + bool(getattr(block.feature, "missing", False))
            for block, ends in zip(self._blocks, self._ends, strict=True)
        ]

    @property
    def _blocks(self) -> Any:
        return self._encoding.blocks

    def of(self, points: Array) -> Array:
        """The codes (rows, features) of points."""
        found = []
        for ends, block in zip(self._ends, self._blocks, strict=True):
            mine = points[:, block.at]
            wide = mine.shape[1] > 1
            if ends is None:
                found.append(mine.argmax(axis=1) if wide else mine[:, 0] >= 0.5)
                continue
            code = np.searchsorted(ends[1:-1], mine[:, 0] + TINY / 2, side="right")
            found.append(np.where(mine[:, 1] >= 0.5, len(ends) - 1, code) if wide else code)
        return np.column_stack(found).astype(np.int64)

    def points(self, codes: Array, rng: np.random.Generator) -> Array:
        """Points with these codes; numbers are uniform in their bins."""
        out = np.zeros((len(codes), self._encoding.width))
        for code, ends, block in zip(codes.T, self._ends, self._blocks, strict=True):
            mine = out[:, block.at]
            if ends is None and mine.shape[1] > 1:
                mine[np.arange(len(code)), code] = 1.0
            elif ends is None:
                mine[:, 0] = code
            else:
                empty = code == len(ends) - 1
                low, high = ends[:-1][code - empty], ends[1:][code - empty]
                number = rng.uniform(low, np.where(high - low < 2 * TINY, low, high))
                if block.feature.integer:
                    number = np.floor(number * block.feature.span + TINY) / block.feature.span
                mine[:, 0] = np.where(empty, 0.5, np.minimum(number, 1.0))
                mine[empty, 1:] = 1.0
        return out


def _ends(feature: Any, mine: Array, bins: int) -> Array | None:
    """Where the bins of a number begin, and where the last one ends; None for other features."""
    if not isinstance(feature, Numeric):
        return None
    known = mine[mine[:, 1] < 0.5, 0] if feature.missing else mine[:, 0]
    step = 1 / feature.span if feature.integer else TINY
    cuts = np.quantile(known, np.linspace(0, 1, bins + 1), method="nearest")
    heavy = cuts[1:][np.diff(cuts) == 0] + step
    return np.unique(np.round([0.0, *cuts, *heavy, 1 + step], 9))


def marginals_sample(codes: Array, sizes: list[int], **told: Any) -> Array:
    """Rows of codes that AIM or MST draws after it saw `codes`; `told`: see the script."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npy"
        np.savez(given, codes=codes, sizes=sizes, **told)
        command = [os.environ[PYTHON], str(marginals_script.__file__), str(given), str(made)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{told['method']} failed: {ran.stderr[-2000:]}")
        return np.load(made)
