"""The routes of the studio. Every address under /v1 needs the token that was printed at the start.

The page itself holds nothing and is given to every browser on this machine; it takes the token out
of its address and sends it with each request.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from counterveil.service.guard import HEADERS, Guard
from counterveil.service.page.routes import FILES
from counterveil.service.questions import asked_in
from counterveil.service.responses import Problem, as_json, as_problem, page_route
from counterveil.studio import bodies
from counterveil.studio.jobs import Job, Jobs, log, problem_of
from counterveil.studio.steps import Steps

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("shared.js", "studio.js", "schema.js", "release.js", "steps.js", "checks.js", "words.js")
PAGES = {
    "": PAGE / "index.html",
    **{name: PAGE / name for name in (*SCRIPTS, "studio.css")},
    **{path.name: path for path in FILES if path.name in ("page.css", "icon.svg")},
}
CAN_BE_STOPPED = ("audit", "attack", "actions", "fairness")  # kinds of jobs
HOSTS = ("127.0.0.1", "localhost")
MOST_BYTES = 8_000_000  # of a body: a schema


def create_app(steps: Steps, token: str) -> FastAPI:
    """The studio as an ASGI application."""
    studio = Studio(steps, token)
    app = FastAPI(lifespan=studio.lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.steps = steps
    studio.add_routes(app)
    app.add_exception_handler(HTTPException, as_problem)
    app.add_middleware(Guard, hosts=HOSTS, most_bytes=MOST_BYTES)
    return app


def own_policy() -> dict[str, str]:
    """The content policy of the page: as usual, and the style of reports is known by its digest.

    A report is shown in a frame without scripts and without an origin; the frame has this policy.
    """
    style = (files("counterveil") / "pages" / "style.css").read_text(encoding="utf-8")
    digest = hashlib.sha256(style.removesuffix("\n").encode()).digest()  # as in the report
    known = f"style-src 'self' 'sha256-{base64.b64encode(digest).decode()}'"
    policy = "Content-Security-Policy"
    return {policy: HEADERS[policy].replace("style-src 'self'", known)}


class Studio:
    """What the routes share."""

    def __init__(self, steps: Steps, token: str) -> None:
        self.steps, self.jobs = steps, Jobs()
        self._token = token.encode()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """At the end what can be stopped is; a release has been paid for, and goes on."""
        yield
        for kind in CAN_BE_STOPPED:
            self.steps.stop(kind)
        if self.steps.running["release"]:
            log.warning("a release is running; it ends by itself and writes its veil")

    def add_routes(self, app: FastAPI) -> None:
        """All addresses of the studio."""
        steps = self.steps
        app.add_api_route("/v1/start", self._route(lambda _: steps.start()))
        app.add_api_route("/v1/jobs", self._route(lambda _: self._all_jobs()))
        app.add_api_route("/v1/jobs/{name}", self._route(self._job))
        answers: dict[str, tuple[type[bodies.Body], Callable[[Any], Any]]] = {
            "columns": (bodies.OfFile, lambda asked: steps.columns(asked.file)),
            "schema/open": (bodies.OfFile, lambda asked: steps.open_schema(asked.file)),
            "schema/check": (bodies.AskSchema, lambda asked: steps.check_schema(asked.content)),
            "schema/save": (bodies.AskSave, steps.save_schema),
            "plans": (bodies.AskPlans, steps.plans),
            "deltas": (bodies.AskDeltas, steps.deltas),
            "account": (bodies.AskAccount, steps.open_account),
            "veil": (bodies.OfFile, lambda asked: steps.veil(asked.file)),
            "report": (bodies.OfFile, lambda asked: steps.report(asked.file)),
        }
        answers |= {f"{kind}/stop": (bodies.Body, self._stops(kind)) for kind in CAN_BE_STOPPED}
        jobs: dict[str, tuple[type[bodies.Body], Callable[[Any, Job], Any]]] = {
            "draft": (bodies.AskDraft, lambda asked, _: steps.draft(asked)),
            "check": (bodies.Unit, lambda asked, _: steps.check_rows(asked)),
            "release": (bodies.AskRelease, steps.release),
            "try": (bodies.AskTry, lambda asked, _: steps.try_veil(asked)),
            "audit": (bodies.Body, lambda _, job: steps.audit(job)),
            "attack": (bodies.AskAttack, steps.attack),
            "actions": (bodies.AskActions, steps.actions),
            "fairness": (bodies.AskFairness, steps.fairness),
        }
        answers |= {name: (body, self._starts(name, work)) for name, (body, work) in jobs.items()}
        for name, (body, answer) in answers.items():
            app.add_api_route(f"/v1/{name}", self._route(answer, body), methods=["POST"])
        for name, path in PAGES.items():
            app.add_api_route(f"/{name}", page_route(path, None if name else own_policy()))

    def _starts(self, kind: str, work: Callable[[Any, Job], Any]) -> Callable[[Any], Any]:
        """What begins a job of this kind; a release has an id that the page has chosen."""

        def start(asked: Any) -> dict[str, Any]:
            return self.jobs.start(kind, partial(work, asked), getattr(asked, "id", None)).to_dict()

        return start

    def _stops(self, kind: str) -> Callable[[Any], Any]:
        """What ends the processes of this kind."""
        return lambda _: self.steps.stop(kind)

    def _all_jobs(self) -> dict[str, Any]:
        return {"jobs": [job.to_dict() for job in self.jobs.all()]}

    def _job(self, request: Request) -> dict[str, Any]:
        return self.jobs.get(request.path_params["name"]).to_dict()

    def _route(
        self, work: Callable[[Any], Any], body: type[bodies.Body] | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """`work` in a thread, for whoever has the token: on the `body` of a request, or on it."""

        async def answer(request: Request) -> Response:
            try:
                self._admit(request)
                asked = request if body is None else await asked_in(request, body)
                return as_json(await asyncio.to_thread(work, asked))
            except Exception as error:
                return problem_of(error).response()

        return answer

    def _admit(self, request: Request) -> None:
        """Refuse requests without the token: those of other pages, for instance."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode(), self._token)
        if kind.lower() != "bearer" or not right:
            detail = "Open the address that counterveil studio has printed."
            raise Problem(401, "the token is missing or wrong", detail)
