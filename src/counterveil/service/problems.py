"""Every refusal of the service as problem+json (RFC 9457): what is wrong, where, and the remedy.

No body ever holds a value of a row, a path or a traceback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from counterveil.errors import DataError, InputError, ModelError

PROBLEM = "application/problem+json"
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

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(int(self.retry_after) + 1)} if self.retry_after else {}

    def response(self) -> Response:
        """The same as an HTTP answer."""
        content = json.dumps(self.body, ensure_ascii=False)
        headers = dict(self.headers)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Response(content, self.status, headers, media_type=PROBLEM)


def problem_of(error: Exception) -> Problem:
    """What a client is told of an error of the search."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ModelError):
        return Problem(503, "the model failed", "The model gave no usable answer; tell its owner.")
    if isinstance(error, DataError):
        found = _CELL.fullmatch(str(error))
        where: dict[str, int | str] = {}
        if found:
            where = {"row": int(found[1]), "column": found[2]}
        return Problem(422, "a row does not fit the schema", str(error), where=where)
    if isinstance(error, InputError):
        return Problem(422, "the question cannot be answered", str(error))
    return Problem(503, "the service failed", "The fault is not yours; it was written to the log.")
