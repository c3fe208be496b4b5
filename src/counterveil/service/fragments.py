"""The page in HTML: templates of page/, filled by the schema, what a form holds, and answers.

A fragment takes the place of a part of the page (htmx). Texts are in page/words.toml, by language;
everything is escaped. Nothing here asks a model: that is for the routes, which count it.
"""

import base64
import csv
import html
import io
import json
import math
import struct
import tomllib
import zlib
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from fastapi import Request
from starlette.responses import Response

from counterveil.pages import TEMPLATES
from counterveil.schema import Schema
from counterveil.search.results.regions import value_text
from counterveil.service.questions import Explain, Row, parsed
from counterveil.service.responses import Problem
from counterveil.tables import MISSING, file_content

PAGE = Path(__file__).with_name("page")
FILES = tuple(PAGE / name for name in ("icon.svg", "page.css", "page.js", "htmx.js"))
WORDS = tomllib.loads((PAGE / "words.toml").read_text(encoding="utf-8"))
LANGUAGES = (("en", "English"), ("de", "Deutsch"))
MOST_SHOWN = 20  # rows of a table
SAME, BRIGHTER, DARKER = ([232, 232, 232], [18, 82, 178], [204, 85, 0])  # red, green, blue
_loaders = [jinja2.FileSystemLoader(PAGE), jinja2.PackageLoader("counterveil", "pages")]
_templates = TEMPLATES.overlay(loader=jinja2.ChoiceLoader(_loaders), undefined=jinja2.Undefined)
Form = Mapping[str, str]


class Words:
    """The texts of one language: `words("way", n=2)` is "Way 2"."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.card = WORDS[language].get("card")

    def __call__(self, name: str, **values: Any) -> str:
        return str(WORDS[self.language][name]).format(**values)

    def number(self, value: float, digits: int = 4) -> str:
        """A number with so many digits, or all before the point."""
        whole = len(str(abs(math.trunc(value))))
        short = float(f"{value:.{max(digits, whole)}g}")
        return value_text(int(short) if short.is_integer() else short, self.language)

    def percent(self, share: float) -> str:
        """A share: 0.75 is "75%"."""
        return f"{100 * share:.0f}{' ' if self.language == 'de' else ''}%"


class Fragments:
    """The page about rows of a schema, in each language."""

    def __init__(self, schema: Schema) -> None:
        self._pages = {code: Page(schema, Words(code)) for code, _ in LANGUAGES}

    def of(self, request: Request) -> "Page":
        """The page in the language that is chosen, or else that the browser asks for first."""
        wanted = request.query_params.get("language") or request.headers.get("accept-language", "")
        return self._pages["de" if wanted.lower().startswith("de") else "en"]


class Page:
    """The page in one language; each method gives a fragment of it, or reads what it sends."""

    def __init__(self, schema: Schema, words: Words) -> None:
        self.schema, self.words = schema, words
        only = schema.images[0] if len(schema.features) == 1 and schema.images else None
        self.image: Any = only

    def _html(self, template: str, **content: Any) -> Response:
        told = {
            "schema": self.schema, "words": self.words, "number": self.words.number,
            "language": self.words.language, "languages": LANGUAGES, "image": self.image,
        }  # fmt: skip
        text = _templates.get_template(template).render(**told, **content)
        return Response(text, media_type="text/html")

    def shell(self) -> Response:
        """What everybody gets: no word about the veil."""
        return self._html("index.html", about=None, form={})

    def body(self, form: Form, about: dict[str, Any]) -> Response:
        """All of the page; a question that was answered is asked again once it is shown."""
        return self._html("body.html", about=about, **self._fields(form))

    def fill(self, form: Form) -> Response:
        """The fields with another row: `row`, or `trying` in its place, as JSON; or `colours`."""
        if "colours" in form:
            return self._html("fill.html", **self._fields({"f0": self._pixels(form["colours"])}))
        own = parsed(Explain, f'{{"rows": [{form.get("row")}]}}'.encode()).rows[0]
        if "trying" not in form:
            return self._html("fill.html", **self._fields({**form, **self._filled(own)}))
        way = parsed(Explain, f'{{"rows": [{form["trying"]}]}}'.encode()).rows[0]
        moved = {name for name in way if way[name] != own.get(name)}
        fields = self._fields({**form, **self._filled(way)}, moved)
        return self._html("fill.html", **{**fields, "back": json.dumps(own)})

    def example(self, form: Form, row: Row) -> Response:
        """The fields with an invented row, whose numbers have four digits."""
        short: Row = {}
        for feature in self.schema.features:
            value = row.get(feature.name)
            if isinstance(value, float) and feature.number_range and not feature.step:
                low, high = feature.number_range
                short[feature.name] = min(high, max(low, float(f"{value:.4g}")))
        return self._html("fill.html", **self._fields({**form, **self._filled({**row, **short})}))

    # --- The form: f0, f1, … are its fields, may-f0 whether it may change, missing-f0

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

    def _fields(self, form: Form, moved: Set[str] = frozenset()) -> dict[str, Any]:
        """What the fields show. A form without `drawn` is new: everything may change."""
        if self.image:
            pixels = _numbers(form.get("f0", ""))
            shown = self._picture(pixels) if len(pixels) == self.image.width else ""
            return {"form": form, "picture": shown, "fields": [], "back": ""}
        fields = []
        for place, (feature, values) in enumerate(
            zip(self.schema.features, self._choices, strict=True)
        ):
            name = f"f{place}"
            low, high = feature.number_range or (0, 0)
            ends = {"low": self._number(low), "high": self._number(high)}
            unit = getattr(feature, "unit", None)
            fields.append(
                {
                    "feature": feature,
                    "name": name,
                    "id": f"field-{place}",
                    "value": form.get(name, ""),
                    "low": f"{low:.17g}",
                    "high": f"{high:.17g}",
                    "choices": [
                        (str(at), self._shown(feature.name, v)) for at, v in enumerate(values)
                    ],
                    "range": " · ".join(filter(None, [self.words("from_to", **ends), unit])),
                    "may": "drawn" not in form or f"may-{name}" in form,
                    "is_missing": f"missing-{name}" in form,
                    "moved": feature.name in moved,
                }
            )
        return {"form": form, "picture": "", "fields": fields, "back": ""}

    def _filled(self, row: Mapping[str, Any]) -> dict[str, str]:
        """The form of a row."""
        if self.image:
            return {"f0": ",".join(str(row.get(name, 0)) for name in self.image.columns)}
        found: dict[str, str] = {}
        for place, (feature, values) in enumerate(
            zip(self.schema.features, self._choices, strict=True)
        ):
            value = row.get(feature.name)
            if value is None:
                found |= {f"f{place}": "", f"missing-f{place}": "on"}
            elif not values:
                found[f"f{place}"] = f"{value:.17g}" if value != float(str(value)) else str(value)
            else:
                found[f"f{place}"] = str(values.index(value)) if value in values else ""
        return found

    def row(self, form: Form) -> Row:
        """The row of a form; a Problem that names fields without a value."""
        if self.image:
            pixels = _numbers(form.get("f0", ""))
            if not pixels:
                raise Problem(422, self.words("fill", names=self.image.shown_name))
            return dict(zip(self.image.columns, pixels, strict=False))
        row: Row = {}
        empty = []
        for place, (feature, values) in enumerate(
            zip(self.schema.features, self._choices, strict=True)
        ):
            text = form.get(f"f{place}", "")
            if f"missing-f{place}" in form:
                row[feature.name] = None
            elif not text:
                empty.append(feature.shown_name)
            elif values:
                row[feature.name] = _at(values, text)
            else:
                row[feature.name] = _number_in(text)
        if empty:
            more = ", …" if len(empty) > 5 else ""
            raise Problem(422, self.words("fill", names=", ".join(empty[:5]) + more))
        return row

    def question(self, form: Form, *, letters: bool) -> Explain:
        """What a form asks, or the question of an earlier answer, in the language of the page."""
        if "question" in form:
            asked = parsed(Explain, form["question"].encode())
        else:
            features = enumerate(self.schema.features)
            held = [
                each.name
                for place, each in features
                if not (self.image or each.immutable or f"may-f{place}" in form)
            ]
            most = form.get("max_changes")
            asked = self._checked(
                form,
                rows=[self.row(form)],
                immutable=held,
                rules={"max_changes": _number_in(most)} if most and not self.image else {},
                prefer=form.get("prefer") or None,
            )
        with_letter = letters and not self.image
        more = {"regions": with_letter, "letter": self.words.language if with_letter else None}
        return asked.model_copy(update=more)

    def _checked(self, choices: Form, **more: Any) -> Explain:
        """A question with the `k` and `target` of a form, checked as those in JSON are."""
        target = choices.get("target")
        asked = {"k": _number_in(choices.get("k") or "1"), **more}
        if target:
            asked["target"] = _at(self.schema.label.classes, target)
        return parsed(Explain, json.dumps(asked).encode())

    # --- Answers

    def result(self, asked: Explain, record: dict[str, Any], about: dict[str, Any]) -> Response:
        """The answer to one row: a card, the ways side by side, a letter."""
        words, ways = self.words, record["ways"]
        goal, now = self._class(record["target"]), record["decision"]
        name = record["status"] if record["status"] in ("already", "impossible") else "none"
        if ways:
            name = "found_one" if len(ways) == 1 else "found"
        told_now = words("asked_nothing") if now is None else words("decides", now=self._class(now))
        row = asked.rows[0]
        content = json.dumps({**about, "answers": [record]}, ensure_ascii=False, indent=2)
        return self._html(
            "result.html",
            title=words(name, goal=goal, n=len(ways)),
            now=told_now,
            record={"letter": "", **record},
            ways=ways,
            card=self._card(record, row),
            compared=self._compared(row, ways) if len(ways) > 1 and not self.image else [],
            row=json.dumps(row),
            question=asked.model_dump_json(exclude_defaults=True),
            json_file=_file(content.encode(), "application/json"),
            letter_file=_file(record.get("letter", "").encode(), "text/plain;charset=utf-8"),
        )

    def _card(self, record: dict[str, Any], row: Row) -> dict[str, Any]:
        """A record as the macro `explanation` of pages/parts.html takes it."""
        words, opens, ways = self.words, record.get("opens"), record["ways"]
        goal, now = self._class(record["target"]), record["decision"]
        closest = None if self.image else record.get("closest")
        opening = opens and {
            "words": words(
                "opens",
                rule=f"{self.schema.shown_name(opens['feature'])} ({opens['rule']})"
                if opens["feature"]
                else opens["rule"],
                share=words.percent(opens["probability"]),
            ),
            **self._changes(opens["changes"]),
        }
        return {
            "whose": "",
            "now": "" if now is None else self._class(now),
            "goal": goal,
            "several": len(ways) > 1,
            "answers": [
                {
                    "rank": place,
                    "text": "",
                    "measures": self._measures(way, goal),
                    "quality": self._warnings(way),
                    "row": json.dumps(way["row"]),
                    "pictures": self._pictures(row, way["row"]) if self.image else [],
                    **self._changes(way["changes"]),
                }
                for place, way in enumerate(ways, 1)
            ],
            "missing": "",
            "closest": closest
            and {"probability": record["best_probability"], **self._changes(closest)},
            "opens": "",
            "opening": opening if closest else None,
            "unchanged": [],
            "more": 0,
        }

    def _warnings(self, way: dict[str, Any]) -> list[str]:
        """What the veil cannot tell about a way."""
        if way["veil_knows"] is False:
            return [self.words("noisy")]
        return [self.words("no_pairs")] if way["knows_pairs"] is False else []

    def _measures(self, way: dict[str, Any], goal: Any) -> str:
        words = self.words
        told = [f"{words('probability')} {words.percent(way['probability'])}"]
        if way.get("plausibility") is not None:
            if not self.image:
                share = words("of_people", share=words.percent(way["plausibility"]), goal=goal)
                told.append(f"{words('plausibility')} {share}")
            told.append(f"{words('stability')} {words.percent(way['stability'])}")
            told.append(f"{words('effort')} {words.number(way['effort'], 2)}")
        return " · ".join([*told, f"{words('distance')} {words.number(way['distance'], 2)}"])

    def _changes(self, changes: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The changes of a row as a card has them, and the places of numbers among people."""
        if self.image:
            return {"changes": [], "more": 0, "works": False}
        rows, places = [], {}
        for each in changes:
            column, name = each["column"], self.schema.shown_name(each["column"])
            before, after = (
                self._shown(column, each["from"]),
                self._shown(column, each["to"], full=True),
            )
            rows.append((name, before, after, each.get("works") or ""))
            if "places" in each:
                shares = dict(zip(("before", "after"), each["places"], strict=True))
                told = {way: self.words.percent(share) for way, share in shares.items()}
                places[name] = (*each["places"], self.words("place", **told))
        return {"changes": rows, "more": 0, "works": any(row[-1] for row in rows), "places": places}

    def _compared(self, row: Row, ways: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
        """Of each feature that any way changes: its name, the value now, and in each way."""
        after = [{each["column"]: each["to"] for each in way["changes"]} for way in ways]
        columns = dict.fromkeys(column for way in after for column in way)
        return [
            (
                self.schema.shown_name(column),
                self._shown(column, row[column]),
                *(self._shown(column, way[column]) if column in way else "–" for way in after),
            )
            for column in columns
        ]

    def decision(self, found: dict[str, Any]) -> Response:
        """What is decided, in a sentence."""
        share = self.words.percent(max(found["probabilities"]))
        text = self.words("now_decides", goal=self._class(found["decision"]), share=share)
        return Response(html.escape(text), media_type="text/html")

    def _class(self, value: Any) -> Any:
        return self.schema.label.shown_value(value)

    def _shown(self, column: str, value: Any, *, full: bool = False) -> str:
        """A value as people call it; a number in short, or in full where it has to be reached."""
        shown = self.schema.shown_value(column, value)
        if shown is None:
            return self.words("missing")
        if isinstance(shown, float) and not full:
            return self._number(shown)
        return value_text(shown, self.words.language)

    def _number(self, value: float) -> str:
        return self.words.number(value)

    # --- Pictures

    def _pixels(self, colours: str) -> str:
        """The pixels of a picture as the veil has them, of red, green, blue and opacity."""
        image, found = self.image, np.array(_numbers(colours), dtype=float)
        if image is None or len(found) != 4 * image.height * image.breadth:
            raise Problem(422, "the picture cannot be read", "Choose it again.")
        shades = found.reshape(-1, 4)[:, :3]
        if image.channels == 1:
            shades = shades.mean(axis=1, keepdims=True)
        whole = np.rint(np.clip(shades[:, : image.channels] / 255, 0, 1) * image.levels).astype(int)
        return ",".join(map(str, whole.ravel().tolist()))

    def _shades(self, pixels: Any) -> Any:
        """Pixels as shares from 0 to 1 of the shape (places, channels)."""
        return np.array(pixels, dtype=float).reshape(-1, self.image.channels) / self.image.levels

    def _picture(self, pixels: Any) -> str:
        """The address of a picture, with its content."""
        return self._drawn(
            255 * self._shades(pixels)[:, [min(c, self.image.channels - 1) for c in range(3)]]
        )

    def _pictures(self, before: Row, after: Row) -> list[tuple[str, str]]:
        """Case, answer and difference: blue where it is brighter, orange where it is darker."""
        case, answer = ([row[name] for name in self.image.columns] for row in (before, after))
        moved = (self._shades(answer) - self._shades(case)).mean(axis=1, keepdims=True)
        goal = np.where(moved > 0, BRIGHTER, DARKER)
        drawn = self._drawn(SAME + (goal - SAME) * abs(moved))
        return [
            ("query", self._picture(case)), ("answer", self._picture(answer)), ("difference", drawn)
        ]  # fmt: skip

    def _drawn(self, colours: Any) -> str:
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
        return _file(png, "image/png")

    # --- Many rows

    def rows(self, body: bytes, start: str) -> list[Row]:
        """The rows of a part of a CSV file with its header; `start` of them came before."""
        try:
            header, *lines = csv.reader(io.StringIO(body.decode(), newline=""))
        except (ValueError, csv.Error):
            raise Problem(422, self.words("empty_file")) from None
        wanted = self.schema.columns
        missing = [name for name in wanted if name not in header]
        if missing:
            raise Problem(422, self.words("missing_columns", names=", ".join(missing[:5])))
        for number, line in enumerate(lines, _count(start) + 2):
            if len(line) != len(header):
                raise Problem(422, self.words("ragged", n=number))
        places = {name: header.index(name) for name in wanted}
        return [
            {name: self._typed(name, line[at]) for name, at in places.items()} for line in lines
        ]

    def _typed(self, column: str, text: str) -> Any:
        """A cell of a CSV file as a value of its column."""
        if text in MISSING:
            return None
        values = () if self.image else self.schema.feature(column).listed_values
        if values:
            return next((value for value in values if str(value) == text), text)
        return _number_in(text)

    def question_on(self, rows: list[Row], choices: Form) -> Explain:
        """What is asked about the rows of a table."""
        return self._checked(choices, rows=rows)

    def answers(
        self, rows: list[Row], found: list[dict[str, Any]], choices: Form
    ) -> dict[str, Any]:
        """Lines of a CSV file, the first of them as a table, and how far it came."""
        start, wanted = _count(choices.get("start", "0")), self.schema.columns
        measures = ("probability", "effort", "plausibility", "stability")
        lines, shown = [], []
        for number, (row, record) in enumerate(zip(rows, found, strict=True), start + 1):
            said = [record["status"], record["decision"], record["target"]]
            for place, way in enumerate(record["ways"] or [{}], 1):
                numbers = [way.get(name) for name in measures]
                values = way.get("row", row)
                way_number = place if way else None
                lines.append(
                    [number, way_number, *said, *numbers, *(values[each] for each in wanted)]
                )
            shown.append((number, self._class(record["target"]), self._in_short(record)))
        head = ["row", "way", "status", "decision", "target", *measures, *wanted]
        table = pd.DataFrame(lines, columns=head, dtype=object)
        content = file_content(table, "answers.csv", escape=True).decode()
        count = _count(choices.get("found", "0")) + sum(bool(each["ways"]) for each in found)
        preview = _templates.get_template("preview.html").render(rows=shown[:MOST_SHOWN])
        return {
            "answers": content.partition("\n")[2] if start else content,
            "preview": preview,
            "found": count,
            **self.progress({**choices, "start": str(start + len(rows)), "found": str(count)}),
        }

    def _in_short(self, record: dict[str, Any]) -> str:
        goal = self._class(record["target"])
        if not record["ways"]:
            known = record["status"] in ("already", "impossible")
            return self.words(record["status"] if known else "none", goal=goal)
        first = record["ways"][0]
        if self.image:
            return self.words.percent(first["probability"])
        changes = self._changes(first["changes"])["changes"]
        return ", ".join(f"{name} {after}" for name, _, after, _ in changes)

    def progress(self, choices: Form) -> dict[str, Any]:
        """How far it came, of how many rows; a Problem where there are none."""
        every, done = _count(choices.get("rows", "0")), _count(choices.get("start", "0"))
        if not every:
            raise Problem(422, self.words("empty_file"))
        if done >= every:
            return {"done": self.words("finished", found=choices.get("found", 0), all=every)}
        return {"done": self.words("progress", done=self._number(done), all=self._number(every))}


def _file(content: bytes, kind: str) -> str:
    """An address that holds a small file."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _number_in(text: str) -> float | int | str:
    """The number in a text; the text itself where it is none."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() else value


def _numbers(text: str) -> list[Any]:
    return [_number_in(each) for each in text.split(",")] if text else []


def _at(values: Sequence[Any], place: str) -> Any:
    """The value at a place that a form has sent."""
    if _count(place) >= len(values):
        raise Problem(422, "the question is not understood", "Choose from the list.")
    return values[_count(place)]


def _count(text: str) -> int:
    """A count that the page has sent."""
    if not text.isdecimal() or len(text) > 9:
        raise Problem(422, "the question is not understood", "Ask from the page.")
    return int(text)
