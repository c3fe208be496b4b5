"""What a person has entered on the page, and what follows from it: templates ask this.

The page holds its own state: the fields of the step that is shown, and those of all others in one
field, `kept`. Nothing is remembered here but jobs, by their id.
"""

import json
import re
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from counterveil.errors import InputError
from counterveil.schema import Schema
from counterveil.service.page.values import number_in
from counterveil.service.page.words import Words, texts_in
from counterveil.service.responses import Problem
from counterveil.studio.cards import Cards
from counterveil.studio.jobs import Job, Jobs
from counterveil.studio.steps import Steps, finished, problems

PAGE = Path(__file__).with_name("page")
WORDS = texts_in(PAGE)
STEPS = range(1, 8)
# The fields of each step.
FIELDS = {
    1: re.compile("uses_of|label|use-.*|schema|opened", re.DOTALL),
    2: re.compile("[lc][0-9]*-.*|bits|dataset|schema_name|replace", re.DOTALL),
    3: re.compile("unit_column|max_records|group-.*|epsilon|delta|planned", re.DOTALL),
    4: re.compile("veil_name|release_id|other_rows"),
    5: re.compile("target|fair-.*", re.DOTALL),
    6: re.compile("-"),
    7: re.compile("attack_.*"),
}
PASSING = re.compile("kept|step|shown|as_draft|stopped|card|total_.*")  # fields of one request
EPSILONS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
DELTAS = {"0": "", "1e-06": "10⁻⁶", "1e-09": "10⁻⁹"}
GROUPED = ("categorical", "binary")  # columns that make groups
Sent = dict[str, str]


class State:
    """The fields of one request, those that the page has kept among them."""

    def __init__(self, steps: Steps, jobs: Jobs, language: str, sent: Sent) -> None:
        self.steps, self.jobs, self.language = steps, jobs, language
        self.sent = {**_kept(sent.get("kept", "{}"), str), **sent}
        self.trouble = self.focus = ""
        self.busy: dict[str, Job] = {}

    @cached_property
    def words(self) -> Words:
        """The texts of the page; values are told as the schema of the veil in use has them."""
        about_veil = self.sent.get("step") == "5" and "veil" in self.sent
        return Words(self.language, self.shown_veil["schema"] if about_veil else None, WORDS)

    @cached_property
    def listing(self) -> dict[str, list[dict[str, Any]]]:
        """The files of the folder."""
        return self.steps.folder.listing()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that is chosen."""
        return self.steps.columns(self.sent["file"]) if "file" in self.sent else ()

    @property
    def uses_same(self) -> bool:
        """Whether the choice of columns is about the table that is chosen."""
        return "file" in self.sent and self.sent.get("uses_of") == self.sent["file"]

    def is_used(self, column: str) -> bool:
        """Whether a column of the table is to be in the draft."""
        return not self.uses_same or f"use-{column}" in self.sent

    @cached_property
    def cards(self) -> Cards:
        """The schema that is worked on."""
        base = _kept(self.sent.get("base", ""), object)
        Schema(**base)  # refuses one that neither a draft nor a file has given
        return Cards(base, self.sent)

    @cached_property
    def problems(self) -> dict[str | None, str]:
        """What is wrong with the schema, by column."""
        return {each["column"]: str(each["words"]) for each in problems(self.cards.content)}

    @cached_property
    def saved(self) -> Schema | None:
        """The schema that was saved, if nothing has changed since."""
        if not {"schema_file", "base"} <= self.sent.keys():
            return None
        try:
            found = self.steps.schema(self.sent["schema_file"])
            same = found.to_json() == finished(self.cards.content, self.cards.typed).to_json()
        except InputError:
            return None
        return found if same and not found.drafted and not self.cards.unsure else None

    def is_reachable(self, step: int) -> bool:
        """Whether a step can be gone to."""
        if step in (3, 4):
            ready = self.saved is not None and "file" in self.sent
            return ready and (step == 3 or "planned" in self.sent or self.released is not None)
        needed = {1: True, 2: "base" in self.sent, 5: "veil" in self.sent, 6: True}
        return bool(needed[step]) if step in needed else bool(self.listing["veils"])

    def running(self, kind: str) -> Job | None:
        """The job of a kind that was running when the page was begun: it may end meanwhile."""
        return self.busy.get(kind)

    def result(self, kind: str) -> Any:
        """What came of the last job of a kind; None while there is none."""
        found = self.job_of(kind)
        return found.result if found and found.state == "done" else None

    @property
    def released(self) -> dict[str, Any] | None:
        """The veil that was released just now."""
        return self.result("release")

    @property
    def epsilon(self) -> float:
        """The ε that is chosen."""
        found = number_in(self.sent.get("epsilon", ""))
        return 0.75 if isinstance(found, str) else found

    @property
    def delta(self) -> str:
        """The δ that is chosen, as in the list."""
        chosen = self.sent.get("delta", "0")
        return chosen if chosen in DELTAS else "0"

    @property
    def release_id(self) -> str:
        """The id of the release that is meant: another one once it has been tried."""
        return self.sent.get("release_id") or str(uuid.uuid4())

    @property
    def free_name(self) -> str:
        """A name for a veil that no file has."""
        taken = {each["name"] for each in self.listing["veils"]}
        name = self.saved.name if self.saved else "table"
        names = (f"{name}{end}.veil" for end in ("", *(f"-{at}" for at in range(2, 10_000))))
        return next(each for each in names if each not in taken)

    @cached_property
    def shown_veil(self) -> dict[str, Any]:
        """The veil that is tried."""
        return self.steps.veil(self.sent.get("veil", ""))

    @property
    def report(self) -> dict[str, Any] | None:
        """The report that is read."""
        return self.steps.report(self.sent["report"]) if self.sent.get("report") else None

    @property
    def attributes(self) -> list[tuple[str, str]]:
        """The columns that an attacker may guess: of the veil that is chosen, or the first."""
        veils = [each["name"] for each in self.listing["veils"]]
        chosen = self.sent.get("attack_veil") or self.sent.get("veil")
        file = chosen if chosen in veils else veils[0] if veils else None
        return self.groups(self.steps.veil(file)["schema"]) if file else []

    def groups(self, schema: Schema) -> list[tuple[str, str]]:
        """Columns that make groups, and what they are called; commands put commas between them."""
        found = [each for each in schema.features if each.kind in GROUPED and "," not in each.name]
        return [(each.name, each.shown_name) for each in found]

    @property
    def kept(self) -> str:
        """All fields that the page does not show."""
        own = FIELDS[self.step]
        hidden = (
            name for name in self.sent if not (own.fullmatch(name) or PASSING.fullmatch(name))
        )
        return json.dumps({name: self.sent[name] for name in hidden})

    def picked(self, kind: str) -> list[str]:
        """The columns whose boxes of a kind are ticked."""
        start = f"{kind}-"
        return [name.removeprefix(start) for name in self.sent if name.startswith(start)]

    @property
    def planned(self) -> dict[str, Any]:
        """What a plan depends on besides ε, as it was entered."""
        unit, most = self.sent.get("unit_column"), self.sent.get("max_records") or "1"
        return {
            "file": self.sent.get("file", ""),
            "schema_file": self.sent.get("schema_file", ""),
            **({"unit_column": unit, "max_records": most} if unit else {}),
            "delta": self.delta,
            "groups": self.picked("group"),
        }

    @cached_property
    def book(self) -> dict[str, Any]:
        """The account of the rows, and whether it can pay."""
        schema = self.steps.schema(self.sent.get("schema_file", ""))
        found = self.steps.account(schema.name)
        left = found["account"] and found["account"]["remaining"]
        pays = left and left["epsilon"] >= self.epsilon and left["delta"] >= float(self.delta)
        after = left and {
            "epsilon": float(f"{left['epsilon'] - self.epsilon:.12g}"),
            "delta": float(f"{left['delta'] - float(self.delta):.12g}"),
        }
        return {**found, "pays": bool(pays), "after": after}

    @property
    def step(self) -> int:
        """The step that is shown; where it cannot be reached, the first."""
        step = {str(each): each for each in STEPS}.get(self.sent.get("step", ""), 1)
        busy = step == 4 and self.job_of("release") is not None
        return step if busy or self.is_reachable(step) else 1

    def json(self, name: str) -> Any:
        """A part of the state that is no text."""
        return _kept(self.sent.get(name, "{}"), str, list)

    def job_of(self, kind: str) -> Job | None:
        """The last job of a kind that this page knows of."""
        found = self.jobs.find(self.sent.get(f"job-{kind}", ""))
        return found if found and found.kind == kind else None


def _kept(text: str, *kinds: type) -> Any:
    """What the page has kept as JSON: an object, whose values are of these kinds."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not (isinstance(found, dict) and all(isinstance(each, kinds) for each in found.values())):
        raise Problem(422, "the page is not understood", "Load it again.")
    return found
