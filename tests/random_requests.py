"""Random requests against the routes of the service.

The service answers in this process, as an ASGI application, about a small veil. Addresses, methods
and the fields of bodies are those of the OpenAPI document that the service gives out. A request has
a random method, address, headers and body: noise, JSON that is cut or nested, questions with cells
of other kinds, fields as the document describes them, or sound ones. A request fails where

- its status is not one of `STATUSES`, or not one that the document names for this address;
- its body is no JSON with the status in it, where it is refused;
- any body or header holds the marked value that was hidden in the request, a path or a traceback;
- a header of `guard.HEADERS` is missing.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from random import Random
from typing import Any

from starlette.types import Message

from counterveil.service import guard, responses
from counterveil.service.responses import JSON

MARK = "zq7-mark-81"  # a value that is hidden in requests, and never to be seen again
NAME = "other"  # of a column or field that is not there
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 421, 422, 429}
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", MARK)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 2**63, 1e308, -0.0, 0.5, "", MARK, "believable", "nearest"),
    *([], [MARK], {}, {NAME: MARK}, {"immutable": [MARK]}, {"max_changes": 0}),
    *({"steps": {NAME: 0}}, {"relations": [MARK]}, {"may_change": MARK}, [[[[[]]]]], "\0"),
)
_NAME_TOLD = re.compile(f'cannot be answered|"detail": "[^":]*{MARK}[^":]*: '.encode())


@dataclass(frozen=True)
class Operation:
    """An address and method of the document.

    `fields`: the JSON schema of each field of its body; empty where it takes none. `statuses`: of
    its answers.
    """

    path: str
    method: str
    fields: dict[str, Any]
    statuses: frozenset[int]


def operations(document: dict[str, Any]) -> list[Operation]:
    """Everything that an OpenAPI document describes."""
    found = []
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {"content": {}})["content"].get(JSON, {"schema": {}})
            statuses = frozenset(map(int, about["responses"]))
            fields = body["schema"].get("properties", {})
            found.append(Operation(path, method.upper(), fields, statuses))
    return found


def draw_request(
    dice: Random, rows: list[dict[str, Any]], known: list[Operation]
) -> dict[str, Any]:
    """A scope of ASGI, and the body that belongs to it; mostly to addresses that take a body."""
    asked = dice.choice([each for each in known if each.fields])
    if dice.random() < 0.2:
        asked = dice.choice(known)
    path = asked.path if dice.random() < 0.95 else dice.choice(["/", "/" + MARK])
    method = asked.method if dice.random() < 0.8 else dice.choice(METHODS)
    kind = dice.choice(["application/json"] * 4 + [responses.STREAM, MARK, ""])
    headers = {"host": "127.0.0.1", "content-type": kind}
    if dice.random() < 0.1:
        name = dice.choice(["host", "origin", "authorization", "content-length", "accept", MARK])
        headers[name] = dice.choice([MARK, "", "http://127.0.0.1", "-1", "1e9", "\x7f" * 9])
    raw = [(key.encode("latin-1"), text.encode("latin-1")) for key, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"headers": raw, "query_string": dice.choice([b"", MARK.encode()]), "root_path": ""}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80)}
    return {"scope": scope, "body": _body(dice, rows, kind, asked.fields)}


def _body(dice: Random, rows: list[dict[str, Any]], kind: str, fields: dict[str, Any]) -> bytes:
    content: dict[str, Any] = {
        "rows": [_spoilt(dice, dice.choice(rows)) for _ in range(dice.choice((1, 1, 2, 5)))]
    }
    for _ in range(dice.choice((0, 0, 1, 2))):
        name = dice.choice([*fields, NAME])
        described = name in fields and dice.random() < 0.5
        content[name] = draw_value(dice, fields[name]) if described else _odd(dice)
    if kind == responses.STREAM:
        question = {name: value for name, value in content.items() if name != "rows"}
        lines = [question, *(content["rows"] if isinstance(content["rows"], list) else [])]
        text = "\n".join(json.dumps(line) for line in lines)
    else:
        text = json.dumps(content)
    body = text.encode()
    if dice.random() < 0.1:
        place = dice.randrange(len(body))
        body = (
            body[:place]
            + dice.choice([b"", b"\xff\x00", MARK.encode(), b"[" * 3000])
            + body[place + 1 :]
        )
    return body[: dice.randrange(len(body))] if dice.random() < 0.05 else body


def draw_value(dice: Random, schema: dict[str, Any]) -> Any:
    """A value that a JSON schema allows; texts and names are odd ones."""
    if "anyOf" in schema:
        return draw_value(dice, dice.choice(schema["anyOf"]))
    if "enum" in schema:
        return dice.choice(schema["enum"])
    kind, some = schema.get("type"), range(dice.choice((0, 1, 2)))
    if kind == "integer":
        return dice.randint(int(schema.get("minimum", -3)), int(schema.get("maximum", 99)))
    if kind == "array":
        count = max(len(some), schema.get("minItems", 0))
        return [draw_value(dice, schema["items"]) for _ in range(count)]
    if kind == "object":
        cells = schema.get("additionalProperties")
        inner = cells if isinstance(cells, dict) else None
        return {NAME + str(n): draw_value(dice, inner) if inner else _odd(dice) for n in some}
    simple = {"boolean": (True, False), "number": (0.5, -1e9, 3.0), "string": (NAME, MARK, "")}
    return dice.choice(simple.get(str(kind), (None,)))


def _spoilt(dice: Random, row: dict[str, Any]) -> dict[str, Any]:
    row = dict(row)
    if dice.random() < 0.6:
        name = dice.choice([*row, NAME])
        if dice.random() < 0.3:
            row.pop(name, None)
        else:
            row[name] = _odd(dice)
    return row


def _odd(dice: Random) -> Any:
    return dice.choice(ODD)


async def answered(app: Any, request: dict[str, Any]) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of the answer to a request of `draw_request`."""
    sent: list[Message] = []
    left = [{"type": "http.request", "body": request["body"], "more_body": False}]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()  # the client stays
        return left.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(request["scope"], receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    body = b"".join(each.get("body", b"") for each in sent)
    return start["status"], dict(start["headers"]), body


def fault_of(
    status: int, statuses: frozenset[int], headers: dict[bytes, bytes], body: bytes
) -> str:
    """What is wrong with an answer; nothing if it is fine."""
    if status not in STATUSES & statuses:
        return f"status {status}"
    seen = body + b"".join(b"%s: %s" % pair for pair in headers.items())
    for word in (MARK.encode(), b"Traceback", b"/src/", b"site-packages"):
        # A name that a caller gave to a rule or field is told back to that caller; cells never are.
        if word in seen and not (word == MARK.encode() and _NAME_TOLD.search(body)):
            return f"the answer holds {word.decode()}"
    if any(name.lower().encode() not in headers for name in guard.HEADERS):
        return "a header is missing"
    if status >= 400 and headers.get(b"content-type", b"").startswith(b"application/problem+json"):
        return (
            "" if not body or json.loads(body)["status"] == status else "another status in the body"
        )
    return "" if status < 400 else "a refusal that is no problem+json"
