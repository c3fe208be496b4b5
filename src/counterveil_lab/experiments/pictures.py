"""Pictures that belong to rows: small arrays in an .npz beside the stored results."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from counterveil.encoding import Array
from counterveil.files import write_whole
from counterveil.schema import Pixels, Schema
from counterveil_lab.datasets import DatasetMissing, load
from counterveil_lab.experiments.runner import Say
from counterveil_lab.results import Row

PICTURES = "pictures"  # the entry of a row that is taken out of it
WHITE = 255


def keeper(path: Path) -> Callable[[Row], Row]:
    """Takes the pictures out of a row and puts them into the file at `path`."""

    def keep(row: Row) -> Row:
        merged = {**read(path), **row[PICTURES]}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **merged)
        write_whole(path, buffer.getvalue())
        return {name: value for name, value in row.items() if name != PICTURES}

    return keep


def read(path: Path) -> Mapping[str, Array]:
    """The pictures of a file; none where there is none."""
    if not path.exists():
        return {}
    with np.load(path) as file:
        return dict(file)


def grey(points: Array, image: Pixels) -> Array:
    """Encoded pictures, or maps from 0 to 1, as bytes of shape (pictures, height, breadth)."""
    whole = np.round(WHITE * np.asarray(points).clip(0, 1)).astype(np.uint8)
    return whole.reshape(-1, image.height, image.breadth)


def image_of(schema: Schema) -> Pixels:
    """The picture that a schema describes."""
    (image,) = schema.features
    assert isinstance(image, Pixels)
    return image


def picture_dataset(quick: bool, datasets: Sequence[str] | None, say: Say) -> str | None:
    """MNIST, or digits where its file is absent, or none where neither was asked for."""
    wanted = [name for name in ("mnist", "digits") if not datasets or name in datasets]
    if quick or wanted == ["digits"]:
        return "digits"
    if not wanted:
        return None
    try:
        load("mnist")
    except DatasetMissing as error:
        say(f"digits in the place of mnist: {error}")
        return "digits"
    return "mnist"
