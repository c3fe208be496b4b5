"""`counterveil-lab fuzz-service`: random requests against the routes of the service.

The service answers in this process, as an ASGI application, about a small veil. A request has a
random method, address, headers and body: noise, JSON that is cut or nested, questions with cells of
other kinds, or sound ones. A request fails where

- its status is not one of `STATUSES`: no other 5xx than 503, and that only where the queue is full;
- its body is no JSON with the status in it, where it is refused;
- any body or header holds the marked value that was hidden in the request, a path or a traceback;
- a header of `guard.HEADERS` is missing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pandas as pd
from starlette.types import Message

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.service import guard
from counterveil.service.app import Settings, create_app
from counterveil_lab.fuzz.random_rules import draw_record, draw_schema, frame_of
from counterveil_lab.fuzz.world import learning_less
from counterveil_lab.results import Row

MARK = "zq7-mark-81"  # a value that is hidden in requests, and never to be seen again
NAME = "other"  # of a column or field that is not there
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 421, 422, 429}
PATHS = ("/v1/explain", "/v1/decide", "/v1/schema", "/v1/statement", "/v1/example", "/v1/health")
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", MARK)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 2**63, 1e308, -0.0, 0.5, "", MARK, "believable", "nearest"),
    *([], [MARK], {}, {NAME: MARK}, {"immutable": [MARK]}, {"max_changes": 0}),
    *({"steps": {NAME: 0}}, {"relations": [MARK]}, {"may_change": MARK}, [[[[[]]]]], "\0"),
)
AT_ONCE = 200
ROWS = 300


def run_requests(count: int, seed: int) -> Iterator[tuple[Row, list[str]]]:
    """A row and the failures of every thousand requests."""
    dice = Random(seed)
    schema = draw_schema(dice)
    people = frame_of(schema, [draw_record(schema, dice) for _ in range(ROWS)])
    label = schema.label
    decided = people.assign(**{label.name: [dice.choice(label.classes) for _ in range(ROWS)]})
    with learning_less():
        veil = Curator(schema).release(decided, 20.0, progress=False)
        explainer = Explainer(veil, warm_steps=5)
        explainer.warm_up(progress=False)
        rows = json.loads(people[list(schema.columns)].head(20).to_json(orient="records"))
        for start in range(0, count, 1000):
            part = min(1000, count - start)
            requests = [draw_request(dice, rows) for _ in range(part)]
            found, failures = asyncio.run(_ask(explainer, requests))
            yield (
                {"requests": part, **{f"status_{k}": v for k, v in sorted(found.items())}},
                failures,
            )


def draw_request(dice: Random, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A scope of ASGI, and the body that belongs to it."""
    path = dice.choice(PATHS[:2]) if dice.random() < 0.8 else dice.choice([*PATHS, "/", "/" + MARK])
    method = "POST" if dice.random() < 0.8 else dice.choice(METHODS)
    kind = dice.choice(["application/json"] * 4 + [guard.STREAM, MARK, ""])
    headers = {"host": "127.0.0.1", "content-type": kind}
    if dice.random() < 0.1:
        name = dice.choice(["host", "origin", "authorization", "content-length", "accept", MARK])
        headers[name] = dice.choice([MARK, "", "http://127.0.0.1", "-1", "1e9", "\x7f" * 9])
    raw = [(key.encode("latin-1"), text.encode("latin-1")) for key, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"headers": raw, "query_string": dice.choice([b"", MARK.encode()]), "root_path": ""}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80)}
    return {"scope": scope, "body": _body(dice, rows, kind)}


def _body(dice: Random, rows: list[dict[str, Any]], kind: str) -> bytes:
    content: dict[str, Any] = {
        "rows": [_spoilt(dice, dice.choice(rows)) for _ in range(dice.choice((1, 1, 2, 5)))]
    }
    for _ in range(dice.choice((0, 0, 1, 2))):
        name = dice.choice(["target", "k", "prefer", "immutable", "rules", "rows", NAME])
        content[name] = _odd(dice)
    if kind == guard.STREAM:
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


async def _ask(
    explainer: Explainer, requests: list[dict[str, Any]]
) -> tuple[Counter[int], list[str]]:
    app = create_app(explainer, Settings(most_bytes=20_000))
    found: Counter[int] = Counter()
    failures: list[str] = []
    async with app.router.lifespan_context(app):
        for start in range(0, len(requests), AT_ONCE):
            part = requests[start : start + AT_ONCE]
            for request, answer in zip(
                part, await asyncio.gather(*(_one(app, r) for r in part)), strict=True
            ):
                status, headers, body = answer
                found[status] += 1
                if words := _wrong(status, headers, body):
                    scope = request["scope"]
                    failures.append(
                        f"{words}: {scope['method']} {scope['path']} {request['body'][:300]!r}"
                    )
    return found, failures


async def _one(app: Any, request: dict[str, Any]) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Message] = []
    left = [{"type": "http.request", "body": request["body"], "more_body": False}]

    async def receive() -> Message:
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(request["scope"], receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    body = b"".join(each.get("body", b"") for each in sent)
    return start["status"], dict(start["headers"]), body


def _wrong(status: int, headers: dict[bytes, bytes], body: bytes) -> str:
    """What is wrong with an answer; nothing if it is fine."""
    if status not in STATUSES:
        return f"status {status}"
    seen = body + b"".join(b"%s: %s" % pair for pair in headers.items())
    for word in (MARK.encode(), b"Traceback", b"/src/", b"site-packages"):
        # A name that a caller gave to a rule is told back to that caller; cells never are.
        if word in seen and not (
            word == MARK.encode() and status == 422 and b"cannot be answered" in body
        ):
            return f"the answer holds {word.decode()}"
    if any(name.lower().encode() not in headers for name in guard.HEADERS):
        return "a header is missing"
    if status >= 400 and headers.get(b"content-type", b"").startswith(b"application/problem+json"):
        return (
            "" if not body or json.loads(body)["status"] == status else "another status in the body"
        )
    return "" if status < 400 else "a refusal that is no problem+json"


def table(rows: list[Row]) -> Row:
    """All rows in one."""
    frame = pd.DataFrame(rows).fillna(0).sum().astype(int)
    return {str(name): int(value) for name, value in frame.items()}
