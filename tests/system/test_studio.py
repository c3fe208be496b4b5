"""The studio over HTTP: who may ask, which files it touches, and what it charges."""

import html
import json
import random
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from contextlib import contextmanager

import pytest
from rows import random_rows

from counterveil.audit import neighbours
from counterveil.curator import Curator
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema
from counterveil.veil import Veil

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("httpx2", reason="the client of the tests needs it")
from starlette import testclient
from studio_attack import TINY_LAB

from counterveil.errors import RequestError
from counterveil.studio.jobs import Job
from counterveil.studio.steps import Planned, Steps

TOKEN = "token-of-the-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def folder(schema, rows, tmp_path):
    place = tmp_path / "loan-desk"
    place.mkdir()
    rows.to_csv(place / "rows.csv", index=False)
    schema.save(place / "loans.schema.json")
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    return place


@pytest.fixture
def studio(folder):
    from counterveil.studio.app import create_app
    from counterveil.studio.folder import Folder
    from counterveil.studio.steps import Steps

    options = {"release_options": ("--epochs", "1"), "lab": TINY_LAB}
    steps = Steps(Folder(folder), folder / "ledger.db", **options)
    app = create_app(steps, TOKEN)
    with testclient.TestClient(app, base_url="http://127.0.0.1:8090", headers=HEADERS) as client:
        yield client


def ask(studio, part, **fields):
    """The answer to a form of the page."""
    return studio.post(f"/page/{part}", data=fields)


def ended(studio, answer):
    """The job that was begun last, with this answer, once it is no longer running."""
    assert answer.status_code == 200, answer.text
    job = studio.app.state.jobs.all()[-1]
    while job.state == "running":
        time.sleep(0.1)
    return vars(job)


def done(studio, part, **fields):
    """As `ended`, of a job that must succeed."""
    job = ended(studio, ask(studio, part, **fields))
    assert job["state"] == "done", job["problem"]
    return job


def problem_of(studio, part, **fields):
    """What is wrong with a question, said at once or by the job that it began."""
    answer = ask(studio, part, **fields)
    return answer.json() if answer.status_code != 200 else ended(studio, answer)["problem"]


def state(content):
    """The fields of a page that works on this schema, all of it confirmed by a person."""
    return {"base": json.dumps(content), "step": "2"}


def planned(**others):
    return {"file": "rows.csv", "schema_file": "loans.schema.json", **others}


def release_body(**others):
    return planned(release_id=str(uuid.uuid4()), epsilon="1.0", veil_name="loans", **others)


ADDRESSES = [
    f"/page/{part}"
    for part in (
        *("body", "draft", "open", "veil", "save", "check", "release", "answers", "actions"),
        *("fairness", "audit", "attack", "stop", "read", "download", "job", "card", "checked"),
        *("plan", "account", "deltas"),
    )
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_without_the_token(studio, address):
    for header in ("", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN):
        answer = studio.post(address, headers={"Authorization": header}, content=b"")
        assert answer.status_code == 401
        assert "printed" in answer.json()["detail"]


def test_every_address_is_tested_and_no_other_file_given_out(studio):
    files = {"htmx.js", "icon.svg", "page.css", "studio.css", "studio.js", ""}
    paths = {route.path for route in studio.app.routes}
    assert paths == {*ADDRESSES, *(f"/{name}" for name in files)}
    for name in ("index.html", "page/index.html", "../app.py", "%2e%2e/app.py"):
        assert studio.get(f"/{name}").status_code != 200
    headers = {"Authorization": ""}  # the token in the address is for the page alone
    assert studio.post(f"/page/body?token={TOKEN}", headers=headers).status_code == 401
    assert "rows.csv" not in studio.get(f"/?token={TOKEN}", headers=headers).text


DAMAGED_FIELDS = (
    *(None, "", "[]", "{}", "7", "nan", "inf", "-1", "x" * 300, "{", "\0", "../secret.csv"),
    *('{"a": 1}', '{"label": 1, "features": [1]}'),
)


def test_no_form_of_the_page_is_a_fault(studio, folder, schema, veil, monkeypatch):
    """Every field of every request missing, empty, damaged or a list: a plain refusal at most."""

    def refuse(*_, **__):
        raise RequestError("not here")

    monkeypatch.setattr(Steps, "try_veil", refuse)
    monkeypatch.setattr("counterveil.studio.steps.run_command", refuse)
    veil.save(folder / "a.veil")
    base, jobs = json.loads(schema.to_json()), studio.app.state.jobs
    age = next(at for at, each in enumerate(base["features"]) if each["kind"] == "numeric")
    whole = release_body(veil="a.veil", opened="a.veil", label="y", uses_of="rows.csv", target="0")
    whole |= {"base": json.dumps(base), "schema": "loans.schema.json", "schema_name": "new"}
    whole |= {"hints": "{}", "left_out": "{}", "fair-member": "on", "group-member": "on"}
    whole |= {"unit_column": "", "max_records": "1", "delta": "0", "dataset": "loans", "bits": ""}
    whole |= {f"c{age}-{name}": "numeric" for name in ("drawn", "kind")}
    whole |= {f"c{age}-{name}": "1" for name in ("lower", "upper", "step", "map", "source", "who")}
    whole |= {"attack_veil": "a.veil", "attack_table": "rows.csv", "attack_others": "rows.csv"}
    whole |= {"card": f"c{age}", "stopped": "audit", "report": "", "job": "", "total_epsilon": "1"}
    whole |= {"kept": "{}", "planned": "1", "shown": "3", "total_delta": "0", "attack_model": ""}
    dice, faults = random.Random(0), []
    for part in 2 * [address.removeprefix("/page/") for address in ADDRESSES]:
        names = dice.sample([*whole], dice.randint(1, 3))
        some = {name: dice.choice(DAMAGED_FIELDS) for name in names}
        form = {**whole, "step": str(dice.randint(0, 8)), **some}
        form["job-draft"] = form["job-release"] = next(iter(jobs.all()), Job("", "")).id
        form = {name: text for name, text in form.items() if text is not None}
        listed = json.dumps({**form, **{name: ["a"] for name in some}})
        for sent in (form, {"kept": listed, "step": form["step"]}):
            if ask(studio, part, **sent).status_code >= 500:
                faults.append((part, some, form["step"]))
    assert not faults
    assert not [job for job in jobs.all() if job.problem and job.problem["status"] >= 500]


@pytest.mark.parametrize("epsilon", ["nan", "inf", "abc"])
def test_an_epsilon_that_is_no_number_gets_no_plan(studio, epsilon):
    for part in ("plan", "deltas"):
        answer = ask(studio, part, **planned(epsilon=epsilon))
        assert answer.status_code == 422
        assert "epsilon must be a number above 0" in answer.json()["detail"]
    assert ask(studio, "plan", **planned(epsilon="")).status_code == 200


def test_other_hosts_and_origins_are_refused(studio):
    for host in ("evil.example", "evil.example:8090", "127.0.0.1.evil.example"):
        assert studio.post("/page/body", headers={"Host": host}).status_code == 421
        assert studio.get("/", headers={"Host": host}).status_code == 421
    others = ("https://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8090")
    for origin in others:
        assert studio.post("/page/body", headers={"Origin": origin}).status_code == 403
    answer = studio.post("/page/body", headers={"Origin": "http://127.0.0.1:8090"})
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


OUTSIDE = [
    *("../secret.csv", "..\\secret.csv", "/etc/passwd", "loan-desk/../../secret.csv"),
    *(".hidden.csv", "link.csv", "", "rows.csv\0", "loans.schema.json", "nothing.csv"),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_outside_the_folder_is_read(studio, folder, name):
    (folder / ".hidden.csv").write_text("a,b\n1,2\n")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    answer = ask(studio, "draft", file=name, label="a")
    assert answer.status_code == 422
    assert "secret" not in answer.json()["detail"]
    for part in ("veil", "read", "open"):
        fields = {"opened": name, "report": name, "schema": "../" + name}
        assert ask(studio, part, **fields).status_code == 422
    assert ask(studio, "download", file=name).status_code == 422
    tables = re.findall(r'id="table-\d+".*?>([^<]+)<small>', ask(studio, "body").text)
    assert tables == ["rows.csv"]


@pytest.mark.parametrize(
    "name", ["../out", "/tmp/out", "a/b", ".out", "", "a" * 150, "a\nb", "link"]
)
def test_no_file_outside_the_folder_is_written(studio, folder, schema, name):
    for ending in ("json", "veil"):
        (folder / f"link.{ending}").symlink_to(folder.parent / f"secret.{ending}")
    before = sorted(folder.parent.rglob("*"))
    content = json.loads(schema.to_json())
    body = {**state(content), "schema_name": name, "replace": "on"}
    assert ask(studio, "save", **body).status_code == 422
    Ledger(folder / "ledger.db").open_account("loans", Budget(3))
    assert problem_of(studio, "release", **{**release_body(), "veil_name": name})
    assert Ledger(folder / "ledger.db").entries() == ()
    assert sorted(folder.parent.rglob("*")) == sorted([*before, folder / "ledger.db"])


DAMAGED = {
    "ragged.csv": b"a,b\n1,2\n3,4,5,6\n",
    "bytes.csv": b"a,b\n1,\xff\xfe\n",
    "empty.csv": b"",
    "broken.parquet": b"PAR1 and then nothing",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_is_one_line(studio, folder, name):
    (folder / name).write_bytes(DAMAGED[name])
    problem = problem_of(studio, "draft", file=name, label="a")
    assert problem["status"] == 422
    assert "Traceback" not in problem["detail"]


LIMITS = {"numeric": ("lower", "upper"), "categorical": ("categories",), "binary": ("no", "yes")}


def typed_cards(content, names):
    """The fields of the page on which a person has typed and confirmed these columns."""
    fields = {**state(content), "l-drawn": "label"}
    columns = {"l": (content["label"], ("classes",))}
    for place, each in enumerate(content["features"]):
        columns[f"c{place}"] = each, LIMITS[each["kind"]]
        way = each.get("direction") or each.get("good") or "any"
        told = {"kind": each["kind"], "drawn": each["kind"]}
        told |= {"who": "immutable" if each.get("immutable") else way}
        told |= {tick: "on" for tick in ("integer", "missing", "ordered") if each.get(tick)}
        fields |= {f"c{place}-{key}": value for key, value in told.items()}
    for place, (each, keys) in columns.items():
        if each["name"] not in names:
            continue
        usual = dict(zip(("no", "yes"), each.get("values", (0, 1)), strict=True))
        for key in keys:
            value = each[key] if key in each else usual[key]
            lines = value if isinstance(value, list) else [value]
            fields[f"{place}-{key}"] = "\n".join(map(str, lines))
        fields[f"{place}-sure"] = "on"
    return fields


def test_a_schema_stays_a_draft_until_a_person_has_typed_every_column(studio, folder, schema):
    content = {**json.loads(schema.to_json()), "drafted": True, "note": "DRAFT"}
    names = [schema.label.name, *(feature.name for feature in schema.features)]
    body = {"schema_name": "new.json", "replace": "on"}
    for typed in ([], names[1:], names[:-1]):
        fields = {**typed_cards(content, typed), **body}
        assert "not confirmed" in ask(studio, "save", **fields).json()["title"].lower()
        assert ask(studio, "save", **fields, as_draft="1").status_code == 200
        left = [name for name in names if name not in typed]
        assert list(Schema.load(folder / "new.json").unreviewed) == left
        problem = problem_of(studio, "release", **release_body() | {"schema_file": "new.json"})
        assert "draft" in problem["title"]
    fields = {**typed_cards(content, names), "schema_name": "new.json"}
    assert ask(studio, "save", **fields).status_code == 409
    assert ask(studio, "save", **fields, replace="on").status_code == 200
    assert Schema.load(folder / "new.json") == schema
    before = (folder / "new.json").stat().st_mtime_ns
    assert 'id="step-3"' in ask(studio, "save", **fields, file="rows.csv").text  # as it is
    assert (folder / "new.json").stat().st_mtime_ns == before


def test_a_draft_that_is_saved_and_opened_unchanged_stays_one(studio, folder):
    """The break: exact minima and maxima lost their mark, and no account knew of them."""
    Ledger(folder / "ledger.db").open_account("rows", Budget(1))
    content = done(studio, "draft", file="rows.csv", label="loan")["result"]["schema"]
    (look,) = Ledger(folder / "ledger.db").entries("rows")
    assert look.what == "exact draft of a schema of rows"
    body = {"schema_name": "a.json", "as_draft": "1", "replace": "on"}
    for _ in range(2):
        ask(studio, "save", **typed_cards(content, []), **body)
        content = json.loads((folder / "a.json").read_text())
        assert ask(studio, "open", schema="a.json").status_code == 200
        assert "loan" in content["drafted"]
        assert "age" in content["drafted"]
    ask(studio, "save", **typed_cards(content, ["age"]), **body)
    assert "age" not in Schema.load(folder / "a.json").unreviewed


def test_names_steps_allowed_values_and_links_can_be_entered(studio, folder, schema):
    content = json.loads(schema.to_json())
    fields = typed_cards(content, [schema.label.name, *(each.name for each in schema.features)])
    places = {each.name: f"c{place}" for place, each in enumerate(schema.features)}
    housing = schema.feature("housing")
    more = {
        "l-value_names": "\n".join(f"{each} = class {each}" for each in schema.label.classes),
        f"{places['age']}-label": "Age in years",
        f"{places['age']}-allowed-from": "30",
        f"{places['income']}-step": "50",
        f"{places['housing']}-allowed": housing.categories[0],
        f"{places['member']}-source": "housing",
        f"{places['member']}-map": "\n".join(f"{each} = yes" for each in housing.categories),
    }
    assert ask(studio, "save", **fields, **more, schema_name="more").status_code == 200
    found = Schema.load(folder / "more.json")
    assert found.feature("age").label == "Age in years"
    assert found.feature("age").allowed == (30, schema.feature("age").upper)
    assert found.feature("income").step == 50
    assert found.feature("housing").allowed == housing.categories[:1]
    assert dict(found.links[0].values) == dict.fromkeys(housing.categories, "yes")
    assert found.label.shown_value(schema.label.classes[0]) == f"class {schema.label.classes[0]}"
    card = ask(studio, "open", schema="more.json").text
    assert 'value="Age in years"' in card


def test_plans_are_those_of_the_curator(studio, folder, schema):
    steps, asked, epsilons = studio.app.state.steps, Planned(**planned()), [0.1, 3.0]
    plans = steps.plans(asked, epsilons)
    for found, epsilon in zip(plans, epsilons, strict=True):
        plan = Curator(schema).plan(folder / "rows.csv", epsilon)
        assert found["reasons"] == list(plan.reasons)
        assert found["units"] == 600
        shown = html.unescape(ask(studio, "plan", **planned(epsilon=str(epsilon))).text)
        assert all(reason in shown for reason in plan.reasons)
        assert "no account yet" in shown
    small, large = (found["noise"] for found in plans)
    assert small > large > 0
    assert not (folder / "ledger.db").exists()
    found = steps.deltas(asked, 0.1)
    assert found == Curator(schema).compare_deltas(folder / "rows.csv", 0.1)
    assert ask(studio, "deltas", **planned(epsilon="0.1")).text.count("<tr>") == 1 + len(found)


def test_answers_are_good_only_where_columns_go_together(studio):
    """The grade never says more than the plan."""
    steps, every = studio.app.state.steps, [0.01, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]
    for plan in steps.plans(Planned(**planned()), every):
        apart = any("is not measured" in reason for reason in plan["reasons"])
        assert plan["alone"] == apart
        assert not (apart and plan["grade"] == "good")
        assert not (plan["warnings"] and plan["grade"] != "poor")
    # With groups it says so.
    asked = Planned(**planned(groups=["member", "region"]))
    (plan,) = steps.plans(asked, [1.0])
    assert "of_groups" in plan["bought"]
    assert any("member, region" in reason for reason in plan["reasons"])
    answer = ask(studio, "plan", **planned(**{"group-age": "on"}))
    assert answer.status_code == 422
    assert "is a number" in answer.json()["detail"]


def test_people_are_counted_where_a_column_names_them(studio, folder, rows):
    rows.assign(person=[number // 2 for number in range(600)]).to_csv(folder / "p.csv", index=False)
    body = planned() | {"file": "p.csv"}
    asked = Planned(**body, unit_column="person", max_records=2)
    assert studio.app.state.steps.plans(asked, [1.0])[0]["units"] == 300
    assert ask(studio, "plan", **body, unit_column="person", max_records="2").status_code == 200
    assert ask(studio, "plan", **body, unit_column="nobody").status_code == 422


def open_account(studio, epsilon, schema_file="loans.schema.json"):
    """Open an account of the dataset of a schema."""
    fields = planned() | {"schema_file": schema_file, "total_epsilon": str(epsilon)}
    return ask(studio, "account", **fields)


def test_a_second_ledger_in_the_folder_is_not_ignored(studio, folder):
    Ledger(folder / "other.db").open_account("loans", Budget(1))
    answer = open_account(studio, 5.0)
    assert (answer.status_code, "other.db" in answer.json()["detail"]) == (422, True)


@pytest.mark.long
def test_a_release_that_is_asked_for_twice_is_charged_once(studio, folder, schema):
    assert open_account(studio, 5.0).status_code == 200
    body = release_body()
    first, second = (ask(studio, "release", **body) for _ in range(2))
    assert body["release_id"] in first.text
    assert body["release_id"] in second.text
    third = ask(studio, "release", **release_body() | {"veil_name": "another"})
    assert third.status_code == 409
    job = ended(studio, first)
    assert job["state"] == "done", job["problem"]
    assert job["total"] == 1
    assert job["result"]["level"] == "explainer"
    assert done(studio, "release", **body)["result"] == job["result"]
    # A new request for the same file is refused before anything is charged.
    assert "there already" in problem_of(studio, "release", **release_body())["detail"]
    entries = Ledger(folder / "ledger.db").entries()
    assert [(each.epsilon, each.state) for each in entries] == [(1.0, "released")]
    assert entries[0].digest == job["result"]["digest"]
    # The same rows under another name are noticed: the page then asks whose they are.
    schema.model_copy(update={"name": "others"}).save(folder / "others.json")
    open_account(studio, 5.0, "others.json")
    body = release_body() | {"schema_file": "others.json", "veil_name": "others"}
    assert "--other-rows" in problem_of(studio, "release", **body)["detail"]
    assert len(Ledger(folder / "ledger.db").entries()) == 1


@pytest.mark.long
def test_a_release_counts_the_groups_that_were_named(studio, folder, schema):
    open_account(studio, 1.0)
    groups = {"group-member": "on", "group-region": "on"}
    job = done(studio, "release", **release_body(**groups))
    assert "--groups=member,region" in job["result"]["command"]
    groups = Veil.load(folder / "loans.veil").record.groups
    assert {schema.features[place].name for place in groups} == {"member", "region"}


@pytest.mark.long
@pytest.mark.parametrize(
    "make", [pytest.param(neighbours.persons, marks=pytest.mark.slow), neighbours.unfit]
)
def test_jobs_and_plans_of_neighbours_are_alike(studio, folder, make):
    """What the page is told: states, progress, warnings, results, but for what names the noise."""
    pair, told = make(), []
    pair.schema.save(folder / "drawn.json")
    for frame in (pair.one, pair.two):
        frame.to_csv(folder / "drawn.csv", index=False)
        asked = {"file": "drawn.csv", "schema_file": "drawn.json", **pair.units}
        if not told:
            ask(studio, "account", **asked, total_epsilon="5")
        plans = studio.app.state.steps.plans(Planned(**asked), [1.0])
        job = done(studio, "release", **release_body() | asked)
        (folder / "loans.veil").unlink()
        told.append(re.sub(r"[0-9a-f-]{12,64}", "digest", json.dumps([plans, job], default=str)))
    assert told[0] == told[1]


@pytest.mark.long
def test_an_account_that_is_used_up_refuses_and_keeps_everything(studio, folder):
    Ledger(folder / "ledger.db").open_account("loans", Budget(0.5))
    problem = problem_of(studio, "release", **release_body())
    assert "cannot pay: requested ε = 1" in problem["detail"]
    assert Ledger(folder / "ledger.db").entries() == ()
    assert not (folder / "loans.veil").exists()
    account = studio.app.state.steps.account("loans")["account"]
    assert account["remaining"] == {"epsilon": 0.5, "delta": 0.0}


def test_a_look_at_the_rows_is_written_down(studio, folder, run):
    code, _, err = run("studio", "--folder", "nowhere")
    assert (code, "no such folder" in err) == (2, True)
    Ledger(folder / "ledger.db").open_account("loans", Budget(1))
    assert done(studio, "check", **planned())["result"] == {"units": 600}
    (entry,) = Ledger(folder / "ledger.db").entries()
    assert entry.kind == "looked"


@pytest.mark.long
def test_pages_about_the_people_of_a_veil(studio, folder, veil):
    veil.save(folder / "loans.veil")
    body = {"veil": "loans.veil", "target": "1", "step": "5"}
    page = done(studio, "actions", **body)["result"]["file"]
    assert "do not get granted" in ask(studio, "download", file=page).text
    assert len(studio.app.state.steps.folder.listing()["reports"]) == 1
    wrong = problem_of(studio, "fairness", **body, **{"fair-age": "on"})
    assert "is a number" in wrong["detail"]
    for target in ("2", "perhaps", "-1", ""):
        assert ask(studio, "answers", **body | {"target": target}).status_code == 422
    found = done(studio, "answers", **body)["result"]
    assert [each["decision"] for each in found["answers"]] == ["refused"] * 3
    assert "Entscheidung (loan): refused" in found["letters"]["de"]


@pytest.mark.parametrize("kind", ["audit", "attack"])
def test_an_audit_and_an_attack_can_be_stopped(studio, attacked, kind):
    answer = ask(studio, kind, **ATTACK)
    assert ask(studio, kind, **ATTACK).status_code == 409
    assert ask(studio, "stop", stopped="release").status_code == 422
    (job,) = (each for each in studio.app.state.jobs.all() if each.id in answer.text)
    while job.state == "running":
        assert ask(studio, "stop", stopped=kind).status_code == 200
        time.sleep(0.1)
    assert ask(studio, "job", job=job.id).status_code == 286  # the page asks no more
    assert job.problem["detail"] == "it was stopped"


ATTACK = {
    f"attack_{name}": file
    for name, file in (("veil", "loans.veil"), ("table", "rows.csv"), ("others", "others.csv"))
}


@pytest.fixture
def attacked(folder, veil, schema):
    """A folder with all that an attack needs."""
    veil.save(folder / "loans.veil")
    random_rows(schema, 400, seed=5).to_csv(folder / "others.csv", index=False)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"attack_others": "rows.csv"}, "both tables are the same"),
        ({"attack_others": "few.csv"}, "at least 50 members and 200 others"),
        ({"attack_model": "../secret.csv"}, "no such file"),
    ],
)
def test_an_attack_that_cannot_be_is_one_line(studio, attacked, schema, changed, words):
    random_rows(schema, 20, seed=6).to_csv(attacked / "few.csv", index=False)
    problem = problem_of(studio, "attack", **ATTACK | changed)
    assert (problem["status"], words in problem["detail"]) == (422, True)


def test_an_attack_says_what_is_missing(studio, attacked, monkeypatch):
    gone = "import sys; sys.modules['sklearn'] = None; from counterveil_lab.cli import main; main()"
    (attacked / "model.onnx").write_bytes(b"")
    steps = studio.app.state.steps
    monkeypatch.setattr(steps, "lab", ("-c", gone))
    problem = problem_of(studio, "attack", **ATTACK, attack_model="model.onnx")
    assert "the lab needs sklearn" in problem["detail"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    problem = problem_of(studio, "attack", **ATTACK)
    assert "counterveil_lab, which is not installed" in problem["detail"]


def test_only_reports_are_read(studio, folder):
    reports = ("audit-2026-01-02-030405.csv", "page.html")
    for name in reports:
        (folder / name).write_text("mechanism,bound\n")
    for name in (*reports, "rows.csv", "loans.schema.json", "../secret.csv", "/etc/passwd"):
        code = 200 if name in reports else 422
        assert ask(studio, "read", report=name).status_code == code
        assert ask(studio, "download", file=name).status_code == code


@contextmanager
def started(folder):
    """The command in a process, the address of its page and the token in it."""
    command = [sys.executable, "-m", "counterveil.cli", "studio", "--port", "0", "--folder"]
    process = subprocess.Popen(
        [*command, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address, _, token = process.stdout.readline().strip().partition("?token=")
        yield process, address, token
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.long
def test_a_release_outlives_the_studio(folder):
    ledger = Ledger(folder / "ledger.db")
    ledger.open_account("loans", Budget(1))
    with started(folder) as (process, address, token):
        assert address.startswith("http://127.0.0.1:")
        headers = {"Authorization": f"Bearer {token}"}
        body = urllib.parse.urlencode(release_body()).encode()
        urllib.request.urlopen(urllib.request.Request(f"{address}page/release", body, headers))
        while not ledger.entries():
            time.sleep(0.1)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert "it ends by itself" in said
    while [entry.state for entry in ledger.entries()] != ["released"]:
        time.sleep(0.1)
    while not (folder / "loans.veil").exists():  # it is put in place after its charge
        time.sleep(0.1)
    assert Veil.load(folder / "loans.veil").digest == ledger.entries()[0].digest
    with started(folder) as (_, _, other):  # every start has a token of its own
        assert token != other
        assert len(token) == len(other) == 43
