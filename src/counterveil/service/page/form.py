"""The form about one row: what its fields show, and what it asks.

Its fields are f0, f1, … by the places of the features; may-f0 says whether the first may change,
missing-f0 whether its value is missing. Chosen values are sent by their places in a list.
"""

import json
from collections.abc import Mapping, Set
from functools import cached_property
from typing import Any

from counterveil.schema import Schema
from counterveil.service.page.pictures import Pictures
from counterveil.service.page.values import chosen_of, number_in, numbers_in
from counterveil.service.page.words import Words
from counterveil.service.questions import Explain, Row, parsed
from counterveil.service.responses import Problem

Sent = Mapping[str, str]


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
        places = enumerate(zip(self.schema.features, self._choices, strict=True))
        fields = [
            self._field(f"f{place}", feature, values, sent) | {"moved": feature.name in moved}
            for place, (feature, values) in places
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
        for place, (feature, values) in enumerate(
            zip(self.schema.features, self._choices, strict=True)
        ):
            value = row.get(feature.name)
            if value is None:
                found |= {f"f{place}": "", f"missing-f{place}": "on"}
            elif not values:
                found[f"f{place}"] = str(value) if isinstance(value, (int, float, str)) else ""
            else:
                found[f"f{place}"] = str(values.index(value)) if value in values else ""
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
        for place, (feature, values) in enumerate(
            zip(self.schema.features, self._choices, strict=True)
        ):
            text = sent.get(f"f{place}", "")
            if f"missing-f{place}" in sent:
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
            features = enumerate(self.schema.features)
            held = [
                each.name
                for place, each in features
                if not (self.pictures or each.immutable or f"may-f{place}" in sent)
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

    def short(self, row: Row) -> Row:
        """A row whose numbers have four digits."""
        short: Row = {}
        for feature in self.schema.features:
            value = row.get(feature.name)
            if isinstance(value, float) and feature.number_range and not feature.step:
                low, high = feature.number_range
                short[feature.name] = min(high, max(low, float(f"{value:.4g}")))
        return {**row, **short}

    @cached_property
    def _choices(self) -> list[list[Any]]:
        """The values to choose from, by feature; none where a number is typed."""
        found = []
        for each in self.schema.features:
            values: list[Any] = list(each.listed_values)
            if each.is_whole and each.value_names and each.number_range:
                low, high = map(int, each.number_range)
                all_named = len(each.value_names) > high - low
                values = list(range(low, high + 1)) if all_named else []
            found.append(values)
        return found
