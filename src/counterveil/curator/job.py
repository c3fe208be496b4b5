"""What may be said of a release or a score, and what one of them is about."""

import os
from dataclasses import dataclass
from typing import TypedDict

from counterveil.build import Training
from counterveil.curator.table import PrivateTable
from counterveil.privacy import Budget
from counterveil.signature import SigningKey


class ReleaseChoices(TypedDict, total=False):
    """How a release trains its networks and where the veil goes. All of it may be left out.

    `seed` steers samples, weights and batches (0 by default); noise takes no seed. `epochs`
    replaces the usual number. `training` replaces the usual samples, epochs, batches and layers of
    `functional`, and the layers of the surrogate of `dpsgd`; `paper` trains as the paper says.

    `save_to` writes the veil to a file before its charge is committed, so that no crash can lose
    it: it is whole beside that file, as X.veil.TOKEN.part, until it takes its place. An existing
    file is refused unless `overwrite`. `sign`: the key that signs the veil. `other_rows` declares
    that the rows are of other people than those of an account that looks the same
    (`Ledger.reserve`).
    """

    seed: int
    epochs: int | None
    training: Training | None
    save_to: str | os.PathLike[str] | None
    overwrite: bool
    sign: SigningKey | None
    other_rows: bool


class ScoreChoices(TypedDict, total=False):
    """Where a noisy score goes, as JSON, and whose rows these are; as for `ReleaseChoices`."""

    save_to: str | os.PathLike[str] | None
    overwrite: bool
    other_rows: bool


@dataclass(frozen=True)
class Job:
    """One release: the rows, what may be spent on them, how to train, where the veil goes."""

    table: PrivateTable
    budget: Budget
    progress: bool
    seed: int = 0
    epochs: int | None = None
    training: Training | None = None
    save_to: str | os.PathLike[str] | None = None
    overwrite: bool = False
    sign: SigningKey | None = None
    other_rows: bool = False
