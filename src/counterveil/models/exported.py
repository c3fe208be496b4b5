"""Torch models as `torch.export` programs: files of a graph and its weights."""

from __future__ import annotations

import copy
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from counterveil.files import write_whole
from counterveil.schema import Schema


@contextmanager
def torch_kept_quiet() -> Iterator[None]:
    """Torch warns about its own internals when it exports, loads or copies a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def save_exported(model: nn.Module, schema: Schema, path: str | os.PathLike[str]) -> None:
    """Write `model` over the encoding of `schema` as a .pt2 file for any number of rows.

    A copy in evaluation mode is written: dropout and its like are switched off.
    """
    content = io.BytesIO()
    with torch_kept_quiet():
        rows = {0: torch.export.Dim("rows", min=1)}
        example = (torch.zeros(4, schema.width),)
        still = copy.deepcopy(model).eval()
        program = torch.export.export(still, example, dynamic_shapes=(rows,))
        torch.export.save(program, content)
    write_whole(path, content.getvalue())
