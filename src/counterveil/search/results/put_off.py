"""What is found out about answers only when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from counterveil.encoding import Array

BLOCK = 64  # neighbours that are found out about together
Found = TypeVar("Found")


class PutOff(Generic[Found]):
    """A list for each of `count` positions, made when it is first looked at, and kept.

    `make(at)` gives the lists of some positions. A block of neighbours is made together: asking a
    model about many rows at once is quicker than one after the other. A pickle or copy holds all
    lists, and not what makes them.
    """

    def __init__(
        self, count: int = 0, make: Callable[[Array], list[list[Found]]] | None = None
    ) -> None:
        self._count, self._make = count, make
        self._made: dict[int, list[Found]] = {}

    def __getitem__(self, at: int) -> list[Found]:
        if at not in self._made and self._make is not None:
            first = at - at % BLOCK
            self.many(np.arange(first, min(first + BLOCK, self._count)))
        return self._made.get(at, [])

    def many(self, at: Array) -> list[list[Found]]:
        """The lists of these positions; those that are missing are made together."""
        missing = np.array([each for each in at.tolist() if each not in self._made], dtype=int)
        if len(missing) and self._make is not None:
            self._made.update(zip(missing.tolist(), self._make(missing), strict=True))
        return [self._made.get(each, []) for each in at.tolist()]

    def select(self, at: Array) -> PutOff[Found]:
        """The same for some positions, numbered anew."""
        return PutOff(len(at), lambda some: self.many(at[some]))

    def __getstate__(self) -> dict[str, Any]:
        self.many(np.arange(self._count))
        return {**self.__dict__, "_make": None}
