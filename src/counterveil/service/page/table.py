"""A table on the page: parts of a CSV file come in, lines of another one go out."""

import csv
import io
from typing import Any

import pandas as pd

from counterveil.service.page.form import Form, Sent
from counterveil.service.page.values import count_in, number_in
from counterveil.service.page.words import rendered
from counterveil.service.questions import Explain, Row
from counterveil.service.responses import Problem
from counterveil.tables import MISSING, file_content

MOST_SHOWN = 20  # rows


class Table:
    """Many rows of one schema, in one language."""

    def __init__(self, form: Form) -> None:
        self.schema, self.words, self._form = form.schema, form.words, form

    def rows(self, body: bytes, start: str) -> list[Row]:
        """The rows of a part of a CSV file with its header; `start` of them came before."""
        try:
            header, *lines = csv.reader(io.StringIO(body.decode(), newline=""))
        except (ValueError, csv.Error):
            raise Problem(422, self.words("empty_file")) from None
        wanted = self.schema.columns
        found = {name: at for at, name in reversed([*enumerate(header)])}
        missing = [name for name in wanted if name not in found]
        if missing:
            raise Problem(422, self.words("missing_columns", names=", ".join(missing[:5])))
        for number, line in enumerate(lines, count_in(start) + 2):
            if len(line) != len(header):
                raise Problem(422, self.words("ragged", n=number))
        places = {name: found[name] for name in wanted}
        return [
            {name: self._typed(name, line[at]) for name, at in places.items()} for line in lines
        ]

    def _typed(self, column: str, text: str) -> Any:
        """A cell of a CSV file as a value of its column."""
        if text in MISSING:
            return None
        values = () if self._form.pictures else self.schema.feature(column).listed_values
        if values:
            return next((value for value in values if str(value) == text), text)
        return number_in(text)

    def question(self, rows: list[Row], choices: Sent) -> Explain:
        """What is asked about the rows of a table."""
        return self._form.checked(choices, rows=rows)

    def answers(
        self, rows: list[Row], found: list[dict[str, Any]], choices: Sent
    ) -> dict[str, Any]:
        """Lines of a CSV file, the first of them as a table, and how far it came."""
        start, wanted = count_in(choices.get("start", "0")), self.schema.columns
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
            shown.append((number, self.words.decision(record["target"]), self._in_short(record)))
        head = ["row", "way", "status", "decision", "target", *measures, *wanted]
        table = pd.DataFrame(lines, columns=head, dtype=object)
        content = file_content(table, "answers.csv", escape=True).decode()
        count = count_in(choices.get("found", "0")) + sum(bool(each["ways"]) for each in found)
        preview = rendered("preview.html", rows=shown[:MOST_SHOWN])
        return {
            "answers": content.partition("\n")[2] if start else content,
            "preview": preview,
            "found": count,
            **self.progress({**choices, "start": str(start + len(rows)), "found": str(count)}),
        }

    def _in_short(self, record: dict[str, Any]) -> str:
        goal = self.words.decision(record["target"])
        if not record["ways"]:
            known = record["status"] in ("already", "impossible")
            return self.words(record["status"] if known else "none", goal=goal)
        first = record["ways"][0]
        if self._form.pictures:
            return self.words.percent(first["probability"])
        shown, value = self.schema.shown_name, self.words.value
        changes = [(each["column"], each["to"]) for each in first["changes"]]
        return ", ".join(f"{shown(name)} {value(name, to, full=True)}" for name, to in changes)

    def progress(self, choices: Sent) -> dict[str, Any]:
        """How far it came, of how many rows; a Problem where there are none."""
        every, done, found = (
            count_in(choices.get(name, "0")) for name in ("rows", "start", "found")
        )
        if not every:
            raise Problem(422, self.words("empty_file"))
        if done >= every:
            return {"done": self.words("finished", found=found, all=every)}
        return {
            "done": self.words(
                "progress", done=self.words.number(done), all=self.words.number(every)
            )
        }
