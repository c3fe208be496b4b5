"""The routes of the service. All answers are JSON, but for the page and the metrics."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from counterveil import __version__
from counterveil.search import Explainer
from counterveil.search.constraints.decoding import as_people_write
from counterveil.search.results.wording import DecidedBy
from counterveil.service.access import AccessKeys, Caller, RateLimiter, seconds_left_today
from counterveil.service.batcher import AT_ONCE, Batcher, QueueFull
from counterveil.service.guard import Guard, in_pieces
from counterveil.service.metrics import Metrics
from counterveil.service.page.routes import PageRoutes
from counterveil.service.questions import (
    Decide,
    Explain,
    Line,
    Question,
    Row,
    asked_in,
    bearer_of,
    parsed,
    takes,
)
from counterveil.service.responses import (
    JSON,
    PROBLEMS,
    STREAM,
    Lines,
    Problem,
    as_json,
    as_problem,
    lines_of,
    refused,
    while_connected,
)
from counterveil.service.watchdog import keep_telling
from counterveil.signature import signer_dict
from counterveil.tables import plain_rows

log = logging.getLogger("counterveil.service")
Route = Callable[[Request, Caller], Awaitable[Response]]
GONE = 499  # a status for logs and counts: whoever asked has left


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
    app.add_exception_handler(Problem, as_problem)
    app.add_exception_handler(HTTPException, as_problem)
    app.add_middleware(Guard, hosts=settings.hosts, most_bytes=settings.most_bytes)
    return app


class Service:
    """What the routes share."""

    _batcher: Batcher | None = None  # as long as the application lives

    def __init__(self, explainer: Explainer, settings: Settings) -> None:
        self.explainer, self.settings = explainer, settings
        self.metrics, self.rate_limiter = Metrics(), RateLimiter()
        veil = explainer.veil
        self._population = None if veil.record is None else veil.population()
        self._schema = veil.schema.to_json()
        self._dice = np.random.default_rng()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """The queue, and word to systemd."""
        asked = self.settings
        looked = self.metrics.rows_at_once.observe
        self._batcher = queue = Batcher(
            self.explainer, asked.at_once, seconds=asked.seconds, looked=looked
        )
        watched = asyncio.create_task(keep_telling(lambda: queue.fails))
        yield
        await queue.close()
        watched.cancel()

    @property
    def batcher(self) -> Batcher:
        """The queue; a Problem where the lifespan of the application was not begun."""
        if self._batcher is None:
            raise Problem(503, "the service is starting", "Try again.", retry_after=1)
        return self._batcher

    def add_routes(self, app: FastAPI) -> None:
        """All addresses of the service."""
        ways = "What would have to be different? A record with its ways for each row."
        routes: dict[str, tuple[Route, str, dict[str, Any] | None]] = {
            "/v1/explain": (self.explain, ways, takes(Explain, streams=True)),
            "/v1/decide": (self.decide, "What the model decides about each row.", takes(Decide)),
            "/v1/schema": (self.schema, "The columns and what may change.", None),
            "/v1/example": (self.example, "An invented row, drawn from the veil.", None),
            "/v1/statement": (self.statement, "What the veil promises, and who signed it.", None),
            "/metrics": (self.shown_metrics, "Counts for Prometheus.", None),
        }
        for path, (route, what, body) in routes.items():
            app.add_api_route(
                path,
                self.answering(route),
                methods=["GET" if body is None else "POST"],
                summary=what,
                openapi_extra=body,
                responses=PROBLEMS,
            )
        app.add_api_route(
            "/v1/health", self.health, summary="Whether it works.", responses=PROBLEMS
        )
        PageRoutes(self).add_to(app)

    def answering(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        """`route` for callers who may ask, with its refusals counted and logged."""

        async def answer(request: Request) -> Response:
            begun, caller = time.perf_counter(), None
            try:
                caller = await self._caller(request)
                response = await route(request, caller)
            except ClientDisconnect:
                response = Response(status_code=GONE)
            except Exception as error:
                response = refused(error).response()
            path, seconds = request.url.path, time.perf_counter() - begun
            self.metrics.count(path, response.status_code, seconds)
            if self.settings.logs:
                name = caller.name if caller else "-"
                log.info("%s %s %s %.0f ms", path, response.status_code, name, 1000 * seconds)
            return response

        return answer

    async def _caller(self, request: Request) -> Caller:
        keys = self.settings.keys
        if keys is None:
            return Caller("local", client=str(request.client))
        found = await asyncio.to_thread(keys.find, bearer_of(request))
        if found is None:
            detail = "Send Authorization: Bearer and the key that you were given."
            raise Problem(401, "no valid key", detail)
        return found

    @asynccontextmanager
    async def _rationed(self, caller: Caller, cost: int, answers: int) -> AsyncIterator[None]:
        """Refuse what is too fast or too much; write down what is asked, before it is searched.

        What is then refused, or fails, costs nothing; who leaves has asked. The private model is as
        public as the veil: answers about it are not rationed.
        """
        wait = self.rate_limiter.wait_for(caller, cost)
        if wait:
            raise Problem(429, "too many rows a minute", "Ask again later.", retry_after=wait)
        try:
            await self._use(caller, answers)
            try:
                yield
            except Exception:
                await self._use(caller, -answers)
                raise
        except Exception:
            self.rate_limiter.wait_for(caller, -cost)
            raise

    async def _use(self, caller: Caller, answers: int) -> None:
        keys = self._rationing_keys
        if keys is not None and not await asyncio.to_thread(keys.use, caller, answers):
            detail = (
                "Every answer tells a little of where the model decides; the privacy of the veil "
                "is for people and not for the model. Ask tomorrow, or ask for a larger ration."
            )
            wait = seconds_left_today()
            raise Problem(429, "the answers of this key are used up", detail, retry_after=wait)

    async def explain(self, request: Request, caller: Caller) -> Response:
        """JSON in and out; or a stream of lines, where the content type says so."""
        kind, *_ = request.headers.get("content-type", "").split(";")
        if kind.strip().lower() == STREAM:
            return await self._stream(request, caller)
        found = await self.explained(request, caller, await asked_in(request, Explain))
        return await asyncio.to_thread(as_json, {**self.about, "answers": found})

    async def explained(
        self, request: Request, caller: Caller, asked: Explain
    ) -> list[dict[str, Any]]:
        """A record for each row that is asked about, within the limits of the caller."""
        rows = self._bounded(asked.rows)
        cost, answers = len(rows) * asked.cost, len(rows) * asked.k
        async with while_connected(request), self._rationed(caller, cost, answers):
            found = await self.batcher.explain(caller.client, rows, asked)
        self.metrics.rows.inc(len(found))
        return found

    async def decide(self, request: Request, caller: Caller) -> Response:
        """The decision and the probabilities of all classes, for each row."""
        found = await self.decided(request, caller, await asked_in(request, Decide))
        classes = list(self.explainer.veil.schema.label.classes)
        return as_json({"classes": classes, "decisions": found})

    async def decided(
        self, request: Request, caller: Caller, asked: Decide
    ) -> list[dict[str, Any]]:
        """The decision about each row that is asked about, within the limits of the caller."""
        rows = self._bounded(asked.rows)
        async with while_connected(request), self._rationed(caller, len(rows), len(rows)):
            return await self.batcher.decide(caller.client, rows)

    def _bounded(self, rows: list[Row]) -> list[Row]:
        """The rows of a JSON body, if they are not too many."""
        most = self.settings.most_rows
        if len(rows) > most:
            raise Problem(413, "too many rows", f"At most {most}; send more as {STREAM}.")
        return rows

    async def _stream(self, request: Request, caller: Caller) -> Response:
        """Lines in, lines out: the first says how to explain, and every other one is a row.

        Memory holds one piece at a time: the next rows are read once the last answers were taken.
        """
        in_pieces(request.scope)
        lines = lines_of(request)
        asked = parsed(Question, await anext(lines, b""))

        async def answers() -> AsyncIterator[bytes]:
            number, held = 0, 0
            rows: list[Row] = []
            try:
                async for line in lines:
                    rows.append(parsed(Line, line).root)
                    held += len(line)
                    whole = (len(rows) + 1) * asked.cost > AT_ONCE  # one piece of the queue
                    if whole or held > self.settings.most_bytes:
                        yield await self._piece(caller, asked, rows, number)
                        number, held, rows = number + len(rows), 0, []
                if rows:
                    yield await self._piece(caller, asked, rows, number)
            except ClientDisconnect:
                return
            except Exception as error:
                body = refused(error).body | {"after_row": number}
                yield json.dumps(body).encode() + b"\n"

        return Lines(answers())

    async def _piece(self, caller: Caller, asked: Question, rows: list[Any], number: int) -> bytes:
        """The lines of the answers to some rows; `number` came before them."""
        if number + len(rows) > self.settings.most_streamed:
            raise Problem(413, "too many rows", f"At most {self.settings.most_streamed} a stream.")
        async with self._rationed(caller, len(rows) * asked.cost, len(rows) * asked.k):
            found = None
            while found is None:
                try:
                    found = await self.batcher.explain(caller.client, rows, asked)
                except QueueFull as problem:  # others have their turn first
                    await asyncio.sleep(problem.retry_after)
        self.metrics.rows.inc(len(found))
        records = [{"row": number + place, **each} for place, each in enumerate(found, 1)]
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    async def schema(self, request: Request, caller: Caller) -> Response:
        """The schema of the veil."""
        return Response(self._schema, media_type=JSON)

    async def example(self, request: Request, caller: Caller) -> Response:
        """A row of P~: nobody's."""
        return as_json({"row": (await asyncio.to_thread(self.drawn, 1))[0]})

    def drawn(self, count: int) -> list[dict[str, Any]]:
        """Rows of P~."""
        if self._population is None:
            raise Problem(404, "this veil knows no people", "It has no noisy record.")
        points, _ = self._population.sample(count, self._dice)
        rows = self.explainer.encoding.decode(points)
        return plain_rows(as_people_write(self.explainer.veil.schema, rows))

    async def statement(self, request: Request, caller: Caller) -> Response:
        """The statement, in words too, with what answers of this service are covered by."""
        return as_json(self.told_to(caller))

    def told_to(self, caller: Caller) -> dict[str, Any]:
        """What the statement says to a caller."""
        statement, veil = self.explainer.statement, self.explainer.veil
        rationed = self._rationing_keys is not None
        return {
            **self.about,
            "statement": statement.model_dump(mode="json"),
            "text": statement.text(),
            "meaning": statement.level.meaning,
            "veil": veil.digest,
            "signature": signer_dict(veil.signer),
            "answers_a_day": caller.answers_a_day if rationed else None,
            "has_examples": self._population is not None,
        }

    async def shown_metrics(self, request: Request, caller: Caller) -> Response:
        """The counts of this process."""
        self.metrics.waiting.set(self.batcher.rows_waiting)
        return Response(self.metrics.shown(), media_type="text/plain; version=0.0.4")

    async def health(self) -> Response:
        """200 while questions are answered, else 503."""
        fails = self.batcher.fails
        return as_json({"status": "failing" if fails else "ok"}, 503 if fails else 200)

    @property
    def _rationing_keys(self) -> AccessKeys | None:
        """The keys, where what they get is counted: answers about a model of somebody."""
        return self.settings.keys if self.explainer.decided_by is DecidedBy.MODEL else None

    @property
    def about(self) -> dict[str, Any]:
        """What every answer says of itself."""
        return {
            "decided_by": self.explainer.decided_by.value,
            "promise": self.explainer.statement.headline,
        }
