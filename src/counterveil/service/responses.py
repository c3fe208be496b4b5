"""Answers of routes: JSON, and the files of a page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

JSON = "application/json"


def as_json(content: Any, status: int = 200) -> Response:
    """Plain values as an answer."""
    return Response(json.dumps(content, ensure_ascii=False), status, media_type=JSON)


def page_route(path: Path) -> Callable[[], Awaitable[Response]]:
    """A route that gives a file."""

    async def page() -> Response:
        return FileResponse(path)

    return page
