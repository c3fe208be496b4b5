"""Whether a file of XGBoost, JSON or UBJSON, is whole and nests no deeper than its trees need.

XGBoost's own readers recurse, and end the whole process where a forged file nests too deep.
"""

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

    def count(self) -> int:
        kind = self.letter()
        if kind not in "iUIlL":
            raise ValueError("no whole number")
        found = int.from_bytes(self.take(SIZES[kind]), "big", signed=kind != "U")
        if found < 0:
            raise ValueError("a length below 0")
        return found

    def pass_value(self, depth: int) -> None:
        """Read one value, with all that is in it."""
        kind = self.letter()
        if depth > MOST_DEPTH:
            raise ValueError("nests too deep")
        if kind == "{":
            while not self.passes("}"):
                self.take(self.count())  # the key
                self.pass_value(depth + 1)
        elif kind == "[":
            self._pass_array(depth)
        else:
            self.take(self.count() if kind == "S" else SIZES.get(kind, -1))

    def _pass_array(self, depth: int) -> None:
        of_kind = self.letter() if self.passes("$") else None
        if not self.passes("#") and of_kind is None:
            while not self.passes("]"):
                self.pass_value(depth + 1)
        elif of_kind is None:
            for _ in range(self.count()):
                self.pass_value(depth + 1)
        else:
            self.take(self.count() * SIZES.get(of_kind, 0))


def check_ubjson(content: bytes) -> None:
    """A ValueError where UBJSON nests too deep, is cut off, or is no UBJSON."""
    reader = _Reader(content)
    reader.pass_value(depth=1)
    if reader.left:
        raise ValueError("it goes on after its end")
