"""The page: what a person has entered comes in as a form, and the page or a part of it goes out.

The page holds its own state: the fields of the step that is shown, and those of all others in one
field, `kept`. Nothing is remembered here but jobs, by their id.
"""

import json
import re
import uuid
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.responses import Response

from counterveil.errors import InputError
from counterveil.schema import Schema
from counterveil.service.page.templates import renderer
from counterveil.service.page.values import chosen_of
from counterveil.service.page.words import LANGUAGES, Words, texts_in
from counterveil.service.questions import parsed
from counterveil.service.responses import Problem
from counterveil.studio import bodies
from counterveil.studio.cards import Cards
from counterveil.studio.jobs import Job, Jobs
from counterveil.studio.steps import Steps, as_content, finished, problems

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
KINDS = ("draft", "check", "release", "try", "audit", "attack", "actions", "fairness")  # of jobs
CAN_BE_STOPPED = ("audit", "attack", "actions", "fairness")
GROUPED = ("categorical", "binary")  # columns that make groups
Sent = dict[str, str]
Kind = TypeVar("Kind", bound=bodies.Body)
rendered = renderer(PAGE)


class Walk:
    """One request of the page. Each part of it is a method without arguments."""

    PARTS = (
        *("body", "draft", "open", "veil", "save", "check", "release", "answers", "actions"),
        *("fairness", "audit", "attack", "stop", "read", "download", "job", "card", "checked"),
        *("plan", "account", "deltas"),
    )

    def __init__(self, steps: Steps, jobs: Jobs, language: str, sent: Sent) -> None:
        self.steps, self.jobs, self.language = steps, jobs, language
        self.sent = {**_kept(sent.get("kept", "{}")), **sent}
        self.trouble = self.focus = ""
        self._busy: dict[str, Job] = {}

    # --- Parts of the page ---

    def shell(self) -> str:
        """What every browser gets: no word about the folder."""
        styles, script = ["page.css", "studio.css"], "studio.js"
        return self._html(
            "index.html", shell=True, product="counterveil studio", styles=styles, script=script
        )

    def body(self) -> Response:
        """All of the page."""
        if "step" not in self.sent:
            self._find_running()
        for kind in KINDS:
            self._look(kind)
        shown, self.sent["step"] = self.sent.get("shown"), str(self.step)
        moved = shown not in (None, self.sent["step"])
        self.focus = self.focus or ("head" if moved else "")
        headers = {"HX-Reswap": "innerHTML show:window:top"} if moved else None
        return self._response("body.html", headers)

    def draft(self) -> Response:
        """Begin a draft of a schema."""
        columns, label = self.columns, self.sent.get("label", "")
        left = [name for name in columns if not (name == label or self.is_used(name))]
        asked = self._asked(bodies.AskDraft, label=label, exclude=left)
        return self._begin("draft", lambda _: self.steps.draft(asked))

    def open(self) -> Response:
        """Open a schema of the folder."""
        name = self.sent.get("schema", "")
        schema = self.steps.schema(name)
        self._use(as_content(schema), {}, {})
        self.sent |= {"schema_name": name, "step": "2"}
        if not schema.drafted:
            self.sent["schema_file"] = name
        return self.body()

    def veil(self) -> Response:
        """Open a veil of the folder."""
        self.steps.veil(self.sent.get("opened", ""))
        self._drop("job-try")
        self.sent |= {"veil": self.sent["opened"], "step": "5"}
        return self.body()

    def save(self) -> Response:
        """Save the schema, and go on; a draft stays one."""
        cards, content, words = self.cards, self.cards.content, self.words
        for problem in problems(content):
            told = words("mend_first", name=problem["column"] or "", words=problem["words"])
            place = next((each.place for each in cards if each.name == problem["column"]), "")
            raise Problem(422, told, where={"place": place})
        unsure, as_draft = [each.name for each in cards.unsure], "as_draft" in self.sent
        if unsure and not as_draft:
            told = ", ".join(unsure[:5]) + (", …" if len(unsure) > 5 else "")
            place = "bits" if cards.unsure[0] in cards.bits else cards.unsure[0].place
            raise Problem(422, words("confirm_first", names=told), where={"place": place})
        asked = self._asked(bodies.AskSave, "schema_name", replace="replace" in self.sent)
        saved = self.steps.save_schema(asked, content, cards.typed)
        self._drop("replace", "planned", "job-check")
        self.sent["schema_name"] = saved["file"]
        if as_draft:
            self.trouble = words("saved_draft", file=saved["file"])
        else:
            self.sent |= {
                "schema_file": saved["file"], "step": "3" if "file" in self.sent else "1"
            }  # fmt: skip
        return self.body()

    def check(self) -> Response:
        """Begin to look whether all rows fit."""
        asked = self._asked(bodies.Unit, **self._unit)
        return self._begin("check", lambda _: self.steps.check_rows(asked))

    def release(self) -> Response:
        """Begin a release; the same id begins it once."""
        asked = self._asked(
            bodies.AskRelease,
            id=self.sent.get("release_id", ""),
            epsilon=self.sent.get("epsilon", ""),
            veil=self.sent.get("veil_name", ""),
            other_rows="other_rows" in self.sent,
            **self._planned,
        )
        return self._begin("release", partial(self.steps.release, asked), asked.id)

    def answers(self) -> Response:
        """Begin to ask the veil about invented people."""
        asked = self._asked(bodies.AskTry, **self._about_veil)
        return self._begin("try", lambda _: self.steps.try_veil(asked))

    def actions(self) -> Response:
        """Begin a page about what would help most people."""
        asked = self._asked(bodies.AskActions, **self._about_veil)
        return self._begin("actions", partial(self.steps.actions, asked))

    def fairness(self) -> Response:
        """Begin a page that compares groups."""
        groups = self.picked("fair")
        asked = self._asked(bodies.AskFairness, **self._about_veil, groups=groups)
        return self._begin("fairness", partial(self.steps.fairness, asked))

    def audit(self) -> Response:
        """Begin an audit."""
        return self._begin("audit", self.steps.audit)

    def attack(self) -> Response:
        """Begin an attack."""
        given = {name: self.sent.get(f"attack_{name}", "") for name in ("table", "others")}
        chosen = {name: self.sent.get(f"attack_{name}") or None for name in ("model", "attribute")}
        file = self.sent.get("attack_veil", "")
        asked = self._asked(bodies.AskAttack, file=file, **given, **chosen)
        return self._begin("attack", partial(self.steps.attack, asked))

    def stop(self) -> Response:
        """End the processes of a kind."""
        if self.sent.get("stopped") not in CAN_BE_STOPPED:
            raise Problem(422, "this cannot be stopped")
        self.steps.stop(self.sent["stopped"])
        return Response()

    def read(self) -> Response:
        """Show a report of the folder."""
        self.steps.report(self.sent.get("report", ""))
        self.focus = "reader"
        return self.body()

    def download(self) -> Response:
        """The content of a report."""
        text = self.steps.report(self.sent.get("file", ""))["text"]
        return Response(text, media_type="text/plain")

    def job(self) -> Response:
        """How far a job is; once it has ended, the page is asked for anew."""
        job = self.jobs.get(self.sent.get("job", ""))
        ended = job.state != "running"
        return self._response("job.html", job=job, status=286 if ended else 200)  # 286: ask no more

    def card(self) -> Response:
        """The card of a column, which has another kind or order now."""
        card = next((each for each in self.cards if each.place == self.sent.get("card")), None)
        if card is None:
            raise Problem(422, "there is no such column")
        return self._response("card.html", card=card)

    def checked(self) -> Response:
        """What is wrong on each card, and the steps that can be reached now."""
        return self._response("checked.html")

    def plan(self) -> Response:
        """What an ε buys, and what the account says to it."""
        self.sent["planned"] = "1"
        return self._response("plan.html", **self._account())

    def account(self) -> Response:
        """Fix for good what may be spent on these rows."""
        most = {name: self.sent.get(f"total_{name}") or "0" for name in ("epsilon", "delta")}
        schema = self.steps.schema(self.sent.get("schema_file", ""))
        self.steps.open_account(self._asked(bodies.AskAccount, dataset=schema.name, **most))
        self.focus = "to-release"
        return self.plan()

    def deltas(self) -> Response:
        """What other δ would buy."""
        asked = self._asked(bodies.AskDeltas, **self._planned, epsilon=self.epsilon)
        return self._response("deltas.html", deltas=self.steps.deltas(asked))

    # --- What templates ask ---

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
        return Cards(_kept(self.sent.get("base", "")), self.sent)

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
        return self._busy.get(kind)

    def result(self, kind: str) -> Any:
        """What came of the last job of a kind; None while there is none."""
        found = self._job(kind)
        return found.result if found and found.state == "done" else None

    @property
    def released(self) -> dict[str, Any] | None:
        """The veil that was released just now."""
        return self.result("release")

    @property
    def epsilon(self) -> float:
        """The ε that is chosen."""
        try:
            return float(self.sent.get("epsilon") or 0.75)
        except ValueError:
            return 0.75

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
        return self.steps.veil(self.sent["veil"])

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

    # --- Inside ---

    def _html(self, template: str, **more: Any) -> str:
        told = {"walk": self, "words": self.words, "number": self.words.number, "sent": self.sent}
        fixed = {"languages": LANGUAGES, "language": self.language, "epsilons": EPSILONS}
        return rendered(template, **told, **fixed, delta_names=DELTAS, **more)

    def _response(
        self, template: str, headers: dict[str, str] | None = None, status: int = 200, **more: Any
    ) -> Response:
        return Response(self._html(template, **more), status, headers, media_type="text/html")

    def _asked(self, kind: type[Kind], *names: str, **values: Any) -> Kind:
        """What is asked, checked; `names`: fields that are taken as they are."""
        fields = {name: self.sent.get(name, "") for name in names}
        if issubclass(kind, bodies.OfFile):
            fields["file"] = self.sent.get("file", "")
        return parsed(kind, json.dumps(fields | values).encode())

    def _begin(self, kind: str, work: Callable[[Job], Any], wanted: str | None = None) -> Response:
        self.sent[f"job-{kind}"] = self.jobs.start(kind, work, wanted).id
        return self.body()

    def _job(self, kind: str) -> Job | None:
        return self.jobs.find(self.sent.get(f"job-{kind}", ""))

    def _drop(self, *names: str) -> None:
        for name in names:
            self.sent.pop(name, None)

    def picked(self, kind: str) -> list[str]:
        """The columns whose boxes of a kind are ticked."""
        start = f"{kind}-"
        return [name.removeprefix(start) for name in self.sent if name.startswith(start)]

    @property
    def _unit(self) -> dict[str, Any]:
        unit, most = self.sent.get("unit_column"), self.sent.get("max_records") or "1"
        return {
            "schema_file": self.sent.get("schema_file", ""),
            **({"unit_column": unit, "max_records": most} if unit else {}),
        }

    @property
    def _planned(self) -> dict[str, Any]:
        return {**self._unit, "delta": self.delta, "groups": self.picked("group")}

    @property
    def _about_veil(self) -> dict[str, Any]:
        classes = self.shown_veil["schema"].label.classes
        target = chosen_of(classes, self.sent.get("target", ""))
        return {"file": self.sent["veil"], "target": target}

    def _account(self) -> dict[str, Any]:
        """The plans of all ε that can be chosen, this one's, and the account."""
        every = sorted({*EPSILONS, self.epsilon})
        plans = self.steps.plans(self._asked(bodies.AskPlans, **self._planned, epsilons=every))
        plan = next(each for each in plans if each["epsilon"] == self.epsilon)
        schema = self.steps.schema(self.sent["schema_file"])
        return {"plans": plans, "plan": plan, "classes": len(schema.label.classes)}

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
        busy = step == 4 and self._job("release") is not None
        return step if busy or self.is_reachable(step) else 1

    def _find_running(self) -> None:
        """A page that is opened anew finds what is running."""
        for job in self.jobs.all():
            if job.state == "running" and job.kind in (*CAN_BE_STOPPED, "release"):
                self.sent[f"job-{job.kind}"] = job.id
        self.sent["step"] = "4" if "job-release" in self.sent else "1"

    def _look(self, kind: str) -> None:
        """Take over what came of a job."""
        job = self._job(kind)
        state = job.state if job else "failed"
        if job and state == "running":
            self._busy[kind] = job
        if state == "failed":
            self._drop(f"job-{kind}")
        if job is None or state == "running":
            return
        if state == "failed":
            detail = str((job.problem or {}).get("detail") or (job.problem or {}).get("title"))
            self.trouble = self.words("stopped") if detail == "it was stopped" else detail
            if kind == "release":
                self._drop("release_id")
                self.sent |= {"ask_other": "1"} if "--other-rows" in detail else {}
        elif kind == "draft":
            self._drop("job-draft")
            self._use(job.result["schema"], job.result["left_out"], job.result["hints"])
            self.sent["step"] = "2"
        elif kind in ("actions", "fairness"):
            self._drop(f"job-{kind}")
            self.sent["report"], self.focus = job.result["file"], "reader"
        elif kind == "release" and self.sent.get("seen") != job.id:
            self._drop("job-try", "veil_name", "release_id", "ask_other")
            self.sent |= {"seen": job.id, "veil": job.result["file"]}

    def _use(self, base: Any, left_out: Any, hints: Any) -> None:
        """Work on this schema from now on."""
        old = [name for name in self.sent if FIELDS[2].fullmatch(name)]
        self._drop(*old, "schema_file", "planned", "single")
        told = {"base": base, "left_out": left_out, "hints": hints}
        self.sent |= {name: json.dumps(part) for name, part in told.items()}
        self.__dict__.pop("cards", None)

    def json(self, name: str) -> Any:
        """A part of the state that is no text."""
        return _kept(self.sent.get(name, "{}"))


def _kept(text: str) -> Any:
    """What the page has kept as JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Problem(400, "the page is not understood", "Load it again.")
    return found
