"""Answers of routes: JSON, the files of a page, and lines that are sent as they get ready."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from counterveil.service.guard import STREAM
from counterveil.service.problems import Problem

JSON = "application/json"
LONGEST_LINE = 1 << 20  # bytes of a row


def as_json(content: Any, status: int = 200) -> Response:
    """Plain values as an answer."""
    return Response(json.dumps(content, ensure_ascii=False), status, media_type=JSON)


def page_route(
    path: Path, headers: Mapping[str, str] | None = None
) -> Callable[[], Awaitable[Response]]:
    """A route that gives a file, with these headers besides the usual ones."""

    async def page() -> Response:
        return FileResponse(path, headers=headers)

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


async def lines_of(request: Request) -> AsyncIterator[bytes]:
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
