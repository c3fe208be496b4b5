"""The page: what a person has entered comes in as a form, and the page or a part of it goes out."""

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response

from counterveil.pages import renderer
from counterveil.privacy import Budget
from counterveil.service.page.values import chosen_of, number_in
from counterveil.service.page.words import LANGUAGES
from counterveil.service.page.words import PAGE as SHARED
from counterveil.service.questions import parsed
from counterveil.service.responses import Problem
from counterveil.studio.jobs import Job
from counterveil.studio.state import DELTAS, EPSILONS, FIELDS, PAGE, State
from counterveil.studio.steps import Planned, Release, as_content, finished, problems

KINDS = ("draft", "check", "release", "try", "audit", "attack", "actions", "fairness")  # of jobs
CAN_BE_STOPPED = ("audit", "attack", "actions", "fairness")
Kind = TypeVar("Kind", bound=Planned)
rendered = renderer(PAGE, SHARED)


class Walk(State):
    """One request of the page. Each part of it is a method without arguments."""

    PARTS = (
        *("body", "draft", "open", "veil", "save", "check", "release", "answers", "actions"),
        *("fairness", "audit", "attack", "stop", "read", "download", "job", "card", "checked"),
        *("plan", "account", "deltas"),
    )

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
        file = self.sent.get("file", "")
        return self._begin("draft", lambda _: self.steps.draft(file, label, left))

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
        name, schema = self.sent.get("schema_name", ""), finished(content, cards.typed)
        file = self.steps.save_schema(name, schema, replace="replace" in self.sent)
        self._drop("replace", "planned", "job-check")
        self.sent["schema_name"] = file
        if as_draft:
            self.trouble = words("saved_draft", file=file)
        else:
            self.sent |= {"schema_file": file, "step": "3" if "file" in self.sent else "1"}
        return self.body()

    def check(self) -> Response:
        """Begin to look whether all rows fit."""
        asked = self._asked(Planned)
        return self._begin("check", lambda _: self.steps.check_rows(asked))

    def release(self) -> Response:
        """Begin a release; the same id begins it once."""
        asked = self._asked(
            Release,
            id=self.sent.get("release_id", ""),
            epsilon=self.sent.get("epsilon", ""),
            veil=self.sent.get("veil_name", ""),
            other_rows="other_rows" in self.sent,
        )
        return self._begin("release", partial(self.steps.release, asked=asked), asked.id)

    def answers(self) -> Response:
        """Begin to ask the veil about invented people."""
        asked = self._about_veil
        return self._begin("try", lambda _: self.steps.try_veil(**asked))

    def actions(self) -> Response:
        """Begin a page about what would help most people."""
        return self._begin("actions", partial(self.steps.page, **self._about_veil))

    def fairness(self) -> Response:
        """Begin a page that compares groups."""
        groups = self.picked("fair")
        if not groups:
            raise Problem(422, "the question is not understood", "Choose columns of groups.")
        work = partial(self.steps.page, **self._about_veil, groups=groups)
        return self._begin("fairness", work)

    def audit(self) -> Response:
        """Begin an audit."""
        return self._begin("audit", self.steps.audit)

    def attack(self) -> Response:
        """Begin an attack."""
        names = ("veil", "table", "others", "model", "attribute")
        asked = {name: self.sent.get(f"attack_{name}", "") for name in names}
        return self._begin("attack", partial(self.steps.attack, asked=asked))

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
        self._check_epsilon()
        self.sent["planned"] = "1"
        every = sorted({*EPSILONS, self.epsilon})
        plans = self.steps.plans(self._asked(Planned), every)
        plan = plans[every.index(self.epsilon)]
        classes = len(self.steps.schema(self.sent["schema_file"]).label.classes)
        return self._response("plan.html", plans=plans, plan=plan, classes=classes)

    def account(self) -> Response:
        """Fix for good what may be spent on these rows."""
        most: Any = (number_in(self.sent.get(f"total_{of}") or "0") for of in ("epsilon", "delta"))
        schema = self.steps.schema(self.sent.get("schema_file", ""))
        self.steps.open_account(schema.name, Budget(*most))
        self.focus = "to-release"
        return self.plan()

    def deltas(self) -> Response:
        """What other δ would buy."""
        self._check_epsilon()
        deltas = self.steps.deltas(self._asked(Planned), self.epsilon)
        return self._response("deltas.html", deltas=deltas)

    def _html(self, template: str, **more: Any) -> str:
        told = {"walk": self, "words": self.words, "number": self.words.number, "sent": self.sent}
        fixed = {"languages": LANGUAGES, "language": self.language, "epsilons": EPSILONS}
        return rendered(template, **told, **fixed, delta_names=DELTAS, **more)

    def _response(
        self, template: str, headers: dict[str, str] | None = None, status: int = 200, **more: Any
    ) -> Response:
        return Response(self._html(template, **more), status, headers, media_type="text/html")

    def _asked(self, kind: type[Kind], **more: Any) -> Kind:
        """What is asked about rows, checked."""
        return parsed(kind, json.dumps(self.planned | more).encode())

    def _check_epsilon(self) -> None:
        """Refuse an ε that is no number, which stands for the usual one elsewhere."""
        if isinstance(number_in(self.sent.get("epsilon") or "1"), str):
            Budget(math.nan)

    def _begin(self, kind: str, work: Callable[[Job], Any], wanted: str | None = None) -> Response:
        self.sent[f"job-{kind}"] = self.jobs.start(kind, work, wanted).id
        return self.body()

    def _drop(self, *names: str) -> None:
        for name in names:
            self.sent.pop(name, None)

    @property
    def _about_veil(self) -> dict[str, Any]:
        classes = self.shown_veil["schema"].label.classes
        target = chosen_of(classes, self.sent.get("target", ""))
        return {"file": self.sent["veil"], "target": target}

    def _find_running(self) -> None:
        """A page that is opened anew finds what is running."""
        for job in self.jobs.all():
            if job.state == "running" and job.kind in (*CAN_BE_STOPPED, "release"):
                self.sent[f"job-{job.kind}"] = job.id
        self.sent["step"] = "4" if "job-release" in self.sent else "1"

    def _look(self, kind: str) -> None:
        """Take over what came of a job."""
        job = self.job_of(kind)
        state = job.state if job else "failed"
        if job and state == "running":
            self.busy[kind] = job
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
