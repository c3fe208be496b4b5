"""`python tools/bench fuzz`: a million random requests against the routes of the service.

The service answers in processes of this command, as an ASGI application. Addresses, methods and the
fields of bodies are those of the OpenAPI document that the service gives out; one request in eight
goes to a part of its page. A request has a random method, address, headers and body: noise, JSON
that is cut or nested, questions with cells of other kinds, fields as the document describes them,
forms and lines of CSV, or sound ones. A request fails where

- its status is not one of `STATUSES`, or not one that the document names for this address;
- its body is no JSON with the status in it, where it is refused;
- any body or header holds the marked value that was hidden in the request, a path or a traceback;
- a header of `guard.HEADERS` is missing.

A row for each status and address: `requests`, and how many of them failed (`faults`). The row
`all`: also `requests_per_second` of all processes, and the most `memory_mib` of one. Ctrl-C ends it
early: what was asked until then is stored.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from starlette.types import Message

from bench.serve import memory
from counterveil import Explainer
from counterveil.service import guard, responses
from counterveil.service.app import Settings, create_app
from counterveil.service.responses import JSON
from counterveil_lab.product import embedded_adult
from counterveil_lab.results import Results

EPSILON = 0.75
REQUESTS, QUICK_REQUESTS = 1_000_000, 2_000
PROCESSES, AT_ONCE = 2, 64
PIECE = 5_000  # requests between two lines of progress
PEOPLE = 50
ODD_CELLS = (0, 1, *(2, 3, 4, 5) * 5)  # of a row: few are sound, for those take long to answer
MOST_BYTES = 20_000

MARK = "zq7-mark-81"  # a value that is hidden in requests, and never to be seen again
NAME = "other"  # of a column or field that is not there
TAG = f"<{MARK}"  # must not come back as HTML
PARTS = ("body", "fill", "example", "answer", "decision", "columns", "rows")  # of the page
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 421, 422, 429}
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", MARK)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 2**63, 1e308, -0.0, 0.5, "", MARK, "believable", "nearest"),
    *([], [MARK], {}, {NAME: MARK}, {"immutable": [MARK]}, {"max_changes": 0}),
    *({"steps": {NAME: 0}}, {"relations": [MARK]}, {"may_change": MARK}, [[[[[]]]]], "\0"),
)
_NAME_TOLD = re.compile(
    f'cannot be answered|"detail": "[^":]*{MARK}[^":]*: |it has \'[^\']*{MARK}'.encode()
)


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
    if dice.random() < 1 / 8:
        return _to_the_page(dice, rows)
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
    query, body = dice.choice(["", MARK]), _body(dice, rows, kind, asked.fields)
    return _request(method, path, query, headers, body)


def _request(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes
) -> dict[str, Any]:
    raw = [(key.encode("latin-1"), text.encode("latin-1")) for key, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"headers": raw, "query_string": query.encode(), "root_path": ""}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80)}
    return {"scope": scope, "body": body}


def _to_the_page(dice: Random, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A request of a form, or of lines of a CSV file, to a part of the page."""
    part, texts = dice.choice(PARTS), ["", "0", "1", "2", "-1", "1e400", "x", TAG, "\0", "9" * 40]
    sound = dice.random() < 0.05
    row = dice.choice(rows) if sound else _spoilt(dice, dice.choice(rows))
    if part in ("columns", "rows"):
        lines = [list(row), ["" if each is None else str(each) for each in row.values()]]
        body = "\n".join(",".join(line) for line in lines)
        names = ("rows", "start", "found", "k", "target")
        query = urlencode({name: "1" if sound else dice.choice(texts) for name in names})
    else:
        form = {f"f{place}": dice.choice(["0", "1", *texts]) for place in range(len(row))}
        for name in dice.sample(("k", "target", "max_changes", "prefer", "drawn", "f99"), 2):
            form[name] = dice.choice(texts)
        question = json.dumps({"rows": [row], "k": dice.choice((1, 2))})
        name = dice.choice(("question", "question", "row", "trying", NAME))
        form[name] = question if sound else dice.choice([question, json.dumps(row), TAG, "["])
        body, query = urlencode(form), dice.choice(["", "language=de", urlencode({NAME: TAG})])
    place = dice.randrange(len(body) + 1) if dice.random() < 0.1 else len(body)
    headers = {"host": "127.0.0.1", "content-type": "application/x-www-form-urlencoded"}
    return _request("POST", f"/page/{part}", query, headers, body[:place].encode())


def _body(dice: Random, rows: list[dict[str, Any]], kind: str, fields: dict[str, Any]) -> bytes:
    content: dict[str, Any] = {
        "rows": [_spoilt(dice, dice.choice(rows)) for _ in range(dice.choice((1, 1, 1, 1, 2, 5)))]
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
        odd = dice.choice([b"", b"\xff\x00", MARK.encode(), b"[" * 3000])
        body = body[:place] + odd + body[place + 1 :]
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
    for _ in range(dice.choice(ODD_CELLS)):
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
    if any(name.lower().encode() not in headers for name in guard.HEADERS):
        return "a header is missing"
    seen = body + b"".join(b"%s: %s" % pair for pair in headers.items())
    if headers.get(b"content-type", b"").startswith(b"text/html"):
        return "the page holds a tag of the asker" if TAG.encode() in body else ""
    for word in (MARK.encode(), b"Traceback", b"/src/", b"site-packages"):
        # A caller is told the names of rules, fields and columns that it gave, and never a cell.
        if word in seen and not (word == MARK.encode() and _NAME_TOLD.search(body)):
            return f"the answer holds {word.decode()}"
    if status >= 400 and headers.get(b"content-type", b"").startswith(b"application/problem+json"):
        same = not body or json.loads(body)["status"] == status
        return "" if same else "another status in the body"
    return "" if status < 400 else "a refusal that is no problem+json"


def bench(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Ask in several processes, and store what came back."""
    results = Results(folder, "bench-fuzz", command)
    wanted = QUICK_REQUESTS if quick else REQUESTS
    _, people, released = embedded_adult(EPSILON)
    columns = list(released.schema.columns)
    rows = json.loads(people.test[columns].head(PEOPLE).to_json(orient="records"))
    counts: Counter[tuple[int, str]] = Counter()
    faults: Counter[tuple[int, str]] = Counter()
    most, begun = 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "adult.veil"
        released.save(path)
        start = multiprocessing.get_context("spawn")
        size = min(PIECE, wanted // PROCESSES)
        seeds = range(0, wanted, size)
        pool = ProcessPoolExecutor(PROCESSES, start, initializer=partial(_begin, path))
        pieces = pool.map(_fuzzed, seeds, repeat(size), repeat(rows))
        with suppress(KeyboardInterrupt):
            for piece, found in enumerate(pieces, 1):
                counts += Counter(found.counts)
                faults += Counter(found.faults)
                most = max(most, found.memory_mib)
                say(f"{piece * size} of {wanted}: {faults.total()} faults")
                for line in found.examples:
                    say(line)
        pool.shutdown(cancel_futures=True)
    seconds = time.perf_counter() - begun
    for (status, place), count in sorted(counts.items()):
        row = {"status": str(status), "address": place, "requests": count}
        results.add({**row, "faults": faults[status, place]})
    total = {"status": "all", "address": "", "requests": counts.total(), "faults": faults.total()}
    ours = sum(count for (status, _), count in counts.items() if status >= 500)
    speed = {"requests_per_second": counts.total() / seconds, "memory_mib": most}
    results.add({**total, "server_errors": ours, **speed})


@dataclass
class Found:
    """What came back: requests and faults by status and address, and some faults in words."""

    counts: dict[tuple[int, str], int]
    faults: dict[tuple[int, str], int]
    examples: list[str]
    memory_mib: float


_apps: list[Any] = []  # of this process: one


def _begin(veil: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    explainer = Explainer(veil)
    explainer.warm_up(progress=False)  # as `serve` does before it listens
    _apps.append(create_app(explainer, Settings(most_bytes=MOST_BYTES)))


def _fuzzed(seed: int, count: int, rows: list[dict[str, Any]]) -> Found:
    return asyncio.run(_ask_all(_apps[0], seed, count, rows))


async def _ask_all(app: Any, seed: int, count: int, rows: list[dict[str, Any]]) -> Found:
    """Send `count` requests, several at a time."""
    known = operations(app.openapi())
    allowed = {(each.path, each.method): each.statuses for each in known}
    dice, found = Random(seed), Found({}, {}, [], 0.0)

    async def client(left: Iterator[int]) -> None:
        for _ in left:
            request = draw_request(dice, rows, known)
            scope = request["scope"]
            address = scope["path"], scope["method"]
            status, headers, body = await answered(app, request)
            fault = fault_of(status, allowed.get(address, frozenset(STATUSES)), headers, body)
            place = status, scope["path"].replace(MARK, "…")
            found.counts[place] = found.counts.get(place, 0) + 1
            if fault:
                found.faults[place] = found.faults.get(place, 0) + 1
                found.examples.append(f"{fault}: {address} {request['body'][:300]!r}")

    left = iter(range(count))
    async with app.router.lifespan_context(app):
        await asyncio.gather(*(client(left) for _ in range(AT_ONCE)))
    found.memory_mib = memory(os.getpid())
    return found
