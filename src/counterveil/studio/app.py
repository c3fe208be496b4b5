"""The routes of the studio. Every part of the page needs the token that was printed at the start.

The page itself holds nothing and is given to every browser on this machine; it takes the token out
of its address and sends it with each request.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from counterveil.service.guard import HEADERS, Guard
from counterveil.service.page.routes import FILES
from counterveil.service.page.words import language_of
from counterveil.service.questions import bearer_of, form_of, read_in
from counterveil.service.responses import Problem, as_problem, page_route
from counterveil.studio.jobs import Jobs, log, problem_of
from counterveil.studio.state import PAGE
from counterveil.studio.steps import Steps
from counterveil.studio.walk import CAN_BE_STOPPED, Walk

SHARED = [path for path in FILES if path.name != "page.js"]  # with the page of the service
HOSTS = ("127.0.0.1", "localhost")
MOST_BYTES = 8_000_000  # of a body: a schema


def create_app(steps: Steps, token: str) -> FastAPI:
    """The studio as an ASGI application."""
    studio = Studio(steps, token)
    app = FastAPI(lifespan=studio.lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.steps, app.state.jobs = steps, studio.jobs
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
        self._policy = own_policy()

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
        for path in (*SHARED, PAGE / "studio.js", PAGE / "studio.css"):
            app.add_api_route(f"/{path.name}", page_route(path))
        app.add_api_route("/", self._shell)
        for part in Walk.PARTS:
            app.add_api_route(f"/page/{part}", self._route(part), methods=["POST"])

    async def _shell(self, request: Request) -> Response:
        """The page without any word about the folder."""
        walk = Walk(self.steps, self.jobs, language_of(request), {})
        return Response(walk.shell(), headers=self._policy, media_type="text/html")

    def _route(self, part: str) -> Callable[[Request], Awaitable[Response]]:
        """A part of the page, made in a thread, for whoever has the token."""

        async def answer(request: Request) -> Response:
            try:
                if not hmac.compare_digest(bearer_of(request).encode(), self._token):
                    detail = "Open the address that counterveil studio has printed."
                    raise Problem(401, "the token is missing or wrong", detail)
                sent = await read_in(request, form_of)
                walk = Walk(self.steps, self.jobs, language_of(request), sent)
                return await asyncio.to_thread(getattr(walk, part))
            except Exception as error:
                return problem_of(error).response()

        return answer
