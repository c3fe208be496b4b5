"""Answers of routes: JSON, and the files of a page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

JSON = "application/json"


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
