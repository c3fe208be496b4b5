"""What is found out about answers only when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from counterveil.encoding import Array

BLOCK = 64  # neighbours that are found out about together
Found = TypeVar("Found")


class Lazy:
    """A field of a dataclass: a value, or a function that makes it when it is first looked at.

    Making the frames of a single answer takes as long as a good part of the search. `default`: for
    a field that may be left out.
    """

    def __init__(self, default: Any = ...) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, holder: Any, owner: type) -> Any:
        if holder is None:  # a dataclass looks for the default
            if self._default is ...:
                raise AttributeError(self._name)
            return self._default
        if callable(holder.__dict__[self._name]):
            holder.__dict__[self._name] = holder.__dict__[self._name]()
        return holder.__dict__[self._name]

    def __set__(self, holder: Any, value: Any) -> None:
        holder.__dict__[self._name] = value


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
