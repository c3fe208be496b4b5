"""The routes of the service. All answers are JSON, but for the page and the metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from counterveil import __version__
from counterveil.search import Explainer
from counterveil.search.wording import DecidedBy
from counterveil.service.access import AccessKeys, Caller, Pace
from counterveil.service.answers import plain_rows
from counterveil.service.batcher import AT_ONCE, Batcher
from counterveil.service.guard import STREAM, Guard
from counterveil.service.metrics import Metrics
from counterveil.service.problems import PROBLEM, Problem, problem_of
from counterveil.service.questions import Decide, Explain, Question, parsed
from counterveil.signature import signer_dict

log = logging.getLogger("counterveil.service")
PAGE = Path(__file__).with_name("page")
PAGES = {
    "": "index.html",
    "icon.svg": "icon.svg",
    "page.js": "page.js",
    "words.js": "words.js",
    "page.css": "page.css",
}
JSON = "application/json"
LONGEST_LINE = 1 << 20  # bytes of a row of a stream


@dataclass(frozen=True)
class Settings:
    """How a service is run.

    `hosts`: the names that it has. `keys`: who may ask; None lets everybody who reaches it.
    `most_rows`: of one JSON body; `most_streamed`: of a stream. `at_once`, `seconds`: see
    `Batcher`. `logs`: write a line for each request, without values.
    """

    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    keys: AccessKeys | None = None
    most_bytes: int = 2_000_000
    most_rows: int = 1000
    most_streamed: int = 1_000_000
    at_once: int = AT_ONCE
    seconds: float = 30.0
    logs: bool = False


def create_app(explainer: Explainer, settings: Settings | None = None) -> FastAPI:
    """The service for one veil and model, as an ASGI application."""
    settings = settings or Settings()
    service = Service(explainer, settings)
    app = FastAPI(
        title="counterveil",
        version=__version__,
        summary="What would have to be different for another decision?",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    service.add_routes(app)
    app.add_exception_handler(Problem, _as_problem)
    app.add_exception_handler(HTTPException, _as_problem)
    app.add_exception_handler(RequestValidationError, _as_problem)
    app.add_middleware(Guard, hosts=settings.hosts, most_bytes=settings.most_bytes)
    return app


class Lines(Response):
    """An answer that is sent while its question still arrives.

    Nothing here waits for the client to leave: that would take pieces of the question away.
    """

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=STREAM)
        del self.headers["content-length"]
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send each piece as it comes."""
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        async for piece in self._lines:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Service:
    """What the routes share."""

    def __init__(self, explainer: Explainer, settings: Settings) -> None:
        self.explainer, self.settings = explainer, settings
        self.metrics, self.pace = Metrics(), Pace()
        self.batcher: Batcher | None = None
        veil = explainer.veil
        self._population = None if veil.record is None else veil.population()
        self._dice = np.random.default_rng()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """The queue lives as long as the application."""
        asked = self.settings
        looked = self.metrics.rows_at_once.observe
        self.batcher = Batcher(self.explainer, asked.at_once, seconds=asked.seconds, looked=looked)
        yield
        await self.batcher.close()

    def add_routes(self, app: FastAPI) -> None:
        """All addresses of the service."""
        app.add_api_route(
            "/v1/explain",
            self._answering(self.explain),
            methods=["POST"],
            summary="What would have to be different? A record with its ways for each row.",
            openapi_extra=_takes(Explain, streams=True),
            responses=_PROBLEMS,
        )
        app.add_api_route(
            "/v1/decide",
            self._answering(self.decide),
            methods=["POST"],
            summary="What the model decides about each row.",
            openapi_extra=_takes(Decide),
            responses=_PROBLEMS,
        )
        facts: dict[str, tuple[Callable[..., Awaitable[Response]], str]] = {
            "/v1/schema": (self.schema, "The columns and what may change."),
            "/v1/example": (self.example, "An invented row, drawn from the veil."),
            "/v1/statement": (self.statement, "What the veil promises, and who signed it."),
            "/metrics": (self.shown_metrics, "Counts for Prometheus."),
        }
        for path, (route, what) in facts.items():
            app.add_api_route(path, self._answering(route), summary=what, responses=_PROBLEMS)
        app.add_api_route("/v1/health", self.health, summary="Whether questions are answered.")
        for name, file in PAGES.items():
            app.add_api_route(f"/{name}", _page(PAGE / file), include_in_schema=False)

    def _answering(
        self, route: Callable[[Request, Caller], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """`route` for callers who may ask, with its refusals counted and logged."""

        async def answer(request: Request) -> Response:
            begun, caller = time.perf_counter(), None
            try:
                caller = self._caller(request)
                response = await route(request, caller)
            except Exception as error:
                response = _refused(error).response()
            path, seconds = request.url.path, time.perf_counter() - begun
            self.metrics.count(path, response.status_code, seconds)
            if self.settings.logs:
                name = caller.name if caller else "-"
                log.info("%s %s %s %.0f ms", path, response.status_code, name, 1000 * seconds)
            return response

        return answer

    def _caller(self, request: Request) -> Caller:
        keys = self.settings.keys
        if keys is None:
            return Caller("local")
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        found = keys.find(key.strip()) if kind.lower() == "bearer" else None
        if found is None:
            detail = "Send Authorization: Bearer and the key that you were given."
            raise Problem(401, "no valid key", detail)
        return found

    def _ration(self, caller: Caller, rows: int, answers: int) -> None:
        """Refuse what is too fast or too much; write down what is asked, before it is searched.

        The private model is as public as the veil: answers about it are not rationed.
        """
        wait = self.pace.wait_for(caller, rows)
        if wait:
            raise Problem(429, "too many rows a minute", "Ask again later.", retry_after=wait)
        keys = self.settings.keys
        if keys is None or self.explainer.decided_by is not DecidedBy.MODEL:
            return
        if not keys.use(caller, answers):
            detail = (
                "Every answer tells a little of where the model decides; the privacy of the veil "
                "is for people and not for the model. Ask tomorrow, or ask for a larger ration."
            )
            raise Problem(429, "the answers of this key are used up", detail, retry_after=3600)

    async def explain(self, request: Request, caller: Caller) -> Response:
        """JSON in and out; or a stream of lines, where the content type says so."""
        if request.headers.get("content-type", "").startswith(STREAM):
            return await self._stream(request, caller)
        asked = parsed(Explain, await request.body())
        self._check_rows(len(asked.rows))
        self._ration(caller, len(asked.rows), len(asked.rows) * asked.k)
        found = await self._batcher.explain(asked.rows, asked)
        self.metrics.rows.inc(len(found))
        return _json({**self._about, "answers": found})

    async def decide(self, request: Request, caller: Caller) -> Response:
        """The decision and the probabilities of all classes, for each row."""
        asked = parsed(Decide, await request.body())
        self._check_rows(len(asked.rows))
        self._ration(caller, len(asked.rows), len(asked.rows))
        found = await self._batcher.decide(asked.rows)
        classes = list(self.explainer.veil.schema.label.classes)
        return _json({"classes": classes, "decisions": found})

    def _check_rows(self, count: int) -> None:
        most = self.settings.most_rows
        if count > most:
            raise Problem(413, "too many rows", f"At most {most}; send more as {STREAM}.")

    async def _stream(self, request: Request, caller: Caller) -> Response:
        """Lines in, lines out: the first says how to explain, and every other one is a row.

        Memory holds one piece at a time: the next rows are read once the last answers were taken.
        """
        lines = _lines(request)
        asked = parsed(Question, await anext(lines, b""))

        async def answers() -> AsyncIterator[bytes]:
            number, rows = 0, []
            try:
                async for line in lines:
                    rows.append(parsed(Decide, b'{"rows":[' + line + b"]}").rows[0])
                    if len(rows) == AT_ONCE:
                        yield await self._piece(caller, asked, rows, number)
                        number, rows = number + len(rows), []
                if rows:
                    yield await self._piece(caller, asked, rows, number)
            except ClientDisconnect:
                return
            except Exception as error:
                body = _refused(error).body | {"after_row": number}
                yield json.dumps(body).encode() + b"\n"

        return Lines(answers())

    async def _piece(self, caller: Caller, asked: Question, rows: list[Any], number: int) -> bytes:
        """The lines of the answers to some rows; `number` came before them."""
        if number + len(rows) > self.settings.most_streamed:
            raise Problem(413, "too many rows", f"At most {self.settings.most_streamed} a stream.")
        self._ration(caller, len(rows), len(rows) * asked.k)
        while True:
            try:
                found = await self._batcher.explain(rows, asked)
                break
            except Problem as problem:  # the queue is full: others have their turn first
                if problem.retry_after != 1:
                    raise
                await asyncio.sleep(0.2)
        self.metrics.rows.inc(len(found))
        records = [{"row": number + place, **each} for place, each in enumerate(found, 1)]
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    async def schema(self, request: Request, caller: Caller) -> Response:
        """The schema of the veil."""
        return Response(self.explainer.veil.schema.to_json(), media_type=JSON)

    async def example(self, request: Request, caller: Caller) -> Response:
        """A row of P~: nobody's."""
        if self._population is None:
            raise Problem(404, "this veil knows no people", "It has no noisy record.")
        points, _ = self._population.sample(1, self._dice)
        (row,) = plain_rows(self.explainer.encoding.decode(points))
        return _json({"row": row})

    async def statement(self, request: Request, caller: Caller) -> Response:
        """The statement, in words too, with what answers of this service are covered by."""
        statement, veil = self.explainer.statement, self.explainer.veil
        keys = self.settings.keys is not None
        rationed = keys and self.explainer.decided_by is DecidedBy.MODEL
        return _json(
            {
                **self._about,
                "statement": statement.model_dump(mode="json"),
                "text": statement.text(),
                "meaning": statement.level.meaning,
                "veil": veil.digest,
                "signature": signer_dict(veil.signer),
                "answers_a_day": caller.answers_a_day if rationed else None,
                "has_examples": self._population is not None,
            }
        )

    async def shown_metrics(self, request: Request, caller: Caller) -> Response:
        """The counts of this process."""
        if self.batcher is not None:
            self.metrics.waiting.set(self.batcher.rows_waiting)
        return Response(self.metrics.shown(), media_type="text/plain; version=0.0.4")

    async def health(self) -> Response:
        """200 while questions are answered, else 503."""
        fails = self.batcher is None or self.batcher.fails
        return _json({"status": "failing" if fails else "ok"}, 503 if fails else 200)

    @property
    def _batcher(self) -> Batcher:
        if self.batcher is None:
            raise Problem(503, "the service is starting", "Try again.", retry_after=1)
        return self.batcher

    @property
    def _about(self) -> dict[str, Any]:
        """What every answer says of itself."""
        return {
            "decided_by": self.explainer.decided_by.value,
            "promise": self.explainer.statement.headline,
        }


def _refused(error: Exception) -> Problem:
    """The Problem of an error; what is nobody's mistake is logged, without its message."""
    if isinstance(error, sqlite3.Error):
        log.error("the file of keys cannot be used: %s", type(error).__name__)
        detail = "Nothing was answered and nothing counted. Try again later."
        return Problem(503, "keys cannot be checked now", detail, retry_after=10)
    problem = problem_of(error)
    if problem.status == 503 and not isinstance(error, Problem):
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else "?"
        log.error("%s at %s", type(error).__name__, where)
    return problem


async def _as_problem(_: Request, error: Exception) -> Response:
    """The answer where no route gave one."""
    if isinstance(error, HTTPException):
        titles = {404: "there is nothing at this address", 405: "not with this method"}
        found = Problem(error.status_code, titles.get(error.status_code, "not possible"))
        response = found.response()
        response.headers.update(error.headers or {})
        return response
    if isinstance(error, RequestValidationError):
        return Problem(422, "the question is not understood").response()
    return _refused(error).response()


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body as they come, without empty ones."""
    rest = b""
    async for piece in request.stream():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > LONGEST_LINE:
            raise Problem(413, "a line is too long", f"At most {LONGEST_LINE // 1000} kB a row.")
    if rest.strip():
        yield rest


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), status, media_type=JSON)


def _page(path: Path) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return FileResponse(path)

    return page


def _takes(body: type[BaseModel], *, streams: bool = False) -> dict[str, Any]:
    """What OpenAPI says of a body."""
    content: dict[str, Any] = {JSON: {"schema": body.model_json_schema()}}
    if streams:
        content[STREAM] = {"schema": {"type": "string"}}
    return {"requestBody": {"required": True, "content": content}}


_PROBLEM_BODY = {
    "type": "object",
    "required": ["title", "status"],
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {PROBLEM: {"schema": _PROBLEM_BODY}}}
    for status, words in {
        400: "The body is not JSON.",
        401: "No valid key.",
        403: "A page of another origin asked.",
        408: "The body takes too long.",
        413: "Too long, or too many rows.",
        422: "The question does not fit the schema: row and column are named.",
        429: "Too fast, or no answers left today.",
        503: "Too many questions are waiting, or the model fails.",
    }.items()
}
