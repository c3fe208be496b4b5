"""Whether a file of XGBoost, JSON or UBJSON, is whole and nests no deeper than its trees need.

XGBoost's own readers recurse, and end the whole process where a forged file nests too deep.
"""

import math
from typing import NamedTuple

import numpy as np

MOST_DEPTH = 200
# Bytes of a value of UBJSON, by the letter of its kind.
SIZES = dict(zip("ZNTFiUCIldLD", (0, 0, 0, 0, 1, 1, 1, 2, 4, 4, 8, 8), strict=True))


def check_json(content: bytes) -> None:
    """A ValueError where JSON may nest too deep; brackets within texts count as well."""
    letters = np.frombuffer(content, dtype=np.uint8)
    opens, closes = ((letters == a) | (letters == b) for a, b in (b"{[", b"}]"))
    depth = np.cumsum(np.where(opens, 1, -1)[opens | closes])
    if (depth - np.minimum.accumulate(depth)).max(initial=0) > MOST_DEPTH:
        raise ValueError("nests too deep")


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.left = len(content)  # bytes that are not read yet

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ValueError("it ends too early")
        start = len(self._content) - self.left
        self.left -= size
        return self._content[start : start + size]

    def letter(self) -> str:
        return chr(self.take(1)[0])

    def passes(self, letter: str) -> bool:
        """Whether `letter` comes next; then it is read."""
        found = self.left > 0 and chr(self._content[-self.left]) == letter
        self.left -= found
        return found

    def whole_number(self) -> int:
        kind = self.letter()
        if kind not in "iUIlL":
            raise ValueError("no whole number")
        return int.from_bytes(self.take(SIZES[kind]), "big", signed=kind != "U")


def check_ubjson(content: bytes) -> None:
    """A ValueError where UBJSON nests too deep, is cut off, or is no UBJSON."""
    reader = _Reader(content)
    inside = [_read_value(reader)]  # the open arrays and objects
    while inside:
        opened = inside[-1]
        if opened is None or len(inside) > MOST_DEPTH:
            raise ValueError("no object, or one that nests too deep")
        if opened.values_left == 0 or (opened.end and reader.passes(opened.end)):
            inside.pop()
            continue
        if opened.end == "}":
            reader.take(reader.whole_number())  # the key
        inside[-1] = opened._replace(values_left=opened.values_left - 1)
        value = _read_value(reader)
        if value is not None:
            inside.append(value)
    if reader.left:
        raise ValueError("it goes on after its end")


class _Opened(NamedTuple):
    """An array or object: the letter that ends it, or how many values are left in it."""

    end: str
    values_left: float = math.inf


def _read_value(reader: _Reader) -> _Opened | None:
    """Read a value, or the beginning of an array or object, which is the answer."""
    kind = reader.letter()
    if kind == "{":
        return _Opened("}")
    if kind == "[":
        of_kind = reader.letter() if reader.passes("$") else None
        if not reader.passes("#") and of_kind is None:
            return _Opened("]")
        count = reader.whole_number()
        if of_kind is None:
            return _Opened("", count)
        reader.take(count * SIZES.get(of_kind, 0))
    else:
        reader.take(reader.whole_number() if kind == "S" else SIZES.get(kind, -1))
    return None
