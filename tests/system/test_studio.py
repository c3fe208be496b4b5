"""The studio over HTTP: who may ask, which files it touches, and what it charges."""

import json
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import contextmanager
from dataclasses import asdict

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


def ended(studio, answer):
    """The job of an answer, once it is no longer running."""
    job = answer.json()
    while job["state"] == "running":
        time.sleep(0.1)
        job = studio.get(f"/v1/jobs/{job['id']}").json()
    return job


def release_body(**others):
    return {
        "id": str(uuid.uuid4()),
        "file": "rows.csv",
        "schema_file": "loans.schema.json",
        "epsilon": 1.0,
        "veil": "loans",
        **others,
    }


ADDRESSES = [
    ("GET", "/v1/start"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/x"),
    *(
        ("POST", f"/v1/{name}")
        for name in (
            *("columns", "draft", "schema/open", "schema/check", "schema/save", "plans"),
            *("deltas", "account", "check", "release", "veil", "try", "audit", "audit/stop"),
            *("attack", "attack/stop", "report", "actions", "actions/stop"),
            *("fairness", "fairness/stop"),
        )
    ),
]


@pytest.mark.parametrize(("method", "address"), ADDRESSES)
@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
def test_nothing_without_the_token(studio, method, address, header):
    answer = studio.request(method, address, headers={"Authorization": header}, content=b"{}")
    assert answer.status_code == 401
    assert "printed" in answer.json()["detail"]


def test_the_token_in_the_address_alone_is_not_enough(studio):
    headers = {"Authorization": ""}
    assert studio.get(f"/v1/start?token={TOKEN}", headers=headers).status_code == 401


def test_every_address_is_tested(studio):
    paths = {route.path for route in studio.app.routes if route.path.startswith("/v1")}
    assert paths == {address.replace("/x", "/{name}") for _, address in ADDRESSES}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "127.0.0.1.evil.example"])
def test_other_hosts_are_refused(studio, host):
    assert studio.get("/v1/start", headers={"Host": host}).status_code == 421
    assert studio.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8090"],
)
def test_other_origins_are_refused(studio, origin):
    assert studio.get("/v1/start", headers={"Origin": origin}).status_code == 403


def test_its_own_page_is_let_in(studio):
    answer = studio.get("/v1/start", headers={"Origin": "http://127.0.0.1:8090"})
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "name", ["", "index.html", "page/index.html", "../app.py", "%2e%2e/app.py"]
)
def test_only_the_files_of_the_page_are_given_out(studio, name):
    answer = studio.get(f"/{name}")
    assert (answer.status_code == 200) == (name == "")


OUTSIDE = [
    *("../secret.csv", "..\\secret.csv", "/etc/passwd", "loan-desk/../../secret.csv"),
    *(".hidden.csv", "link.csv", "", "rows.csv\0", "loans.schema.json", "nothing.csv"),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_outside_the_folder_is_read(studio, folder, name):
    (folder / ".hidden.csv").write_text("a,b\n1,2\n")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    answer = studio.post("/v1/columns", json={"file": name})
    assert answer.status_code == 422
    assert "secret" not in answer.json()["detail"]
    assert {each["name"] for each in studio.get("/v1/start").json()["tables"]} == {"rows.csv"}


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/b", ".out", "", "a" * 150, "a\nb"])
def test_no_file_outside_the_folder_is_written(studio, folder, schema, name):
    before = sorted(folder.parent.rglob("*"))
    content = json.loads(schema.to_json())
    body = {"content": content, "file": name, "typed": [], "replace": True}
    assert studio.post("/v1/schema/save", json=body).status_code == 422
    Ledger(folder / "ledger.db").open_account("loans", Budget(3))
    answer = studio.post("/v1/release", json=release_body(veil=name))
    assert answer.status_code == 422 or ended(studio, answer)["state"] == "failed"
    assert Ledger(folder / "ledger.db").entries() == ()
    assert sorted(folder.parent.rglob("*")) == sorted([*before, folder / "ledger.db"])


def test_a_link_is_not_written_through(studio, folder, schema):
    (folder / "mine.json").symlink_to(folder.parent / "secret.json")
    content = json.loads(schema.to_json())
    body = {"content": content, "file": "mine", "typed": [], "replace": True}
    assert studio.post("/v1/schema/save", json=body).status_code == 422
    assert not (folder.parent / "secret.json").exists()


DAMAGED = {
    "ragged.csv": b"a,b\n1,2\n3,4,5,6\n",
    "bytes.csv": b"a,b\n1,\xff\xfe\n",
    "empty.csv": b"",
    "header.csv": b"a,b\n",
    "twice.csv": b"a,a\n1,2\n",
    "broken.parquet": b"PAR1 and then nothing",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_is_one_line(studio, folder, name):
    (folder / name).write_bytes(DAMAGED[name])
    answer = studio.post("/v1/columns", json={"file": name})
    if answer.status_code == 200:
        job = ended(studio, studio.post("/v1/draft", json={"file": name, "label": "a"}))
        assert job["state"] == "failed"
        problem = job["problem"]
    else:
        problem = answer.json()
    assert problem["status"] == 422
    assert "Traceback" not in problem["detail"]


def test_a_draft_leaves_out_what_cannot_be_a_feature(studio, folder, rows):
    odd = rows.assign(case=[f"K{number}" for number in range(len(rows))], same=1, day="2026-01-01")
    odd.to_csv(folder / "odd.csv", index=False)
    job = ended(studio, studio.post("/v1/draft", json={"file": "odd.csv", "label": "loan"}))
    found = job["result"]
    assert found["schema"]["drafted"] is True
    assert set(found["left_out"]) == {"case", "same", "day"}
    assert "identifier" in found["left_out"]["case"]
    assert {each["name"] for each in found["schema"]["features"]} == set(rows.columns) - {"loan"}


def test_a_schema_stays_a_draft_until_a_person_has_typed_every_column(studio, folder, schema):
    content = {**json.loads(schema.to_json()), "drafted": True, "note": "DRAFT"}
    names = [schema.label.name, *(feature.name for feature in schema.features)]
    for typed in ([], names[1:], names[:-1]):
        body = {"content": content, "file": "new.json", "typed": typed, "replace": True}
        left = [name for name in names if name not in typed]
        assert studio.post("/v1/schema/save", json=body).json()["drafted"] == left
        assert list(Schema.load(folder / "new.json").unreviewed) == left
        answer = studio.post("/v1/release", json=release_body(schema_file="new.json"))
        assert "draft" in ended(studio, answer)["problem"]["title"]
    answer = studio.post("/v1/schema/save", json={**body, "typed": names, "replace": False})
    assert answer.status_code == 409
    answer = studio.post("/v1/schema/save", json={**body, "typed": names})
    assert answer.json() == {"file": "new.json", "drafted": []}
    assert Schema.load(folder / "new.json") == schema


def test_a_draft_that_is_saved_and_opened_unchanged_stays_one(studio, folder):
    """The break: exact minima and maxima lost their mark, and no account knew of them."""
    Ledger(folder / "ledger.db").open_account("rows", Budget(1))
    job = ended(studio, studio.post("/v1/draft", json={"file": "rows.csv", "label": "loan"}))
    content = job["result"]["schema"]
    (look,) = Ledger(folder / "ledger.db").entries("rows")
    assert look.what == "exact draft of a schema of rows"
    body = {"file": "a.json", "typed": [], "replace": True}
    for _ in range(2):
        studio.post("/v1/schema/save", json={**body, "content": content})
        content = studio.post("/v1/schema/open", json={"file": "a.json"}).json()["schema"]
        assert "loan" in content["drafted"]
        assert "age" in content["drafted"]
    some = {**body, "content": content, "typed": ["age"]}
    assert "age" not in studio.post("/v1/schema/save", json=some).json()["drafted"]


def test_every_fault_of_a_schema_names_its_column(studio, schema):
    content = json.loads(schema.to_json())
    content["features"][0]["lower"] = 200
    content["features"][1]["upper"] = "much"
    content["label"]["classes"] = ["one"]
    found = studio.post("/v1/schema/check", json={"content": content}).json()["problems"]
    assert [each["column"] for each in found] == ["loan", "age", "income"]
    assert found[1]["words"] == "lower must be below upper"
    good = studio.post("/v1/schema/check", json={"content": json.loads(schema.to_json())})
    assert good.json()["problems"] == []


def test_plans_are_those_of_the_curator(studio, folder, schema):
    body = {"file": "rows.csv", "schema_file": "loans.schema.json", "epsilons": [0.1, 3.0]}
    answer = studio.post("/v1/plans", json=body).json()
    for found, epsilon in zip(answer["plans"], body["epsilons"], strict=True):
        plan = Curator(schema).plan(folder / "rows.csv", epsilon)
        assert found["reasons"] == list(plan.reasons)
        assert found["units"] == 600
    small, large = (found["noise"] for found in answer["plans"])
    assert small > large > 0
    assert answer["account"]["account"] is None
    assert not (folder / "ledger.db").exists()
    asked = {"file": "rows.csv", "schema_file": "loans.schema.json", "epsilon": 0.1}
    found = studio.post("/v1/deltas", json=asked).json()["deltas"]
    wanted = Curator(schema).compare_deltas(folder / "rows.csv", 0.1)
    assert found == [asdict(each) for each in wanted]


def test_the_plan_shows_groups(studio):
    asked = {"file": "rows.csv", "schema_file": "loans.schema.json", "groups": ["member", "region"]}
    (plan,) = studio.post("/v1/plans", json={**asked, "epsilons": [1.0]}).json()["plans"]
    assert "of_groups" in plan["bought"]
    assert any("member, region" in reason for reason in plan["reasons"])
    wrong = {**asked, "epsilons": [1.0], "groups": ["age"]}
    answer = studio.post("/v1/plans", json=wrong)
    assert answer.status_code == 422
    assert "is a number" in answer.json()["detail"]


def test_people_are_counted_where_a_column_names_them(studio, folder, rows):
    rows.assign(person=[number // 2 for number in range(600)]).to_csv(folder / "p.csv", index=False)
    body = {"file": "p.csv", "schema_file": "loans.schema.json", "epsilons": [1.0]}
    asked = {**body, "unit_column": "person", "max_records": 2}
    assert studio.post("/v1/plans", json=asked).json()["plans"][0]["units"] == 300
    refused = studio.post("/v1/plans", json={**body, "unit_column": "nobody"})
    assert refused.status_code == 422


def test_a_second_ledger_in_the_folder_is_not_ignored(studio, folder):
    Ledger(folder / "other.db").open_account("loans", Budget(1))
    body = {"dataset": "loans", "epsilon": 5.0}
    answer = studio.post("/v1/account", json=body)
    assert answer.status_code == 422
    assert "other.db" in answer.json()["detail"]


@pytest.mark.long
def test_a_release_that_is_asked_for_twice_is_charged_once(studio, folder, schema):
    assert studio.post("/v1/account", json={"dataset": "loans", "epsilon": 5.0}).status_code == 200
    body = release_body()
    first, second = (studio.post("/v1/release", json=body) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    third = studio.post("/v1/release", json=release_body(veil="another"))
    assert third.status_code == 409
    job = ended(studio, first)
    assert job["state"] == "done", job["problem"]
    assert job["total"] == 1
    assert job["result"]["level"] == "explainer"
    assert ended(studio, studio.post("/v1/release", json=body))["result"] == job["result"]
    # A new request for the same file is refused before anything is charged.
    again = ended(studio, studio.post("/v1/release", json=release_body()))
    assert "there already" in again["problem"]["detail"]
    entries = Ledger(folder / "ledger.db").entries()
    assert [(each.epsilon, each.state) for each in entries] == [(1.0, "released")]
    assert entries[0].digest == job["result"]["digest"]
    # The same rows under another name are noticed: the page then asks whose they are.
    schema.model_copy(update={"name": "others"}).save(folder / "others.json")
    studio.post("/v1/account", json={"dataset": "others", "epsilon": 5.0})
    body = release_body(schema_file="others.json", veil="others")
    assert (
        "--other-rows" in ended(studio, studio.post("/v1/release", json=body))["problem"]["detail"]
    )
    assert len(Ledger(folder / "ledger.db").entries()) == 1


@pytest.mark.long
def test_a_release_counts_the_groups_that_were_named(studio, folder, schema):
    studio.post("/v1/account", json={"dataset": "loans", "epsilon": 1.0})
    job = ended(studio, studio.post("/v1/release", json=release_body(groups=["member", "region"])))
    assert job["state"] == "done", job["problem"]
    assert "--groups=member,region" in job["result"]["command"]
    groups = Veil.load(folder / "loans.veil").record.groups
    assert {schema.features[place].name for place in groups} == {"member", "region"}


@pytest.mark.long
@pytest.mark.parametrize("make", [neighbours.persons, neighbours.unfit])
def test_jobs_and_plans_of_neighbours_are_alike(studio, folder, make):
    """What the page is told: states, progress, warnings, results, but for what names the noise."""
    pair, told = make(), []
    pair.schema.save(folder / "drawn.json")
    studio.post("/v1/account", json={"dataset": pair.schema.name, "epsilon": 5.0})
    for frame in (pair.one, pair.two):
        frame.to_csv(folder / "drawn.csv", index=False)
        asked = {"file": "drawn.csv", "schema_file": "drawn.json", **pair.units}
        plans = studio.post("/v1/plans", json={**asked, "epsilons": [1.0]}).json()["plans"]
        job = ended(studio, studio.post("/v1/release", json=release_body(**asked)))
        assert job["state"] == "done", job["problem"]
        (folder / "loans.veil").unlink()
        told.append(re.sub(r"[0-9a-f-]{12,64}", "digest", json.dumps([plans, job])))
    assert told[0] == told[1]


@pytest.mark.long
def test_an_account_that_is_used_up_refuses_and_keeps_everything(studio, folder):
    Ledger(folder / "ledger.db").open_account("loans", Budget(0.5))
    job = ended(studio, studio.post("/v1/release", json=release_body()))
    assert job["state"] == "failed"
    assert "cannot pay: requested ε = 1" in job["problem"]["detail"]
    assert Ledger(folder / "ledger.db").entries() == ()
    assert not (folder / "loans.veil").exists()
    body = {"file": "rows.csv", "schema_file": "loans.schema.json", "epsilons": [0.25]}
    account = studio.post("/v1/plans", json=body).json()["account"]["account"]
    assert account["remaining"] == {"epsilon": 0.5, "delta": 0.0}


def test_a_look_at_the_rows_is_written_down(studio, folder):
    Ledger(folder / "ledger.db").open_account("loans", Budget(1))
    body = {"file": "rows.csv", "schema_file": "loans.schema.json"}
    assert ended(studio, studio.post("/v1/check", json=body))["result"] == {"units": 600}
    (entry,) = Ledger(folder / "ledger.db").entries()
    assert entry.kind == "looked"


def test_answers_of_a_veil(studio, folder, veil):
    veil.save(folder / "loans.veil")
    shown = studio.post("/v1/veil", json={"file": "loans.veil"}).json()
    assert shown["answers"] is True
    assert shown["serve"].startswith("counterveil serve --veil ")
    body = {"file": "loans.veil", "target": "granted"}
    found = ended(studio, studio.post("/v1/try", json=body))["result"]
    assert len(found["answers"]) == 3
    assert all(each["decision"] == "refused" for each in found["answers"])
    assert shown["people"] is True
    assert "Decision (loan): refused" in found["letters"]["en"]
    assert "Entscheidung (loan): refused" in found["letters"]["de"]
    wrong = ended(studio, studio.post("/v1/try", json={**body, "target": "perhaps"}))
    assert "no such class" in wrong["problem"]["detail"]


@pytest.mark.long
def test_pages_about_the_people_of_a_veil(studio, folder, veil):
    veil.save(folder / "loans.veil")
    body = {"file": "loans.veil", "target": "granted"}
    for job, words in (
        (studio.post("/v1/actions", json=body), "do not get granted"),
        (studio.post("/v1/fairness", json={**body, "groups": ["member"]}), "member = yes"),
    ):
        found = ended(studio, job)
        assert found["state"] == "done", found["problem"]
        report = studio.post("/v1/report", json={"file": found["result"]["file"]}).json()
        assert words in report["text"]
    assert len(studio.get("/v1/start").json()["reports"]) == 2
    wrong = studio.post("/v1/fairness", json={**body, "groups": ["age"]})
    assert "is a number" in ended(studio, wrong)["problem"]["detail"]


def test_an_audit_can_be_stopped(studio):
    job = studio.post("/v1/audit", json={}).json()
    assert studio.post("/v1/audit", json={}).status_code == 409
    while studio.get(f"/v1/jobs/{job['id']}").json()["state"] == "running":
        studio.post("/v1/audit/stop", json={})
        time.sleep(0.1)
    stopped = studio.get(f"/v1/jobs/{job['id']}").json()
    assert stopped["problem"]["detail"] == "it was stopped"


ATTACK = {"file": "loans.veil", "table": "rows.csv", "others": "others.csv"}


@pytest.fixture
def attacked(folder, veil, schema):
    """A folder with all that an attack needs."""
    veil.save(folder / "loans.veil")
    random_rows(schema, 400, seed=5).to_csv(folder / "others.csv", index=False)
    return folder


@pytest.mark.long
def test_an_attack_and_its_report(studio, attacked):
    asked = {**ATTACK, "attribute": "housing"}
    job = ended(studio, studio.post("/v1/attack", json=asked))
    assert job["state"] == "done", job["problem"]
    assert job["done"] == job["total"] == 10
    found = job["result"]
    assert any("fidelity on test rows" in words for words in found["verdicts"])
    assert any(words.startswith("Attribute housing") for words in found["verdicts"])
    export, attack = found["commands"]
    assert export.startswith("counterveil model export ")
    assert attack.startswith("counterveil-lab attack --quick --veil ")
    report = studio.post("/v1/report", json={"file": found["file"]}).json()
    assert "<h2>Verdicts</h2>" in report["text"]
    numbers = studio.post("/v1/report", json={"file": found["numbers"]}).json()
    assert json.loads(numbers["text"])["verdicts"] == found["verdicts"]
    start = studio.get("/v1/start").json()
    assert {found["file"], found["numbers"]} == {each["name"] for each in start["reports"]}
    assert {each["name"] for each in start["tables"]} == {"rows.csv", "others.csv"}
    (model,) = start["models"]
    # The model that was exported can be chosen; a stop ends the attack.
    job = studio.post("/v1/attack", json={**ATTACK, "model": model["name"]}).json()
    assert studio.post("/v1/attack", json=ATTACK).status_code == 409
    while studio.get(f"/v1/jobs/{job['id']}").json()["state"] == "running":
        studio.post("/v1/attack/stop", json={})
        time.sleep(0.1)
    job = studio.get(f"/v1/jobs/{job['id']}").json()
    assert job["problem"]["detail"] == "it was stopped"


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"others": "rows.csv"}, "both tables are the same"),
        ({"others": "few.csv"}, "at least 50 members and 200 others"),
        ({"others": "../secret.csv"}, "no such file"),
        ({"model": "rows.csv"}, "no such file"),
        ({"file": "none.veil"}, "no such file"),
    ],
)
def test_an_attack_that_cannot_be_is_one_line(studio, attacked, schema, changed, words):
    random_rows(schema, 20, seed=6).to_csv(attacked / "few.csv", index=False)
    job = ended(studio, studio.post("/v1/attack", json={**ATTACK, **changed}))
    assert words in job["problem"]["detail"]
    assert job["problem"]["status"] == 422


def test_an_attack_says_what_is_missing(studio, attacked, monkeypatch):
    gone = "import sys; sys.modules['sklearn'] = None; from counterveil_lab.cli import main; main()"
    (attacked / "model.onnx").write_bytes(b"")
    steps = studio.app.state.steps
    monkeypatch.setattr(steps, "lab", ("-c", gone))
    job = ended(studio, studio.post("/v1/attack", json={**ATTACK, "model": "model.onnx"}))
    assert job["problem"]["detail"] == "the lab needs sklearn: pip install 'counterveil[lab]'"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    job = ended(studio, studio.post("/v1/attack", json=ATTACK))
    assert "counterveil_lab, which is not installed" in job["problem"]["detail"]


def test_only_reports_are_read(studio, folder):
    (folder / "audit-2026-01-02-030405.csv").write_text("mechanism,bound\n")
    (folder / "page.html").write_text("<p>Hello</p>")
    for name in ("audit-2026-01-02-030405.csv", "page.html"):
        assert studio.post("/v1/report", json={"file": name}).status_code == 200
    for name in ("rows.csv", "loans.schema.json", "../secret.csv", "/etc/passwd"):
        assert studio.post("/v1/report", json={"file": name}).status_code == 422


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
def test_every_start_has_a_token_of_its_own(folder):
    tokens = set()
    for _ in range(2):
        with started(folder) as (_, address, token):
            assert address.startswith("http://127.0.0.1:")
            assert len(token) == 43
            tokens.add(token)
    assert len(tokens) == 2


@pytest.mark.long
def test_a_release_outlives_the_studio(folder):
    ledger = Ledger(folder / "ledger.db")
    ledger.open_account("loans", Budget(1))
    with started(folder) as (process, address, token):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps(release_body()).encode()
        urllib.request.urlopen(urllib.request.Request(f"{address}v1/release", body, headers))
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


def test_the_command_needs_a_folder(run):
    code, _, err = run("studio", "--folder", "nowhere")
    assert code == 2
    assert "no such folder" in err
