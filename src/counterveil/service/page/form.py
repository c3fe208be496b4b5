"""The form about one row: what its fields show, and what it asks.

Its fields are f0, f1, … by the places of the features; may-f0 says whether the first may change,
missing-f0 whether its value is missing. Chosen values are sent by their places in a list.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Set
from functools import cached_property
from typing import Any

import numpy as np

from counterveil.encoding import Array
from counterveil.schema import Schema
from counterveil.schema.features import Pixels
from counterveil.service.page.values import chosen_of, file_address, number_in, numbers_in
from counterveil.service.page.words import Words
from counterveil.service.questions import Explain, Row, parsed
from counterveil.service.responses import Problem

Sent = Mapping[str, str]
SAME, BRIGHTER, DARKER = ([232, 232, 232], [18, 82, 178], [204, 85, 0])  # red, green, blue


class Form:
    """The form in one language, about rows of a schema."""

    def __init__(self, schema: Schema, words: Words) -> None:
        self.schema, self.words = schema, words
        only = len(schema.features) == 1 and schema.images
        self.pictures = Pictures(schema.images[0]) if only else None

    def fields(self, sent: Sent, moved: Set[str] = frozenset()) -> dict[str, Any]:
        """What the fields show. A form without `drawn` is new: everything may change."""
        if self.pictures:
            pixels = numbers_in(sent.get("f0", ""))
            fits = len(pixels) == self.pictures.image.width
            shown = self.pictures.shown(pixels) if fits else ""
            return {"form": sent, "picture": shown, "fields": [], "back": ""}
        fields = [
            self._field(name, feature, values, sent) | {"moved": feature.name in moved}
            for name, feature, values in self._fields
        ]
        return {"form": sent, "picture": "", "fields": fields, "back": ""}

    def _field(self, name: str, feature: Any, values: list[Any], sent: Sent) -> dict[str, Any]:
        low, high = feature.number_range or (0, 0)
        ends = {"low": self.words.number(low), "high": self.words.number(high)}
        unit = getattr(feature, "unit", None)
        shown = [(str(at), self.words.value(feature.name, v)) for at, v in enumerate(values)]
        return {
            "feature": feature,
            "name": name,
            "id": f"field-{name[1:]}",
            "value": sent.get(name, ""),
            "low": f"{low:.17g}",
            "high": f"{high:.17g}",
            "choices": shown,
            "range": " · ".join(filter(None, [self.words("from_to", **ends), unit])),
            "may": "drawn" not in sent or f"may-{name}" in sent,
            "is_missing": f"missing-{name}" in sent,
        }

    def filled(self, row: Mapping[str, Any]) -> dict[str, str]:
        """The form of a row."""
        if self.pictures:
            return {"f0": ",".join(str(row.get(name, 0)) for name in self.pictures.image.columns)}
        found: dict[str, str] = {}
        for name, feature, values in self._fields:
            value = row.get(feature.name)
            if value is None:
                found |= {name: "", f"missing-{name}": "on"}
            elif not values:
                told = str(value) if isinstance(value, (int, float, str)) else ""
                found[name] = told.removesuffix(".0")
            else:
                found[name] = str(values.index(value)) if value in values else ""
        return found

    def row(self, sent: Sent) -> Row:
        """The row of a form; a Problem that names fields without a value."""
        if self.pictures:
            pixels = numbers_in(sent.get("f0", ""))
            if not pixels:
                raise Problem(422, self.words("fill", names=self.pictures.image.shown_name))
            return dict(zip(self.pictures.image.columns, pixels, strict=False))
        row: Row = {}
        empty = []
        for name, feature, values in self._fields:
            text = sent.get(name, "")
            if f"missing-{name}" in sent:
                row[feature.name] = None
            elif not text:
                empty.append(feature.shown_name)
            elif values:
                row[feature.name] = chosen_of(values, text)
            else:
                row[feature.name] = number_in(text)
        if empty:
            more = ", …" if len(empty) > 5 else ""
            raise Problem(422, self.words("fill", names=", ".join(empty[:5]) + more))
        return row

    def question(self, sent: Sent, *, letters: bool) -> Explain:
        """What a form asks, or the question of an earlier answer, in the language of the page."""
        if "question" in sent:
            asked = parsed(Explain, sent["question"].encode())
        else:
            held = [
                feature.name
                for name, feature, _ in self._fields
                if not (self.pictures or feature.immutable or f"may-{name}" in sent)
            ]
            most = sent.get("max_changes")
            asked = self.checked(
                sent,
                rows=[self.row(sent)],
                immutable=held,
                rules={"max_changes": number_in(most)} if most and not self.pictures else {},
                prefer=sent.get("prefer") or None,
            )
        with_letter = letters and not self.pictures
        more = {"regions": with_letter, "letter": self.words.language if with_letter else None}
        return asked.model_copy(update=more)

    def checked(self, sent: Sent, **more: Any) -> Explain:
        """A question with the `k` and `target` of what was sent, checked as those in JSON are."""
        target = sent.get("target")
        asked = {"k": number_in(sent.get("k") or "1"), **more}
        if target:
            asked["target"] = chosen_of(self.schema.label.classes, target)
        return parsed(Explain, json.dumps(asked).encode())

    @cached_property
    def _fields(self) -> list[tuple[str, Any, list[Any]]]:
        """Of each feature the name of its field, and the values to choose from; none of numbers."""
        found = []
        for place, each in enumerate(self.schema.features):
            values: list[Any] = list(each.listed_values)
            if each.is_whole and each.value_names and each.number_range:
                low, high = map(int, each.number_range)
                all_named = len(each.value_names) > high - low
                values = list(range(low, high + 1)) if all_named else []
            found.append((f"f{place}", each, values))
        return found


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
