"""What OpenAPI says of bodies and refusals."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from counterveil.service.guard import STREAM
from counterveil.service.problems import PROBLEM
from counterveil.service.responses import JSON


def takes(body: type[BaseModel], *, streams: bool = False) -> dict[str, Any]:
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
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {PROBLEM: {"schema": _PROBLEM_BODY}}}
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
