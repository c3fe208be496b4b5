"""Answers of routes: JSON, the files of a page, lines that are sent as they get ready; refusals.

Every refusal is problem+json (RFC 9457): what is wrong, where, and the remedy. No body ever holds a
value of a row, a path or a traceback. What is nobody's mistake is logged, without its message.
"""

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from counterveil.errors import DataError, InputError, ModelError, fault_of

log = logging.getLogger("counterveil.service")
JSON, STREAM, PROBLEM = "application/json", "application/x-ndjson", "application/problem+json"
LONGEST_LINE = 1 << 20  # bytes of a row
MOST_EMPTY = 10_000  # lines of a stream, one after the other
TITLES = {404: "there is nothing at this address", 405: "not with this method"}
_BODY = {
    "type": "object",
    "required": ["title", "status"],
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
}
# What OpenAPI says of refusals.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {PROBLEM: {"schema": _BODY}}}
    for status, words in {
        400: "The body is not JSON.",
        401: "No valid key.",
        403: "A page of another origin asked.",
        408: "The body takes too long.",
        413: "Too long, or too many rows.",
        421: "Another host was asked for.",
        422: "The question does not fit the schema: row and column are named.",
        429: "Too fast, or no answers left today.",
        503: "Too many questions are waiting, or the model fails.",
    }.items()
}
_CELL = re.compile(r"row (\d+), column '((?:[^'\\]|\\.)*)': (.*)", re.DOTALL)


class Problem(Exception):  # noqa: N818 - a word of RFC 9457
    """A request that is not answered. `retry_after`: seconds after which it may be."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        retry_after: float = 0,
        where: Mapping[str, int | str] | None = None,
    ) -> None:
        super().__init__(title)
        self.status, self.title, self.detail = status, title, detail
        self.retry_after, self.where = retry_after, dict(where or {})

    @property
    def body(self) -> dict[str, Any]:
        """What the client reads."""
        body = {"type": "about:blank", "title": self.title, "status": self.status}
        return body | ({"detail": self.detail} if self.detail else {}) | self.where

    def response(self) -> Response:
        """The same as an HTTP answer."""
        headers = {"Retry-After": str(int(self.retry_after) + 1)} if self.retry_after else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        content = json.dumps(self.body, ensure_ascii=False)
        return Response(content, self.status, headers, media_type=PROBLEM)


def refused(error: Exception) -> Problem:
    """What a client is told of an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, DataError):
        found = _CELL.fullmatch(str(error))
        where = {"row": int(found[1]), "column": found[2]} if found else None
        return Problem(422, "a row does not fit the schema", str(error), where=where)
    if isinstance(error, InputError) and not isinstance(error, ModelError):
        return Problem(422, "the question cannot be answered", str(error))
    if isinstance(error, sqlite3.Error):
        log.error("the file of keys cannot be used: %s", type(error).__name__)
        detail = "Nothing was answered and nothing counted. Try again later."
        return Problem(503, "keys cannot be checked now", detail, retry_after=10)
    log.error("%s", fault_of(error))
    if isinstance(error, ModelError):
        return Problem(503, "the model failed", "The model gave no usable answer; tell its owner.")
    return Problem(503, "the service failed", "The fault is not yours; it was written to the log.")


async def as_problem(_: Request, error: Exception) -> Response:
    """The answer where no route gave one."""
    if not isinstance(error, HTTPException):
        return refused(error).response()
    response = Problem(error.status_code, TITLES.get(error.status_code, "not possible")).response()
    response.headers.update(error.headers or {})
    return response


def as_json(content: Any, status: int = 200) -> Response:
    """Plain values as an answer."""
    return Response(json.dumps(content, ensure_ascii=False), status, media_type=JSON)


def page_route(
    path: Path, headers: Mapping[str, str] | None = None
) -> Callable[[], Awaitable[Response]]:
    """A route that gives a small file, with these headers besides the usual ones."""
    content, (kind, _) = path.read_bytes(), guess_type(path)

    async def page() -> Response:
        return Response(content, headers=headers, media_type=kind)

    return page


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
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for piece in self._lines:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """What is awaited here ends with ClientDisconnect if the client leaves; its body was read."""
    answering = asyncio.current_task()
    assert answering is not None, "routes run in tasks"

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        answering.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not watching.done():
            raise
        answering.uncancel()
        raise ClientDisconnect from None
    finally:
        watching.cancel()


async def lines_of(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body as they come, without the empty ones between them."""
    rest, empty = b"", 0
    async for piece in request.stream():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            empty = 0 if line.strip() else empty + 1
            if not empty:
                yield line
            elif empty > MOST_EMPTY:
                raise Problem(413, "too many empty lines", f"At most {MOST_EMPTY} in a row.")
        if len(rest) > LONGEST_LINE:
            raise Problem(413, "a line is too long", f"At most {LONGEST_LINE // 1000} kB a row.")
    if rest.strip():
        yield rest
