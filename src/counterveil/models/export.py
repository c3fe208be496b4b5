"""The private model as a file for others: ONNX, or a program of torch.export."""

from __future__ import annotations

import json
import os
from pathlib import Path

from counterveil.errors import RequestError
from counterveil.files import check_new, write_whole
from counterveil.models.exported import save_exported
from counterveil.models.onnx_write import onnx_bytes
from counterveil.private_model import PrivateModel


def save_private_model(
    model: PrivateModel, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write `model` as .onnx or .pt2: encoded rows (rows, width) to probabilities.

    `Encoding(schema).encode(rows)` makes encoded rows. An .onnx file also tells its classes, the
    weights of the classes, the digest of its veil, its statement in one line, and the schema.
    """
    check_new(path, overwrite=overwrite)
    schema, network = model.schema, model.probabilities.eval()
    match Path(path).suffix.lower():
        case ".pt2":
            save_exported(network, schema, path)
        case ".onnx":
            notes = {
                "classes": json.dumps(schema.label.classes),
                "class_weights": model.classes,
                "veil": model.veil,
                "statement": model.statement.headline,
                "schema": schema.to_json(),
            }
            content = onnx_bytes(network, schema.width, len(schema.label.classes), notes)
            write_whole(path, content)
        case _:
            raise RequestError(f"{path}: name the file .onnx or .pt2")
