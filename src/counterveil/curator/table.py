"""PrivateTable: private rows behind glass.

It cannot be printed, iterated, indexed or pickled, so that rows do not slip into logs, notebooks
or files by accident. The mechanisms of this package ask it for the encoded rows by name.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Schema


class PrivateTable:
    """Rows and labels, checked against the schema and encoded."""

    def __init__(self, private_frame: Any, schema: Schema) -> None:
        encoding = Encoding(schema)
        private_points = encoding.encode(private_frame)
        private_classes = encoding.labels(private_frame)
        if len(set(private_classes.tolist())) < 2:
            raise DataError(
                f"label {schema.label.name!r} has one class only in this table; "
                "counterfactuals need rows of at least two classes"
            )
        # Images have blank corners and sets of bits rare bits; in a mixed table it is a mistake.
        for block in encoding.blocks if schema.family == "mixed" else ():
            column = private_points[:, block.at]
            if bool((column == column[0]).all()):
                raise DataError(
                    f"column {block.feature.name!r} is constant in this table; "
                    "leave it out of the schema: it cannot explain anything"
                )
        self.schema = schema
        self.encoding = encoding
        self._private_points = torch.as_tensor(private_points, dtype=torch.float32)
        self._private_classes = torch.as_tensor(private_classes, dtype=torch.long)

    @property
    def size(self) -> int:
        """N, which is public."""
        return len(self._private_points)

    def private_points(self, device: torch.device) -> Tensor:
        """The encoded rows; every caller must account for what it does with them."""
        return self._private_points.to(device)

    def private_classes(self, device: torch.device) -> Tensor:
        """The class number of each row."""
        return self._private_classes.to(device)

    def __repr__(self) -> str:
        return "PrivateTable(…)"

    def __iter__(self) -> NoReturn:
        raise TypeError("a PrivateTable is not iterable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrivateTable cannot be pickled or copied")
