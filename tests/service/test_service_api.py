"""The service over HTTP, in this process: what it answers, what it refuses, and how it says so."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import pytest
import torch
from bench.fuzz import STATUSES, answered, draw_request, fault_of, operations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="counterveil[serve] is not installed")
from fastapi.testclient import TestClient

from counterveil import Explainer, Rules
from counterveil.cli.options import read_rules
from counterveil.errors import RequestError
from counterveil.models import CallableModel
from counterveil.search.options import SearchOptions
from counterveil.service import guard, responses
from counterveil.service.access import AccessKeys
from counterveil.service.answers import records
from counterveil.service.app import GONE, Settings, create_app
from counterveil.service.questions import Explain
from counterveil.tables import as_frame

DOCUMENT = "/v1/openapi.json"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def explainer(veil):
    made = Explainer(veil)
    made.warm_up(progress=False)
    return made


@pytest.fixture(scope="module")
def client(explainer):
    with serving(explainer) as made:
        yield made


@pytest.fixture(scope="module")
def document(client):
    return client.get(DOCUMENT).json()


def serving(explainer, **settings):
    """A client of a service with these settings."""
    return TestClient(create_app(explainer, Settings(**settings)), base_url="http://127.0.0.1")


def ask(client, rows, headers=None, **more):
    return client.post("/v1/explain", json={"rows": rows, **more}, headers=headers)


def test_answers_are_those_of_the_library(client, explainer, people, schema):
    answer = ask(client, people, target="granted")
    assert answer.status_code == 200
    body = answer.json()
    assert body["decided_by"] == "private model"
    assert "end-to-end" in body["promise"]
    result = explainer.explain(as_frame(people), target="granted", progress=False)
    assert [each["status"] for each in body["answers"]] == result.status.tolist()
    for number, each in enumerate(body["answers"]):
        assert each["target"] == "granted"
        for way in each["ways"]:
            assert way["text"] == result.text(number)
            assert list(way["row"]) == list(schema.columns)
            assert way["row"]["region"] == people[number]["region"]
            changed = {name for name, value in way["row"].items() if value != people[number][name]}
            assert {change["column"] for change in way["changes"]} == changed
            assert {"probability", "distance", "effort", "plausibility", "stability"} <= set(way)


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Decision (loan)"), ("de", "Entscheidung (loan)")]
)
def test_a_letter_is_that_of_the_library(client, explainer, people, language, words):
    answer = ask(client, people[:6], target="granted", letter=language, regions=True)
    told = answer.json()["answers"]
    result = explainer.explain(as_frame(people[:6]), target="granted", progress=False)
    assert [each["letter"] for each in told] == [result.letter(n, language) for n in range(6)]
    assert all(words in each["letter"] for each in told)
    changes = [change for each in told for way in each["ways"] for change in way["changes"]]
    letters = "".join(record["letter"] for record in told)
    assert any(each["works"] for each in changes)
    assert all(each["works"] in letters for each in changes)
    # Regions and reasons come where they are asked for.
    assert all("checked" in each and {"values", "low"} & each.keys() for each in changes)
    assert any(each["reasons"] for each in told)
    assert "reasons" not in ask(client, people[:1], target="granted").json()["answers"][0]


def test_strange_columns_are_left_out_before_the_search(client, explainer, people, monkeypatch):
    seen = []
    spied = Explainer.explain
    monkeypatch.setattr(
        Explainer,
        "explain",
        lambda self, rows, *more, **how: seen.extend(rows) or spied(self, rows, *more, **how),
    )
    strange = [row | {f"c{n}-{at}": 1 for at in range(3000)} for n, row in enumerate(people[:3])]
    answers = ask(client, strange, target="granted").json()
    assert answers == ask(client, people[:3], target="granted").json()
    assert max(map(len, seen)) < 30
    misspelt = {("Age" if name == "age" else name): each for name, each in strange[0].items()}
    assert "it has 'Age'" in ask(client, [misspelt]).text


def test_empty_lines_are_few(client, people):
    lines = b"\n\n{}\n\n" + b"\n\n".join(json.dumps(each).encode() for each in people[:2])
    assert client.post("/v1/explain", content=lines, headers=NDJSON).text.count("\n") == 2
    answer = client.post("/v1/explain", content=b"\n" * 20_000, headers=NDJSON)
    assert (answer.status_code, answer.json()["title"]) == (413, "too many empty lines")


def test_without_its_lifespan_the_service_says_that_it_is_starting(explainer, people):
    apart = TestClient(create_app(explainer), base_url="http://127.0.0.1")  # and not entered
    for answer in (ask(apart, people[:1]), apart.get("/v1/health"), apart.get("/metrics")):
        assert (answer.status_code, answer.json()["title"]) == (503, "the service is starting")


def test_ways_rules_and_what_must_stay(client, people):
    body = ask(client, people[:5], k=3, immutable=["age"], rules={"max_changes": 2}).json()
    for record, row in zip(body["answers"], people, strict=False):
        for way in record["ways"]:
            assert way["row"]["age"] == row["age"]
            assert len(way["changes"]) <= 2
    rules = {"relations": ["children <= age - 18", ["children", "<=", "income", 1]]}
    for record in ask(client, people[:5], rules=rules).json()["answers"]:
        for row in (way["row"] for way in record["ways"]):
            most = min(row["age"] - 18, row["income"] + 1)
            assert row["children"] is None or row["children"] <= most
    rules = {"only_one": [["age", "income", "member"]], "transitions": {"housing": []}}
    answers = ask(client, people[:5], rules=rules).json()["answers"]
    for record, row in zip(answers, people, strict=False):
        for way in record["ways"]:
            changed = {change["column"] for change in way["changes"]}
            assert len(changed & {"age", "income", "member"}) <= 1
            assert "housing" not in changed or row["housing"] is None
    for wrong in ({"relations": ["children <= rent"]}, {"transitions": {"age": [[1, 2]]}}):
        assert ask(client, people[:1], rules=wrong).status_code == 422


def test_the_document_names_every_field_and_rule(client, document, people):
    known = {(each.path, each.method): each for each in operations(document)}
    assert set(known["/v1/explain", "POST"].fields) == set(Explain.model_fields)
    assert not known["/v1/schema", "GET"].fields
    asked = document["paths"]["/v1/explain"]["post"]["requestBody"]["content"]
    described, _ = asked["application/json"]["schema"]["properties"]["rules"]["anyOf"]
    types = described["properties"]
    assert {*types} == {*Rules.model_fields}
    assert all(each["description"] for each in types.values())
    assert types["direction"]["additionalProperties"]["enum"] == ["any", "increase", "decrease"]
    assert types["together"]["items"] == {"type": "array", "items": {"type": "string"}}
    assert not described["additionalProperties"]
    assert ask(client, people[:1], rules=dict.fromkeys(types)).status_code == 200


WRONG_RULES = (
    {"immutable": "age"}, {"immutabel": []}, {"max_changes": True}, {"direction": {"age": "up"}},
    {"allowed": {"income": 3}}, {"costs": {"age": 0}}, {"relations": "age"},
    {"together": ["age", "income"]}, {"transitions": {"housing": [["rent"]]}},
    {"may_change": []}, [],
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_RULES)
def test_one_message_for_one_mistake(client, explainer, people, wrong, tmp_path):
    """Of the service, the file of a command, the model itself and the keywords of the library."""
    said = ask(client, people[:1], rules=wrong).json()["detail"]
    (tmp_path / "rules.json").write_text(json.dumps([wrong]))
    with pytest.raises(RequestError) as in_file:
        read_rules(tmp_path / "rules.json")
    with pytest.raises(RequestError) as alone:
        Rules.model_validate(wrong)
    assert said == str(in_file.value) == str(alone.value)
    if wrong and not {*wrong} & {"immutable", "immutabel"}:
        with pytest.raises(RequestError) as as_keyword:
            explainer.explain(people[:1], **wrong)
        assert said == str(as_keyword.value)
    for options, kind in (({"prefer": "other"}, SearchOptions), ({"immutable": "age"}, Rules)):
        with pytest.raises(RequestError) as alone:
            kind.model_validate(options)
        assert ask(client, people[:1], **options).json()["detail"] == str(alone.value)


def test_what_if_and_more_ways_which_ask_no_more_of_the_model(client, explainer, people):
    """The work of one question is bounded: what is asked does not grow with the ways."""
    asked = [
        [each.get("asked", 0) for each in records(explainer.explain(people, k=k, progress=False))]
        for k in (1, 10)
    ]
    assert max(asked[1]) <= 2 * max(asked[0]) <= 20_000
    body = client.post("/v1/decide", json={"rows": people[:3]}).json()
    assert body["classes"] == ["refused", "granted"]
    shares = explainer.decide(as_frame(people[:3]))
    for found, share in zip(body["decisions"], shares, strict=True):
        assert found["probabilities"] == pytest.approx(share.tolist(), abs=1e-5)
        assert found["decision"] == body["classes"][int(share.argmax())]


WRONG = "a7f3-secret"  # a value that no answer may repeat


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b'{"rows": [NaN]}', 400, "not JSON"),
        (b"[]", 422, "understood"),
        (b"{}", 422, "rows"),
        (b'{"rows": []}', 422, "rows"),
        (b'{"rows": [{}]}', 422, "missing"),
        (b'{"rows": [[1]]}', 422, "rows.1"),
        (b'{"rows": [{"age": {"deep": 1}}]}', 422, "rows.1.age"),
        (b'{"rows": [{}], "k": 0}', 422, "k"),
        (b'{"rows": [{}], "k": 11}', 422, "k"),
        (b'{"rows": [{}], "unknown": 1}', 422, "unknown"),
        (b'{"rows": [{}], "prefer": "other"}', 422, "prefer"),
        (b'{"rows": [{}], "letter": "fr"}', 422, "letter: Input should be 'en' or 'de'"),
        (b'{"rows": [{}], "rules": {"immutabel": []}}', 422, "did you mean 'immutable'"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"rows": [{"housing": "\\ud800"}]}', 400, "not JSON"),
        (b'{"rows": [{"\\ud800": 1}]}', 400, "not JSON"),
        (b'{"rows": [{"\xed\xa0\x80": 1}]}', 400, "not JSON"),
        ('{"rows": [{"\\ud800": 1}]}'.encode("utf-16"), 400, "not JSON"),
        (b'{"rows": [{"age": 30, "age": 40}]}', 400, "twice"),
        (b'{"k": 1, "rows": [{}], "k": 2}', 400, "twice"),
    ],
)
def test_wrong_questions(client, body, status, words):
    answer = client.post("/v1/explain", content=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert words in answer.text


def test_a_wrong_cell_is_named_and_its_value_is_not(client, people):
    for column in ("housing", "age"):
        answer = ask(client, [people[0], {**people[1], column: WRONG}])
        assert answer.status_code == 422
        assert (answer.json()["row"], answer.json()["column"]) == (2, column)
        assert WRONG not in answer.text

    # Nor does the wrong question of one caller harm others.
    def one(number):
        row = dict(people[number % 10])
        if number % 3 == 0:
            row["age"] = WRONG
        return number % 3 == 0, ask(client, [row]).status_code

    with ThreadPoolExecutor(12) as pool:
        for wrong, status in pool.map(one, range(36)):
            assert status == (422 if wrong else 200)


def test_many_small_questions_are_searched_together(explainer, people):
    with serving(explainer) as client:
        with ThreadPoolExecutor(16) as pool:
            rows = [people[number % len(people)] for number in range(96)]
            found = list(pool.map(lambda row: ask(client, [row], target="granted").json(), rows))
        text = client.get("/metrics").text
    alone = explainer.explain(as_frame(rows), target="granted", progress=False)
    for number, each in enumerate(found):
        assert each["answers"][0]["status"] == alone.status[number]
        for way in each["answers"][0]["ways"]:
            assert way["text"] == alone.text(number)
    searches = float(text.split("counterveil_rows_at_once_count ")[1].split()[0])
    assert searches < 96
    assert 'counterveil_requests_total{path="/v1/explain",status="200"} 96.0' in text


def streamed(client, lines):
    """What is said to a stream of lines."""
    answer = client.post("/v1/explain", content="\n".join(lines), headers=NDJSON)
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_stream_stops_at_a_wrong_row_and_says_how_far_it_came(client, people):
    lines = ["{}", *map(json.dumps, (people * 8)[:300]), "{nonsense", json.dumps(people[1])]
    *found, last = streamed(client, lines)
    assert [each["row"] for each in found] == list(range(1, 257))
    assert found[0]["status"] == found[len(people)]["status"]
    assert (last["after_row"], last["status"]) == (256, 400)
    row = json.dumps(people[0])
    for line in (f"{row},{row}", f'{row}],"rows":[{row}', "[]", '{"age": 1, "age": 2}'):
        assert streamed(client, ["{}", line])[-1]["status"] in (400, 422)  # a line is one row


def test_facts_and_other_methods_and_places(client, schema):
    assert client.get("/v1/explain").status_code == 405
    assert client.post("/v1/schema").status_code == 405
    for path in ("/docs", "/..%2f..%2fetc/passwd", "/page/../../app.py", "/v1/"):
        assert client.get(path).status_code == 404
    assert client.get("/v1/schema").json()["name"] == schema.name
    statement = client.get("/v1/statement").json()
    assert statement["statement"]["level"] == "end-to-end"
    assert statement["answers_a_day"] is None
    assert client.get("/v1/health").json() == {"status": "ok"}
    row = client.get("/v1/example").json()["row"]
    assert set(row) == set(schema.columns)
    assert all(len(str(value).strip("-0.").replace(".", "")) <= 3 for value in row.values()
               if isinstance(value, float))  # fmt: skip
    paths = client.get("/v1/openapi.json").json()["paths"]
    assert {"/v1/explain", "/v1/decide", "/v1/schema", "/v1/statement", "/v1/health"} <= set(paths)


@pytest.mark.parametrize("path", ["/", "/page.js", "/htmx.js", "/page.css", "/v1/health", "/no"])
def test_every_answer_has_the_headers(client, path):
    answer = client.get(path)
    assert answer.status_code == (404 if path == "/no" else 200)
    for name, value in guard.HEADERS.items():
        assert answer.headers[name] == value
    assert "access-control-allow-origin" not in answer.headers
    assert "http://" not in answer.text.replace("http://www.w3.org", "")
    assert "https://" not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "[::1].evil"}, 421),
        ({"Host": "[::1]evil.example"}, 421),
        ({"Host": "localhost:80:80"}, 421),
        ({"Host": "[::1]:8080"}, 200),
        ({"Origin": "http://127.0.0.1:3000", "Content-Type": "text/plain"}, 403),
        ({"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Host": "LOCALHOST:9999"}, 200),
    ],
)
def test_hosts_and_origins(client, people, headers, status):
    answer = client.post("/v1/explain", json={"rows": people[:1]}, headers=headers)
    assert answer.status_code == status


def test_long_bodies_and_many_rows(explainer, people):
    with serving(explainer, most_bytes=20_000, most_rows=10, most_streamed=20) as client:
        assert client.post("/v1/explain", content=b" " * 20_001).status_code == 413
        pieces = (b" " * 5000 for _ in range(10))  # no length is announced
        assert client.post("/v1/explain", content=pieces).status_code == 413
        assert ask(client, people[:11]).status_code == 413
        for lines in ([json.dumps(people[0])] * 21, ["x" * (1 << 21)]):
            assert streamed(client, ["{}", *lines])[-1]["status"] == 413


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/decide"])
def test_no_content_type_lifts_the_limit_of_a_body(explainer, path):
    """A stream is read line by line; everything else counts, announced or not."""
    kinds = ("application/x-ndjson", "Application/X-NDJSON", "text/plain")
    with serving(explainer, most_bytes=20_000) as client:
        for kind, long in itertools.product(kinds, (True, False)):
            body = b" " * 3_000_000 if long else (b" " * 50_000 for _ in range(60))
            answer = client.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 413 or json.loads(answer.text)["status"] == 413


def test_a_slow_body_is_not_waited_for():
    """One byte after the other, each in time: the body as a whole is not."""

    async def read(scope, receive, send):
        if scope["path"] == "/stream":
            guard.in_pieces(scope)
        while (await receive()).get("more_body"):
            pass
        await responses.as_json({})(scope, receive, send)

    async def ask(path, pieces):
        async def receive():
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b"x", "more_body": next(pieces)}

        async def send(message):
            said.append(message)

        said = []
        scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"here")]}
        await guard.Guard(read, ["here"], 10_000, seconds=(60.0, 0.1))(scope, receive, send)
        return said[0]["status"]

    assert asyncio.run(ask("/", itertools.repeat(True))) == 408
    assert asyncio.run(ask("/", iter([True, False]))) == 200
    assert asyncio.run(ask("/stream", iter([True] * 100 + [False]))) == 200


def fair(frame):
    share = torch.sigmoid(torch.tensor(frame["income"].to_numpy(dtype=float)) - 5).numpy()
    return [[1 - each, each] for each in share]


@pytest.fixture(scope="module")
def foreign(veil, schema):
    return Explainer(veil, CallableModel(fair, schema))


def test_keys(foreign, people, tmp_path, explainer):
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    good, few = keys.new("branch"), keys.new("few", answers_a_day=3)
    slow, gone = keys.new("slow", rows_a_minute=2), keys.new("gone")
    keys.revoke("gone")
    with serving(foreign, keys=keys) as client:

        def status(key, rows=1, path="/v1/explain"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return client.post(path, json={"rows": people[:rows]}, headers=headers)

        for wrong in ("", "nonsense", "cvk_" + "x" * 43, gone, good[:-1], good + "x"):
            assert status(wrong).status_code == 401
            assert status(wrong).headers["www-authenticate"] == "Bearer"
        for path, code in (("/v1/schema", 401), ("/metrics", 401), ("/v1/health", 200)):
            assert client.get(path).status_code == code
        assert status(good).status_code == 200
        assert status(few, 2).status_code == 200
        assert status(few, 1, "/v1/decide").status_code == 200
        used_up = status(few)
        assert used_up.status_code == 429
        assert "for people and not for the model" in used_up.text
        left = datetime.now(UTC).replace(hour=23, minute=59, second=59) - datetime.now(UTC)
        assert int(used_up.headers["retry-after"]) == pytest.approx(left.total_seconds(), abs=90)
        assert status(slow, 2).status_code == 200
        assert status(slow).status_code == 429
        keys.revoke("branch")
        assert status(good).status_code == 401
        told = client.get("/v1/statement", headers={"Authorization": f"Bearer {few}"}).json()
        assert told["answers_a_day"] == 3
    # The private model is as public as the veil: its answers are not counted.
    with serving(explainer, keys=keys) as client:
        headers = {"Authorization": f"Bearer {few}"}
        assert client.post("/v1/explain", json={"rows": people[:9]}, headers=headers).is_success


def test_the_file_of_keys_is_not_waited_for(foreign, people, tmp_path):
    """While another process writes the file for long, everything else is answered."""
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    key = keys.new("branch")
    with serving(foreign, keys=keys) as client, ThreadPoolExecutor(1) as pool:
        with closing(sqlite3.connect(keys.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            headers = {"Authorization": f"Bearer {key}"}
            asked = pool.submit(ask, client, people[:1], headers)
            for _ in range(5):
                assert client.get("/v1/health").status_code == 200
            assert not asked.done()
            other.execute("ROLLBACK")
        assert asked.result().status_code == 200


def test_a_model_that_raises(veil, schema, people, caplog):
    def raising(frame):
        if calls.is_set():
            raise ValueError(f"about {WRONG}")
        return fair(frame)

    calls = threading.Event()
    made = Explainer(veil, CallableModel(raising, schema))
    made.warm_up(progress=False)
    calls.set()
    with caplog.at_level(logging.INFO), serving(made, logs=True) as client:
        answer = ask(client, people[:1])
        assert client.get("/v1/health").status_code == 200
        calls.clear()
        assert ask(client, people[:1]).status_code == 200
    assert answer.status_code == 503
    for text in (answer.text, caplog.text):
        assert WRONG not in text
        assert '.py"' not in text
        assert "Traceback" not in text


@pytest.mark.long
def test_a_model_that_hangs(veil, schema, people):
    def hanging(frame):
        if hangs.is_set():
            released.wait(30)
        return fair(frame)

    hangs, released = threading.Event(), threading.Event()
    made = Explainer(veil, CallableModel(hanging, schema))
    made.warm_up(progress=False)
    with serving(made, seconds=2.0) as client:
        assert ask(client, people[:1]).status_code in (200, 503)  # a slow machine may take long
        hangs.set()
        answer = ask(client, people[:1])
        assert answer.status_code == 503
        assert "too long" in answer.text
        hangs.clear()
        time.sleep(0.1)
        fine = [ask(client, people[:1]).status_code for _ in range(3)]
        assert 200 in fine  # another thread goes on
        hangs.set()
        for _ in range(6):
            assert ask(client, people[:1]).status_code == 503
        assert client.get("/v1/health").status_code == 503
        released.set()
        while client.get("/v1/health").status_code == 503:  # the threads are free again
            time.sleep(0.02)
        hangs.clear()
        assert ask(client, people[:1]).status_code == 200


def test_rations_count_what_a_question_costs(foreign, people, tmp_path):
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    headers = {"Authorization": f"Bearer {keys.new('branch', 20, 100)}"}
    with serving(foreign, keys=keys) as client:
        wrong = [{**people[0], "age": "old"}]
        for _ in range(20):
            assert ask(client, wrong, headers, k=10).status_code == 422
            assert ask(client, people[:1], headers, target="other").status_code == 422
        assert keys.entries()[0].used_today == 0
        assert ask(client, people[:2], headers, k=10).status_code == 200
        assert keys.entries()[0].used_today == 20
        assert ask(client, people[:2], headers, k=10).status_code == 429
        assert keys.entries()[0].used_today == 20


def test_a_client_that_leaves_is_no_error(explainer, people, caplog):
    """Before its body is whole, or while it waits: nothing goes on, nothing is logged as one."""

    async def leave(app, body, whole):
        messages = iter([{"type": "http.request", "body": body, "more_body": not whole}])
        sent = []

        async def receive():
            return next(messages, {"type": "http.disconnect"})

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/explain", "query_string": b""}
        await app({**scope, "headers": [(b"host", b"127.0.0.1")]}, receive, send)
        return sent[0]["status"]

    app = create_app(explainer, Settings(logs=True))
    body = json.dumps({"rows": people * 20}).encode()
    with caplog.at_level(logging.INFO), TestClient(app) as client:
        assert client.portal.call(leave, app, body[:100], False) == GONE
        assert client.portal.call(leave, app, body, True) == GONE
    assert any("explain" in record.message for record in caplog.records)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_nothing_is_logged_unless_asked_and_then_without_values(explainer, people, caplog):
    with caplog.at_level(logging.INFO, "counterveil.service"):
        with serving(explainer) as client:
            ask(client, people[:1])
        assert not caplog.text
        with serving(explainer, logs=True) as client:
            ask(client, [{**people[0], "housing": WRONG}])
    assert "/v1/explain 422 local" in caplog.text
    assert WRONG not in caplog.text


@pytest.fixture(scope="module")
def asked(explainer):
    """Sends a request as `bench.fuzz` draws it: status, headers, body."""
    app = create_app(explainer, Settings(most_bytes=20_000))
    with TestClient(app) as running:
        yield lambda request: running.portal.call(answered, app, request)


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dice=st.randoms(use_true_random=False))
def test_random_requests_get_answers_or_refusals(asked, document, people, dice):
    """A million of them: `make fuzz`."""
    known = operations(document)
    request = draw_request(dice, people, known)
    scope = request["scope"]
    allowed = {(each.path, each.method): each.statuses for each in known}
    statuses = allowed.get((scope["path"], scope["method"]), frozenset(STATUSES))
    status, headers, body = asked(request)
    assert not fault_of(status, statuses, headers, body), (scope, request["body"][:300])
