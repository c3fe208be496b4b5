"""The page in HTML: templates that are filled by a schema, what a form holds, and answers.

A fragment takes the place of a part of the page (htmx). Nothing here asks a model: that is for the
routes, which count it.
"""

import html
import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from counterveil.schema import Schema
from counterveil.service.page.form import Form, Sent
from counterveil.service.page.table import Table
from counterveil.service.page.values import file_address
from counterveil.service.page.words import LANGUAGES, Words, rendered
from counterveil.service.questions import Explain, Row, parsed


class Page:
    """The page in one language; each method gives a fragment of it."""

    def __init__(self, schema: Schema, language: str) -> None:
        self.schema, self.words = schema, Words(language, schema)
        self.form = Form(schema, self.words)
        self.table = Table(self.form)

    def _html(self, template: str, **content: Any) -> Response:
        pictures = self.form.pictures
        told = {
            "schema": self.schema, "words": self.words, "number": self.words.number,
            "language": self.words.language, "languages": LANGUAGES,
            "image": pictures and pictures.image,
        }  # fmt: skip
        return Response(rendered(template, **told, **content), media_type="text/html")

    def shell(self) -> Response:
        """What everybody gets: no word about the veil."""
        return self._html("index.html", about=None, form={})

    def body(self, sent: Sent, about: dict[str, Any]) -> Response:
        """All of the page; a question that was answered is asked again once it is shown."""
        return self._html("body.html", about=about, **self.form.fields(sent))

    def fill(self, sent: Sent) -> Response:
        """The fields with another row: `row`, or `trying` in its place, as JSON; or `colours`."""
        form = self.form
        if "colours" in sent and form.pictures:
            pixels = form.pictures.pixels(sent["colours"])
            return self._html("fill.html", **form.fields({"f0": pixels}))
        own = parsed(Explain, f'{{"rows": [{sent.get("row")}]}}'.encode()).rows[0]
        if "trying" not in sent:
            return self._html("fill.html", **form.fields({**sent, **form.filled(own)}))
        way = parsed(Explain, f'{{"rows": [{sent["trying"]}]}}'.encode()).rows[0]
        moved = {name for name in way if way[name] != own.get(name)}
        fields = form.fields({**sent, **form.filled(way)}, moved)
        return self._html("fill.html", **{**fields, "back": json.dumps(own)})

    def example(self, sent: Sent, row: Row) -> Response:
        """The fields with an invented row."""
        filled = self.form.filled(row)
        return self._html("fill.html", **self.form.fields({**sent, **filled}))

    def result(self, asked: Explain, record: dict[str, Any], about: dict[str, Any]) -> Response:
        """The answer to one row: a card, the ways side by side, a letter."""
        words, ways = self.words, record["ways"]
        goal, now = words.decision(record["target"]), words.decision(record["decision"])
        name = record["status"] if record["status"] in ("already", "impossible") else "none"
        if ways:
            name = "found_one" if len(ways) == 1 else "found"
        asked_nothing = record["decision"] is None
        row = asked.rows[0]
        content = json.dumps({**about, "answers": [record]}, ensure_ascii=False, indent=2)
        return self._html(
            "result.html",
            title=words(name, goal=goal, n=len(ways)),
            now=words("asked_nothing") if asked_nothing else words("decides", now=now),
            record={"letter": "", **record},
            ways=ways,
            card=self._card(record, row),
            compared=self._compared(row, ways) if len(ways) > 1 and not self.form.pictures else [],
            row=json.dumps(row),
            question=asked.model_dump_json(exclude_defaults=True),
            json_file=file_address(content.encode(), "application/json"),
            letter_file=file_address(record.get("letter", "").encode(), "text/plain;charset=utf-8"),
        )

    def _card(self, record: dict[str, Any], row: Row) -> dict[str, Any]:
        """A record as the macro `explanation` of pages/parts.html takes it, without empty parts."""
        words, opens, ways = self.words, record.get("opens"), record["ways"]
        pictures, goal = self.form.pictures, words.decision(record["target"])
        closest, opening = None if pictures else record.get("closest"), None
        if closest and opens:
            rule, feature = opens["rule"], opens["feature"]
            rule = f"{self.schema.shown_name(feature)} ({rule})" if feature else rule
            told = words("opens", rule=rule, share=words.percent(opens["probability"]))
            opening = {"words": told, **self._changes(opens["changes"])}
        return {
            "now": words.decision(record["decision"]),
            "goal": goal,
            "several": len(ways) > 1,
            "answers": [
                {
                    "rank": place,
                    "measures": self._measures(way, goal),
                    "quality": self._warnings(way),
                    "row": json.dumps(way["row"]),
                    "pictures": pictures.compared(row, way["row"]) if pictures else [],
                    **self._changes(way["changes"]),
                }
                for place, way in enumerate(ways, 1)
            ],
            "closest": closest
            and {"probability": record["best_probability"], **self._changes(closest)},
            "opening": opening,
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
            if not self.form.pictures:
                share = words("of_people", share=words.percent(way["plausibility"]), goal=goal)
                told.append(f"{words('plausibility')} {share}")
            told.append(f"{words('stability')} {words.percent(way['stability'])}")
            told.append(f"{words('effort')} {words.number(way['effort'], 2)}")
        return " · ".join([*told, f"{words('distance')} {words.number(way['distance'], 2)}"])

    def _changes(self, changes: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The changes of a row as a card has them, and the places of numbers among people."""
        if self.form.pictures:
            return {}
        rows, places = [], {}
        for each in changes:
            column, name = each["column"], self.schema.shown_name(each["column"])
            before = self.words.value(column, each["from"])
            after = self.words.value(column, each["to"], full=True)
            rows.append((name, before, after, each.get("works") or ""))
            if "places" in each:
                shares = dict(zip(("before", "after"), each["places"], strict=True))
                told = {way: self.words.percent(share) for way, share in shares.items()}
                places[name] = (*each["places"], self.words("place", **told))
        return {"changes": rows, "works": any(row[-1] for row in rows), "places": places}

    def _compared(self, row: Row, ways: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
        """Of each feature that any way changes: its name, the value now, and in each way."""
        after = [{each["column"]: each["to"] for each in way["changes"]} for way in ways]
        columns = dict.fromkeys(column for way in after for column in way)
        return [
            (
                self.schema.shown_name(column),
                self.words.value(column, row[column]),
                *(self.words.value(column, way[column]) if column in way else "–" for way in after),
            )
            for column in columns
        ]

    def decision(self, found: dict[str, Any]) -> Response:
        """What is decided, in a sentence."""
        share = self.words.percent(max(found["probabilities"]))
        text = self.words("now_decides", goal=self.words.decision(found["decision"]), share=share)
        return Response(html.escape(text), media_type="text/html")
