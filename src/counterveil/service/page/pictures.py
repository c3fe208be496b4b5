"""Pictures on the page: pixels as a veil has them, and as files that a browser shows."""

import struct
import zlib
from typing import Any

import numpy as np

from counterveil.encoding import Array
from counterveil.schema.features import Pixels
from counterveil.service.page.values import file_address, numbers_in
from counterveil.service.questions import Row
from counterveil.service.responses import Problem

SAME, BRIGHTER, DARKER = ([232, 232, 232], [18, 82, 178], [204, 85, 0])  # red, green, blue


class Pictures:
    """The pictures of one column of images."""

    def __init__(self, image: Pixels) -> None:
        self.image = image

    def pixels(self, colours: str) -> str:
        """The pixels of a picture as the veil has them, of red, green, blue and opacity."""
        image, found = self.image, np.array(numbers_in(colours), dtype=float)
        if len(found) != 4 * image.height * image.breadth:
            raise Problem(422, "the picture cannot be read", "Choose it again.")
        shades = found.reshape(-1, 4)[:, :3]
        if image.channels == 1:
            shades = shades.mean(axis=1, keepdims=True)
        whole = np.rint(np.clip(shades[:, : image.channels] / 255, 0, 1) * image.levels).astype(int)
        return ",".join(map(str, whole.ravel().tolist()))

    def shown(self, pixels: Any) -> str:
        """The address of a picture, with its content."""
        channels = [min(channel, self.image.channels - 1) for channel in range(3)]
        return self._drawn(255 * self._shades(pixels)[:, channels])

    def compared(self, before: Row, after: Row) -> list[tuple[str, str]]:
        """Case, answer and difference: blue where it is brighter, orange where it is darker."""
        case, answer = ([row[name] for name in self.image.columns] for row in (before, after))
        moved = (self._shades(answer) - self._shades(case)).mean(axis=1, keepdims=True)
        goal = np.where(moved > 0, BRIGHTER, DARKER)
        drawn = self._drawn(SAME + (goal - SAME) * abs(moved))
        return [
            ("query", self.shown(case)), ("answer", self.shown(answer)), ("difference", drawn)
        ]  # fmt: skip

    def _shades(self, pixels: Any) -> Array:
        """Pixels as shares from 0 to 1 of the shape (places, channels)."""
        return np.array(pixels, dtype=float).reshape(-1, self.image.channels) / self.image.levels

    def _drawn(self, colours: Array) -> str:
        """A PNG of red, green and blue from 0 to 255, as the address of a picture."""
        height, breadth = self.image.height, self.image.breadth
        rows = np.rint(np.clip(colours, 0, 255)).astype(np.uint8).reshape(height, 3 * breadth)
        lines = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
        head = struct.pack(">IIBBBBB", breadth, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
        png = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(content)) + name + content
            + struct.pack(">I", zlib.crc32(name + content))
            for name, content in parts
        )  # fmt: skip
        return file_address(png, "image/png")
