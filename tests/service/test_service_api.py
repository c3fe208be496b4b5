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
from counterveil.service import guard, questions, responses
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
    with TestClient(create_app(explainer), base_url="http://127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def document(client):
    return client.get(DOCUMENT).json()


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
            changed = {change["column"] for change in way["changes"]}
            assert {
                name for name, value in way["row"].items() if value != people[number][name]
            } == (changed)
            assert {"probability", "distance", "effort", "plausibility", "stability"} <= set(way)


def test_regions_and_reasons_come_when_they_are_asked_for(client, people):
    plain = ask(client, people[:4], target="granted").json()["answers"]
    told = ask(client, people[:4], target="granted", regions=True).json()["answers"]
    assert "reasons" not in plain[0]
    changes = [change for each in told for way in each["ways"] for change in way["changes"]]
    assert changes
    assert all("checked" in each and {"values", "low"} & each.keys() for each in changes)
    assert any(each["reasons"] for each in told)


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Decision (loan)"), ("de", "Entscheidung (loan)")]
)
def test_a_letter_is_that_of_the_library(client, explainer, people, language, words):
    told = ask(client, people[:6], target="granted", letter=language, regions=True).json()[
        "answers"
    ]
    result = explainer.explain(as_frame(people[:6]), target="granted", progress=False)
    assert [each["letter"] for each in told] == [result.letter(n, language) for n in range(6)]
    assert all(words in each["letter"] for each in told)
    works = [change["works"] for each in told for way in each["ways"] for change in way["changes"]]
    assert any(works)
    assert all(each in "".join(record["letter"] for record in told) for each in works)


def test_ways_rules_and_what_must_stay(client, people):
    body = ask(client, people[:5], k=3, immutable=["age"], rules={"max_changes": 2}).json()
    for record, row in zip(body["answers"], people, strict=False):
        for way in record["ways"]:
            assert way["row"]["age"] == row["age"]
            assert len(way["changes"]) <= 2
    rules = {"relations": ["children <= age - 18", ["children", "<=", "income", 1]]}
    for record in ask(client, people[:5], rules=rules).json()["answers"]:
        for row in (way["row"] for way in record["ways"]):
            assert row["children"] is None or row["children"] <= min(
                row["age"] - 18, row["income"] + 1
            )
    rules = {"only_one": [["age", "income", "member"]], "transitions": {"housing": []}}
    for record, row in zip(
        ask(client, people[:5], rules=rules).json()["answers"], people, strict=False
    ):
        for way in record["ways"]:
            changed = {change["column"] for change in way["changes"]}
            assert len(changed & {"age", "income", "member"}) <= 1
            assert "housing" not in changed or row["housing"] is None
    for wrong in ({"relations": ["children <= rent"]}, {"transitions": {"age": [[1, 2]]}}):
        assert ask(client, people[:1], rules=wrong).status_code == 422
    asked = client.get(DOCUMENT).json()["paths"]["/v1/explain"]["post"]["requestBody"]["content"]
    described, _ = asked["application/json"]["schema"]["properties"]["rules"]["anyOf"]
    types = described["properties"]
    assert {*types} == {*Rules.model_fields}
    assert all(each["description"] for each in types.values())
    assert types["direction"]["additionalProperties"]["enum"] == ["any", "increase", "decrease"]
    assert types["together"]["items"] == {"type": "array", "items": {"type": "string"}}
    assert not described["additionalProperties"]
    assert ask(client, people[:1], rules=dict.fromkeys(types)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"immutable": "age"},
        {"immutabel": []},
        {"max_changes": True},
        {"direction": {"age": "up"}},
        {"allowed": {"income": 3}},
        {"costs": {"age": 0}},
        {"relations": "age"},
        {"together": ["age", "income"]},
        {"transitions": {"housing": [["rent"]]}},
        {"may_change": []},
        [],
    ],
)
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


@pytest.mark.parametrize("wrong", [{"prefer": "other"}, {"immutable": "age"}])
def test_one_message_for_one_option(client, people, wrong):
    kind = SearchOptions if "prefer" in wrong else Rules
    with pytest.raises(RequestError) as alone:
        kind.model_validate(wrong)
    assert ask(client, people[:1], **wrong).json()["detail"] == str(alone.value)


def test_what_if(client, explainer, people):
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
    rows = [people[0], {**people[1], "housing": WRONG}]
    answer = ask(client, rows)
    assert answer.status_code == 422
    assert (answer.json()["row"], answer.json()["column"]) == (2, "housing")
    assert WRONG not in answer.text
    rows = [people[0], {**people[1], "age": WRONG}]
    assert WRONG not in ask(client, rows).text


def test_the_wrong_question_of_one_caller_does_not_harm_others(client, people):
    def one(number):
        row = dict(people[number % 10])
        if number % 3 == 0:
            row["age"] = WRONG
        return number % 3 == 0, ask(client, [row]).status_code

    with ThreadPoolExecutor(12) as pool:
        for wrong, status in pool.map(one, range(36)):
            assert status == (422 if wrong else 200)


def test_many_small_questions_are_searched_together(explainer, people):
    app = create_app(explainer)
    with TestClient(app, base_url="http://127.0.0.1") as client:
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


def test_a_stream_of_lines(client, people):
    rows = [people[number % len(people)] for number in range(600)]
    lines = [json.dumps({"target": "granted"}), *map(json.dumps, rows)]
    answer = client.post("/v1/explain", content="\n".join(lines), headers=NDJSON)
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["row"] for each in found] == list(range(1, 601))
    assert found[0]["status"] == found[len(people)]["status"]


def test_a_stream_stops_at_a_wrong_row_and_says_how_far_it_came(client, people):
    lines = [json.dumps({}), *[json.dumps(people[0])] * 300, "{nonsense", json.dumps(people[1])]
    answer = client.post("/v1/explain", content="\n".join(lines), headers=NDJSON)
    *found, last = [json.loads(line) for line in answer.text.splitlines()]
    assert len(found) == 256
    assert last["after_row"] == 256
    assert last["status"] == 400


def test_facts(client, schema):
    assert client.get("/v1/schema").json()["name"] == schema.name
    statement = client.get("/v1/statement").json()
    assert statement["statement"]["level"] == "end-to-end"
    assert statement["answers_a_day"] is None
    assert client.get("/v1/health").json() == {"status": "ok"}
    assert set(client.get("/v1/example").json()["row"]) == set(schema.columns)
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


def test_other_methods_and_places(client):
    assert client.get("/v1/explain").status_code == 405
    assert client.post("/v1/schema").status_code == 405
    for path in ("/docs", "/..%2f..%2fetc/passwd", "/page/../../app.py", "/v1/"):
        assert client.get(path).status_code == 404


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
    app = create_app(explainer, Settings(most_bytes=20_000, most_rows=10, most_streamed=20))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.post("/v1/explain", content=b" " * 20_001).status_code == 413
        pieces = (b" " * 5000 for _ in range(10))  # no length is announced
        assert client.post("/v1/explain", content=pieces).status_code == 413
        assert ask(client, people[:11]).status_code == 413
        lines = "\n".join([json.dumps({}), *[json.dumps(people[0])] * 21])
        last = client.post("/v1/explain", content=lines, headers=NDJSON).text.splitlines()[-1]
        assert json.loads(last)["status"] == 413
        long_line = b"{}\n" + b"x" * (1 << 21)
        last = client.post("/v1/explain", content=long_line, headers=NDJSON).text.splitlines()[-1]
        assert json.loads(last)["status"] == 413


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/decide"])
@pytest.mark.parametrize("kind", ["application/x-ndjson", "Application/X-NDJSON", "text/plain"])
def test_no_content_type_lifts_the_limit_of_a_body(explainer, path, kind):
    """A stream is read line by line; everything else counts, announced or not."""
    app = create_app(explainer, Settings(most_bytes=20_000))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for body in (b" " * 3_000_000, (b" " * 50_000 for _ in range(60))):
            answer = client.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 413 or json.loads(answer.text)["status"] == 413


def test_a_line_is_one_row(client, people):
    row = json.dumps(people[0])
    for line in (f"{row},{row}", f'{row}],"rows":[{row}', "[]", '{"age": 1, "age": 2}'):
        answer = client.post("/v1/explain", content="{}\n" + line, headers=NDJSON)
        assert json.loads(answer.text.splitlines()[-1])["status"] in (400, 422)


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


def test_long_bodies_are_read_beside_and_one_after_the_other(client, people, monkeypatch):
    """While one is read others are answered; two are never read together."""
    threads = []
    read = questions.parsed

    def watched(kind, body):
        threads.append(threading.current_thread().name)
        return read(kind, body)

    monkeypatch.setattr(questions, "parsed", watched)
    assert ask(client, people[:2] * 100).status_code == 200
    assert ask(client, people[:1]).status_code == 200
    assert threads[0].startswith("long bodies")
    assert not threads[1].startswith("long bodies")


def model_of(schema, answer):
    return CallableModel(answer, schema)


def fair(frame):
    share = torch.sigmoid(torch.tensor(frame["income"].to_numpy(dtype=float)) - 5).numpy()
    return [[1 - each, each] for each in share]


@pytest.fixture(scope="module")
def foreign(veil, schema):
    return Explainer(veil, model_of(schema, fair))


def test_keys(foreign, people, tmp_path, explainer):
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    good, few = keys.new("branch"), keys.new("few", answers_a_day=3)
    slow, gone = keys.new("slow", rows_a_minute=2), keys.new("gone")
    keys.revoke("gone")
    app = create_app(foreign, Settings(keys=keys))
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def status(key, rows=1, path="/v1/explain"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return client.post(path, json={"rows": people[:rows]}, headers=headers)

        for wrong in ("", "nonsense", "cvk_" + "x" * 43, gone, good[:-1], good + "x"):
            assert status(wrong).status_code == 401
            assert status(wrong).headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/schema").status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/v1/health").status_code == 200
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
    app = create_app(explainer, Settings(keys=keys))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        headers = {"Authorization": f"Bearer {few}"}
        assert client.post("/v1/explain", json={"rows": people[:9]}, headers=headers).is_success


def test_the_file_of_keys_is_not_waited_for(foreign, people, tmp_path):
    """While another process writes the file for long, everything else is answered."""
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    key = keys.new("branch")
    app = create_app(foreign, Settings(keys=keys))
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(1) as pool:
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
    made = Explainer(veil, model_of(schema, raising))
    made.warm_up(progress=False)
    calls.set()
    with (
        caplog.at_level(logging.INFO),
        TestClient(create_app(made, Settings(logs=True)), base_url="http://127.0.0.1") as client,
    ):
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
    made = Explainer(veil, model_of(schema, hanging))
    made.warm_up(progress=False)
    app = create_app(made, Settings(seconds=2.0))
    with TestClient(app, base_url="http://127.0.0.1") as client:
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


@pytest.mark.long
def test_expensive_questions_do_not_make_it_refuse_others(veil, schema, people):
    """Of a model so slow that each of them is given up."""

    def slow(frame):
        time.sleep(slowness[0] * len(frame))
        return fair(frame)

    slowness = [0.0]
    made = Explainer(veil, model_of(schema, slow))
    made.warm_up(progress=False)
    with TestClient(create_app(made, Settings(seconds=0.5)), base_url="http://127.0.0.1") as client:
        slowness[0] = 0.002
        for _ in range(6):
            assert ask(client, people[:1], k=10, target="granted").status_code in (200, 503)
            assert client.get("/v1/health").status_code == 200
        slowness[0] = 0.0
        assert ask(client, people[:1]).status_code == 200


def test_more_ways_ask_no_more_of_the_model(explainer, people):
    """The work of one question is bounded: what is asked does not grow with the ways."""
    asked = [
        [each.get("asked", 0) for each in records(explainer.explain(people, k=k, progress=False))]
        for k in (1, 10)
    ]
    assert max(asked[1]) <= 2 * max(asked[0]) <= 20_000


def test_rations_count_what_a_question_costs(foreign, people, tmp_path):
    keys = AccessKeys(tmp_path / "keys.db", create=True)
    headers = {"Authorization": f"Bearer {keys.new('branch', 20, 100)}"}
    with TestClient(
        create_app(foreign, Settings(keys=keys)), base_url="http://127.0.0.1"
    ) as client:
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
    assert {record.levelname for record in caplog.records if "explain" in record.message} == {
        "INFO"
    }
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_nothing_is_logged_unless_asked_and_then_without_values(explainer, people, caplog):
    with caplog.at_level(logging.INFO, "counterveil.service"):
        with TestClient(create_app(explainer), base_url="http://127.0.0.1") as client:
            ask(client, people[:1])
        assert not caplog.text
        app = create_app(explainer, Settings(logs=True))
        with TestClient(app, base_url="http://127.0.0.1") as client:
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
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dice=st.randoms(use_true_random=False))
def test_random_requests_get_answers_or_refusals(asked, document, people, dice):
    known = operations(document)
    request = draw_request(dice, people, known)
    scope = request["scope"]
    allowed = {(each.path, each.method): each.statuses for each in known}
    statuses = allowed.get((scope["path"], scope["method"]), frozenset(STATUSES))
    status, headers, body = asked(request)
    assert not fault_of(status, statuses, headers, body), (scope, request["body"][:300])


def test_the_document_names_every_field(document):
    known = {(each.path, each.method): each for each in operations(document)}
    assert set(known["/v1/explain", "POST"].fields) == set(Explain.model_fields)
    assert not known["/v1/schema", "GET"].fields
