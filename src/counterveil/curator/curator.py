"""The Curator: validate -> measure -> Veil.

>>> import pandas
>>> from counterveil.schema import Label, Numeric, Schema
>>> schema = Schema(
...     features=(Numeric(name="x", lower=0, upper=1),), label=Label(name="y", classes=(0, 1))
... )
>>> rows = pandas.DataFrame({"x": [0.1, 0.9], "y": [0, 1]})
>>> Curator(schema).release(rows, epsilon=1, epochs=1)
Veil('table', mechanism paper: guarantee none; ε = 1 is nominal, not a proved bound)
"""

from __future__ import annotations

import platform
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from counterveil.autoencoder import ARCHITECTURES, pick_device
from counterveil.curator import paper
from counterveil.curator.table import PrivateTable
from counterveil.errors import RequestError
from counterveil.privacy import Budget
from counterveil.progress import progress_bar
from counterveil.schema import Schema
from counterveil.veil import Veil

MECHANISMS = ("paper",)


class Curator:
    """Releases Veils from private rows that fit `schema`."""

    def __init__(self, schema: Schema, *, device: str = "cpu") -> None:
        self.schema = schema
        self.device = pick_device(device)

    def release(
        self,
        private_frame: Any,
        epsilon: float,
        *,
        mechanism: str = "paper",
        seed: int = 0,
        epochs: int | None = None,
        progress: bool = True,
    ) -> Veil:
        """Turn private rows into a Veil with nominal privacy `epsilon`.

        `epsilon=math.inf` adds no noise: a reference to compare with, never to be released.
        `epochs` replaces the paper's number for this family of data. `seed` steers initial
        weights and batch order; the noise comes from the operating system and takes no seed.
        """
        if mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise RequestError(f"unknown mechanism {mechanism!r}; use one of: {known}")
        if epochs is not None and epochs < 1:
            raise RequestError("epochs must be at least 1")
        budget = Budget(epsilon)
        architecture = ARCHITECTURES[self.schema.family]
        architecture = replace(architecture, epochs=epochs or architecture.epochs)
        table = PrivateTable(private_frame, self.schema)
        title = f"training under the functional mechanism, {budget}"
        with progress_bar(title, architecture.epochs, show=progress) as tick:
            autoencoder, prototypes = paper.build_prototypes(
                table, budget, architecture, seed=seed, device=self.device, tick=tick
            )
        return Veil(
            schema=self.schema,
            autoencoder=autoencoder.cpu(),
            prototypes=prototypes.cpu(),
            statement=paper.state(budget, architecture, self.schema, _versions()),
        )


def _versions() -> dict[str, str]:
    packages = ("counterveil", "opendp", "torch", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
