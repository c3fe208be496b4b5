"""What each step of the page does. Everything that reads rows or spends is the curator's work."""

import importlib.util
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from counterveil.curator import Curator
from counterveil.curator.infer_schema import draft_schema, read_for_draft
from counterveil.curator.plan import AtDelta, Plan
from counterveil.errors import RequestError, SchemaError
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger, find_account
from counterveil.schema import Category, Label, Schema
from counterveil.search import Explainer
from counterveil.search.constraints.decoding import as_people_write
from counterveil.search.results.letters import LINES as LANGUAGES
from counterveil.service.answers import records
from counterveil.service.responses import Problem
from counterveil.signature import signer_line
from counterveil.studio.folder import MODELS, REPORTS, TABLES, VEIL, Folder, columns_of, is_report
from counterveil.studio.jobs import Job, Process, run_command, shown
from counterveil.veil import Veil

SAMPLES, SHOWN = 400, 3  # invented people, and those of them that are explained
SCHEMA = (".json",)
LAB = ("-m", "counterveil_lab.cli")  # the product does not import the lab; it only starts it
LARGEST_REPORT = 4 << 20  # bytes
STEPS = ("ranges", "singles", "moments", "pairs", "spikes", "of_groups")  # of a plan, mixed tables
GOOD, FAIR = 0.02, 0.1  # noise on a count, as a share of the rows of an average class
Name = Annotated[str, Field(min_length=1, max_length=200)]
_NAME = r"'(?:[^'\\]|\\.)*': "
_PLACE = re.compile(rf"^(?:{_NAME})?(?:features\.0\.\w+(?:: |\.))?(?:feature {_NAME})?")


class Planned(BaseModel):
    """Rows and their schema, and what a plan depends on besides ε.

    Without a `unit_column` the privacy is for records. `groups`: columns whose groups are counted
    as well.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    file: Name
    schema_file: Name
    unit_column: str | None = None
    max_records: Annotated[int, Field(ge=1)] | None = None
    delta: float = 0.0
    groups: list[Name] = []


class Release(Planned):
    """A release. `id` is chosen by the page, once for every release that is meant."""

    id: Annotated[str, Field(pattern="^[0-9a-f-]{16,64}$")]
    epsilon: float
    veil: Name
    other_rows: bool = False


@dataclass
class Steps:
    """The work of a studio for one folder and one ledger.

    `release_options`, `audit_options`: further words of these commands. `lab`: what Python is
    started with for an attack. `running`: the processes of each kind.
    """

    folder: Folder
    ledger: Path
    release_options: tuple[str, ...] = ()
    audit_options: tuple[str, ...] = ("--quick",)
    lab: tuple[str, ...] = LAB
    running: dict[str, list[Process]] = field(default_factory=lambda: defaultdict(list))
    _planned: tuple[Any, list[dict[str, Any]]] = (None, [])

    def columns(self, name: str) -> tuple[str, ...]:
        """The columns of a table."""
        return columns_of(self.folder.file(name, TABLES))

    def draft(self, file: str, label: str, exclude: Sequence[str]) -> dict[str, Any]:
        """A schema that looked at the rows, which columns cannot be in one, and hints by column."""
        path = self.folder.file(file, TABLES)
        name = path.name.partition(".")[0]
        if self.account(name)["account"] is not None:
            Ledger(self.ledger).write_down(name, f"exact draft of a schema of {name}")
        draft = draft_schema(read_for_draft(path), label, exclude=exclude, name=name)
        return {
            "schema": as_content(draft.schema), "left_out": draft.left_out, "hints": draft.hints
        }  # fmt: skip

    def schema(self, name: str) -> Schema:
        """The schema in a file of the folder."""
        return Schema.load(self.folder.file(name, SCHEMA))

    def save_schema(self, name: str, schema: Schema, *, replace: bool) -> str:
        """Write a schema; the name of the file. One that holds the same already stays as it is."""
        path = self.folder.new(name, ".json")
        if not (path.exists() and _holds(path, schema)):
            if path.exists() and not replace:
                raise Problem(409, "there is such a file", "Choose another name, or replace it.")
            schema.save(path)
        return path.name

    def plans(self, asked: Planned, epsilons: Sequence[float]) -> list[dict[str, Any]]:
        """What each ε would buy; the rows are counted, and that number is public.

        The plans of the last question are kept: a slider asks the same again and again.
        """
        curator, path = self._curator(asked), self.folder.file(asked.file, TABLES)
        key = asked, epsilons, curator.schema.to_json(), path.stat().st_mtime_ns
        if self._planned[0] != key:
            budgets = [Budget(epsilon, asked.delta) for epsilon in epsilons]
            plans = zip(curator.plans(path, budgets, groups=asked.groups), budgets, strict=True)
            found = [_plan_as_dict(curator.schema, plan, budget) for plan, budget in plans]
            self._planned = key, found
        return self._planned[1]

    def deltas(self, asked: Planned, epsilon: float) -> list[AtDelta]:
        """What the plan of one ε would be at other δ."""
        path = self.folder.file(asked.file, TABLES)
        budget = epsilon, asked.delta
        return list(self._curator(asked).compare_deltas(path, *budget, groups=asked.groups))

    def account(self, dataset: str) -> dict[str, Any]:
        """The account of these rows, or None, and a ledger of the folder that has it instead."""
        ledger = Ledger(self.ledger)
        accounts = ledger.accounts() if self.ledger.exists() else ()
        found = next((each for each in accounts if each.dataset == dataset), None)
        elsewhere = None if found else find_account([self.folder.path], dataset)
        return {
            "dataset": dataset,
            "account": found and found.amounts,
            "elsewhere": elsewhere and elsewhere.name,
        }

    def open_account(self, dataset: str, total: Budget) -> None:
        """Fix for good what may be spent on these rows."""
        elsewhere = self.account(dataset)["elsewhere"]
        if elsewhere:
            raise RequestError(
                f"{elsewhere} has an account of these rows already; start the studio with "
                f"--ledger {elsewhere}"
            )
        Ledger(self.ledger).open_account(dataset, total)

    def check_rows(self, asked: Planned) -> dict[str, Any]:
        """Whether all rows fit the schema: an exact look, noted in the ledger."""
        path = self.folder.file(asked.file, TABLES)
        return {"units": self._curator(asked).check(path)}

    def release(self, job: Job, asked: Release) -> dict[str, Any]:
        """Pay and release, as the command does; a schema that nobody has confirmed is refused."""
        schema = self.folder.file(asked.schema_file, SCHEMA)
        if self.schema(asked.schema_file).drafted:
            detail = "Type what was read off the rows: a veil of a draft would promise nothing."
            raise Problem(409, "the schema is a draft", detail)
        words = ["release", "--data", str(self.folder.file(asked.file, TABLES))]
        words += ["--schema", str(schema), "--epsilon", repr(asked.epsilon)]
        words += ["--delta", repr(asked.delta)] if asked.delta else []
        words += ["--ledger", str(self.ledger)]
        words += ["--out", str(self.folder.new(asked.veil, ".veil"))]
        words += ["--groups=" + ",".join(asked.groups)] if asked.groups else []
        words += ["--unit-column", asked.unit_column] if asked.unit_column else []
        words += ["--max-records", str(asked.max_records)] if asked.max_records else []
        words += ["--other-rows"] if asked.other_rows else []
        words += self.release_options
        answer = run_command(words, job, self.running["release"])
        veil = Path(answer.content["veil"]).name
        return {**self.veil(veil), "warnings": answer.warnings, "command": shown(words)}

    def veil(self, name: str) -> dict[str, Any]:
        """What a veil is and promises."""
        path = self.folder.file(name, VEIL)
        veil = Veil.load(path)
        is_asked = None not in (veil.record, veil.surrogate)  # the private model, about people
        return {
            "file": path.name,
            "digest": veil.digest,
            "signature": signer_line(veil.signer),
            "headline": veil.statement.headline,
            "meaning": veil.statement.level.meaning,
            "level": veil.statement.level.value,
            "text": veil.statement.text(),
            "schema": veil.schema,
            "answers": is_asked and veil.schema.family != "image",
            "people": is_asked and veil.schema.family == "mixed",
            "serve": shown(["serve", "--veil", str(path)]),
        }

    def try_veil(self, file: str, target: Category) -> dict[str, Any]:
        """Answers of the veil's private model to a few invented people, and a letter to one."""
        veil = Veil.load(self.folder.file(file, VEIL))
        explainer, model = Explainer(veil), veil.model()
        points, _ = veil.population().sample(SAMPLES, np.random.default_rng())
        people = as_people_write(veil.schema, explainer.encoding.decode(points))
        others = np.flatnonzero(model.predict(people) != target)[:SHOWN]
        if not len(others):
            raise RequestError(f"all {SAMPLES} invented people have this class; choose another")
        explainer.warm_up(progress=False)
        chosen = people.iloc[others].reset_index(drop=True)
        result = explainer.explain(chosen, target, progress=False)
        shown = int(result.found[0]) if len(result.found) else 0
        letters = {language: result.letter(shown, language) for language in LANGUAGES}
        promise = explainer.statement.headline
        return {"promise": promise, "answers": records(result), "person": shown, "letters": letters}

    def page(
        self, job: Job, file: str, target: Category, groups: Sequence[str] = ()
    ) -> dict[str, Any]:
        """A page about the people of a veil, at no further ε: `counterveil fairness` or `summary`.

        What would help most of them, or, where columns make `groups`, how these compare.
        """
        veil, name = self.folder.file(file, VEIL), f"{job.kind}-{_timestamp()}.html"
        words = ["fairness", "--groups=" + ",".join(groups)] if groups else ["summary"]
        words += ["--veil", str(veil), f"--target={target}"]
        words += ["--out", str(self.folder.new(name, ".html"))]
        run_command(words, job, self.running[job.kind])
        return {"file": name}

    def audit(self, job: Job) -> dict[str, Any]:
        """Try to refute what the installed mechanisms promise; no row is read."""
        name = f"audit-{_timestamp()}.json"
        words = ["audit", *self.audit_options, "--out", str(self.folder.new(name, ".json"))]
        answer = run_command(words, job, self.running["audit"])
        return {
            "file": name,
            "command": shown(words),
            "failures": answer.failures,
            "mechanisms": _by_mechanism(answer.content["rows"]),
        }

    def attack(self, job: Job, asked: Mapping[str, str]) -> dict[str, Any]:
        """Play every attack on a veil and its model; the rows that it was released from are read.

        `asked`: names of files, the `veil`, the `table` that it was released from and `others` with
        rows of other people; or "": the `model`, without which the veil's private one is written
        beside the report, and the `attribute` that the attacker tries to infer. Returns the names
        of the files, the commands that were run, what was attacked and the verdicts.
        """
        if importlib.util.find_spec("counterveil_lab") is None:
            raise RequestError(
                "an attack needs the package counterveil_lab, which is not installed"
            )
        folder = self.folder
        table, others = (folder.file(asked[name], TABLES) for name in ("table", "others"))
        if table == others:
            raise RequestError("both tables are the same; the second must hold other people")
        veil, name = folder.file(asked["veil"], VEIL), f"attack-{_timestamp()}"
        page, commands, running = folder.new(name, ".html"), [], self.running["attack"]
        if not asked["model"]:
            model = folder.new(name, ".pt2")
            words = ["model", "export", str(veil), "--pt2", str(model)]
            run_command(words, job, running, as_json=False)
            commands.append(shown(words))
        else:
            model = folder.file(asked["model"], MODELS)
        words = ["attack", "--quick", "--veil", str(veil), "--model", str(model)]
        words += ["--data", str(table), "--others", str(others), "--out", str(page)]
        words += ["--attribute", asked["attribute"]] if asked["attribute"] else []
        run_command(words, job, running, program=self.lab, as_json=False)
        commands.append(shown(words, "counterveil-lab"))
        numbers = page.with_suffix(".json")
        content = json.loads(numbers.read_text(encoding="utf-8"))
        found = {name: content[name] for name in ("facts", "verdicts")}
        return {"file": page.name, "numbers": numbers.name, "commands": commands, **found}

    def report(self, name: str) -> dict[str, Any]:
        """The text of a report of the folder; of an audit also the table of its mechanisms."""
        path = self.folder.file(name, REPORTS)
        if not is_report(name) or path.stat().st_size > LARGEST_REPORT:
            raise RequestError("this file is no report, or too long to be shown; open it yourself")
        found = {"file": name, "text": path.read_text(encoding="utf-8", errors="replace")}
        if name.startswith("audit-") and name.endswith(".json"):
            return {**found, "mechanisms": _by_mechanism(json.loads(found["text"])["rows"])}
        return found

    def stop(self, kind: str) -> None:
        """End the processes of a kind that are running."""
        for process in list(self.running[kind]):
            process.terminate()

    def _curator(self, asked: Planned) -> Curator:
        schema = self.schema(asked.schema_file)
        unit, most = asked.unit_column, asked.max_records
        return Curator(schema, ledger=self.ledger, unit_column=unit, max_records=most)


def _timestamp() -> str:
    """Now, in UTC, for the name of a file."""
    return f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}"


def as_content(schema: Schema) -> dict[str, Any]:
    """A schema as its file has it."""
    return dict(json.loads(schema.to_json()))


def finished(content: dict[str, Any], typed: Sequence[str]) -> Schema:
    """The schema of this content; a draft's mark is gone from columns that a person has typed."""
    schema = Schema(**content)
    left = tuple(name for name in schema.unreviewed if name not in typed)
    note = schema.note if left or not schema.drafted else ""  # the draft's own warning
    return schema.model_copy(update={"drafted": left or False, "note": note})


def _holds(path: Path, schema: Schema) -> bool:
    try:
        return Schema.load(path).to_json() == schema.to_json()
    except SchemaError:
        return False


def problems(content: dict[str, Any]) -> list[dict[str, str | None]]:
    """What is wrong with each column by itself, so that every fault is named; else the whole."""
    label, features = content["label"], content["features"]
    found = _refusal(Label, label, label["name"])
    for feature in features:
        alone = {"label": {"name": " ", "classes": [0, 1]}, "features": [feature]}
        found += _refusal(Schema, alone, feature["name"])
    return found or _refusal(Schema, content, None)


def _refusal(
    part: type[Label | Schema], content: dict[str, Any], column: str | None
) -> list[dict[str, str | None]]:
    """The line of the SchemaError for this content, without the way to its place in the file."""
    try:
        part(**content)
    except SchemaError as error:
        return [{"column": column, "words": _PLACE.sub("", str(error).removeprefix("schema: "))}]
    return []


def _plan_as_dict(schema: Schema, plan: Plan, budget: Budget) -> dict[str, Any]:
    """The plan for the page.

    `noise`: how far a count is off, in rows (one standard deviation); `share`: that beside the rows
    of an average class; `grade`: good, fair or poor by that share, not good where the plan looks at
    each column by itself, and poor where it warns. Only mixed tables have them. `bought`: which
    steps the plan can afford.
    """
    content: dict[str, Any] = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "factor": math.exp(budget.epsilon),
        "height": 50.0,
        "reasons": list(plan.reasons),
        "warnings": list(plan.warnings),
        "units": plan.units,
    }
    if plan.family != "mixed":
        return content
    bought = [name for name, share in zip(STEPS, plan.shares, strict=False) if share is not None]
    noise = plan.noise
    share = noise * len(schema.label.classes) / plan.units
    alone = plan.norm == 0 and len(schema.features) > 1
    grade = "poor" if plan.warnings or share > FAIR else "fair" if alone or share > GOOD else "good"
    height = min(100.0, max(4.0, 25 * math.log10(10 / share)))
    found = {"bought": bought, "noise": noise, "share": share, "grade": grade, "alone": alone}
    return {**content, **found, "height": height}


def _by_mechanism(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each mechanism: games, the highest bound on ε, what it claims, and how many refute it."""
    of = pd.DataFrame(rows).groupby("mechanism", sort=False)
    found: Any = of.agg(
        games=("bound", "size"),
        claimed=("claimed_epsilon", "max"),
        bound=("bound", "max"),
        refuted=("refuted", "sum"),
    )
    return found.reset_index().to_dict("records")
