"""The cards of a schema: what a draft or a file holds, under what a person has entered.

The fields of a card begin with its place: `l` for the label, c0, c1, … for the features. A field
of values that a draft read off the rows is empty until a person types one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from counterveil.service.page.values import number_in

MANY_BITS = 12  # columns of 0 and 1 from which on they are one card
MOST_LISTED = 50  # whole numbers that become a list of values by themselves
LIMITS = {"numeric": ("lower", "upper"), "binary": ("no", "yes"), "pixels": ()}
WAYS = {"increase": "direction", "decrease": "direction", "up": "good", "down": "good"}
ENTERED = {  # parts of a column that the fields of its card hold
    *("link", "label", "value_names", "step", "allowed", "direction", "good", "immutable"),
    *("integer", "missing", "ordered"),
}
BITS = re.compile(r"\s*0\W+1\s*")
Content = dict[str, Any]  # of a schema or of a part of it, as in the JSON file


class Card:
    """One column. `marked`: its values were read off the rows."""

    def __init__(self, place: str, base: Content, sent: Mapping[str, str], *, marked: bool) -> None:
        self.place, self.name, self.marked = place, str(base["name"]), marked
        usual = base.get("kind", "label")
        self.kind = sent.get(f"{place}-kind", usual)
        self.base = base if self.kind == usual else _with_kind(base, self.kind)
        self.is_drawn = sent.get(f"{place}-drawn") == self.kind
        self.is_changed = f"{place}-drawn" in sent and not self.is_drawn  # its kind, just now
        start = f"{place}-"
        own = [name for name in sent if name.startswith(start)] if self.is_drawn else ()
        self._sent = {name.removeprefix(start): sent[name] for name in own}
        self.limits = LIMITS.get(self.kind, ("classes" if self.kind == "label" else "categories",))
        self.by_bits = BITS.fullmatch(sent.get("bits", "")) is not None and self.is_bit

    @property
    def is_bit(self) -> bool:
        """Whether it is a plain column of 0 and 1."""
        return self.base.keys() <= {"kind", "name"} and self.kind == "binary"

    def usual(self, field: str) -> str:
        """What a field holds before anybody has typed in it."""
        base, link = self.base, self.base.get("link") or {}
        values = base.get("values", (0, 1))
        pair = base.get("allowed") or ("", "")
        found = {
            "no": values[0] if self.kind == "binary" else "",
            "yes": values[1] if self.kind == "binary" else "",
            "allowed-from": pair[0] if self.kind == "numeric" else "",
            "allowed-to": pair[1] if self.kind == "numeric" else "",
            "source": link.get("source", ""),
            "map": [f"{_text(key)} = {_text(value)}" for key, value in _pairs(link.get("values"))],
            "value_names": [f"{key} = {name}" for key, name in _pairs(base.get("value_names"))],
        }.get(field, base.get(field))
        if isinstance(found, (list, tuple)):
            return "\n".join(map(_text, found))
        return "" if found is None else _text(found)

    def value(self, field: str) -> str:
        """What a field shows; nothing where it stands in grey."""
        grey = self.marked and field in self.limits
        return self._sent.get(field, "" if grey else self.usual(field))

    def grey(self, field: str) -> str:
        """What stands in grey in a field: what the draft read off the rows."""
        return self.usual(field) if self.marked and field in self.limits else ""

    def is_ticked(self, field: str) -> bool:
        """Whether a box of the card is ticked."""
        return field in self._sent if self.is_drawn else bool(self.base.get(field))

    @property
    def way(self) -> str:
        """What an answer may do with it."""
        base = self.base
        usual = base.get("direction") or base.get("good") or "any"
        chosen = self._sent.get("who", "immutable" if base.get("immutable") else usual)
        return chosen if chosen in self.ways else "any"

    @property
    def ways(self) -> tuple[str, ...]:
        """What an answer may do with a column of this kind."""
        directed = self.kind != "categorical" or self.is_ticked("ordered")
        return ("any", *(WAYS if directed else ()), "immutable")

    @property
    def is_typed(self) -> bool:
        """Whether a person has typed all of its bounds or values."""
        return self.by_bits or all(self._sent.get(field, "").strip() for field in self.limits)

    @property
    def is_open(self) -> bool:
        """Whether something that was read off the rows waits for a person to type it."""
        return self.marked and not self.is_typed

    @property
    def is_sure(self) -> bool:
        """Whether a person says that all of it is public knowledge."""
        if self.is_drawn:
            return "sure" in self._sent and not self.is_open
        return self.by_bits or not (self.marked or self.is_changed)

    @property
    def has_more(self) -> bool:
        """Whether any of the fields is filled that few columns need."""
        fields = ("label", "value_names", "step", "allowed", "allowed-from", "allowed-to", "source")
        return any(self.value(field).strip() for field in fields)

    def lines(self, field: str) -> int:
        """How many lines a field of several has."""
        return min(6, max(2, 1 + (self.value(field) or self.usual(field)).count("\n")))

    @property
    def values(self) -> list[Any]:
        """Its list of values."""
        if self.kind == "binary":
            usual = list(self.base.get("values", (0, 1)))
            texts = [self.value(field) or self.grey(field) for field in ("no", "yes")]
            found = _values("\n".join(texts), usual)
            return found if len(found) == 2 else texts
        (field,) = self.limits
        usual = self.base.get(field, [])
        return _values(self.value(field) or self.grey(field), usual)

    @property
    def content(self) -> Content:
        """The column as the file of the schema has it."""
        if not self.is_drawn or self.kind == "pixels":
            return {name: value for name, value in self.base.items() if name != "link"}
        found = {name: value for name, value in self.base.items() if name not in ENTERED}
        named = [line.rpartition("=") for line in _lines(self.value("value_names"))]
        told: Content = {
            "label": self.value("label") if self.value("label").strip() else None,
            "value_names": {key.strip(): name.strip() for key, _, name in named},
            "immutable": self.way == "immutable" or None,
            WAYS.get(self.way, ""): self.way if self.way in WAYS else None,
            **{name: self.is_ticked(name) or None for name in ("integer", "missing", "ordered")},
        }
        if self.kind == "numeric":
            for field in self.limits:
                found[field] = _number(self.value(field) or self.grey(field))
            told["step"] = _number(self.value("step"))
            ends = self.value("allowed-from"), self.value("allowed-to")
            if any(map(str.strip, ends)):
                told["allowed"] = [
                    _number(text) if text.strip() else found[field]
                    for text, field in zip(ends, self.limits, strict=True)
                ]
        else:
            found["values" if self.kind == "binary" else self.limits[0]] = self.values
            allowed = _lines(self.value("allowed")) if self.kind == "categorical" else []
            told["allowed"] = [_one_of(self.values, each) for each in allowed]
        return found | {name: said for name, said in told.items() if said not in (None, {}, [])}

    def link(self, others: Mapping[str, "Card"]) -> Content | None:
        """How it follows from another column; None where it does not."""
        source = others.get(self.value("source"))
        if source is None or self.kind in ("label", "pixels"):
            return None
        read = number_in if self.kind == "numeric" else lambda text: _one_of(self.values, text)
        parts = [line.rpartition("=") for line in _lines(self.value("map"))]
        pairs = [[_one_of(source.values, key.strip()), read(to.strip())] for key, _, to in parts]
        return {"source": source.name, "derived": self.name, "values": pairs}


class Cards:
    """All cards of a schema."""

    def __init__(self, base: Content, sent: Mapping[str, str]) -> None:
        self.base, self._sent = base, sent
        links = {each["derived"]: each for each in base.get("links", ())}
        drafted = base.get("drafted", False)
        columns = {"l": base["label"]}
        columns |= {f"c{place}": each for place, each in enumerate(base["features"])}
        self.every = [
            Card(
                place,
                {**each, "link": links[each["name"]]} if each["name"] in links else each,
                sent,
                marked=drafted is True or each["name"] in (drafted or ()),
            )
            for place, each in columns.items()
            if "l-drawn" not in sent or place == "l" or f"{place}-kind" in sent
        ]

    def __iter__(self) -> Iterator[Card]:
        return iter(self.every)

    @cached_property
    def bits(self) -> list[Card]:
        """The plain columns of 0 and 1, where they are so many that they have one card."""
        found = [] if "single" in self._sent else [each for each in self.every if each.is_bit]
        return found if len(found) >= MANY_BITS else []

    @property
    def single(self) -> list[Card]:
        """The columns that have a card of their own."""
        return [each for each in self.every if each not in self.bits]

    @property
    def sources(self) -> dict[str, Card]:
        """The columns of categories, from which others may follow."""
        return {each.name: each for each in self.every if each.kind == "categorical"}

    @property
    def unsure(self) -> list[Card]:
        """The columns that nobody has confirmed."""
        return [each for each in self.every if not each.is_sure]

    @property
    def typed(self) -> list[str]:
        """The columns whose bounds or values a person has typed."""
        return [each.name for each in self.every if each.is_typed]

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self._sent.get("dataset", self.base.get("name", ""))

    @property
    def content(self) -> Content:
        """The schema as its file has it."""
        label, *features = (each.content for each in self.every)
        links = [link for each in self.every if (link := each.link(self.sources))]
        rest = {name: part for name, part in self.base.items() if name != "links"}
        told = {**rest, "name": self.name, "label": label, "features": features}
        return {**told, "links": links} if links else told


def _with_kind(base: Content, kind: str) -> Content:
    """A column with another kind, and values that suit it."""
    names: tuple[str, ...] = ("name", "label", "immutable")
    kept = {name: base[name] for name in names if name in base}
    values = list(base.get("categories") or base.get("values", ()))
    if kind == "numeric":
        high = 1 if base.get("kind") == "binary" else 100
        return {**kept, "kind": kind, "lower": 0, "upper": high, "integer": True}
    if kind == "binary":
        return {**kept, "kind": kind, "values": values if len(values) == 2 else ["no", "yes"]}
    low, high = base.get("lower", 0), base.get("upper", MOST_LISTED)
    few = base.get("integer") and high - low < MOST_LISTED
    listed = list(range(int(low), int(high) + 1)) if few else []
    usual = [0, 1] if base.get("kind") == "binary" else listed
    return {**kept, "kind": kind, "categories": values or usual}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _text(value: Any) -> str:
    """A value as it is typed: true, 7, a word."""
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _number(text: str) -> Any:
    """The number in a text; None where there is none, which a schema refuses in words."""
    return number_in(text) if text.strip() else None


def _one_of(values: Sequence[Any], text: str) -> Any:
    """The value that is typed so; the text itself where there is none."""
    return next((each for each in values if _text(each) == text), text)


def _pairs(found: Any) -> list[Sequence[Any]]:
    """Pairs of an object, or of a list of them."""
    return list(found.items() if isinstance(found, dict) else found or ())


def _values(text: str, before: Sequence[Any]) -> list[Any]:
    """The lines as values of the kind that they had: texts stay texts, whole numbers numbers."""
    lines = _lines(text)
    if before and all(isinstance(value, str) for value in before):
        return lines
    if before and all(isinstance(value, bool) for value in before):
        known = {"true": True, "false": False}
        return [known[line] for line in lines] if {*lines} <= known.keys() else lines
    whole = all(re.fullmatch(r"-?\d{1,15}", line) for line in lines)
    return [int(line) for line in lines] if whole else lines
