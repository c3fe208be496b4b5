"""The fragments of the page: no way around keys, rations and limits, and nothing unescaped."""

from __future__ import annotations

import html
import json
import re

import pytest

pytest.importorskip("fastapi", reason="counterveil[serve] is not installed")
from fastapi.testclient import TestClient

from counterveil import Explainer, Schema
from counterveil.service.access import AccessKeys
from counterveil.service.app import Settings, create_app
from counterveil.service.page.fragments import Page

PARTS = ("body", "fill", "example", "answer", "decision", "columns", "rows")


@pytest.fixture(scope="module")
def explainer(veil, model):
    return Explainer(veil, model)


@pytest.fixture
def keys(tmp_path):
    return AccessKeys(tmp_path / "keys.db", create=True)


def asking(explainer, **settings):
    return TestClient(create_app(explainer, Settings(**settings)), base_url="http://127.0.0.1")


def question(row):
    return {"question": json.dumps({"rows": [row]})}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_needs_a_key_and_this_origin(explainer, keys, part):
    with asking(explainer, keys=keys, most_bytes=100) as client:
        own = {"Authorization": f"Bearer {keys.new('branch')}"}
        assert client.post(f"/page/{part}").status_code == 401
        assert client.get(f"/page/{part}").status_code == 405
        foreign = {**own, "Origin": "http://evil.example"}
        assert client.post(f"/page/{part}", headers=foreign).status_code == 403
        long = client.post(f"/page/{part}", headers=own, content=b"a" * 101)
        assert long.status_code == 413


def test_answers_on_the_page_are_rationed_as_those_in_json(explainer, keys, people):
    with asking(explainer, keys=keys) as client:
        own = {"Authorization": f"Bearer {keys.new('branch', answers_a_day=1)}"}
        first = client.post("/page/answer", headers=own, data=question(people[0]))
        assert first.status_code == 200
        table = "\n".join(",".join(map(str, part)) for part in (people[0], people[0].values()))
        asked = {"answer": {"data": question(people[0])}, "rows?rows=1": {"content": table}}
        for part, body in asked.items():
            assert client.post(f"/page/{part}", headers=own, **body).status_code == 429
        assert client.post("/v1/explain", headers=own, json={"rows": people[:1]}).status_code == 429


def test_too_many_rows_and_wrong_choices(explainer, people):
    with asking(explainer, most_rows=1) as client:
        sent = client.post("/page/columns?rows=1&start=1&found=<b>", content=",".join(people[0]))
        assert (sent.status_code, "<b>" in sent.text) == (422, False)
        two = {"question": json.dumps({"rows": people[:2]})}
        assert client.post("/page/answer", data=two).status_code == 413
        for wrong in (
            {"question": "{"},
            {"row": '{"age": [1]}'},
            {"colours": "1"},
            {"k": "99"},
            {},
        ):
            for part in PARTS:
                assert client.post(f"/page/{part}", data=wrong).status_code < 500
        for choices in ("rows=x", "rows=1&start=-1", "rows=1&k=x", "target=" + "9" * 5000):
            for body in (b"", b"\xff", b'"', ",".join(people[0]).encode()):
                assert client.post(f"/page/rows?{choices}", content=body).status_code < 500


def test_what_is_entered_is_escaped(explainer):
    bad = "\"'><script>alert(1)</script>"
    with asking(explainer) as client:
        form = {"f0": bad, "target": bad, "k": bad, "prefer": bad, "question": bad}
        shown = client.post("/page/body", data=form).text
        assert "<script" not in shown
        given = {html.unescape(each) for each in re.findall(r'value="([^"]*)"', shown)}
        assert bad in given


def test_the_shell_says_nothing_of_the_veil(explainer, keys, schema):
    with asking(explainer, keys=keys) as client:
        shell = client.get("/?language=de").text
        assert 'lang="de"' in shell
        assert not any(each.name in shell for each in schema.features if len(each.name) > 3)


@pytest.mark.parametrize("cell", ["a", "", True, [], {}, 10**400, 1e300, 0.1])
def test_a_row_with_any_cell_fills_the_fields(explainer, rows, cell):
    name = next(each.name for each in explainer.veil.schema.features if each.kind == "numeric")
    row = {**json.loads(rows.head(1).to_json(orient="records"))[0], name: cell}
    with asking(explainer) as client:
        for field in ("row", "trying"):
            sent = {"row": "{}", field: json.dumps(row)}
            assert client.post("/page/fill", data=sent).status_code in (200, 422)


def test_a_whole_number_with_names_is_chosen_by_name():
    education = {"kind": "numeric", "name": "education", "integer": True, "lower": 1, "upper": 3}
    label = {"name": "loan", "classes": ["refused", "granted"]}
    names = {"1": "school", "2": "college", "3": "doctorate"}
    for value_names, tag in ((names, "select"), ({"1": "school"}, "input")):
        features = [{**education, "value_names": value_names}]
        content = {"name": "loans", "features": features, "label": label}
        shown = Page(Schema.model_validate(content), "en").fill({"row": "{}"}).body.decode()
        assert re.search(rf'<{tag}\b[^>]*id="field-0"', shown)
        assert all((name in shown) == (tag == "select") for name in names.values())
